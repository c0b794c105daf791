//! Copies of memory: of the application's, which is not pinned, and between devices.

use std::sync::Arc;

use tokio::runtime::Runtime;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range, WakePolicy};

use crate::raw::{Raw, RawCopy, RawRoundTrip};
use crate::support::{self, Contender, Report, Row};
use crate::{One, bump};

/// Bytes, and the limits of copies from and to memory that is not pinned: only copies that take
/// much longer than a copy of the first chunk by the host can be as fast as those of pinned memory.
/// Rounds and samples.
const SIZES: [(&str, usize, Option<f64>, [usize; 2]); 3] =
    [("64k", 64 << 10, None, [100, 20]), ("8m", 8 << 20, None, [60, 5]), ("1g", 1 << 30, Some(1.11), [7, 1])];

/// The driver's own rate, as a limit.
const DEVICE: f64 = 1.05;

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::multi_thread();
    device.set_wake_policy(WakePolicy::Latency);
    for (size, bytes, limit, [rounds, samples]) in SIZES {
        let row = |name| {
            let row = Row::new(name).rounds(rounds, samples);
            limit.map_or(row, |limit| row.limit(limit))
        };
        let [to, from, on] = ["to", "from", "device"].map(|kind| format!("copy_{kind}_{size}"));
        if [&to, &from].into_iter().any(|name| report.wants(name)) {
            let (x, pinned) = (buffer(device, bytes), Arc::new(raw.pinned(bytes)));
            let elements = vec![7u8; bytes];
            let base = raw.copy(pinned.address(), address(&x), bytes, pinned.clone());
            report.race(row(&to), &runtime, Write { x: x.clone(), elements: elements.clone() }, base);
            let base = raw.copy(address(&x), pinned.address(), bytes, pinned.clone());
            report.race(row(&from), &runtime, Read { x, elements }, base);
        }
        let name = format!("copy_other_host_{size}");
        if report.wants(&name) {
            let (x, pinned) = (buffer(device, bytes), Arc::new(raw.pinned(bytes)));
            let plain =
                Device::open("host").and_then(|host| host.host_buffer::<u8>(bytes)).expect("host memory");
            let mut graph = Graph::new(device);
            graph.copy(&plain, &x);
            let base = raw.copy(pinned.address(), address(&x), bytes, pinned.clone());
            let row = Row::new(&name).limit(DEVICE).rounds(rounds, samples);
            report.race(row, &runtime, One(graph.finalize().expect("a valid graph")), base);
        }
        let name = format!("copy_by_one_core_{size}");
        if report.wants(&name) {
            let (x, pinned) = (buffer(device, bytes), Arc::new(raw.pinned(bytes)));
            let base = raw.copy(pinned.address(), address(&x), bytes, pinned.clone());
            let ours = ByOneCore { from: vec![7; bytes], to: vec![0; bytes.min(4 << 20)] };
            report.race(Row::new(&name).rounds(rounds, samples), &runtime, ours, base);
        }
        if report.wants(&on) {
            let row = Row::new(&on).limit(DEVICE).rounds(rounds, samples);
            between(report, row, &runtime, raw, &buffer(device, bytes), &buffer(device, bytes));
        }
        let name = format!("copy_peer_{size}");
        if report.wants(&name)
            && let Ok(other) = Device::open("cuda:1")
        {
            let row = Row::new(&name).limit(DEVICE).rounds(rounds, samples);
            between(report, row, &runtime, raw, &buffer(&other, bytes), &buffer(device, bytes));
        }
    }
    for (size, bytes) in [("4k", 4 << 10), ("64k", 64 << 10), ("1m", 1 << 20)] {
        let name = format!("round_trip_{size}");
        if report.wants(&name) {
            let x = device.buffer(bytes / size_of::<u32>()).expect("a buffer");
            let row = Row::new(&name).limit(DEVICE).rounds(100, 20);
            let base = ByCalls(raw.round_trip(&x), RawRoundTrip::start);
            report.race(row, &runtime, One(round_trip(device, &x, Shape::Plain)), base);
        }
    }
    for (name, shape, start) in [
        (
            "round_trip_between_kernels_4k",
            Shape::BetweenKernels,
            RawRoundTrip::start_between_kernels as Start,
        ),
        ("round_trip_two_uploads_4k", Shape::TwoUploads, RawRoundTrip::start_with_two_uploads),
    ] {
        if report.wants(name) {
            let x = device.buffer((4 << 10) / size_of::<u32>()).expect("a buffer");
            let row = Row::new(name).limit(DEVICE).rounds(100, 20);
            let base = ByCalls(raw.round_trip(&x), start);
            report.race(row, &runtime, One(round_trip(device, &x, shape)), base);
        }
    }
    device.set_wake_policy(WakePolicy::default());
}

