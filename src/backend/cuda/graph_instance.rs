//! The instance of a command-buffer's graph: how it is launched and replaced.

use std::sync::Arc;

use super::device_inner::CudaDeviceInner;
use super::graph_exec::CudaGraphExec;
use super::loop_stop::LoopStop;
use super::low_latency::CountingKernel;
use super::stream::{CudaRawEvent, CudaStream};
use super::sys::CudaFailure;
use crate::hal::support::graphs::{InstantiatedGraph as _, LaunchableGraph};
use crate::hal::support::streams::Started;
use crate::types::{Error, Result};

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

impl LaunchableGraph<CudaDeviceInner> {
    /// Launches the graph. The driver starts it when its last launch is done, on whatever stream
    /// that was, so runs are counted in the order of the launches. A counter tells of the end, if the
    /// launch `counts` and the graph has the low-latency form.
    pub(super) fn launch(
        &mut self,
        stream: &Arc<CudaStream>,
        counts: bool,
    ) -> Result<Started<CudaDeviceInner>> {
        self.check_launch()?;
        if let Some(after) = &self.form.after {
            stream.wait(after)?;
        } else if (self.exec.is_parted() || self.form.loops.is_some())
            && self.last.as_ref().is_some_and(|last| !Arc::ptr_eq(last, stream))
            && let Some(fence) = self.fence()?
        {
            // The driver has each part wait for its own last launch, and not for that of the others. And the
            // number of a run must not change while the one before compares it.
            stream.wait(&fence)?;
        }
        let loops = self.form.loops.as_ref().map(|loops| loops.begin_run(stream)).transpose()?;
        self.enable_counting(counts);
        let failure = match self.exec.launch(stream) {
            Ok(failure) => failure.map(Error::from),
            Err(failure) => {
                self.stop_counting(failure)?;
                self.exec.launch(stream)?.map(Error::from)
            }
        };
        self.form.after = None;
        if !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, stream)) {
            self.last = Some(Arc::clone(stream));
        }
        let counting = self.form.counting.as_ref().filter(|counting| counting.is_enabled);
        Ok(Started { counted: counting.map(|counting| counting.counter.launched()), loops, failure })
    }

    /// Has later launches counted or not. Where the driver refuses, they stay as they are.
    fn enable_counting(&mut self, enabled: bool) {
        let Some(counting) = &mut self.form.counting else { return };
        let is_due = counting.is_due(enabled);
        if is_due && self.exec.set_enabled(counting.node, enabled).is_ok() {
            counting.is_enabled = enabled;
        }
    }

    /// Gives up the low-latency form, which is only a hint, as a launch of it has failed.
    fn stop_counting(&mut self, failure: CudaFailure) -> Result<(), CudaFailure> {
        let enabled = self.form.counting.as_ref().filter(|counting| counting.is_enabled);
        let node = enabled.ok_or(failure)?.node;
        self.exec.set_enabled(node, false)?;
        let error = Error::from(failure);
        tracing::debug!(target: "wakegraph::cuda", %error, "launches are no longer counted");
        // Only now: a counter that is dropped may be used by others.
        let counting = self.form.counting.take();
        self.retire(counting);
        Ok(())
    }

    /// Replaces the graph. Launches in flight go on, and the next launch comes after them.
    pub(super) fn replace(&mut self, exec: CudaGraphExec, mut form: InstanceForm) -> Result<(), CudaFailure> {
        if let Some(fence) = self.fence()? {
            self.form.after = Some(fence);
        }
        form.after = self.form.after.take();
        self.swap(exec, form);
        Ok(())
    }
}
