//! The instance of a command-buffer's graph: what enqueues launch and updates change.

use std::any::Any;
use std::sync::Arc;

use super::objects::{GraphObjects, InstantiatedGraph as _};
use crate::support::refusal::half_updated;
use crate::support::retired::Retired;
use crate::support::streams::{ContextFailure, DriverStream, RawEvent};
use crate::{Error, Result};

/// An instantiated graph, and what launches of it in flight may still use.
#[derive(Debug)]
pub struct LaunchableGraph<D: GraphObjects> {
    /// The driver's instance.
    pub exec: D::Exec,
    /// What the backend keeps beside it.
    pub form: D::Form,
    /// The stream of the last launch, of this graph or one that it has replaced.
    pub last: Option<Arc<DriverStream<D::Context>>>,
    retired: Retired<RawEvent<D::Context>, Box<dyn Any + Send>>,
    /// With profiling: owns the events of the record nodes, which keep a node's own until it gets another
    /// one.
    recorded: Vec<Arc<dyn Any + Send + Sync>>,
    /// Why it must not be launched any more.
    broken: Option<Error>,
}

impl<D: GraphObjects> LaunchableGraph<D> {
    /// An instance that has not been launched.
    pub fn new((exec, form): (D::Exec, D::Form)) -> Self {
        let (retired, recorded) = (Retired::default(), Vec::new());
        Self { exec, form, last: None, retired, recorded, broken: None }
    }

    /// Why it must not be launched any more, if there is a reason.
    pub fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }

    /// To be called before a launch.
    pub fn check_launch(&mut self) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.purge();
        Ok(())
    }

    /// Makes the record nodes record these events in later launches. `owner` owns all of them.
    pub fn record<'a>(
        &mut self,
        owner: Arc<dyn Any + Send + Sync>,
        events: impl Iterator<Item = (D::Node, &'a RawEvent<D::Context>)>,
    ) -> Result<(), ContextFailure<D::Context>> {
        // If this fails half-way, the nodes have events of both owners.
        self.recorded.push(owner);
        for (node, event) in events {
            self.exec.set_event(node, event)?;
        }
        self.recorded.drain(..self.recorded.len() - 1);
        Ok(())
    }

    /// Has another graph launched from now on.
    pub fn swap(&mut self, exec: D::Exec, form: D::Form) {
        let exec = std::mem::replace(&mut self.exec, exec);
        let form = std::mem::replace(&mut self.form, form);
        self.retire((exec, form));
        self.broken = None;
    }

    /// Keeps what launches in flight may use until they are done. The driver does not: it unloads a
    /// kernel that runs.
    pub fn retire(&mut self, replaced: impl Any + Send) {
        self.purge();
        match self.fence() {
            Ok(Some(fence)) => self.retired.keep(fence, Box::new(replaced)),
            Ok(None) => {}
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "what an update has replaced is leaked");
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
    pub fn change<E: Into<Error>>(
        &mut self,
        change: impl FnOnce(&mut D::Exec) -> Result<(), E>,
        undo: impl FnOnce(&mut D::Exec) -> Result<()>,
    ) -> Result<()> {
        self.check_intact()?;
        let Err(error) = change(&mut self.exec) else { return Ok(()) };
        let undone = undo(&mut self.exec);
        Err(self.failed(error.into(), undone))
    }

    /// To be called before a change.
    pub fn check_intact(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The error of a change that has failed. If it could not be undone, nothing is launched from now on.
    pub fn failed(&mut self, error: Error, undone: Result<()>) -> Error {
        let Err(cause) = undone else { return error };
        let unknown = half_updated(&error, &cause)
            .help("update everything from a graph with `update_from`, or finalize the graph again");
        self.broken = Some(unknown.clone());
        unknown
    }

    /// Complete when everything launched so far is.
    pub fn fence(&self) -> Result<Option<RawEvent<D::Context>>, ContextFailure<D::Context>> {
        self.last.as_ref().map(|last| RawEvent::recorded_on(last)).transpose()
    }
}
