//! One graph over two devices: each works on its half of the data, and they hand each other what
//! lies at the border.
//!
//! `cargo run --release --example multi_gpu [-- --devices cuda:0,cuda:1]`
//!
//! Heat spreads along a rod. Every step needs the neighbours of a cell, so before each step the
//! outermost cell of one half is copied to the other: from device to device where there is a path,
//! through the host where there is none.
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::graph::CommandKind;
use wakegraph::{BoxError, Buffer, Device, Graph, NodeId, Range, Result, read};

wakegraph::kernel! {
    /// `to[i]` becomes the mean of `from[i]`, counted twice, and its neighbours. The first and last
    /// cell stay.
    fn spread(from: &[f32], to: &mut [f32]) {
        range: |from, to| [from.len().min(to.len()).saturating_sub(2)],
        item: |i, from, to| to[i + 1] = mean(&from[i..i + 3]),
        // SAFETY: a work-item uses three elements from its index on, and the bound leaves out the
        // last two of both.
        c: unsafe { "KERNEL(spread, (SLICE(const float, from), SLICE(float, to))) {
                         u64 i = GLOBAL_ID(0);
                         to[i + 1] = (from[i] + 2 * from[i + 1] + from[i + 2]) * 0.25f;
                     }" },
    }
}

fn mean(cells: &[f32]) -> f32 {
    (cells[0] + 2.0 * cells[1] + cells[2]) * 0.25
}

/// Cells of each half.
const CELLS: usize = 1 << 18;
const RUNS: usize = 50;

/// The half of the rod on one device: its cells, and a copy of the neighbour's outermost cell at
/// either end. The ends of the rod have no neighbour: that cell stays 0.
struct Half {
    now: Buffer<f32>,
    next: Buffer<f32>,
}

impl Half {
    fn new(device: &Device, cells: &[f32]) -> Result<Self> {
        let with_ends = [&[0.0], cells, &[0.0]].concat();
        Ok(Self { now: device.buffer_from(&with_ends)?, next: device.buffer(CELLS + 2)? })
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let [a, b] = devices()?;
    // A hot spot on either side of the border.
    let start: Vec<f32> = (0..2 * CELLS).map(|i| if i.abs_diff(CELLS) < 40 { 100.0 } else { 0.0 }).collect();
    let left = Half::new(&a, &start[..CELLS])?;
    let right = Half::new(&b, &start[CELLS..])?;
    let (left_out, right_out) = (a.host_buffer::<f32>(CELLS)?, b.host_buffer::<f32>(CELLS)?);

    // Nothing says which device a node is for, or what it waits for: its buffers do.
    let mut graph = Graph::new(&a);
    let mut copies = Vec::new();
    for [(from, to), (other_from, other_to)] in [
        [(&left.now, &left.next), (&right.now, &right.next)],
        [(&left.next, &left.now), (&right.next, &right.now)],
    ] {
        copies.extend(exchange(&mut graph, from, other_from)?);
        graph.launch(spread(from, to), Range::linear(CELLS)).name("spread left");
        graph.launch(spread(other_from, other_to), Range::linear(CELLS)).name("spread right");
    }
    graph.copy(&left.now.slice(1..=CELLS)?, &left_out).name("fetch left");
    graph.copy(&right.now.slice(1..=CELLS)?, &right_out).name("fetch right");
    graph.host_task((read(&left_out), read(&right_out)), async |(left, right)| {
        let at_border = (left[CELLS - 1], right[0]);
        if at_border.0 != at_border.1 {
            return Err(BoxError::from(format!("the halves have drifted apart: {at_border:?}")));
        }
        Ok(())
    });
    let exec = graph.finalize()?;

    println!("{a:?} and {b:?}\n\n{}", exec.plan_text());
    for copy in copies {
        // A copy without a direct path is a read and a write: a graph inside the graph.
        let staged = graph.kind(copy)? == CommandKind::SubGraph;
        let way = if staged { "through the host" } else { "from device to device" };
        println!("{}: {way}", graph.name(copy)?.unwrap_or("a copy"));
    }
    for _ in 0..RUNS {
        exec.submit().await?;
    }

    let result = [&*left_out.read().await, &*right_out.read().await].concat();
    if result != on_one_core(&start) {
        return Err("the devices' result differs from the CPU's".into());
    }
    println!("\n{} steps over {} cells: as on one core of the CPU", 2 * RUNS, result.len());
    Ok(())
}

/// Copies the outermost cells of the halves to each other.
fn exchange(graph: &mut Graph, left: &Buffer<f32>, right: &Buffer<f32>) -> Result<[NodeId; 2]> {
    let last = graph.copy(&left.slice(CELLS..=CELLS)?, &right.slice(..1)?).name("left's last cell").id();
    let first = graph.copy(&right.slice(1..2)?, &left.slice(CELLS + 1..)?).name("right's first cell").id();
    Ok([last, first])
}

/// The devices that the command line names, or two GPUs, or what there is and the CPU for the rest.
fn devices() -> Result<[Device; 2], BoxError> {
    let named = std::env::args().skip_while(|word| word != "--devices").nth(1);
    let devices: Vec<Device> = match &named {
        Some(list) => list.split(',').map(Device::open).collect::<Result<_>>()?,
        None => {
            let gpus = Device::all()?.into_iter().filter(|device| device.info().backend == "cuda");
            gpus.chain([Device::open("host:0")?, Device::open("host:1")?]).take(2).collect()
        }
    };
    devices.try_into().map_err(|_| "give two devices: --devices host:0,host:1".into())
}

/// What the devices should compute, bit for bit.
fn on_one_core(start: &[f32]) -> Vec<f32> {
    let mut cells = [&[0.0], start, &[0.0]].concat();
    for _ in 0..2 * RUNS {
        let next: Vec<f32> = cells.windows(3).map(mean).collect();
        cells[1..=next.len()].copy_from_slice(&next);
    }
    cells[1..=start.len()].to_vec()
}
