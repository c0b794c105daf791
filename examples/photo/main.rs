//! An edge detector as one graph: an async host task reads and decodes a PNG, kernels find the
//! gradients, a host task picks the threshold from their histogram, and another one encodes and
//! writes the picture of the edges.
//!
//! `cargo run --release --example photo [-- --help]`
//!
//! The graph is built in [`pipeline`], which is the file to read first. It is finalized once and
//! submitted once a frame; then the times of all frames are printed, and every stage is compared
//! with what plain loops compute ([`reference`]).

mod args;
mod check;
mod files;
mod kernels;
mod otsu;
mod pipeline;
mod reference;
mod report;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use wakegraph::profile::Profile;
use wakegraph::timeline::Timeline;
use wakegraph::{BoxError, Device, ExecutableGraph, FinalizeOptions};

use crate::args::Args;
use crate::files::{Sink, Source};
use crate::pipeline::Pipeline;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Args::parse(std::env::args_os().skip(1)) {
        Ok(Some(args)) => run(&args).await,
        Ok(None) => io::stdout().write_all(args::HELP.as_bytes()).map_err(BoxError::from),
        Err(error) => Err(format!("{error}; see --help").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to try when even this cannot be written.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), BoxError> {
    let device = match &args.device {
        Some(selector) => Device::open(selector)?,
        None => Device::best()?,
    };
    let source = Source::open(&args.input, args.frames)?;
    let sink = Sink::new(&args.output, source.size());
    let (width, height) = source.size();

    let pipeline = Pipeline::new(&device, source, sink)?;
    let exec = pipeline.graph.finalize_with(FinalizeOptions::new().profiling(true))?;
    let drawings = || format!("{}{}", pipeline.graph.dot(false), exec.plan_dot());
    let mut out = draw(args.dot.as_deref(), drawings)?;

    let pixels = format!("{width} x {height} pixels");
    writeln!(out, "{}, {pixels}, {} frames on {device:?}\n", args.input.display(), args.frames)?;
    writeln!(out, "The plan\n\n{}", report::indented(&exec.plan_text()))?;

    let start = Instant::now();
    let profiles = replay(&exec, args.frames).await?;
    let seconds = start.elapsed().as_secs_f64();

    writeln!(out, "Stages over {} frames\n\n{}", args.frames, report::Stages::new(&profiles))?;
    writeln!(out, "{:.1} frames per second\n", f64::from(args.frames) / seconds)?;
    if let Some(last) = profiles.last() {
        writeln!(out, "Partitions of the last frame\n\n{}", last.timeline(40))?;
    }
    if let Some(path) = &args.timeline {
        write_timeline(&exec, path).await?;
    }
    let comparisons = check::stages(args, (width, height), &pipeline.buffers).await?;
    writeln!(out, "Stages of the last frame against plain loops\n\n{}", check::Table(&comparisons))?;
    writeln!(out, "The edges are in {}", args.output.display())?;
    if !comparisons.iter().all(check::Comparison::holds) {
        return Err("a stage differs from its reference by more than it may".into());
    }
    Ok(())
}

/// Writes the drawings where the option says, if it was given. Returns where all else is to be printed.
fn draw(option: Option<&Path>, drawings: impl Fn() -> String) -> Result<Box<dyn Write>, BoxError> {
    let Some(path) = option else { return Ok(Box::new(io::stdout())) };
    if path == Path::new("-") {
        io::stdout().write_all(drawings().as_bytes())?;
        return Ok(Box::new(io::stderr()));
    }
    std::fs::write(path, drawings()).map_err(|error| files::cannot("write", path, error))?;
    Ok(Box::new(io::stdout()))
}

/// Submits the executable once more, and writes what ran when.
async fn write_timeline(exec: &ExecutableGraph, path: &Path) -> Result<(), BoxError> {
    let recording = Timeline::record();
    exec.submit().await?;
    let timeline = recording.finish();
    let written = match path.extension().is_some_and(|extension| extension == "svg") {
        true => timeline.write_svg(path),
        false => timeline.write_perfetto(path),
    };
    written.map_err(|error| files::cannot("write", path, error))
}

/// Submits the executable once a frame.
async fn replay(exec: &ExecutableGraph, frames: u32) -> wakegraph::Result<Vec<Profile>> {
    let mut profiles = Vec::new();
    for _ in 0..frames {
        let mut frame = exec.submit();
        (&mut frame).await?;
        profiles.extend(frame.profile());
    }
    Ok(profiles)
}
