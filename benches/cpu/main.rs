//! Kernels on the cores of the CPU: by the host device in each form, by a loop on one thread, by the same
//! loop on rayon's threads, and by each OpenCL runtime for the CPU that is there.
//!
//! | kernel | work | form that is divided |
//! |---|---|---|
//! | `saxpy` | two reads, a multiply-add and a write an element | `each:` |
//! | `madds` | 64 multiply-adds an element | `each:` |
//! | `blur` | five reads around a pixel, in two dimensions | `each:` |
//! | `reduction` | sums of 256 elements | `group:` |
//! | `product` | of two square matrices with so many rows, in tiles of 16 by 16 | `group:` |
//! | `histogram` | 256 counts, which all elements share | `host:`, which is not divided |
//!
//! Each is a graph of one kernel over 2^10 to 2^24 elements, submitted and awaited. A row is named after the
//! kernel, the size, ours and the base:
//!
//! | row | limit |
//! |---|---|
//! | `*_item_of_plain` | from 2^16 elements on 1.05 and the 3 us of a submission; below, that is what counts |
//! | `*_each_of_item`, `*_group_of_item` | below 2^16, 3 us more than the base |
//! | `*_each_of_rayon` | 1.1 from 2^16 on |
//! | `*_each_of_intel`, `*_group_of_intel` | 1.5 from 2^16 on, where Intel's runtime is ahead of rayon |
//! | `*_group_of_rayon`, `*_of_pocl`, `*_host_of_*` | |
//!
//! A work-item of `*_item` computes what a work-group of `*_group` does. `host` is a kernel that is one call.
//! Before anything is measured, each contender has to write what the loop on one thread writes.
//! `workers.rs` has rows about the workers themselves.

#[path = "../support/mod.rs"]
mod support;

mod kernels;
mod turns;
mod workers;

use std::process::ExitCode;

use kernels::{GROUP, TILE, parallel, plain};
use support::counting::Counting;
use support::{Report, Row, Times};
use tokio::runtime::Runtime;
use turns::{Contenders, Work, take_turns};
use wakegraph::{Device, Local, Range};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIZES: [u32; 5] = [10, 13, 16, 20, 24];
const ROWS_OF_MATRIX: [usize; 3] = [64, 256, 512];

/// Elements from which on a kernel is work, and not mostly its submission.
const LARGE: usize = 1 << 16;

/// What a small kernel may take more because it could be divided, in nanoseconds.
const MORE: f64 = 3000.0;

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let bench = Bench::new();
    println!("{} cores, {:?}", cores(), bench.host);
    for (name, device) in &bench.opencl {
        println!("{name}: {device:?}");
    }
    for power in SIZES {
        let elements = 1 << power;
        let size = |kernel: &str| format!("{kernel}_2^{power}");
        bench.rows(&mut report, &size("saxpy"), "each", elements, || bench.saxpy(elements));
        bench.rows(&mut report, &size("madds"), "each", elements, || bench.madds(elements));
        bench.rows(&mut report, &size("blur"), "each", elements, || bench.blur(power));
        bench.rows(&mut report, &size("reduction"), "group", elements, || bench.reduction(elements));
        bench.rows(&mut report, &size("histogram"), "host", elements, || bench.histogram(elements));
    }
    for n in ROWS_OF_MATRIX {
        bench.rows(&mut report, &format!("product_{n}"), "group", n * n, || bench.product(n));
    }
    workers::rows(&mut report, &bench.runtime);
    report.finish()
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

struct Bench {
    runtime: Runtime,
    host: Device,
    /// Devices of OpenCL that are the CPU, with their names in rows.
    opencl: Vec<(&'static str, Device)>,
}

impl Bench {
    fn new() -> Self {
        let host = Device::open("host").expect("a host device");
        let opencl = (0..).map_while(|index| Device::open(&format!("opencl:{index}")).ok());
        let opencl = opencl.filter_map(|device| Some((runtime_for_the_cpu(&device)?, device))).collect();
        Self { runtime: support::current_thread(), host, opencl }
    }

    /// The rows of one kernel with one size, if any of them is asked for.
    fn rows(
        &self,
        report: &mut Report,
        name: &str,
        divided: &str,
        elements: usize,
        make: impl FnOnce() -> Vec<(String, Work)>,
    ) {
        let opencl = self.opencl.iter().map(|(name, _)| (divided, *name));
        let pairs = [("item", "plain"), (divided, "plain"), (divided, "rayon"), (divided, "item")];
        let wanted: Vec<_> = pairs
            .into_iter()
            .chain(opencl)
            .filter(|pair| divided != "host" || (pair.0 == "host" && pair.1 != "item"))
            .map(|(ours, base)| (format!("{name}_{ours}_of_{base}"), ours, base))
            .filter(|(name, ..)| report.wants(name))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let mut contenders = make();
        for attempt in 1..=report.attempts() {
            let times = take_turns(&self.runtime, &mut contenders, report.reduced(70).min(15));
            let rows: Vec<_> = wanted
                .iter()
                .map(|(name, ours, base)| {
                    let row = Row::new(name);
                    match limit(ours, base, elements, &|name| &times[name]) {
                        Some(limit) => (row.limit(limit), &times[*ours], &times[*base]),
                        None => (row, &times[*ours], &times[*base]),
                    }
                })
                .collect();
            let exceeded = rows.iter().any(|(row, ours, base)| row.is_exceeded(ours, base));
            if !exceeded || attempt == report.attempts() {
                return rows.into_iter().for_each(|(row, ours, base)| report.compare(row, ours, base));
            }
        }
    }

