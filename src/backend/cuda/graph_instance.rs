//! The instance of a command-buffer's graph: what enqueues launch and updates change.

use std::any::Any;
use std::sync::Arc;

use super::completion_counter::CountedRun;
use super::graph::GraphNode;
use super::graph_exec::CudaGraphExec;
use super::low_latency::CountingKernel;
use super::stream::{CudaRawEvent, CudaStream};
use super::sys::CudaFailure;
use crate::hal::support::retired::Retired;
use crate::types::{Error, ErrorKind, Result};

/// An instantiated graph, and what launches of it in flight may still use.
#[derive(Debug)]
pub(super) struct CudaGraphInstance {
    pub(super) exec: CudaGraphExec,
    /// In the low-latency form: counts every launch.
    counting: Option<CountingKernel>,
    /// The stream of the last launch, of this graph or one that it has replaced.
    last: Option<Arc<CudaStream>>,
    /// The next launch waits for this: the end of the last launch of the graph before this one.
    after: Option<CudaRawEvent>,
    retired: Retired<CudaRawEvent, Box<dyn Any + Send>>,
    /// With profiling: owns the events of the record nodes. The driver cannot give a node another
    /// event once the node's own is destroyed.
    recorded: Vec<Arc<dyn Any + Send + Sync>>,
    /// Why it must not be launched any more.
    pub(super) broken: Option<Error>,
}

impl CudaGraphInstance {
    pub(super) fn new(exec: CudaGraphExec, counting: Option<CountingKernel>) -> Self {
        Self {
            exec,
            counting,
            last: None,
            after: None,
            retired: Retired::default(),
            recorded: Vec::new(),
            broken: None,
        }
    }

    /// Launches the graph. The driver starts it when its last launch is done, on whatever stream
    /// that was, so runs are counted in the order of the launches. Returns the counted run, if the
    /// launch `counts` and the graph has the low-latency form.
    pub(super) fn launch(&mut self, stream: &Arc<CudaStream>, counts: bool) -> Result<Option<CountedRun>> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.purge();
        if let Some(after) = &self.after {
            stream.wait(after)?;
        }
        self.enable_counting(counts);
        if let Err(failure) = self.exec.launch(stream) {
            self.stop_counting(failure)?;
            self.exec.launch(stream)?;
        }
        self.after = None;
        if !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, stream)) {
            self.last = Some(Arc::clone(stream));
        }
        let counting = self.counting.as_ref().filter(|counting| counting.is_enabled);
        Ok(counting.map(|counting| counting.counter.launched()))
    }

    /// Has later launches counted or not. Where the driver refuses, they stay as they are.
    fn enable_counting(&mut self, enabled: bool) {
        let Some(counting) = &mut self.counting else { return };
        let is_due = counting.is_due(enabled);
        if is_due && self.exec.set_enabled(counting.node, enabled).is_ok() {
            counting.is_enabled = enabled;
        }
    }

    /// Gives up the low-latency form, which is only a hint, as a launch of it has failed.
    fn stop_counting(&mut self, failure: CudaFailure) -> Result<(), CudaFailure> {
        let enabled = self.counting.as_ref().filter(|counting| counting.is_enabled);
        let node = enabled.ok_or(failure)?.node;
        self.exec.set_enabled(node, false)?;
        let error = Error::from(failure);
        tracing::debug!(target: "wakegraph::cuda", %error, "launches are no longer counted");
        // Only now: a counter that is dropped may be used by others.
        let counting = self.counting.take();
        self.retire(counting);
        Ok(())
    }

    /// Makes the record nodes record these events in later launches. `owner` owns all of them.
    pub(super) fn record<'a>(
        &mut self,
        owner: Arc<dyn Any + Send + Sync>,
        events: impl Iterator<Item = (GraphNode, &'a CudaRawEvent)>,
    ) -> Result<(), CudaFailure> {
        // If this fails half-way, the nodes have events of both owners.
        self.recorded.push(owner);
        for (node, event) in events {
            self.exec.set_event(node, event)?;
        }
        self.recorded.drain(..self.recorded.len() - 1);
        Ok(())
    }

    /// Replaces the graph. Launches in flight go on, and the next launch comes after them.
    pub(super) fn replace(
        &mut self,
        exec: CudaGraphExec,
        counting: Option<CountingKernel>,
    ) -> Result<(), CudaFailure> {
        if let Some(fence) = self.fence()? {
            self.after = Some(fence);
        }
        let exec = std::mem::replace(&mut self.exec, exec);
        let old = (exec, std::mem::replace(&mut self.counting, counting));
        self.retire(old);
        self.broken = None;
        Ok(())
    }

    /// Keeps what launches in flight may use until they are done. The driver does not: it unloads a
    /// kernel that runs.
    pub(super) fn retire(&mut self, replaced: impl Any + Send) {
        self.purge();
        match self.fence() {
            Ok(Some(fence)) => self.retired.keep(fence, Box::new(replaced)),
            Ok(None) => {}
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::cuda", %error, "what an update has replaced is leaked");
                std::mem::forget(replaced);
            }
        }
    }

    /// Drops what has been replaced and no launch uses any more.
    fn purge(&mut self) {
        self.retired.purge(|fence| matches!(fence.is_complete(), Ok(true)));
    }

    /// Changes what later launches do: all of `change`, or nothing if that fails and `undo`
    /// succeeds. If `undo` fails as well, the state is unknown, and nothing is launched until
    /// another graph replaces this one.
    ///
    /// # Errors
    /// That of `change`; once the state is unknown, one that says so.
    pub(super) fn change<E: Into<Error>>(
        &mut self,
        change: impl FnOnce(&mut CudaGraphExec) -> Result<(), E>,
        undo: impl FnOnce(&mut CudaGraphExec) -> Result<()>,
    ) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let Err(error) = change(&mut self.exec) else { return Ok(()) };
        let error = error.into();
        let Err(cause) = undo(&mut self.exec) else { return Err(error) };
        let why = format!("an update failed half-way and could not be undone ({cause}): {}", error.message());
        let unknown = Error::new(ErrorKind::Driver, why)
            .help("update everything from a graph with `update_from`, or finalize the graph again");
        self.broken = Some(unknown.clone());
        Err(unknown)
    }

    /// Complete when everything launched so far is.
    fn fence(&self) -> Result<Option<CudaRawEvent>, CudaFailure> {
        self.last.as_ref().map(|last| CudaRawEvent::recorded_on(last)).transpose()
    }
}
