//! Time to a first result: a process each time, from `main` to the first awaited result.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `start_*_cold` | nothing is kept from before | the same by hand: `cudarc` with NVRTC, `opencl3` | |
//! | `start_*_warm` | kernels come from a `KernelCache`, and from what the driver keeps | the same by hand: `cudarc` with cubins from files, `opencl3` with what the driver keeps | on CUDA, the base and 5 ms, and 0.3 of cold behind opening |
//!
//! `photo` is the graph of the example `photo` without its files, `60_kernels` a chain of as many different
//! ones. They run on the host, on each device of OpenCL, and on `cuda:0`; `--device=NAME` chooses one.
//! Medians of five processes each, by turns; `--runs=N` says how many. All results are compared. A line
//! `START` has all figures of a row, in milliseconds: `open` is the part of a warm start until the device
//! is open.
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
        let mut contenders: Vec<_> =
            ["ours"].into_iter().chain(self.base()).map(|who| Starts::new(self, who)).collect();
        for _ in 0..self.runs {
            contenders.iter_mut().for_each(|contender| contender.start_twice(self));
        }
        let results: Vec<_> = contenders.iter().flat_map(Starts::results).collect();
        assert!(
            results.iter().all(|result| *result == results[0]),
            "{}: other results: {results:?}",
            self.name
        );
        print!("START {}", self.name);
        let medians: Vec<_> = contenders.iter().map(Starts::medians).collect();
        for (contender, [cold, warm]) in contenders.iter().zip(&medians) {
            let [cold, warm, open] = [cold.total, warm.total, warm.opened].map(milliseconds);
            print!(" {}: cold={cold:.1} warm={warm:.1} open={open:.1}", contender.who);
        }
        println!();
        if let [[cold, warm], [base_cold, base_warm]] = medians[..] {
            let is_slow = warm.total > base_warm.total + Duration::from_millis(5)
                || warm.after_opening() > cold.after_opening().mul_f64(0.3);
            self.figure(report, "cold", [cold, base_cold], false);
            self.figure(
                report,
                "warm",
                [warm, base_warm],
                is_slow && self.device.selector.starts_with("cuda"),
            );
        }
    }

    fn figure(&self, report: &mut Report, what: &str, figures: [Started; 2], exceeds: bool) {
        let [ours, base] = figures.map(|started| milliseconds(started.total));
        report.figure(&format!("{}_{what}", self.name), ours, base, "ms", exceeds);
    }

    /// The base. There is none for the host.
    fn base(&self) -> Option<&'static str> {
        match self.device.selector.split_once(':')?.0 {
            "cuda" => Some("cudarc"),
            "opencl" => Some("opencl3"),
            _ => None,
        }
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

/// The starts of a contender, which takes turns with the other.
struct Starts {
    who: &'static str,
    /// The files that an earlier process has left for those that start warm.
    kept: Folder,
    cold: Vec<Started>,
    warm: Vec<Started>,
}

impl Starts {
    fn new(row: &Row<'_>, who: &'static str) -> Self {
        let kept = Folder::new();
        let first = if who == "cudarc" { "make" } else { who };
        row.process(first, Some(&kept.0), Some(&kept.0));
        Self { who, kept, cold: Vec::new(), warm: Vec::new() }
    }

    /// Starts a process that finds nothing, and one that finds what is kept.
    fn start_twice(&mut self, row: &Row<'_>) {
        let empty = Folder::new();
        self.cold.extend(row.process(self.who, None, Some(&empty.0)));
        self.warm.extend(row.process(self.who, Some(&self.kept.0), Some(&self.kept.0)));
    }

    fn results(&self) -> impl Iterator<Item = u64> {
        self.cold.iter().chain(&self.warm).map(|started| started.checksum)
    }

    /// The cold and the warm start in the middle by their totals.
    fn medians(&self) -> [Started; 2] {
        [&self.cold, &self.warm].map(|all| {
            let mut all = all.clone();
            all.sort_by_key(|started| started.total);
            all[all.len() / 2]
        })
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
