//! Every stage against what plain loops make of the stage's input.

use std::fmt;

use wakegraph::BoxError;

use crate::args::Args;
use crate::kernels::gaussian;
use crate::pipeline::{Buffers, SIGMA};
use crate::{files, reference};

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
    (width, _height): (u32, u32),
    ours: &Buffers,
) -> Result<Vec<Comparison>, BoxError> {
    let width = width as usize;
    let frame = ours.frame.read().await;
    let gray = ours.gray.to_vec().await?;
    let smeared = ours.smeared.to_vec().await?;
    let blurred = ours.blurred.to_vec().await?;
    let gradient = ours.gradient.to_vec().await?;
    let counts = ours.counts.read().await;
    let level = ours.level.to_vec().await?;
    let edges = ours.edges.to_vec().await?;

    let from_file = files::read(&args.input)?.rgb;
    let taps = gaussian(SIGMA);
    let rows = reference::blur_rows(&gray, width, &taps);
    let both = reference::blur_columns(&rows, width, &taps);
    // The file is gray: all colours of a pixel have its value.
    let in_file: Vec<u8> = files::read(&args.output)?.rgb.into_iter().step_by(3).collect();

    Ok(vec![
        Comparison::new("read frame", "the file", &frame, &from_file, 0),
        Comparison::new("grayscale", "loop", &gray, &reference::grayscale(&frame), 0),
        Comparison::new("blur_rows", "loop", &smeared, &rows, 1),
        Comparison::new("blur_columns", "loops over rows and columns", &blurred, &both, 2),
        Comparison::new("sobel", "loop", &gradient, &reference::sobel(&blurred, width), 1),
        Comparison::new("histogram", "loop", &counts, &reference::histogram(&gradient), 0),
        Comparison::new(
            "choose level",
            "largest variance of 256",
            &level,
            &[reference::otsu_level(&gradient)],
            0,
        ),
        Comparison::new("threshold", "loop", &edges, &reference::threshold(&gradient, level[0]), 0),
        Comparison::new("write edges", "the file", &edges, &in_file, 0),
    ])
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
        writeln!(f, "  {:<12}  {:<28}  {:>10}  {:>7}", "stage", "reference", "difference", "allowed")?;
        for comparison in self.0 {
            let Comparison { stage, reference, difference, tolerance } = comparison;
            let verdict = if comparison.holds() { "ok" } else { "WRONG" };
            writeln!(f, "  {stage:<12}  {reference:<28}  {difference:>10}  {tolerance:>7}  {verdict}")?;
        }
        Ok(())
    }
}
