//! Measures which lowering is faster on a device, once for each class of sizes.
//!
//! On CPUs a recording is often slower than plain enqueues, and on GPUs it should not be; nothing that
//! a device reports tells. So the first finalize in each class of sizes times both. It uses a chain of
//! kernels that do next to nothing, but with real memory: kernels without arguments favour recordings.
#![expect(unsafe_code, reason = "enqueues kernels on memory of its own")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::{OpenclContext, SIZE_CLASSES};
use super::driver_queue::DriverQueue;
use super::kernel::OpenclKernel;
use super::lower::lower;
use super::memory::OpenclMemory;
use super::options::Lowering;
use super::query;
use super::recording::OpenclRecording;
use super::replay::ReplayTarget;
use super::signal::{StartedWork, TimesWanted};
use super::sys::{self, DriverResult, Event, OpenclFailure, Owned};
use crate::hal::support::command_list::CommandList;
use crate::hal::{
    Command, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, Param,
    ParamKind, QueueDesc, QueueOrder,
};
use crate::types::{AccessMode, Range, Result};

/// The classes: the most commands of a list in it, and the kernels in the chain that is timed for it.
const CLASSES: [(usize, usize); SIZE_CLASSES] = [(3, 1), (31, 10), (usize::MAX, 100)];

/// Both lowerings take turns of several runs, and the median counts of all runs but the first ones of
/// each turn: those depend on whether the other lowering has left the driver's threads awake or asleep.
const TURNS: usize = 5;
const RUNS: usize = 8;
const FIRST_RUNS: usize = 2;

/// Work-items of a kernel.
const ITEMS: usize = 16;

const SOURCE: &str = "__kernel void wakegraph_measure(__global uint *x) { x[get_global_id(0)] += 1; }\n";

/// The faster lowering for a list of this many commands.
pub(super) fn faster(context: &Arc<OpenclContext>, commands: usize) -> Lowering {
    let class = CLASSES.iter().position(|(most, _)| commands <= *most).unwrap_or(0);
    *context.faster[class].get_or_init(|| {
        measure(context, CLASSES[class].1).unwrap_or_else(|error| {
            tracing::warn!(target: "wakegraph::opencl", %error, "could not measure; commands are replayed");
            Lowering::Replay
        })
    })
}

fn measure(context: &Arc<OpenclContext>, kernels: usize) -> Result<Lowering> {
    let sources = KernelSources::new().opencl_c(SOURCE);
    let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
    let params = [Param { name: "x".into(), kind }];
    let desc = KernelDesc { name: "wakegraph_measure", params: &params, sources: &sources };
    let kernel = Arc::new(OpenclKernel::load(context, &desc)?);
    let desc = MemoryDesc { len: 4 * ITEMS, kind: MemoryKind::Device };
    let memory = MemoryView::whole(Arc::new(OpenclMemory::allocate(context, &desc)?));
    let launch = Command::Kernel(Box::new(KernelLaunch {
        kernel,
        args: vec![KernelArg::Memory(memory)],
        range: Range::linear(ITEMS),
        alternatives: Vec::new(),
    }));
    let mut list = CommandList::default();
    for number in 0..kernels as u32 {
        list.push(lower(context, &launch)?, number.checked_sub(1).into_iter().collect());
    }
    let queue = context.create_queue(QueueDesc::new(QueueOrder::InOrder))?;
    let recording = OpenclRecording::new(context, &list, false)?;
    let target = ReplayTarget { context, queue: &queue, wait: &[], wanted: TimesWanted::None };
    let (mut replayed, mut recorded) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        time_runs(&mut replayed, || {
            // SAFETY: the memory is used here only, and lives until the event that is waited for.
            match unsafe { target.enqueue(&list) }? {
                StartedWork { event: Some(event), failure: None, .. } => wait(&queue, &event),
                _ => Err(OpenclFailure { call: "clEnqueueNDRangeKernel", code: sys::CL_OUT_OF_RESOURCES }),
            }
        })?;
        time_runs(&mut recorded, || {
            // SAFETY: as above; the recording is not pending, as its last event has been waited for.
            wait(&queue, &unsafe { recording.enqueue(&queue, &[]) }?)
        })?;
    }
    let [replayed, recorded] = [replayed, recorded].map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    tracing::debug!(target: "wakegraph::opencl", kernels, ?replayed, ?recorded, "measured both lowerings");
    // Replay unless recordings are clearly faster: times vary on a busy machine, and an update of a
    // recording costs more.
    Ok(if recorded < replayed * 3 / 4 { Lowering::CommandBuffer } else { Lowering::Replay })
}

/// Times one turn of runs.
fn time_runs(times: &mut Vec<Duration>, mut run: impl FnMut() -> DriverResult) -> DriverResult {
    for number in 0..RUNS {
        let start = Instant::now();
        run()?;
        if number >= FIRST_RUNS {
            times.push(start.elapsed());
        }
    }
    Ok(())
}

/// Polls as the runtime does: after a blocking wait, some drivers sometimes wake the thread late.
fn wait(queue: &DriverQueue, event: &Owned<Event>) -> DriverResult {
    queue.flush()?;
    while query::event_status(queue.core, event.raw())? > sys::CL_COMPLETE as sys::cl_int {
        std::thread::yield_now();
    }
    Ok(())
}
