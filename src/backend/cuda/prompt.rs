//! The prompt form of a command-buffer: the same graph, followed by a kernel that tells the host of its end.
//!
//! The host reads that a microsecond before an event would say so, without a call, for a
//! microsecond of the device's time; enqueues ask for it where somebody looks in a loop
//! ([`Signal::prompt`](crate::hal::Signal::prompt)). There is no fence between the commands and the
//! word, so this serves only what leaves nothing on the host or on another device: there, the
//! driver's own order makes results visible to whatever is enqueued next.
//!
//! This is for command-buffers that stay as they are; `ticking` is for those that can be updated.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::demand::Demand;
use super::device::Shared;
use super::graph::{Exec, Graph, Node};
use super::memory::CudaMemory;
use super::stream::{RawEvent, Stream};
use super::tick::Tick;
use crate::hal::{Command, KernelArg, MemoryKind, MemoryView};
use crate::types::Result;

/// The prompt form, made when it has been asked for a few times.
#[derive(Default, Debug)]
pub(super) struct Prompt {
    form: Option<Form>,
    demand: Demand,
    commands: u32,
    /// The nodes that nothing follows yet.
    ends: SmallVec<[Node; 4]>,
    /// What was launched last, and where.
    last: Option<(Launched, Arc<Stream>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Launched {
    Plain,
    Prompt,
}

#[derive(Debug)]
struct Form {
    exec: Exec,
    tick: Arc<Tick>,
    _graph: Graph,
}

/// Of more commands nobody waits for the last microsecond.
pub(super) const MOST_COMMANDS: u32 = 128;

impl Prompt {
    /// A command has been appended: after these nodes, and with these ends.
    pub(super) fn append(&mut self, after: &[Node], ends: &[Node]) {
        self.commands = self.commands.saturating_add(1);
        if self.commands > MOST_COMMANDS {
            self.ends = SmallVec::new();
            return;
        }
        self.ends.retain(|end| !after.contains(end));
        self.ends.extend(
            ends.iter().filter(|end| !self.ends.contains(end)).copied().collect::<SmallVec<[Node; 4]>>(),
        );
    }

    /// An enqueue on `stream` is next; the context is bound. Launches the prompt form, if it is
    /// `asked` for and there is one by now: gives the tick, and what it will have counted then.
    /// Else the caller launches the plain one, also where the prompt form cannot be made or
    /// launched: it is a hint.
    pub(super) fn launch(
        &mut self,
        shared: &Arc<Shared>,
        graph: &Mutex<Graph>,
        stream: &Arc<Stream>,
        asked: bool,
    ) -> Result<Option<(Arc<Tick>, u64)>> {
        if asked && self.commands <= MOST_COMMANDS {
            match self.launch_form(shared, graph, stream) {
                Ok(None) => {}
                Ok(ticked) => return Ok(ticked),
                Err(error) => {
                    // A lost device is not a matter of the form: the plain launch says so as well.
                    tracing::debug!(target: "wakegraph::cuda", %error, "the prompt form cannot be used");
                    self.demand.in_vain();
                }
            }
        }
        self.follow(shared, stream, Launched::Plain)?;
        self.launched(Launched::Plain, stream);
        Ok(None)
    }

    /// Launches the prompt form, if it is there or has been asked for often enough to be worth making.
    fn launch_form(
        &mut self,
        shared: &Arc<Shared>,
        graph: &Mutex<Graph>,
        stream: &Arc<Stream>,
    ) -> Result<Option<(Arc<Tick>, u64)>> {
        if self.form.is_none() {
            if !self.demand.next(true, false) {
                return Ok(None);
            }
            let form = shared.retry_with_room(|| Form::make(shared, &graph.lock(), &self.ends, stream))?;
            self.form = Some(form);
        }
        self.follow(shared, stream, Launched::Prompt)?;
        let Some(form) = &mut self.form else { return Ok(None) };
        form.exec.launch(stream)?;
        let ticked = (Arc::clone(&form.tick), form.tick.launched());
        self.launched(Launched::Prompt, stream);
        Ok(Some(ticked))
    }

    /// Makes `stream` come after the last launch. The driver sees to it on one stream, and, as
    /// launches of one graph never overlap, for one form.
    fn follow(&self, shared: &Shared, stream: &Arc<Stream>, next: Launched) -> Result<()> {
        let Some((last, before)) = &self.last else { return Ok(()) };
        let over = || self.form.as_ref().is_some_and(|form| form.tick.is_idle());
        if !Arc::ptr_eq(before, stream) && *last != next && !(*last == Launched::Prompt && over()) {
            let event = RawEvent::create(&shared.context, false)?;
            event.record(before)?;
            stream.wait(&event)?;
        }
        Ok(())
    }

    fn launched(&mut self, form: Launched, stream: &Arc<Stream>) {
        match &mut self.last {
            Some((last, on)) if Arc::ptr_eq(on, stream) => *last = form,
            last => *last = Some((form, Arc::clone(stream))),
        }
    }
}

impl Form {
    fn make(shared: &Arc<Shared>, graph: &Graph, ends: &[Node], stream: &Stream) -> Result<Self> {
        let tick = Tick::take(shared)?;
        let (mut graph, ends) = graph.duplicate(ends)?;
        graph.place().add_kernel(&tick.launch()?, &ends)?;
        let mut exec = graph.instantiate()?;
        exec.upload(stream)?;
        Ok(Self { exec, tick: Arc::new(tick), _graph: graph })
    }
}

/// Whether nothing of what the command writes is anywhere but on the device.
pub(super) fn stays_on(shared: &Shared, command: &Command) -> bool {
    let here = |view: &MemoryView| {
        let memory = view.memory().as_any().downcast_ref::<CudaMemory>();
        memory.is_some_and(|memory| {
            memory.shared().info.id == shared.info.id && view.memory().kind() == MemoryKind::Device
        })
    };
    match command {
        Command::Kernel(launch) => launch.args.iter().all(|arg| match arg {
            KernelArg::Value(_) | KernelArg::Local(_) => true,
            KernelArg::Memory(view) => here(view),
            // It may be anywhere.
            KernelArg::Usm(_) => false,
        }),
        Command::BufferCopy { dst, .. }
        | Command::BufferCopyRect { dst, .. }
        | Command::BufferWrite { dst, .. }
        | Command::BufferWriteRect { dst, .. }
        | Command::BufferFill { dst, .. } => here(dst),
        Command::Empty => true,
        _ => false,
    }
}
