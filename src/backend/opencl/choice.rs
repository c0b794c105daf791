//! Which lowering is faster on a device: measured once for each class of sizes.
//!
//! On CPUs a recording is often slower than plain enqueues, on GPUs it should not be; nothing that a device reports says
//! which. So the first finalize of each class of sizes times both, with kernels that do nothing.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::device::Shared;
use super::kernel::OpenclKernel;
use super::options::Lowering;
use super::queue::DriverQueue;
use super::record::Recording;
use super::replay::{List, Timing};
use super::sys::{self, Failure};
use crate::hal::{Command, KernelDesc, KernelLaunch, KernelSources, QueueOrder};
use crate::types::{Range, Result};

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

/// Rounds of each, alternating; the fastest counts, for noise only ever adds.
const ROUNDS: usize = 12;

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
    let sources = KernelSources::new().opencl_c("__kernel void wakegraph_nothing(void) {}\n");
    let desc = KernelDesc { name: "wakegraph_nothing", params: &[], sources: &sources };
    let kernel = Arc::new(OpenclKernel::load(shared, &desc)?);
    let launch = Command::Kernel(Box::new(KernelLaunch {
        kernel,
        args: Vec::new(),
        range: Range::linear(1),
        alternatives: Vec::new(),
    }));
    let mut list = List::default();
    for number in 0..kernels as u32 {
        list.push(shared, &launch, number.checked_sub(1).as_slice())?;
    }
    let queue = DriverQueue::create(shared, QueueOrder::InOrder, false)?;
    let recording = Recording::new(shared, &list, &queue, false)?;
    let (mut replay, mut recorded) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        replay = replay.min(time(&queue, || replay_once(shared, &queue, &list))?);
        recorded = recorded.min(time(&queue, || record_once(&queue, &recording))?);
    }
    tracing::debug!(target: "wakegraph::opencl", kernels, ?replay, ?recorded, "measured both lowerings");
    Ok(if recorded < replay { Lowering::CommandBuffer } else { Lowering::Replay })
}

fn time(queue: &DriverQueue, run: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let start = Instant::now();
    run()?;
    queue.finish()?;
    Ok(start.elapsed())
}

#[expect(unsafe_code, reason = "enqueues kernels that touch nothing")]
fn replay_once(shared: &Shared, queue: &DriverQueue, list: &List) -> Result<(), Failure> {
    // SAFETY: the kernels touch no memory, and the queue is finished before the list goes.
    let started = unsafe { list.enqueue(shared, queue, &[], Timing::None) }?;
    match started.failure {
        None => Ok(()),
        Some(_) => Err(Failure { call: "clEnqueueNDRangeKernel", code: sys::CL_OUT_OF_RESOURCES }),
    }
}

#[expect(unsafe_code, reason = "enqueues kernels that touch nothing")]
fn record_once(queue: &DriverQueue, recording: &Recording) -> Result<(), Failure> {
    // SAFETY: as above; the recording is not pending, for the queue has been finished.
    unsafe { recording.enqueue(queue, &[]) }.map(drop)
}
