//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Finds the edges of a picture with one graph of kernels and async host tasks.

Usage: photo [OPTIONS]

  --input FILE     the PNG to read [examples/data/astronaut.png of this crate]
  --output FILE    the PNG to write [edges.png]
  --frames N       how often to run the graph [100]
  --device NAME    where to run it, such as host or host:1 [the best there is]
  --dot FILE       also draw the graph and its plan, in Graphviz' language, both into this file;
                   with - to standard output, and everything else to standard error
  --timeline FILE  also write what one more frame does when: a picture if FILE ends in .svg, else
                   a trace for https://ui.perfetto.dev
  --help           print this

Fails when a stage differs by more than its tolerance from what image and imageproc compute.
";

/// What the command line asks for.
pub(crate) struct Args {
    pub(crate) input: PathBuf,
    pub(crate) output: PathBuf,
    pub(crate) frames: u32,
    pub(crate) device: Option<String>,
    pub(crate) dot: Option<PathBuf>,
    pub(crate) timeline: Option<PathBuf>,
}

impl Args {
    /// `None` when help is asked for.
    pub(crate) fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut args = Self {
            input: concat!(env!("CARGO_MANIFEST_DIR"), "/data/astronaut.png").into(),
            output: "edges.png".into(),
            frames: 100,
            device: None,
            dot: None,
            timeline: None,
        };
        while let Some(option) = words.next() {
            let option = option.to_string_lossy().into_owned();
            let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "--help" | "-h" => return Ok(None),
                "--input" => args.input = value()?.into(),
                "--output" => args.output = value()?.into(),
                "--frames" => args.frames = frames(&text(value()?)?)?,
                "--device" => args.device = Some(text(value()?)?),
                "--timeline" => args.timeline = Some(value()?.into()),
                "--dot" => args.dot = Some(value()?.into()),
                _ => return Err(format!("'{option}' is not an option")),
            }
        }
        Ok(Some(args))
    }
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{value:?} is not valid Unicode"))
}

fn frames(value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(frames) if frames > 0 => Ok(frames),
        _ => Err(format!("--frames takes a number from 1 on, not '{value}'")),
    }
}
