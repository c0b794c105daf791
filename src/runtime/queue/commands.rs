//! The commands of queues.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;
use wakegraph_hal::{self as hal, AccessMode, Advice, CommandKind, Error, ErrorKind, Range, Result};

use crate::runtime::builder::memory_command::{MemoryCommand, Transfer};
use crate::runtime::builder::verbs::{NewNode, verbs};
use crate::runtime::builder::{Graph, host_accesses};
use crate::runtime::execution::accesses::UsedAllocation;
use crate::runtime::execution::executable_graph::ExecutableGraph;
use crate::runtime::execution::host_control::ControlKind;
use crate::runtime::execution::host_guard::{HostAccesses, TaskClosure, TaskOutput};
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission::{Event, Submission};
use crate::runtime::execution::submit;
use crate::runtime::finalize::{self, idle};
use crate::runtime::queue::command::QueueCommand;
use crate::runtime::queue::recording::{Recorder, connect};
use crate::runtime::queue::{Barrier, Queue, QueueInner};
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::memory_arg::{CopySource, MemoryArg, Operand};
use crate::runtime::resource::rect::RectCopy;
use crate::runtime::resource::scratch;
use crate::sync::Ordering;

/// The commands of a [`Queue`] with a wait list, made by [`Queue::after`].
#[derive(Clone)]
#[must_use = "nothing happens before a command"]
pub struct CommandBuilder<'q> {
    queue: &'q Queue,
    after: SmallVec<[Event; 2]>,
}

impl<'q> CommandBuilder<'q> {
    pub(super) fn new(queue: &'q Queue, after: SmallVec<[Event; 2]>) -> Self {
        Self { queue, after }
    }

    fn call(&self) -> Call<'_> {
        Call { queue: &self.queue.inner, after: &self.after }
    }

    /// A barrier that waits for the wait list only.
    #[track_caller]
    pub(super) fn barrier_after_listed(&self) -> Event {
        self.call().barrier(Barrier::Listed)
    }
}

impl Queue {
    fn call(&self) -> Call<'_> {
        Call { queue: &self.inner, after: &[] }
    }
}

impl Debug for CommandBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandBuilder").field("queue", self.queue).field("after", &self.after.len()).finish()
    }
}

macro_rules! queue_verbs {
    ($receiver:ty) => {
        verbs! {
            impl $receiver { [&] self -> Event, "Enqueues", "Out of the event:" }
            host_task:
            /// Accesses and closure as for [`Graph::host_task`](crate::Graph::host_task).
            ///
            /// # Errors
            /// Out of the event: [`InvalidArgument`](ErrorKind::InvalidArgument) when the accesses overlap
            /// and one of them writes; [`InvalidOperation`](ErrorKind::InvalidOperation) outside a tokio
            /// runtime; those of the closure.
            sub_graph:
            /// Runs all of a graph: while the queue records, a copy of it as it is now, as one node.
            /// Otherwise the graph is finalized and submitted in the order of the queue; an executable that
            /// is kept and [submitted](Self::submit) again costs less.
            ///
            /// # Errors
            /// Out of the event: those of [`finalize`](crate::Graph::finalize) and of the submission.
            if_nonzero:
            /// See [`Graph::if_nonzero`](crate::Graph::if_nonzero).
            ///
            /// # Errors
            /// Out of the event: those of [`Graph::if_nonzero`](crate::Graph::if_nonzero).
            switch:
            /// See [`Graph::switch`](crate::Graph::switch).
            ///
            /// # Errors
            /// Out of the event: those of [`Graph::switch`](crate::Graph::switch).
            while_nonzero:
            /// See [`Graph::while_nonzero`](crate::Graph::while_nonzero).
            ///
            /// # Errors
            /// Out of the event: those of [`Graph::while_nonzero`](crate::Graph::while_nonzero).
        }

        impl $receiver {
            /// A barrier: comes after all commands of this queue so far, and after the wait list. All later
            /// commands of the queue come after it.
            ///
            /// On an in-order queue it changes no order; its event tells of all commands so far.
            #[track_caller]
            pub fn barrier(&self) -> Event {
                self.call().barrier(Barrier::All)
            }

            /// Submits an executable in the order of the queue: on an in-order queue it comes after the
            /// previous command, and later commands come after it.
            ///
            /// # Errors
            /// Out of the submission. [`InvalidOperation`](ErrorKind::InvalidOperation) while the queue
            /// records; then it comes out of [`finalize`](crate::Graph::finalize) as well.
            #[track_caller]
            pub fn submit(&self, executable: &ExecutableGraph) -> Submission {
                self.call().submit(executable)
            }

            #[track_caller]
            fn push(&self, new: NewNode<'_>) -> Event {
                self.call().push(new)
            }
        }
    };
}

