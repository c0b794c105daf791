//! Every stage against what `image` and `imageproc` make of the stage's input.

use std::fmt;
use std::path::Path;

use image::{DynamicImage, GrayImage, ImageReader, RgbImage, imageops};
use imageproc::contrast::{self, ThresholdType};
use imageproc::{filter, gradients, stats};
use wakegraph::BoxError;

use crate::args::Args;
use crate::files::cannot;
use crate::kernels::gaussian;
use crate::pipeline::{Buffers, SIGMA};

/// One stage's result beside the reference.
pub(crate) struct Comparison {
    stage: &'static str,
    reference: &'static str,
    /// The largest difference between two elements: gray levels, or pixels in a bin.
    difference: u32,
    /// How large it may be.
    tolerance: u32,
}

/// Compares the stages of the frame that ran last, which shows the picture as it is in the file.
///
/// A reference starts from the stage before it as it came out of the pipeline, so that differences
/// do not add up; only the blur's two passes are also compared as one. A pass of the blur, and the
/// gradient, may be off by one gray level, because devices are free in how they round sums and
/// square roots; all else is exact.
pub(crate) async fn stages(
    args: &Args,
    size: (u32, u32),
    ours: &Buffers,
) -> Result<Vec<Comparison>, BoxError> {
    let (width, height) = size;
    let image =
        |pixels| GrayImage::from_raw(width, height, pixels).ok_or("a buffer is smaller than the image");
    let frame = ours.frame.read().await.to_vec();
    let frame = RgbImage::from_raw(width, height, frame).ok_or("the frame is smaller than the image")?;
    let gray = image(ours.gray.to_vec().await?)?;
    let smeared = image(ours.smeared.to_vec().await?)?;
    let blurred = image(ours.blurred.to_vec().await?)?;
    let gradient = image(ours.gradient.to_vec().await?)?;
    let counts = ours.counts.read().await;
    let level = ours.level.to_vec().await?;
    let edges = image(ours.edges.to_vec().await?)?;

    let from_file = open(&args.input)?.into_rgb8();
    let luma = imageops::grayscale(&frame);
    let rows = filter::horizontal_filter(&gray, &gaussian(SIGMA));
    let both = filter::gaussian_blur_f32(&gray, SIGMA);
    let sobel = gradients::sobel_gradients(&blurred);
    let sobel: Vec<u8> = sobel.iter().map(|&slope| slope.min(255) as u8).collect();
    let bins = stats::histogram(&gradient).channels;
    let otsu = [contrast::otsu_level(&gradient)];
    let white = contrast::threshold(&gradient, level[0], ThresholdType::Binary);
    let in_file = open(&args.output)?.into_luma8();

    Ok(vec![
        Comparison::new("read frame", "the file, by image", &frame, &from_file, 0),
        Comparison::new("grayscale", "image::imageops::grayscale", &gray, &luma, 0),
        Comparison::new("blur_rows", "imageproc::filter::horizontal_filter", &smeared, &rows, 1),
        Comparison::new("blur_columns", "imageproc::filter::gaussian_blur_f32", &blurred, &both, 2),
        Comparison::new("sobel", "imageproc::gradients::sobel_gradients", &gradient, &sobel, 1),
        Comparison::new("histogram", "imageproc::stats::histogram", &counts, &bins[0], 0),
        Comparison::new("choose level", "imageproc::contrast::otsu_level", &level, &otsu, 0),
        Comparison::new("threshold", "imageproc::contrast::threshold", &edges, &white, 0),
        Comparison::new("write edges", "the file, by image", &edges, &in_file, 0),
    ])
}

fn open(path: &Path) -> Result<DynamicImage, BoxError> {
    let reader = ImageReader::open(path).map_err(|error| cannot("read", path, error))?;
    reader.with_guessed_format()?.decode().map_err(|error| cannot("decode", path, error))
}

impl Comparison {
    fn new<T: Copy + Into<u32>>(
        stage: &'static str,
        reference: &'static str,
        ours: &[T],
        theirs: &[T],
        tolerance: u32,
    ) -> Self {
        let pairs = ours.iter().zip(theirs);
        let largest = pairs.map(|(&ours, &theirs)| ours.into().abs_diff(theirs.into())).max();
        let difference = if ours.len() == theirs.len() { largest.unwrap_or(0) } else { u32::MAX };
        Self { stage, reference, difference, tolerance }
    }

    /// Whether the stage is as good as the reference.
    pub(crate) fn holds(&self) -> bool {
        self.difference <= self.tolerance
    }
}

/// Comparisons as a table.
pub(crate) struct Table<'a>(pub(crate) &'a [Comparison]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:<12}  {:<38}  {:>10}  {:>7}", "stage", "reference", "difference", "allowed")?;
        for comparison in self.0 {
            let Comparison { stage, reference, difference, tolerance } = comparison;
            let verdict = if comparison.holds() { "ok" } else { "WRONG" };
            writeln!(f, "  {stage:<12}  {reference:<38}  {difference:>10}  {tolerance:>7}  {verdict}")?;
        }
        Ok(())
    }
}
