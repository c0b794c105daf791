//! What enqueues launch: an instantiated graph, in the place of those that updates have replaced.

use std::sync::Arc;

use super::context::Context;
use super::graph::{Exec, Node};
use super::launch::Launch;
use super::memory::CudaMemory;
use super::signal::Signal;
use super::stream::{RawEvent, Stream};
use super::sys::Failure;
use crate::hal::Command;
use crate::types::{Error, Result};

/// The instance of a command-buffer.
#[derive(Debug)]
pub(super) struct Instance {
    exec: Exec,
    /// Where it, or one that it has replaced, was launched last; known of updatable buffers only.
    last: Option<Arc<Stream>>,
    /// What the next launch comes after: the last one of the instance that this has replaced.
    after: Option<RawEvent>,
    /// What is no longer used once the event is complete.
    retired: Vec<(RawEvent, Replaced)>,
    /// With profiling: whose events its record nodes have. The driver gives a node no other event once it has destroyed the
    /// one that it has.
    recorded: Vec<Arc<Signal>>,
    /// Why it must not be launched any more.
    broken: Option<Error>,
}

/// What an update has replaced, and launches in flight may still use.
#[derive(Default, Debug)]
pub(super) struct Replaced {
    /// With their kernels and operands.
    pub(super) commands: Vec<Command>,
    pub(super) patterns: Vec<Arc<CudaMemory>>,
    exec: Option<Exec>,
}

impl Replaced {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.patterns.is_empty() && self.exec.is_none()
    }
}

impl Instance {
    pub(super) fn new(exec: Exec) -> Self {
        Self { exec, last: None, after: None, retired: Vec::new(), recorded: Vec::new(), broken: None }
    }

    /// Launches it. The driver starts it when its last launch, on whatever stream, is done.
    pub(super) fn launch(&mut self, stream: &Arc<Stream>, updatable: bool) -> Result<()> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if let Some(after) = &self.after {
            stream.wait(after)?;
        }
        self.exec.launch(stream)?;
        self.after = None;
        if updatable && !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, stream)) {
            self.last = Some(Arc::clone(stream));
        }
        Ok(())
    }

    /// Lets the record nodes record these events in later launches. All of them are the signal's.
    pub(super) fn record<'a>(
        &mut self,
        signal: &Arc<Signal>,
        events: impl Iterator<Item = (Node, &'a RawEvent)>,
    ) -> Result<(), Failure> {
        // Should it fail half-way, some nodes have events of either.
        self.recorded.push(Arc::clone(signal));
        for (node, event) in events {
            self.exec.set_event(node, event)?;
        }
        self.recorded.drain(..self.recorded.len() - 1);
        Ok(())
    }

    /// Puts another one in its place. What is in flight goes on, and the next launch comes after it.
    pub(super) fn replace(&mut self, exec: Exec, context: &Arc<Context>) -> Result<(), Failure> {
        if let Some(fence) = self.fence(context)? {
            self.after = Some(fence);
        }
        let replaced = std::mem::replace(&mut self.exec, exec);
        self.retire(Replaced { exec: Some(replaced), ..Replaced::default() }, context);
        self.broken = None;
        Ok(())
    }

    /// Keeps what launches in flight may use until they are done. The driver does not: it unloads a kernel that runs.
    pub(super) fn retire(&mut self, replaced: Replaced, context: &Arc<Context>) {
        self.retired.retain(|(event, _)| !matches!(event.is_complete(), Ok(true)));
        if replaced.is_empty() {
            return;
        }
        match self.fence(context) {
            Ok(Some(fence)) => self.retired.push((fence, replaced)),
            Ok(None) => {}
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::cuda", %error, "what an update has replaced is leaked");
                std::mem::forget(replaced);
            }
        }
    }

    pub(super) fn exec(&mut self) -> &mut Exec {
        &mut self.exec
    }

    /// Nobody knows what it would do.
    pub(super) fn set_broken(&mut self, error: Error) {
        self.broken = Some(error);
    }

    /// Sets a kernel node, and whether a command's nodes do anything.
    pub(super) fn set(
        &mut self,
        kernel: Option<(Node, &Launch)>,
        enabled: Option<(&[Node], bool)>,
    ) -> Result<(), Failure> {
        if let Some((node, launch)) = kernel {
            self.exec.set_kernel(node, launch)?;
        }
        if let Some((nodes, enabled)) = enabled {
            for node in nodes {
                self.exec.set_enabled(*node, enabled)?;
            }
        }
        Ok(())
    }

    /// Complete when everything launched so far is.
    fn fence(&self, context: &Arc<Context>) -> Result<Option<RawEvent>, Failure> {
        let Some(last) = &self.last else { return Ok(None) };
        let fence = RawEvent::create(context, false)?;
        fence.record(last)?;
        Ok(Some(fence))
    }
}
