//! Time to a first result: a process each time, from `main` to the first awaited result.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `start_*_cold` | nothing is kept from before | the same by hand: `cudarc` with NVRTC, `opencl3` | |
//! | `start_*_warm` | kernels come from a `KernelCache`, and from what the driver keeps | the same by hand: `cudarc` with cubins from files, `opencl3` with what the driver keeps | on CUDA, the base and 5 ms, and 0.3 of cold behind opening |
//!
//! `photo` is the graph of the example `photo` without its files, `60_kernels` a chain of as many different
//! ones. They run on the host, on each device of OpenCL, and on `cuda:0`; `--device=NAME` chooses one.
//! Medians of five processes; `--runs=N` says how many. All results are compared. A line `START` has all
//! figures of a row, in milliseconds: `open` is the part of a warm start until the device is open.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![expect(unsafe_code, reason = "declares device code, and calls drivers")]

mod by_hand_cuda;
mod by_hand_opencl;
mod ours;
#[path = "../../examples/photo/kernels.rs"]
#[expect(dead_code, reason = "the example has weights of its own")]
mod photo;
#[path = "../support/mod.rs"]
mod support;
mod work;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use support::Report;
use wakegraph::Device;
use work::Work;

/// Measurements of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    total: Duration,
    opened: Duration,
    checksum: u64,
}

impl Started {
    fn after_opening(&self) -> Duration {
        self.total.saturating_sub(self.opened)
    }
}

fn main() -> ExitCode {
    let start = Instant::now();
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [process, who, work, device, folder] if process == "--process" => {
            let work = Work::named(work).expect("a graph");
            let folder = (folder != "none").then(|| Path::new(folder));
            run_process(start, who, work, device, folder);
            ExitCode::SUCCESS
        }
        _ => measure(&args),
    }
}

/// One of the processes that are measured.
fn run_process(start: Instant, who: &str, work: Work, device: &str, folder: Option<&Path>) {
    let started = match who {
        "ours" => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
            runtime.block_on(ours::run(start, work, device, folder)).expect("a result")
        }
        "cudarc" => by_hand_cuda::run(start, work, folder),
        "make" => return by_hand_cuda::make(work, folder.expect("a folder")),
        _ => by_hand_opencl::run(start, work, device),
    };
    let Started { total, opened, checksum } = started;
    println!("STARTED {} {} {checksum}", total.as_nanos(), opened.as_nanos());
}

fn measure(args: &[String]) -> ExitCode {
    let mut report = Report::from_args();
    let option = |name: &str| args.iter().find_map(|arg| arg.strip_prefix(name));
    let runs = option("--runs=").and_then(|runs| runs.parse().ok()).unwrap_or(5);
    for device in devices(option("--device=")) {
        for work in Work::ALL {
            let name = format!("start_{}_{}", work.name(), device.selector);
            if report.wants(&name) {
                Row { name, work, device: &device, runs }.measure(&mut report);
            }
        }
    }
    report.finish()
}

/// A device that is there.
struct Found {
    selector: String,
    /// The vendor's name, by which the base finds it.
    name: String,
}

fn devices(chosen: Option<&str>) -> Vec<Found> {
    let all = ["host:0", "cuda:0"]
        .map(String::from)
        .into_iter()
        .chain((0..8).map(|index| format!("opencl:{index}")));
    let wanted = all.filter(|selector| chosen.is_none_or(|chosen| selector.starts_with(chosen)));
    let mut found = Vec::new();
    for selector in wanted {
        match Device::open(&selector) {
            Ok(device) => found.push(Found { selector, name: device.info().name.clone() }),
            Err(_) if selector == "cuda:0" => println!("START {selector}: not present"),
            Err(_) => {}
        }
    }
    found
}

struct Row<'a> {
    name: String,
    work: Work,
    device: &'a Found,
    runs: usize,
}

