//! The commands of queues.

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use smallvec::SmallVec;
use wakegraph_hal::{self as hal, AccessMode, Advice, CommandKind, Error, ErrorKind, Range, Result};

use crate::runtime::builder::memory_command::{MemoryCommand, Transfer};
use crate::runtime::builder::{Graph, host_accesses};
use crate::runtime::execution::accesses::UsedAllocation;
use crate::runtime::execution::executable_graph::ExecutableGraph;
use crate::runtime::execution::host_guard::{HostAccesses, TaskOutput};
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission::{Event, Submission};
use crate::runtime::execution::submit;
use crate::runtime::finalize;
use crate::runtime::queue::command::QueueCommand;
use crate::runtime::queue::recording::{Recorder, RecordingInner, connect};
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
        barrier(&self.call(), Barrier::Listed)
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

/// If the queue of `$call` records, adds a node to the graph and returns its event from the function.
/// Expanded in place, so that the node gets the location of the function's caller.
macro_rules! record {
    ($call:expr, |$graph:ident| $node:expr) => {
        record!($call, Barrier::None, |$graph| $node)
    };
    ($call:expr, $barrier:expr, |$graph:ident| $node:expr) => {
        match $call.is_recorded() {
            Err(error) => return $call.refuse(error.at(Location::caller())),
            Ok(false) => {}
            Ok(true) => {
                let mut state = $call.queue.state.lock();
                // The recording may have ended a moment ago.
                if let Some(Recorder { recording, nodes }) = &mut state.recorder {
                    let mut guard = recording.graph.lock();
                    let $graph = &mut *guard;
                    let node = $node.id();
                    let order = ($call.queue.is_in_order(), $barrier);
                    connect($graph, nodes, node, $call.after, order, Location::caller());
                    return Event::recorded(node, recording.clone());
                }
            }
        }
    };
}

/// Adds a node to a graph of its own, which runs in the order of the queue: for what a device does inside
/// graphs only.
macro_rules! run_graph {
    ($call:expr, |$graph:ident| $node:expr) => {{
        let mut one_off = Graph::new(&$call.queue.device);
        let $graph = &mut one_off;
        $node;
        $call.run_graph(&one_off)
    }};
}

#[track_caller]
fn barrier(call: &Call<'_>, barrier: Barrier) -> Event {
    record!(call, barrier, |graph| graph.empty());
    let (template, location) = (call.queue.next_template(), Location::caller());
    let command = QueueCommand::on_device(template, hal::Command::Empty, SmallVec::new(), None, location);
    call.run(command, barrier)
}

