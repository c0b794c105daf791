//! Which lowering is faster on a device: measured once for each class of sizes.
//!
//! On CPUs a recording is often slower than plain enqueues, on GPUs it should not be; nothing that
//! a device reports says which. So the first finalize of each class of sizes times both, with a
//! chain of kernels that do next to nothing, but that to real memory: kernels without arguments
//! flatter recordings.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::device::Shared;
use super::kernel::OpenclKernel;
use super::memory::OpenclMemory;
use super::options::Lowering;
use super::query;
use super::queue::DriverQueue;
use super::record::Recording;
use super::replay::{List, Started, Timing};
use super::sys::{self, Event, Failure, Owned};
use crate::hal::{
    Command, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, Param,
    ParamKind, QueueOrder,
};
use crate::types::{AccessMode, Range, Result};

/// A class of sizes: lists of up to so many commands are timed by a chain of `sample` kernels.
struct Class {
    up_to: usize,
    sample: usize,
}

const CLASSES: [Class; 3] = [
    Class { up_to: 3, sample: 1 },
    Class { up_to: 31, sample: 10 },
    Class { up_to: usize::MAX, sample: 100 },
];

/// Both take turns of so many runs; the median counts of all but the first few of each turn. What a
/// run of one leaves behind, threads awake or asleep, decides how long one of the other takes next.
const TURNS: usize = 5;
const RUNS: usize = 8;
const FIRST_RUNS: usize = 2;

/// Work-items of a kernel.
const ITEMS: usize = 16;

const SOURCE: &str = "__kernel void wakegraph_measure(__global uint *x) { x[get_global_id(0)] += 1; }\n";

/// What has been found out about a device.
#[derive(Debug, Default)]
pub(super) struct Choice([OnceLock<Lowering>; CLASSES.len()]);

impl Choice {
    /// The lowering for a list of so many commands.
    pub(super) fn get(&self, shared: &Arc<Shared>, commands: usize) -> Lowering {
        if let Some(forced) = shared.options.lowering {
            return forced;
        }
        let class = CLASSES.iter().position(|class| commands <= class.up_to).unwrap_or(0);
        *self.0[class].get_or_init(|| {
            measure(shared, CLASSES[class].sample).unwrap_or_else(|error| {
                tracing::warn!(target: "wakegraph::opencl", %error, "could not measure; commands are replayed");
                Lowering::Replay
            })
        })
    }
}

fn measure(shared: &Arc<Shared>, kernels: usize) -> Result<Lowering> {
    let sources = KernelSources::new().opencl_c(SOURCE);
    let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
    let params = [Param { name: "x".into(), kind }];
    let desc = KernelDesc { name: "wakegraph_measure", params: &params, sources: &sources };
    let kernel = Arc::new(OpenclKernel::load(shared, &desc)?);
    let desc = MemoryDesc { len: 4 * ITEMS, kind: MemoryKind::Device };
    let memory = MemoryView::whole(Arc::new(OpenclMemory::allocate(shared, &desc)?));
    let launch = Command::Kernel(Box::new(KernelLaunch {
        kernel,
        args: vec![KernelArg::Memory(memory)],
        range: Range::linear(ITEMS),
        alternatives: Vec::new(),
    }));
    let mut list = List::default();
    for number in 0..kernels as u32 {
        list.push(shared, &launch, number.checked_sub(1).as_slice())?;
    }
    let queue = DriverQueue::create(shared, QueueOrder::InOrder, false)?;
    let recording = Recording::new(shared, &list, &queue, false)?;
    let (mut replayed, mut recorded) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        turn(&mut replayed, || time(shared, &queue, || replay_once(shared, &queue, &list)))?;
        turn(&mut recorded, || time(shared, &queue, || record_once(&queue, &recording)))?;
    }
    let [replayed, recorded] = [replayed, recorded].map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    tracing::debug!(target: "wakegraph::opencl", kernels, ?replayed, ?recorded, "measured both lowerings");
    // What is about as fast is replayed: times on a busy machine vary, and an update of a recording
    // costs more.
    Ok(if recorded < replayed * 3 / 4 { Lowering::CommandBuffer } else { Lowering::Replay })
}

fn turn(
    times: &mut Vec<Duration>,
    mut run: impl FnMut() -> Result<Duration, Failure>,
) -> Result<(), Failure> {
    for number in 0..RUNS {
        let time = run()?;
        if number >= FIRST_RUNS {
            times.push(time);
        }
    }
    Ok(())
}

/// Waits as a submission does: what blocks is woken late by some drivers, and now and then only.
fn time(
    shared: &Shared,
    queue: &DriverQueue,
    run: impl FnOnce() -> Result<Owned<Event>, Failure>,
) -> Result<Duration, Failure> {
    let start = Instant::now();
    let event = run()?;
    queue.flush()?;
    while query::event_status(shared.core, event.raw())? > sys::CL_COMPLETE as sys::cl_int {
        std::thread::yield_now();
    }
    Ok(start.elapsed())
}

#[expect(unsafe_code, reason = "enqueues kernels on memory of its own")]
fn replay_once(shared: &Shared, queue: &DriverQueue, list: &List) -> Result<Owned<Event>, Failure> {
    // SAFETY: the memory is this measurement's alone, and lives until the event that is waited for.
    let started = unsafe { list.enqueue(shared, queue, &[], Timing::None) }?;
    match started {
        Started { event: Some(event), failure: None, .. } => Ok(event),
        _ => Err(Failure { call: "clEnqueueNDRangeKernel", code: sys::CL_OUT_OF_RESOURCES }),
    }
}

#[expect(unsafe_code, reason = "enqueues kernels on memory of its own")]
fn record_once(queue: &DriverQueue, recording: &Recording) -> Result<Owned<Event>, Failure> {
    // SAFETY: as above; the recording is not pending, for its last event has been waited for.
    unsafe { recording.enqueue(queue, &[]) }
}
