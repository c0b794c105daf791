//! The instance of a command-buffer's graph: what enqueues launch and updates change.

use std::any::Any;
use std::sync::Arc;

use super::graph::HipGraphNode;
use super::graph_exec::HipGraphExec;
use super::stream::{HipRawEvent, HipStream};
use super::sys::HipFailure;
use crate::hal::support::retired::Retired;
use crate::types::{Error, ErrorKind, Result};

/// An instantiated graph, and what launches of it in flight may still use.
#[derive(Debug)]
pub(super) struct HipGraphInstance {
    pub(super) exec: HipGraphExec,
    /// The stream of the last launch, of this graph or one that it has replaced.
    last: Option<Arc<HipStream>>,
    retired: Retired<HipRawEvent, Box<dyn Any + Send>>,
    /// With profiling: owns the events of the record nodes, which keep a node's own until it gets
    /// another one.
    recorded: Vec<Arc<dyn Any + Send + Sync>>,
    /// Why it must not be launched any more.
    pub(super) broken: Option<Error>,
}

impl HipGraphInstance {
    pub(super) fn new(exec: HipGraphExec) -> Self {
        Self { exec, last: None, retired: Retired::default(), recorded: Vec::new(), broken: None }
    }

    /// Launches the graph behind its last launch. The driver orders launches on one stream only: on
    /// two streams they would run side by side.
    pub(super) fn launch(&mut self, stream: &Arc<HipStream>) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.purge();
        let is_ordered = self.last.as_ref().is_none_or(|last| Arc::ptr_eq(last, stream));
        if !is_ordered && let Some(end) = self.fence()? {
            stream.wait(&end)?;
        }
        self.exec.launch(stream)?;
        if !is_ordered || self.last.is_none() {
            self.last = Some(Arc::clone(stream));
        }
        Ok(())
    }

    /// Whether a launch may still run.
    pub(super) fn is_in_flight(&self) -> Result<bool, HipFailure> {
        self.last.as_ref().map_or(Ok(false), |last| Ok(!last.is_idle()?))
    }

    /// Makes the record nodes record these events in later launches. `owner` owns all of them.
    pub(super) fn record<'a>(
        &mut self,
        owner: Arc<dyn Any + Send + Sync>,
        events: impl Iterator<Item = (HipGraphNode, &'a HipRawEvent)>,
    ) -> Result<(), HipFailure> {
        // If this fails half-way, the nodes have events of both owners.
        self.recorded.push(owner);
        for (node, event) in events {
            self.exec.set_event(node, event)?;
        }
        self.recorded.drain(..self.recorded.len() - 1);
        Ok(())
    }

    /// Replaces the graph. Launches in flight go on, and the next launch comes after them.
    pub(super) fn replace(&mut self, exec: HipGraphExec) {
        let old = std::mem::replace(&mut self.exec, exec);
        self.retire(old);
        self.broken = None;
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
                tracing::warn!(target: "wakegraph::hip", %error, "what an update has replaced is leaked");
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
        change: impl FnOnce(&mut HipGraphExec) -> Result<(), E>,
        undo: impl FnOnce(&mut HipGraphExec) -> Result<()>,
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
    fn fence(&self) -> Result<Option<HipRawEvent>, HipFailure> {
        self.last.as_ref().map(|last| HipRawEvent::recorded_on(last)).transpose()
    }
}