    fn saxpy(&self, elements: usize) -> Vec<(String, Work)> {
        const A: f32 = 0.5;
        let mut all = Contenders::new(&self.runtime, &self.host, numbers(elements), vec![1.0; elements]);
        let range = Range::linear(elements);
        all.by_hand("plain", |x, y| plain::saxpy(A, x, y));
        all.by_hand("rayon", |x, y| parallel::saxpy(A, x, y));
        all.kernel("item", &self.host, |x, y| kernels::saxpy_item(A, x, y), range);
        for (name, device) in self.devices("each") {
            all.kernel(name, device, |x, y| kernels::saxpy(A, x, y), range);
        }
        all.into_all()
    }

    fn madds(&self, elements: usize) -> Vec<(String, Work)> {
        let mut all = Contenders::new(&self.runtime, &self.host, numbers(elements), vec![0.0f32; elements]);
        let range = Range::linear(elements);
        all.by_hand("plain", plain::madds);
        all.by_hand("rayon", parallel::madds);
        all.kernel("item", &self.host, |x, y| kernels::madds_item(x, y), range);
        for (name, device) in self.devices("each") {
            all.kernel(name, device, |x, y| kernels::madds(x, y), range);
        }
        all.into_all()
    }

    fn blur(&self, power: u32) -> Vec<(String, Work)> {
        let (width, elements) = (1usize << (power / 2), 1usize << power);
        let mut all = Contenders::new(&self.runtime, &self.host, numbers(elements), vec![0.0f32; elements]);
        let range = Range::new([width, elements / width]);
        all.by_hand("plain", move |x, y| plain::blur(width, x, y));
        all.by_hand("rayon", move |x, y| parallel::blur(width, x, y));
        all.kernel("item", &self.host, |x, y| kernels::blur_item(width as u32, x, y), range);
        for (name, device) in self.devices("each") {
            all.kernel(name, device, |x, y| kernels::blur(width as u32, x, y), range);
        }
        all.into_all()
    }

    fn reduction(&self, elements: usize) -> Vec<(String, Work)> {
        let groups = elements / GROUP;
        let mut all = Contenders::new(&self.runtime, &self.host, numbers(elements), vec![0.0f32; groups]);
        all.by_hand("plain", plain::reduction);
        all.by_hand("rayon", parallel::reduction);
        all.kernel("item", &self.host, |x, sums| kernels::reduction_item(x, sums), Range::linear(groups));
        let range = Range::linear(elements).local([GROUP]);
        for (name, device) in self.devices("group") {
            all.kernel(name, device, |x, sums| kernels::reduction(x, Local::new(GROUP), sums), range);
        }
        all.into_all()
    }

    /// The product of a matrix with itself.
    fn product(&self, n: usize) -> Vec<(String, Work)> {
        let mut all = Contenders::new(&self.runtime, &self.host, numbers(n * n), vec![0.0f32; n * n]);
        all.by_hand("plain", move |x, y| plain::product(n, x, x, y));
        all.by_hand("rayon", move |x, y| parallel::product(n, x, x, y));
        let tiles = Range::new([n / TILE; 2]);
        all.kernel("item", &self.host, |x, y| kernels::product_item(n as u32, x, x, y), tiles);
        let (range, tile) = (Range::new([n; 2]).local([TILE; 2]), Local::new(TILE * TILE));
        for (name, device) in self.devices("group") {
            all.kernel(name, device, |x, y| kernels::product(n as u32, x, x, tile, tile, y), range);
        }
        all.into_all()
    }

    fn histogram(&self, elements: usize) -> Vec<(String, Work)> {
        let values = numbers(elements).into_iter().map(f32::to_bits).map(|bits| bits >> 8).collect();
        let mut all = Contenders::new(&self.runtime, &self.host, values, vec![0u32; 256]);
        all.by_hand("plain", plain::histogram);
        all.by_hand("rayon", parallel::histogram);
        for (name, device) in self.devices("host") {
            all.kernel(name, device, |x, bins| kernels::histogram(x, bins), Range::linear(elements));
        }
        all.into_all()
    }

    /// The host device under the name of the form, and those of OpenCL.
    fn devices<'a>(&'a self, form: &'a str) -> impl Iterator<Item = (&'a str, &'a Device)> {
        let opencl = self.opencl.iter().map(|(name, device)| (*name, device));
        std::iter::once((form, &self.host)).chain(opencl)
    }
}

/// The name in rows of an OpenCL runtime that computes on the CPU.
fn runtime_for_the_cpu(device: &Device) -> Option<&'static str> {
    let driver = device.info().driver.as_str();
    match () {
        () if driver.starts_with("Portable Computing Language") => Some("pocl"),
        () if driver.starts_with("Intel(R) OpenCL") && !driver.contains("Graphics") => Some("intel"),
        () => None,
    }
}

/// What the ratio of a row may be.
fn limit<'a>(ours: &str, base: &str, elements: usize, times: &dyn Fn(&str) -> &'a Times) -> Option<f64> {
    match (ours, base) {
        ("host", _) => None,
        ("item", "plain") => {
            (elements >= LARGE).then(|| (1e3 * (1.05 + MORE / times("plain").median())).round() / 1e3)
        }
        (_, "item") => {
            (elements < LARGE).then(|| (1e3 * (1.0 + MORE / times("item").median())).round() / 1e3)
        }
        // A work-group's local memory is memory, where rayon's closure keeps its array in registers.
        ("group", "rayon") => None,
        (_, "rayon") => (elements >= LARGE).then_some(1.1),
        (_, "intel") => {
            let is_ahead = times("intel").median() < times("rayon").median();
            (elements >= LARGE && is_ahead).then_some(1.5)
        }
        _ => None,
    }
}

/// So many numbers from 0 to 1 without an order.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    std::iter::repeat_with(next).take(count).collect()
}