impl Row<'_> {
    fn measure(&self, report: &mut Report) {
        let (cold, warm) = (self.cold("ours"), self.warm("ours", |_| ()));
        let by_hand = self.by_hand();
        let all = [Some(cold), Some(warm), by_hand.map(|(cold, _)| cold), by_hand.map(|(_, warm)| warm)];
        let results: Vec<_> = all.iter().flatten().map(|started| started.checksum).collect();
        assert!(results.iter().all(|result| *result == results[0]), "{}: other results: {all:?}", self.name);
        let figure = |started: Option<Started>| {
            started.map_or_else(|| "-".into(), |started| format!("{:.1}", milliseconds(started.total)))
        };
        let [cold_ms, warm_ms, base_cold, base_warm] = all.map(figure);
        println!(
            "START {} cold={cold_ms} warm={warm_ms} by_hand_cold={base_cold} by_hand_warm={base_warm} open={:.1}",
            self.name,
            milliseconds(warm.opened)
        );
        let Some((base_cold, base_warm)) = by_hand else { return };
        let is_slow = warm.total > base_warm.total + Duration::from_millis(5)
            || warm.after_opening() > cold.after_opening().mul_f64(0.3);
        for (what, ours, base, exceeds) in [
            ("cold", cold, base_cold, false),
            ("warm", warm, base_warm, is_slow && self.device.selector.starts_with("cuda")),
        ] {
            let (name, [ours, base]) =
                (format!("{}_{what}", self.name), [ours, base].map(|it| milliseconds(it.total)));
            report.figure(&name, ours, base, "ms", exceeds);
        }
    }

    /// The base, cold and warm. There is none for the host.
    fn by_hand(&self) -> Option<(Started, Started)> {
        let make = |folder: Option<&PathBuf>| _ = self.process("make", folder, folder);
        match self.device.selector.split_once(':')?.0 {
            "cuda" => Some((self.cold("cudarc"), self.warm("cudarc", make))),
            "opencl" => Some((self.cold("opencl3"), self.warm("opencl3", |_| ()))),
            _ => None,
        }
    }

    /// The median of processes that find nothing.
    fn cold(&self, who: &str) -> Started {
        median((0..self.runs).map(|_| {
            let empty = Folder::new();
            self.process(who, None, Some(&empty.0)).expect("a measured process")
        }))
    }

    /// The median of processes that find what an earlier one has left.
    fn warm(&self, who: &str, prepare: impl FnOnce(Option<&PathBuf>)) -> Started {
        let folder = Folder::new();
        prepare(Some(&folder.0));
        let run = || self.process(who, Some(&folder.0), Some(&folder.0)).expect("a measured process");
        run();
        median((0..self.runs).map(|_| run()))
    }

    /// Starts a process. `kernels` are kept in one folder, what drivers keep by themselves in another.
    fn process(&self, who: &str, kernels: Option<&PathBuf>, drivers: Option<&PathBuf>) -> Option<Started> {
        let device = if who == "opencl3" { &self.device.name } else { &self.device.selector };
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--process", who, self.work.name(), device]);
        command.arg(kernels.map_or("none".as_ref(), |folder| folder.as_os_str()));
        for variable in ["POCL_CACHE_DIR", "NEO_CACHE_DIR", "CUDA_CACHE_PATH"] {
            drivers.iter().for_each(|folder| _ = command.env(variable, folder));
        }
        let output = command.env("NEO_CACHE_PERSISTENT", "1").output().expect("a process");
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{who} of {}: {text}{errors}", self.name);
        let line = text.lines().find_map(|line| line.strip_prefix("STARTED "))?;
        let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        let (total, opened) = (Duration::from_nanos(next()), Duration::from_nanos(next()));
        Some(Started { total, opened, checksum: next() })
    }
}

/// A folder that goes with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("wakegraph-start-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The one in the middle by its total.
fn median(all: impl Iterator<Item = Started>) -> Started {
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|started| started.total);
    all[all.len() / 2]
}