queue_verbs!(Queue);
queue_verbs!(CommandBuilder<'_>);

/// A queue, and what the next command comes after.
struct Call<'q> {
    queue: &'q Arc<QueueInner>,
    after: &'q [Event],
}

impl Call<'_> {
    /// Whether the command is recorded. If it depends on a recorded event, the queue joins that recording.
    fn is_recorded(&self) -> Result<bool> {
        if self.queue.is_recording.load(Ordering::Acquire) {
            return Ok(true);
        }
        let Some(recording) = self.after.iter().find_map(Event::recording) else { return Ok(false) };
        recording.clone().get().join(self.queue).map(|()| true)
    }

    #[track_caller]
    fn push(&self, new: NewNode<'_>) -> Event {
        if let Some(event) = self.record(&new, Barrier::None) {
            return event;
        }
        let location = Location::caller();
        match new {
            NewNode::Launch(call, range) => match self.launch(call, range, location) {
                Ok(command) => self.run(command, Barrier::None),
                Err(error) => self.refuse(error.at(location)),
            },
            NewNode::Memory(command) => self.run_memory_command(command, location),
            NewNode::Copy(Transfer::Direct(command)) if self.reaches(&command) => {
                self.run_memory_command(command, location)
            }
            NewNode::HostTask(declared, task) => self.run_host_task(declared, task, location),
            NewNode::SubGraph(graph) => self.run_graph(graph),
            // A device does the others inside graphs only.
            new => {
                let mut graph = Graph::new(&self.queue.device);
                graph.push(new);
                self.run_graph(&graph)
            }
        }
    }

    #[track_caller]
    fn barrier(&self, barrier: Barrier) -> Event {
        if let Some(event) = self.record(&NewNode::Empty, barrier) {
            return event;
        }
        let (template, location) = (self.queue.next_template(), Location::caller());
        let command = QueueCommand::on_device(template, hal::Command::Empty, SmallVec::new(), None, location);
        self.run(command, barrier)
    }

    /// If the queue records, adds the node to the graph and returns its event.
    #[track_caller]
    fn record(&self, new: &NewNode<'_>, barrier: Barrier) -> Option<Event> {
        match self.is_recorded() {
            Err(error) => return Some(self.refuse(error.at(Location::caller()))),
            Ok(false) => return None,
            Ok(true) => {}
        }
        // The bounds of kernels are code of the user's, so this comes before the locks. What is pushed is a
        // clone, so that nothing of the user's is dropped under them.
        let graphs = new.snapshots();
        let mut state = self.queue.state.lock();
        // The recording may have ended a moment ago.
        let Recorder { recording, nodes } = state.recorder.as_mut()?;
        let mut guard = recording.graph.lock();
        let graph = &mut *guard;
        let node = match (&graphs, new) {
            (Ok(_), NewNode::Launch(..)) => graph.push(new.clone()).on_queue(&self.queue.device).id(),
            (Ok(graphs), _) => graph.push(new.with_graphs(graphs)).id(),
            (Err(error), NewNode::SubGraph(_)) => graph.refuse(CommandKind::SubGraph, error.clone()).id(),
            (Err(error), _) => graph.refuse(CommandKind::Empty, error.clone()).id(),
        };
        let order = (self.queue.is_in_order(), barrier);
        connect(graph, nodes, node, self.after, order, Location::caller());
        Some(Event::recorded(node, recording.clone()))
    }

    /// Whether the queue's device can use all the memory of a command.
    fn reaches(&self, command: &MemoryCommand) -> bool {
        let device = &self.queue.device;
        command.uses.iter().all(|(view, _)| {
            let allocation = &view.allocation;
            allocation.device() == device || device.hal().can_access(&**allocation.memory())
        })
    }

    fn run_memory_command(&self, command: MemoryCommand, location: &'static Location<'static>) -> Event {
        let kind = command.kind;
        match self.memory_command(command, location) {
            Ok(command) => self.run(command, Barrier::None),
            Err(error) => self.refuse(error.in_node(kind.name()).at(location)),
        }
    }

    fn run(&self, command: Arc<QueueCommand>, barrier: Barrier) -> Event {
        Event::new(self.queue.run(command, self.after, barrier))
    }

    fn run_host_task(
        &self,
        declared: Vec<(Operand, AccessMode)>,
        task: Arc<HostTask>,
        location: &'static Location<'static>,
    ) -> Event {
        let brought = task.run_data().first().map_or(Ok(()), |taken| Err(taken.none_expected()));
        let checked = brought.and_then(|()| host_accesses(&declared)).and_then(|accesses| {
            let declared = declared.into_iter().zip(accesses);
            let uses =
                declared.map(|((Operand(view), _), access)| UsedAllocation::new(view.allocation, access));
            QueueCommand::host_task(task, uses.collect(), &self.queue.failures, location)
        });
        match checked {
            Ok(task) => self.run(task, Barrier::None),
            Err(error) => self.refuse(error.in_node(CommandKind::HostTask.name()).at(location)),
        }
    }

    fn run_graph(&self, graph: &Graph) -> Event {
        match graph.finalize() {
            Ok(executable) => self.queue.submit(&executable, self.after).event(),
            Err(error) => self.refuse(error),
        }
    }

    #[track_caller]
    fn submit(&self, executable: &ExecutableGraph) -> Submission {
        match self.is_recorded() {
            Err(error) => {
                let error = error.at(Location::caller()).on_device(self.queue.device.selector());
                return submit::failed(self.queue.refused(error));
            }
            Ok(false) => {}
            Ok(true) => {
                // The recording may have ended a moment ago.
                if let Some(Recorder { recording, .. }) = &self.queue.state.lock().recorder {
                    let error = Error::new(ErrorKind::InvalidOperation, "an executable cannot be recorded");
                    let error = error.help("record the graph that it was made of, with `sub_graph`");
                    recording.graph.lock().refuse(CommandKind::SubGraph, error.clone());
                    return submit::failed(error.at(Location::caller()));
                }
            }
        }
        self.queue.submit(executable, self.after)
    }

    /// The event of a command that cannot run.
    fn refuse(&self, error: Error) -> Event {
        let error = error.on_device(self.queue.device.selector());
        Event::new(Arc::new(Run::failed(self.queue.refused(error))))
    }

    fn launch(
        &self,
        call: KernelCall,
        range: Range,
        location: &'static Location<'static>,
    ) -> Result<Arc<QueueCommand>> {
        let device = &self.queue.device;
        let prepare = || {
            range.check()?;
            scratch::check_owner(call.views(), None)?;
            let mut uses = SmallVec::new();
            call.check_memory(|view, mode| {
                uses.push(UsedAllocation::new(view.allocation.clone(), view.access(mode)));
            })?;
            call.check_range(&range)?;
            let kernel = call.kernel.on(device)?;
            let launch = hal::KernelLaunch::new(kernel, call.to_hal(device)?, idle::range_on_device(&range));
            idle::unless(range.is_empty(), Cow::Owned(hal::Command::Kernel(Arc::new(launch))), device)
                .map(|command| (command.into_owned(), uses))
        };
        match prepare() {
            Ok((command, uses)) => {
                let template = self.queue.next_template();
                Ok(QueueCommand::on_device(template, command, uses, Some(call.kernel), location))
            }
            Err(error) => Err(Error::in_node(error, format!("kernel '{}'", call.kernel.name()))),
        }
    }

    fn memory_command(
        &self,
        MemoryCommand { command, uses: views, .. }: MemoryCommand,
        location: &'static Location<'static>,
    ) -> Result<Arc<QueueCommand>> {
        scratch::check_owner(views.iter().map(|(view, _)| view), None)?;
        let mut command = command?;
        // A hint that the device has no use for keeps its place in the order.
        if finalize::is_idle_hint(&self.queue.device, &command) {
            command = hal::Command::Empty;
        }
        let mut uses = SmallVec::new();
        for (view, mode) in views {
            view.check_address(&self.queue.device)?;
            let access = view.access(mode);
            uses.push(UsedAllocation::new(view.allocation, access));
        }
        Ok(QueueCommand::on_device(self.queue.next_template(), command, uses, None, location))
    }
}