fn buffer(device: &Device, bytes: usize) -> Buffer<u8> {
    device.buffer(bytes).expect("a buffer")
}

fn address(buffer: &Buffer<u8>) -> u64 {
    buffer.address().expect("an address") as u64
}

/// A graph of one copy.
fn between(
    report: &mut Report,
    row: Row<'_>,
    runtime: &Runtime,
    raw: &Raw,
    from: &Buffer<u8>,
    to: &Buffer<u8>,
) {
    let mut graph = Graph::new(to.device());
    graph.copy(from, to);
    let base = raw.copy(address(from), address(to), to.len(), (from.clone(), to.clone()));
    report.race(row, runtime, One(graph.finalize().expect("a valid graph")), base);
}

/// What a round trip has beside a copy to the device, a kernel, and a copy back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    /// The kernel before and behind it as well.
    BetweenKernels,
    /// Another copy that the kernel waits for.
    TwoUploads,
}

fn round_trip(device: &Device, x: &Buffer<u32>, shape: Shape) -> ExecutableGraph {
    let [pinned, another] = [(); 2].map(|()| device.host_buffer(x.len()).expect("host memory"));
    let mut graph = Graph::new(device);
    let kernel = |graph: &mut Graph| _ = graph.launch(bump(1, x), Range::linear(1));
    let other = (shape == Shape::TwoUploads).then(|| {
        let y = device.buffer::<u32>(x.len()).expect("a buffer");
        graph.copy(&another, &y).id()
    });
    if shape == Shape::BetweenKernels {
        kernel(&mut graph);
    }
    graph.copy(&pinned, x);
    graph.launch(bump(1, x), Range::linear(1)).after(other);
    graph.copy(x, &pinned);
    if shape == Shape::BetweenKernels {
        kernel(&mut graph);
    }
    graph.finalize().expect("a valid graph")
}

type Start = fn(&RawRoundTrip);

/// A round trip by calls on a stream.
struct ByCalls(RawRoundTrip, Start);

impl Contender for ByCalls {
    async fn once(&mut self) {
        let Self(trip, start) = self;
        start(trip);
        trip.synchronize();
    }
}

struct Write {
    x: Buffer<u8>,
    elements: Vec<u8>,
}

impl Contender for Write {
    async fn once(&mut self) {
        self.x.write(&self.elements).await.expect("a copy");
    }
}

struct Read {
    x: Buffer<u8>,
    elements: Vec<u8>,
}

impl Contender for Read {
    async fn once(&mut self) {
        self.x.read(&mut self.elements).await.expect("a copy");
    }
}

/// What one core can copy to memory that stays in its cache, as pinned chunks do.
struct ByOneCore {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Contender for ByOneCore {
    async fn once(&mut self) {
        for chunk in self.from.chunks(self.to.len()) {
            self.to[..chunk.len()].copy_from_slice(chunk);
            std::hint::black_box(&mut self.to);
        }
    }
}

impl Contender for RawCopy {
    async fn once(&mut self) {
        self.start();
        self.synchronize();
    }
}
