//! The instance of a command-buffer's graph: how it is launched and replaced.

use std::sync::Arc;

use wakegraph_hal::support::graphs::{InstantiatedGraph as _, LaunchableGraph};
use wakegraph_hal::support::streams::Started;
use wakegraph_hal::{Error, Result};

use super::device_inner::CudaDeviceInner;
use super::graph_exec::CudaGraphExec;
use super::loop_stop::LoopStop;
use super::low_latency::CountingKernel;
use super::stream::{CudaRawEvent, CudaStream};
use super::sys::CudaFailure;

/// What an instance has beside the instantiated graph.
#[derive(Debug)]
pub(super) struct InstanceForm {
    /// In the low-latency form: counts every launch.
    counting: Option<CountingKernel>,
    /// With loops: stops those of a run.
    loops: Option<Arc<LoopStop>>,
    /// The next launch waits for this: the end of the last launch of the graph before this one.
    after: Option<CudaRawEvent>,
}

impl InstanceForm {
    pub(super) fn new(counting: Option<CountingKernel>, loops: Option<Arc<LoopStop>>) -> Self {
        Self { counting, loops, after: None }
    }
}

/// An instantiated graph, which enqueues launch.
pub(super) type CudaInstance = LaunchableGraph<CudaDeviceInner>;

/// Launches the graph. The driver starts it when its last launch is done, on whatever stream
/// that was, so runs are counted in the order of the launches. A counter tells of the end, if the
/// launch `counts` and the graph has the low-latency form.
pub(super) fn launch(
    instance: &mut CudaInstance,
    stream: &Arc<CudaStream>,
    counts: bool,
) -> Result<Started<CudaDeviceInner>> {
    instance.check_launch()?;
    if let Some(after) = &instance.form.after {
        stream.wait(after)?;
    } else if (instance.exec.is_parted() || instance.form.loops.is_some())
        && instance.last.as_ref().is_some_and(|last| !Arc::ptr_eq(last, stream))
        && let Some(fence) = instance.fence()?
    {
        // The driver has each part wait for its own last launch, and not for that of the others. And the
        // number of a run must not change while the one before compares it.
        stream.wait(&fence)?;
    }
    let loops = instance.form.loops.as_ref().map(|loops| loops.begin_run(stream)).transpose()?;
    enable_counting(instance, counts);
    let failure = match instance.exec.launch(stream) {
        Ok(failure) => failure.map(Error::from),
        Err(failure) => {
            stop_counting(instance, failure)?;
            instance.exec.launch(stream)?.map(Error::from)
        }
    };
    instance.form.after = None;
    if !instance.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, stream)) {
        instance.last = Some(Arc::clone(stream));
    }
    let counting = instance.form.counting.as_ref().filter(|counting| counting.is_enabled);
    Ok(Started { counted: counting.map(|counting| counting.counter.launched()), loops, failure })
}

/// Has later launches counted or not. Where the driver refuses, they stay as they are.
fn enable_counting(instance: &mut CudaInstance, enabled: bool) {
    let Some(counting) = &mut instance.form.counting else { return };
    let is_due = counting.is_due(enabled);
    if is_due && instance.exec.set_enabled(counting.node, enabled).is_ok() {
        counting.is_enabled = enabled;
    }
}

/// Gives up the low-latency form, which is only a hint, as a launch of it has failed.
fn stop_counting(instance: &mut CudaInstance, failure: CudaFailure) -> Result<(), CudaFailure> {
    let enabled = instance.form.counting.as_ref().filter(|counting| counting.is_enabled);
    let node = enabled.ok_or(failure)?.node;
    instance.exec.set_enabled(node, false)?;
    let error = Error::from(failure);
    tracing::debug!(target: "wakegraph::cuda", %error, "launches are no longer counted");
    // Only now: a counter that is dropped may be used by others.
    let counting = instance.form.counting.take();
    instance.retire(counting);
    Ok(())
}

/// Replaces the graph. Launches in flight go on, and the next launch comes after them.
pub(super) fn replace(
    instance: &mut CudaInstance,
    exec: CudaGraphExec,
    mut form: InstanceForm,
) -> Result<(), CudaFailure> {
    if let Some(fence) = instance.fence()? {
        instance.form.after = Some(fence);
    }
    form.after = instance.form.after.take();
    instance.swap(exec, form);
    Ok(())
}
