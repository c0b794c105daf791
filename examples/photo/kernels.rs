//! The kernels, of one work-item for each pixel. Images are rows of bytes. Where a pixel's neighbours matter,
//! the range is `[width, height]`, which says where rows begin and end.
//!
//! Kernels that only look at their own pixel are `each:` on the CPU. The others are `host:`: rayon hands
//! out whole rows, of which compilers make vector instructions, and neighbours of single pixels take three
//! to five times as long.
//!
//! The conventions are those of `image` and `imageproc`, so that results can be compared: integer
//! luma, borders continued with the nearest pixel, 8 bits between the passes of the blur, fractions
//! cut off.
#![expect(unsafe_code, reason = "declares device code")]

use std::f32::consts::TAU;
use std::iter::repeat_n;

use rayon::prelude::*;
use wakegraph::Range;

/// Pixels that a thread counts at a time: with fewer, handing them out costs more than it gains.
const BATCH: usize = 1 << 14;

const SOURCE: &str = include_str!("kernels.c");

wakegraph::kernel! {
    /// Luma of interleaved RGB.
    pub(crate) fn grayscale(rgb: &[u8], gray: &mut [u8]) {
        range: |rgb, _gray| [rgb.len() / 3],
        each: |i, rgb, gray| *gray = luma([rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]]),
        // SAFETY: a work-item reads its pixel of `rgb`, which the bound says is there, and writes its
        // pixel of `gray`.
        c: unsafe { SOURCE },
    }

    /// Weighs every pixel with its neighbours in the row; `taps` are the weights, the pixel's own
    /// in the middle.
    pub(crate) fn blur_rows(taps: &[f32], image: &[u8], blurred: &mut [u8]) {
        range: |_taps, image, blurred| image.len().min(blurred.len()),
        host: |pixels, taps, image, blurred| {
            let [width, _] = size(pixels);
            let (image, blurred) = (&image[..pixels.count()], &mut blurred[..pixels.count()]);
            image.par_chunks(width).zip(blurred.par_chunks_mut(width)).for_each(|(row, blurred)| {
                let row: Vec<f32> = continued(row, taps.len() / 2);
                weigh(taps, row.windows(width).map(|shifted| shifted.iter().copied()), blurred);
            });
        },
        // SAFETY: a work-item writes its pixel; what it reads are all taps, and pixels of the image
        // by indices cut off at its sides. The bound says that all pixels are there.
        c: unsafe { SOURCE },
    }

    /// Weighs every pixel with its neighbours in the column.
    pub(crate) fn blur_columns(taps: &[f32], image: &[u8], blurred: &mut [u8]) {
        range: |_taps, image, blurred| image.len().min(blurred.len()),
        host: |pixels, taps, image, blurred| {
            let ([width, height], blurred) = (size(pixels), &mut blurred[..pixels.count()]);
            let row = |y: usize| image[y * width..][..width].iter().map(|&pixel| f32::from(pixel));
            blurred.par_chunks_mut(width).enumerate().for_each(|(y, blurred)| {
                let window = (0..taps.len()).map(|tap| nearest(y + tap, taps.len() / 2, height));
                weigh(taps, window.map(row), blurred);
            });
        },
        // SAFETY: as `blur_rows`.
        c: unsafe { SOURCE },
    }

    /// The gradient's magnitude by the 3 x 3 Sobel operator, at most 255.
    pub(crate) fn sobel(image: &[u8], gradient: &mut [u8]) {
        range: |image, gradient| image.len().min(gradient.len()),
        host: |pixels, image, gradient| {
            let ([width, height], gradient) = (size(pixels), &mut gradient[..pixels.count()]);
            gradient.par_chunks_mut(width).enumerate().for_each(|(y, gradient)| {
                let rows: [Vec<i32>; 3] =
                    [0, 1, 2].map(|tap| continued(&image[nearest(y + tap, 1, height) * width..][..width], 1));
                let [above, here, below] = rows
                    .each_ref()
                    .map(|row| row.windows(3).map(|near| [near[0], near[1], near[2]]));
                for (gradient, ((above, here), below)) in gradient.iter_mut().zip(above.zip(here).zip(below)) {
                    *gradient = slope(above, here, below);
                }
            });
        },
        // SAFETY: a work-item writes its pixel and reads neighbours by indices cut off at the
        // image's sides; the bound says that all pixels are there.
        c: unsafe { SOURCE },
    }

    /// Adds to each of 256 bins the number of pixels that have its value.
    pub(crate) fn histogram(image: &[u8], bins: &mut [u32]) {
        range: |image, bins| if bins.len() < 256 { 0 } else { image.len() },
        host: |pixels, image, bins| {
            let none = || [0u32; 256];
            let count = |mut counts: [u32; 256], part: &[u8]| {
                part.iter().for_each(|&pixel| counts[usize::from(pixel)] += 1);
                counts
            };
            let add = |some: [u32; 256], more: [u32; 256]| std::array::from_fn(|bin| some[bin] + more[bin]);
            let counts = image[..pixels.count()].par_chunks(BATCH).fold(none, count).reduce(none, add);
            bins.iter_mut().zip(counts).for_each(|(bin, count)| *bin += count);
        },
        // SAFETY: a work-item reads its pixel; a byte is an index below 256, and the bound asks for
        // as many bins; the additions are atomic.
        c: unsafe { SOURCE },
    }

    /// White where `image` is above `level[0]`, otherwise black.
    pub(crate) fn threshold(level: &[u8], image: &[u8], white: &mut [u8]) {
        range: |level, image, _white| [if level.is_empty() { 0 } else { image.len() }],
        each: |i, level, image, white| *white = if image[i] > level[0] { u8::MAX } else { 0 },
        // SAFETY: a work-item reads the level and its pixel, which the bound says are there, and writes
        // its pixel.
        c: unsafe { SOURCE },
    }
}

