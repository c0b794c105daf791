//! The stages once more, as plain loops over one pixel after the other: what the results are compared with.
//! Tests of `photo_server` compare these loops with the crates `image` and `imageproc`.
//!
//! Images are rows of bytes, one a pixel; the size is the length divided by the width. Beyond its sides an
//! image goes on with the nearest pixel.

/// Luma of interleaved RGB (Rec. 709), in integers.
pub(crate) fn grayscale(rgb: &[u8]) -> Vec<u8> {
    let luma = |&[red, green, blue]: &[u8; 3]| {
        ((2126 * u32::from(red) + 7152 * u32::from(green) + 722 * u32::from(blue)) / 10_000) as u8
    };
    rgb.as_chunks().0.iter().map(luma).collect()
}

/// Weighs each pixel with its neighbours in the row.
pub(crate) fn blur_rows(image: &[u8], width: usize, taps: &[f32]) -> Vec<u8> {
    blur(image, width, taps, |x, y, shift| (x + shift, y))
}

/// Weighs each pixel with its neighbours in the column.
pub(crate) fn blur_columns(image: &[u8], width: usize, taps: &[f32]) -> Vec<u8> {
    blur(image, width, taps, |x, y, shift| (x, y + shift))
}

fn blur(
    image: &[u8],
    width: usize,
    taps: &[f32],
    neighbour: impl Fn(isize, isize, isize) -> (isize, isize),
) -> Vec<u8> {
    let middle = (taps.len() / 2) as isize;
    map(image, width, |x, y| {
        let at = |tap: usize| neighbour(x, y, tap as isize - middle);
        let pixels = (0..taps.len()).map(|tap| f32::from(nearest(image, width, at(tap))));
        pixels.zip(taps).map(|(pixel, tap)| pixel * tap).sum::<f32>() as u8
    })
}

/// Magnitude of the gradient by the 3 x 3 Sobel operator, at most 255.
pub(crate) fn sobel(image: &[u8], width: usize) -> Vec<u8> {
    const WEIGHTS: [f32; 3] = [1.0, 2.0, 1.0];
    map(image, width, |x, y| {
        let pixel = |dx, dy| f32::from(nearest(image, width, (x + dx, y + dy)));
        let slopes = [-1, 0, 1].into_iter().zip(WEIGHTS).map(|(along, weight)| {
            let (right, down) = (pixel(1, along) - pixel(-1, along), pixel(along, 1) - pixel(along, -1));
            (weight * right, weight * down)
        });
        let (right, down) = slopes.fold((0.0, 0.0), |(a, b), (right, down)| (a + right, b + down));
        right.hypot(down).min(255.0) as u8
    })
}

/// The number of pixels of each value.
pub(crate) fn histogram(image: &[u8]) -> [u32; 256] {
    let mut counts = [0; 256];
    image.iter().for_each(|&pixel| counts[usize::from(pixel)] += 1);
    counts
}

/// The level for which the variance between the pixels up to it and those above it is largest (Otsu).
pub(crate) fn otsu_level(image: &[u8]) -> u8 {
    let mean = |class: &[f64]| class.iter().sum::<f64>() / class.len() as f64;
    let variance = |level: u8| {
        let (below, above): (Vec<_>, Vec<_>) =
            image.iter().map(|&pixel| f64::from(pixel)).partition(|&pixel| pixel <= f64::from(level));
        if below.is_empty() || above.is_empty() {
            return 0.0;
        }
        below.len() as f64 * above.len() as f64 * (mean(&below) - mean(&above)).powi(2)
    };
    let best = (0..=255).map(|level| (level, variance(level)));
    best.fold((0, 0.0), |best, one| if one.1 > best.1 { one } else { best }).0
}

/// White above the level, otherwise black.
pub(crate) fn threshold(image: &[u8], level: u8) -> Vec<u8> {
    image.iter().map(|&pixel| if pixel > level { u8::MAX } else { 0 }).collect()
}

fn map(image: &[u8], width: usize, pixel: impl Fn(isize, isize) -> u8) -> Vec<u8> {
    (0..image.len()).map(|at| pixel((at % width) as isize, (at / width) as isize)).collect()
}

fn nearest(image: &[u8], width: usize, (x, y): (isize, isize)) -> u8 {
    let clamp = |at: isize, len: usize| at.clamp(0, len as isize - 1) as usize;
    image[clamp(y, image.len() / width) * width + clamp(x, width)]
}