macro_rules! commands {
    ($($target:tt)*) => {
        impl $($target)* {
            /// Launches a kernel. `call` is the kernel with its arguments, as the function made by
            /// [`kernel!`](crate::kernel!) returns it.
            ///
            /// # Errors
            /// Out of the event: [`InvalidSize`](ErrorKind::InvalidSize) for a range that the device cannot
            /// launch, or beyond the kernel's [bound](crate::kernel::RangeBound);
            /// [`InvalidArgument`](ErrorKind::InvalidArgument) for arguments that do not fit, overlap, or
            /// that the device cannot reach; [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) when
            /// the kernel has no variant for the device.
            #[track_caller]
            pub fn launch(&self, call: impl Into<KernelCall>, range: Range) -> Event {
                let (to, call) = (self.call(), call.into());
                // Its closure is the user's, and must not be dropped under the locks of a recording.
                let _kernel = call.kernel.clone();
                record!(to, |graph| graph.launch(call, range).on_queue(&to.queue.device));
                match to.launch(call, range, Location::caller()) {
                    Ok(command) => to.run(command, Barrier::None),
                    Err(error) => to.refuse(error.at(Location::caller())),
                }
            }

            /// Copies all of `src` to all of `dst`, which has the same length: between buffers, or from or to
            /// a [`HostBuffer`](crate::HostBuffer). Between devices without a direct path the copy goes
            /// through the host.
            ///
            /// # Errors
            /// Out of the event: [`InvalidSize`](ErrorKind::InvalidSize) when the lengths differ;
            /// [`InvalidArgument`](ErrorKind::InvalidArgument) when the two overlap, or are both on the host.
            #[track_caller]
            pub fn copy<T: Pod>(&self, src: impl CopySource<T>, dst: impl MemoryArg<T>) -> Event {
                let to = self.call();
                record!(to, |graph| graph.copy(&src, &dst));
                match Transfer::copy(&src, &dst) {
                    Transfer::Direct(command) if to.reaches(&command) => {
                        to.run_memory_command(command, Location::caller())
                    }
                    _ => run_graph!(to, |graph| graph.copy(&src, &dst)),
                }
            }

            /// Copies a rectangle; see [`RectCopy`]. Operands as for [`copy`](Self::copy), without the
            /// condition on lengths.
            ///
            /// # Errors
            /// Out of the event: [`InvalidSize`](ErrorKind::InvalidSize) when a rectangle is empty, overlaps
            /// itself or is not inside its buffer; those of [`copy`](Self::copy).
            #[track_caller]
            pub fn copy_rect<T: Pod>(
                &self,
                src: impl CopySource<T>,
                dst: impl MemoryArg<T>,
                copy: RectCopy,
            ) -> Event {
                let to = self.call();
                record!(to, |graph| graph.copy_rect(&src, &dst, copy));
                match Transfer::rect(&src, &dst, copy) {
                    Transfer::Direct(command) if to.reaches(&command) => {
                        to.run_memory_command(command, Location::caller())
                    }
                    _ => run_graph!(to, |graph| graph.copy_rect(&src, &dst, copy)),
                }
            }

            /// Writes `elements`, of which the command keeps a copy, to all of `dst`.
            ///
            /// # Errors
            /// Out of the event: those of [`copy`](Self::copy), and
            /// [`OutOfMemory`](ErrorKind::OutOfMemory).
            #[track_caller]
            pub fn write<T: Pod>(&self, dst: &Buffer<T>, elements: &[T]) -> Event {
                match dst.device().host_buffer_from(elements) {
                    Ok(staging) => self.copy(&staging, dst),
                    Err(error) => {
                        let to = self.call();
                        let error = error.in_node(CommandKind::BufferWrite.name()).at(Location::caller());
                        record!(to, |graph| graph.refuse(CommandKind::BufferWrite, error));
                        to.refuse(error)
                    }
                }
            }

            /// Fills all of `dst` with `value`.
            #[track_caller]
            pub fn fill<T: Pod>(&self, dst: &Buffer<T>, value: T) -> Event {
                self.fill_pattern(dst, &[value])
            }

            /// Fills all of `dst` with a pattern of any number of elements, repeated.
            ///
            /// # Errors
            /// Out of the event: [`InvalidSize`](ErrorKind::InvalidSize) when the pattern is empty or does
            /// not divide the buffer.
            #[track_caller]
            pub fn fill_pattern<T: Pod>(&self, dst: &Buffer<T>, pattern: &[T]) -> Event {
                let to = self.call();
                record!(to, |graph| graph.fill_pattern(dst, pattern));
                to.run_memory_command(MemoryCommand::fill(dst, pattern), Location::caller())
            }

            /// Hints that `buffer` will soon be used. A device without use for it keeps the order only.
            #[track_caller]
            pub fn prefetch<T: Pod>(&self, buffer: &Buffer<T>) -> Event {
                let to = self.call();
                record!(to, |graph| graph.prefetch(buffer));
                to.run_memory_command(MemoryCommand::prefetch(buffer), Location::caller())
            }

            /// Hints how `buffer` will be used. A device without use for it keeps the order only.
            #[track_caller]
            pub fn advise<T: Pod>(&self, buffer: &Buffer<T>, advice: Advice) -> Event {
                let to = self.call();
                record!(to, |graph| graph.advise(buffer, advice));
                to.run_memory_command(MemoryCommand::advise(buffer, advice), Location::caller())
            }

            /// Runs a host task: an async closure that becomes a spawned tokio task, once what it comes after
            /// is complete. Accesses and closure as for [`Graph::host_task`](crate::Graph::host_task).
            ///
            /// # Errors
            /// Out of the event: [`InvalidArgument`](ErrorKind::InvalidArgument) when the accesses overlap
            /// and one of them writes; [`InvalidOperation`](ErrorKind::InvalidOperation) outside a tokio
            /// runtime; those of the closure.
            #[track_caller]
            pub fn host_task<A, F, R>(&self, accesses: A, closure: F) -> Event
            where
                A: HostAccesses,
                F: FnOnce(A::Views) -> R + Clone + Send + Sync + 'static,
                R: Future + Send + 'static,
                R::Output: TaskOutput,
            {
                let (to, declared) = (self.call(), accesses.declared());
                let task = Arc::new(HostTask::new(accesses, closure));
                record!(to, |graph| graph.add_host_task(declared, task.clone()));
                to.run_host_task(declared, task, Location::caller())
            }

            /// Runs a host task whose closure blocks or computes for long, on tokio's blocking pool.
            /// Otherwise as [`host_task`](Self::host_task).
            #[track_caller]
            pub fn host_task_blocking<A, F, R>(&self, accesses: A, closure: F) -> Event
            where
                A: HostAccesses,
                F: FnOnce(A::Views) -> R + Clone + Send + Sync + 'static,
                R: TaskOutput,
            {
                let (to, declared) = (self.call(), accesses.declared());
                let task = Arc::new(HostTask::blocking(accesses, closure));
                record!(to, |graph| graph.add_host_task(declared, task.clone()));
                to.run_host_task(declared, task, Location::caller())
            }

            /// Runs all of a graph: while the queue records, a copy of it as it is now, as one node.
            /// Otherwise the graph is finalized and submitted in the order of the queue; an executable that
            /// is kept and [submitted](Self::submit) again costs less.
            ///
            /// # Errors
            /// Out of the event: those of [`finalize`](crate::Graph::finalize) and of the submission.
            #[track_caller]
            pub fn sub_graph(&self, graph: &Graph) -> Event {
                let to = self.call();
                let now = to.snapshots([graph]);
                record!(to, |recorded| match &now {
                    Ok(now) => recorded.sub_graph(now.as_ref().map_or(graph, |[now]| now)),
                    Err(error) => recorded.refuse(CommandKind::SubGraph, error.clone()),
                });
                to.run_graph(graph)
            }

            /// Runs a copy of `then`, if `flag` is not 0 when its turn comes. See
            /// [`Graph::if_nonzero`](crate::Graph::if_nonzero).
            ///
            /// # Errors
            /// Out of the event: those of [`Graph::if_nonzero`](crate::Graph::if_nonzero).
            #[track_caller]
            pub fn if_nonzero(&self, flag: impl MemoryArg<u32>, then: &Graph) -> Event {
                let to = self.call();
                let now = to.snapshots([then]);
                record!(to, |graph| match &now {
                    Ok(now) => graph.if_nonzero(&flag, now.as_ref().map_or(then, |[then]| then)),
                    Err(error) => graph.refuse(CommandKind::Empty, error.clone()),
                });
                run_graph!(to, |graph| graph.if_nonzero(&flag, then))
            }

            /// Runs a copy of `then` if `flag` is not 0, else one of `otherwise`. See
            /// [`Graph::if_nonzero_else`](crate::Graph::if_nonzero_else).
            ///
            /// # Errors
            /// Out of the event: those of [`Graph::if_nonzero`](crate::Graph::if_nonzero).
            #[track_caller]
            pub fn if_nonzero_else(
                &self,
                flag: impl MemoryArg<u32>,
                then: &Graph,
                otherwise: &Graph,
            ) -> Event {
                let to = self.call();
                let now = to.snapshots([then, otherwise]);
                record!(to, |graph| match &now {
                    Ok(Some([then, otherwise])) => graph.if_nonzero_else(&flag, then, otherwise),
                    Ok(None) => graph.if_nonzero_else(&flag, then, otherwise),
                    Err(error) => graph.refuse(CommandKind::Empty, error.clone()),
                });
                run_graph!(to, |graph| graph.if_nonzero_else(&flag, then, otherwise))
            }

            /// Runs a copy of `body` again and again as long as `flag` is not 0. See
            /// [`Graph::while_nonzero`](crate::Graph::while_nonzero).
            ///
            /// # Errors
            /// Out of the event: those of [`Graph::while_nonzero`](crate::Graph::while_nonzero).
            #[track_caller]
            pub fn while_nonzero(&self, flag: impl MemoryArg<u32>, body: &Graph) -> Event {
                let to = self.call();
                let now = to.snapshots([body]);
                record!(to, |graph| match &now {
                    Ok(now) => graph.while_nonzero(&flag, now.as_ref().map_or(body, |[body]| body)),
                    Err(error) => graph.refuse(CommandKind::Empty, error.clone()),
                });
                run_graph!(to, |graph| graph.while_nonzero(&flag, body))
            }

            /// A barrier: comes after all commands of this queue so far, and after the wait list. All later
            /// commands of the queue come after it.
            ///
            /// On an in-order queue it changes no order; its event tells of all commands so far.
            #[track_caller]
            pub fn barrier(&self) -> Event {
                barrier(&self.call(), Barrier::All)
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
        }
    };
}

commands!(Queue);
commands!(CommandBuilder<'_>);

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
        match recording.clone().as_any().downcast::<RecordingInner>() {
            Ok(recording) => recording.join(self.queue).map(|()| true),
            Err(_) => Err(Error::new(ErrorKind::Bug, "a recorded event without its recording")),
        }
    }

    /// Graphs that are to become parts of the recorded one, with the present values of their parameters, if
    /// the command is recorded. The bounds of kernels are code of the user's, so this comes before the locks
    /// of the recording.
    fn snapshots<const N: usize>(&self, graphs: [&Graph; N]) -> Result<Option<[Graph; N]>> {
        if !self.is_recorded()? {
            return Ok(None);
        }
        let all: Vec<_> = graphs.iter().map(|graph| graph.snapshot()).collect::<Result<_>>()?;
        Ok(all.try_into().ok())
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
        let checked = host_accesses(&declared).and_then(|accesses| {
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
            let launch = hal::KernelLaunch::new(kernel, call.to_hal(device)?, range);
            Ok((hal::Command::Kernel(Box::new(launch)), uses))
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