/// Width and height of the image that a range stands for; as in `kernels.c`, a third dimension
/// counts as more rows.
fn size(pixels: &Range) -> [usize; 2] {
    let [width, height, depth] = pixels.global_size();
    [width, height * depth]
}

/// The weights of a Gaussian blur within two standard deviations; their sum is 1.
pub(crate) fn gaussian(sigma: f32) -> Vec<f32> {
    let radius = (2.0 * sigma).ceil() as i32;
    let density = |x: f32| (-x * x / (2.0 * sigma * sigma)).exp() / (sigma * TAU.sqrt());
    let weights: Vec<f32> = (-radius..=radius).map(|x| density(x as f32)).collect();
    let sum: f32 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Rec. 709, in integers.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    ((2126 * u32::from(red) + 7152 * u32::from(green) + 722 * u32::from(blue)) / 10_000) as u8
}

/// The sum of rows of pixels, each weighed with its tap. Row by row, because compilers make vector
/// instructions of that.
fn weigh(taps: &[f32], rows: impl Iterator<Item = impl Iterator<Item = f32>>, weighed: &mut [u8]) {
    let mut sums = vec![0.0; weighed.len()];
    for (tap, row) in taps.iter().zip(rows) {
        sums.iter_mut().zip(row).for_each(|(sum, pixel)| *sum += tap * pixel);
    }
    weighed.iter_mut().zip(sums).for_each(|(weighed, sum)| *weighed = sum as u8);
}

/// The Sobel operator on the three rows of a pixel and its neighbours.
fn slope([a, b, c]: [i32; 3], [d, _, f]: [i32; 3], [g, h, i]: [i32; 3]) -> u8 {
    let right = (c + 2 * f + i) - (a + 2 * d + g);
    let down = (g + 2 * h + i) - (a + 2 * b + c);
    ((right * right + down * down) as f32).sqrt() as u8
}

/// The row with its ends repeated `margin` times more.
fn continued<T: From<u8>>(row: &[u8], margin: usize) -> Vec<T> {
    let [first, last] = [row[0], row[row.len() - 1]].map(|end| repeat_n(end, margin));
    first.chain(row.iter().copied()).chain(last).map(T::from).collect()
}

/// The index among `len` that is nearest to `at - margin`.
fn nearest(at: usize, margin: usize, len: usize) -> usize {
    at.saturating_sub(margin).min(len - 1)
}
