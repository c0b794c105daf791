//! What enqueues launch: an instantiated graph, in the place of those that updates have replaced.

use std::sync::Arc;

use super::context::Context;
use super::demand::Demand;
use super::graph::{Exec, Node};
use super::memory::CudaMemory;
use super::queue::Ticked;
use super::signal::Signal;
use super::stream::{RawEvent, Stream};
use super::sys::Failure;
use super::tick::Tick;
use crate::hal::{Command, KernelArg};
use crate::types::{Error, ErrorKind, Result};

/// The instance of a command-buffer.
#[derive(Debug)]
pub(super) struct Instance {
    exec: Exec,
    /// What counts up behind every launch of it, if anything does.
    tick: Option<Arc<Tick>>,
    demand: Demand,
    /// Where it, or one that it has replaced, was launched last; known of updatable buffers only.
    last: Option<Arc<Stream>>,
    /// What the next launch comes after: the last one of the instance that this has replaced.
    after: Option<RawEvent>,
    /// What is no longer used once the event is complete.
    retired: Vec<(RawEvent, Replaced)>,
    /// With profiling: whose events its record nodes have. The driver gives a node no other event
    /// once it has destroyed the one that it has.
    recorded: Vec<Arc<Signal>>,
    /// Why it must not be launched any more.
    broken: Option<Error>,
}

/// What an update has replaced, and launches in flight may still use.
#[derive(Default, Debug)]
pub(super) struct Replaced {
    /// With their kernels and operands.
    pub(super) commands: Vec<Command>,
    /// Operands that a launch no longer has.
    pub(super) args: Vec<KernelArg>,
    pub(super) patterns: Vec<Arc<CudaMemory>>,
    /// With what it counts up.
    exec: Option<(Exec, Option<Arc<Tick>>)>,
}

impl Replaced {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.args.is_empty() && self.patterns.is_empty() && self.exec.is_none()
    }
}

impl Instance {
    pub(super) fn new(exec: Exec) -> Self {
        Self {
            exec,
            tick: None,
            demand: Demand::default(),
            last: None,
            after: None,
            retired: Vec::new(),
            recorded: Vec::new(),
            broken: None,
        }
    }

    /// Launches it. The driver starts it when its last launch, on whatever stream, is done, so that
    /// ticks come in the order of the launches. Gives the tick, and what it will have counted then.
    pub(super) fn launch(&mut self, stream: &Arc<Stream>, updatable: bool) -> Result<Option<Ticked>> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.purge();
        if let Some(after) = &self.after {
            stream.wait(after)?;
        }
        self.exec.launch(stream)?;
        let ticked = self.tick.as_ref().map(|tick| (Arc::clone(tick), tick.launched()));
        self.after = None;
        if updatable && !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, stream)) {
            self.last = Some(Arc::clone(stream));
        }
        Ok(ticked)
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

    /// An enqueue is next, which asks for a tick or does not. Gives whether there should be one,
    /// where that is to change.
    pub(super) fn next_form(&mut self, asked: bool) -> Option<bool> {
        if self.broken.is_some() {
            return None;
        }
        let ticks = self.ticks();
        let wanted = self.demand.next(asked, ticks);
        (wanted != ticks).then_some(wanted)
    }

    /// There is no other form now, nor soon.
    pub(super) fn form_refused(&mut self) {
        self.demand.in_vain();
    }

    /// Whether something counts up behind every launch.
    pub(super) fn ticks(&self) -> bool {
        self.tick.is_some()
    }

    /// Puts another one in its place, which counts up the tick. What is in flight goes on, and the
    /// next launch comes after it.
    pub(super) fn replace(
        &mut self,
        exec: Exec,
        tick: Option<Arc<Tick>>,
        context: &Arc<Context>,
    ) -> Result<(), Failure> {
        if let Some(fence) = self.fence(context)? {
            self.after = Some(fence);
        }
        if self.ticks() && tick.is_none() {
            self.demand.in_vain();
        }
        let replaced = (std::mem::replace(&mut self.exec, exec), std::mem::replace(&mut self.tick, tick));
        self.retire(Replaced { exec: Some(replaced), ..Replaced::default() }, context);
        self.broken = None;
        Ok(())
    }

    /// Keeps what launches in flight may use until they are done. The driver does not: it unloads a
    /// kernel that runs.
    pub(super) fn retire(&mut self, replaced: Replaced, context: &Arc<Context>) {
        self.purge();
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

    /// Drops what has been replaced and no launch uses any more.
    fn purge(&mut self) {
        self.retired.retain(|(event, _)| !matches!(event.is_complete(), Ok(true)));
    }

    /// Changes what it does in later launches: all of `change`, or nothing if that fails and `undo`
    /// succeeds. Where `undo` fails as well, its state is unknown, and it is not launched again
    /// until another instance replaces it.
    ///
    /// # Errors
    /// That of `change`; or, from then on, one which says that the state is unknown.
    pub(super) fn change<E: Into<Error>>(
        &mut self,
        change: impl FnOnce(&mut Exec) -> Result<(), E>,
        undo: impl FnOnce(&mut Exec) -> Result<()>,
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

    /// Whether an update has left it in an unknown state.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Complete when everything launched so far is.
    fn fence(&self, context: &Arc<Context>) -> Result<Option<RawEvent>, Failure> {
        let Some(last) = &self.last else { return Ok(None) };
        let fence = RawEvent::create(context, false)?;
        fence.record(last)?;
        Ok(Some(fence))
    }
}
