//! The verbs that graphs and queues have in common: for each of them, once, what it is called, what it takes
//! and what node comes of it.

use std::sync::Arc;

use bytemuck::Pod;
use smallvec::{SmallVec, smallvec};
use wakegraph_hal::{AccessMode, Advice, CommandKind, Error, ErrorKind, Range, Result};

use crate::runtime::builder::Graph;
use crate::runtime::builder::command::{Command, Control, accesses};
use crate::runtime::builder::memory_command::{MemoryCommand, StagedCopy, Transfer};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::execution::host_control::ControlKind;
use crate::runtime::execution::host_guard::{HostAccesses, TaskClosure, TaskOutput};
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::memory_arg::{CopySource, MemoryArg, Operand};
use crate::runtime::resource::rect::RectCopy;
use crate::runtime::resource::scratch;

/// Methods for the verbs, each of which makes a [`NewNode`] and gives it to the receiver's `push`.
///
/// The receiver says how it takes `self`, what it gives back, the word that its docs begin with, and where
/// errors come out. It adds to the docs of some verbs.
macro_rules! verbs {
    (
        impl $receiver:ty { [$($by:tt)*] $self:ident -> $output:ty, $does:literal, $errors:literal }
        host_task: $(#[$host_task:meta])*
        sub_graph: $(#[$sub_graph:meta])*
        if_nonzero: $(#[$if_nonzero:meta])*
        switch: $(#[$switch:meta])*
        while_nonzero: $(#[$while_nonzero:meta])*
    ) => {
        impl $receiver {
            #[doc = $does]
            /// a launch of a kernel. `call` is the kernel with its arguments, as the function made
            /// by [`kernel!`](crate::kernel!) returns it. Over a range without work-items it does
            /// nothing, but for its place in the order.
            ///
            /// # Errors
            #[doc = $errors]
            /// [`InvalidSize`](crate::ErrorKind::InvalidSize) for a range that no device can
            /// launch, or beyond the kernel's [bound](crate::kernel::RangeBound);
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for arguments that do not
            /// fit, overlap, or that the device cannot reach;
            /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) when the kernel has
            /// no variant for the device.
            #[track_caller]
            pub fn launch($($by)* $self, call: impl Into<KernelCall>, range: Range) -> $output {
                $self.push(NewNode::Launch(call.into(), range))
            }

            #[doc = $does]
            /// a copy of all of `src` to all of `dst`, which has the same length: between buffers,
            /// or from or to a [`HostBuffer`](crate::HostBuffer) (a buffer write or read). Between
            /// devices without a direct path it goes through the host. There may be nothing to copy.
            ///
            /// # Errors
            #[doc = $errors]
            /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when the lengths differ;
            /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the two overlap, or are
            /// both on the host.
            #[track_caller]
            pub fn copy<T: Pod>($($by)* $self, src: impl CopySource<T>, dst: impl MemoryArg<T>) -> $output {
                $self.push(NewNode::Copy(Transfer::copy(src, dst)))
            }

            #[doc = $does]
            /// a copy of a rectangle; see [`RectCopy`]. Operands as for [`copy`](Self::copy),
            /// without the condition on lengths.
            ///
            /// # Errors
            #[doc = $errors]
            /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when a rectangle overlaps itself or is
            /// not inside its buffer; those of [`copy`](Self::copy).
            #[track_caller]
            pub fn copy_rect<T: Pod>(
                $($by)* $self,
                src: impl CopySource<T>,
                dst: impl MemoryArg<T>,
                copy: RectCopy,
            ) -> $output {
                $self.push(NewNode::Copy(Transfer::rect(src, dst, copy)))
            }

            #[doc = $does]
            /// a write of `elements`, which are copied at once, to all of `dst`.
            ///
            /// # Errors
            #[doc = $errors]
            /// those of [`copy`](Self::copy); [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
            #[track_caller]
            pub fn write<T: Pod>($($by)* $self, dst: &Buffer<T>, elements: &[T]) -> $output {
                $self.push(NewNode::write(dst, elements))
            }

            #[doc = $does]
            /// a fill of all of `dst` with `value`.
            #[track_caller]
            pub fn fill<T: Pod>($($by)* $self, dst: &Buffer<T>, value: T) -> $output {
                $self.fill_pattern(dst, &[value])
            }

            #[doc = $does]
            /// a fill of all of `dst` with a pattern of any number of elements, repeated.
            ///
            /// # Errors
            #[doc = $errors]
            /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when the pattern is empty or does not
            /// divide the buffer.
            #[track_caller]
            pub fn fill_pattern<T: Pod>($($by)* $self, dst: &Buffer<T>, pattern: &[T]) -> $output {
                $self.push(NewNode::Memory(MemoryCommand::fill(dst, pattern)))
            }

            #[doc = $does]
            /// a hint that `buffer` will soon be used. A device without use for it keeps the order
            /// only.
            #[track_caller]
            pub fn prefetch<T: Pod>($($by)* $self, buffer: &Buffer<T>) -> $output {
                $self.push(NewNode::Memory(MemoryCommand::prefetch(buffer)))
            }

            #[doc = $does]
            /// a hint on how `buffer` will be used. A device without use for it keeps the order
            /// only.
            #[track_caller]
            pub fn advise<T: Pod>($($by)* $self, buffer: &Buffer<T>, advice: Advice) -> $output {
                $self.push(NewNode::Memory(MemoryCommand::advise(buffer, advice)))
            }

            #[doc = $does]
            /// a host task: an async closure that runs as a spawned tokio task when everything
            /// before it is complete.
            $(#[$host_task])*
            #[track_caller]
            pub fn host_task<A, F, R>($($by)* $self, accesses: A, closure: F) -> $output
            where
                A: HostAccesses,
                F: FnOnce(A::Views) -> R + TaskClosure,
                R: Future + Send + 'static,
                R::Output: TaskOutput,
            {
                let declared = accesses.declared();
                $self.push(NewNode::HostTask(declared, Arc::new(HostTask::new(accesses, closure))))
            }

            #[doc = $does]
            /// a host task whose closure blocks or computes for long: it runs on tokio's blocking
            /// pool. Otherwise as [`host_task`](Self::host_task).
            #[track_caller]
            pub fn host_task_blocking<A, F, R>($($by)* $self, accesses: A, closure: F) -> $output
            where
                A: HostAccesses,
                F: FnOnce(A::Views) -> R + TaskClosure,
                R: TaskOutput,
            {
                let declared = accesses.declared();
                $self.push(NewNode::HostTask(declared, Arc::new(HostTask::blocking(accesses, closure))))
            }

            $(#[$sub_graph])*
            #[track_caller]
            pub fn sub_graph($($by)* $self, graph: &Graph) -> $output {
                $self.push(NewNode::SubGraph(graph))
            }

            #[doc = $does]
            /// a conditional: when its turn comes, a copy of `then` as it is now runs, if `flag` is
            /// not 0.
            $(#[$if_nonzero])*
            #[track_caller]
            pub fn if_nonzero($($by)* $self, flag: impl MemoryArg<u32>, then: &Graph) -> $output {
                $self.push(NewNode::control(ControlKind::If, flag, [then]))
            }

            /// As [`if_nonzero`](Self::if_nonzero), with a copy of `otherwise` to run if `flag` is
            /// 0.
            ///
            /// # Errors
            /// As [`if_nonzero`](Self::if_nonzero).
            #[track_caller]
            pub fn if_nonzero_else(
                $($by)* $self,
                flag: impl MemoryArg<u32>,
                then: &Graph,
                otherwise: &Graph,
            ) -> $output {
                $self.push(NewNode::control(ControlKind::If, flag, [then, otherwise]))
            }

            #[doc = $does]
            /// a switch: when its turn comes, the body with the number `index` runs, counting from 0. Nothing
            /// runs if there is none. The bodies are copied now.
            $(#[$switch])*
            #[track_caller]
            pub fn switch<'g>(
                $($by)* $self,
                index: impl MemoryArg<u32>,
                bodies: impl IntoIterator<Item = &'g Graph>,
            ) -> $output {
                $self.push(NewNode::control(ControlKind::Switch, index, bodies))
            }

            #[doc = $does]
            /// a loop: when its turn comes, a copy of `body` as it is now runs again and again as
            /// long as `flag` is not 0. The flag is read before each iteration, the first one
            /// included.
            $(#[$while_nonzero])*
            #[track_caller]
            pub fn while_nonzero($($by)* $self, flag: impl MemoryArg<u32>, body: &Graph) -> $output {
                $self.push(NewNode::control(ControlKind::While, flag, [body]))
            }
        }
    };
}

pub(crate) use verbs;

verbs! {
    impl Graph { [&mut] self -> NodeBuilder<'_>, "Adds", "At finalize:" }
    host_task:
    /// It runs once per run, and may await anything.
    ///
    /// `accesses` declares, with [`read`](crate::read) and [`write`](crate::write), the host
    /// buffers that it uses; the closure gets a tuple of views. The task is complete when its
    /// future has finished and its views are dropped, so a view can be moved on, for example into
    /// the body of a response. The closure is cloned for every run; put into an `Arc` what cannot
    /// be cloned, or is expensive to.
    ///
    /// An `Err` or a panic fails the submission with an error that names the node.
    /// [Cancelling](crate::Submission::cancel) the submission drops the future at its next await.
    ///
    /// A task that awaits a submission of its own executable waits for ever; see
    /// [`ExecutableGraph::submit`](crate::ExecutableGraph::submit).
    ///
    /// A task may move between threads, so what it captures and holds across an `await` is `Send`:
    ///
    /// ```compile_fail,E0277
    /// # use wakegraph::{Device, Graph};
    /// # let device = Device::open("host").unwrap();
    /// let mut graph = Graph::new(&device);
    /// graph.host_task((), async |()| {
    ///     let not_send = std::rc::Rc::new(1);
    ///     tokio::task::yield_now().await;
    ///     drop(not_send);
    /// });
    /// ```
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](ErrorKind::InvalidArgument) when the accesses overlap and
    /// one of them writes.
    sub_graph:
    /// Adds a copy of `graph` as it is now, as one node; its commands are copied in at finalize.
    /// The other graph stays usable on its own. Edges to and from the node hold for all its commands.
    if_nonzero:
    ///
    /// `flag` is one element of a buffer, which earlier nodes may write. The body is any graph: it may
    /// hold host tasks, nodes of several devices, scratch buffers, conditionals and loops. Edges to and
    /// from the node hold for all that is in it.
    ///
    /// Where the flag and the whole body are on one device that can decide by itself
    /// ([`CommandKinds::IF`](crate::capabilities::CommandKinds::IF)), the device does, and the host is not
    /// asked. Otherwise a task of the runtime reads the flag and submits the body; then the node is a
    /// partition of its own, as a host task is. [`plan_text`](crate::ExecutableGraph::plan_text) shows which
    /// it is.
    ///
    /// ```
    /// use wakegraph::{Device, Graph};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let (flag, x) = (device.buffer_from(&[0u32])?, device.buffer_from(&[1u32, 2])?);
    ///
    /// let mut clear = Graph::new(&device);
    /// clear.fill(&x, 0);
    /// let mut graph = Graph::new(&device);
    /// graph.if_nonzero(&flag, &clear);
    ///
    /// let exec = graph.finalize()?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [1, 2]);
    /// flag.write(&[1]).await?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [0, 0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// At finalize: the first of the body's; [`InvalidSize`](ErrorKind::InvalidSize) for a flag that is
    /// not one element, and for more than 63 conditionals and loops inside each other;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a flag in a scratch buffer;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) where a device lacks a command of the body.
    switch:
    ///
    /// Index and bodies are as flag and body are for [`if_nonzero`](Self::if_nonzero); the capability of a
    /// device is [`CommandKinds::SWITCH`](crate::capabilities::CommandKinds::SWITCH).
    ///
    /// ```
    /// use wakegraph::{Device, Graph};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let (index, x) = (device.buffer_from(&[1u32])?, device.buffer::<u32>(2)?);
    ///
    /// let [small, medium, large] = [1, 10, 100].map(|value| {
    ///     let mut body = Graph::new(&device);
    ///     body.fill(&x, value);
    ///     body
    /// });
    /// let mut graph = Graph::new(&device);
    /// graph.switch(&index, [&small, &medium, &large]);
    ///
    /// let exec = graph.finalize()?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [10, 10]);
    /// index.write(&[3]).await?;
    /// exec.submit().await?;
    /// assert_eq!(x.to_vec().await?, [10, 10]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`if_nonzero`](Self::if_nonzero).
    while_nonzero:
    ///
    /// The body has to make the flag 0 at some time, and no submission behind it on a device gets its turn
    /// before. Otherwise only [`cancel`](crate::Submission::cancel) and a
    /// [deadline](crate::SubmitBuilder::deadline) end the loop, before its next iteration. Flag and body are
    /// as for [`if_nonzero`](Self::if_nonzero); the capability of a device is
    /// [`CommandKinds::WHILE`](crate::capabilities::CommandKinds::WHILE).
    ///
    /// ```
    /// use wakegraph::{Device, Graph, write};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let left = device.host_buffer_from(&[3u32])?;
    ///
    /// let mut body = Graph::new(&device);
    /// body.host_task((write(&left),), async |(mut left,)| {
    ///     tokio::task::yield_now().await; // ask a server whether to go on, say
    ///     left[0] -= 1;
    /// });
    /// let mut graph = Graph::new(&device);
    /// graph.while_nonzero(&left, &body);
    ///
    /// graph.finalize()?.submit().await?;
    /// assert_eq!(left.read().await[0], 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`if_nonzero`](Self::if_nonzero).
}

/// A node to be, or a command of a queue: what a verb says.
#[derive(Clone)]
pub(crate) enum NewNode<'g> {
    Empty,
    Launch(KernelCall, Range),
    Copy(Transfer),
    /// A fill or a hint, or a command that is refused.
    Memory(MemoryCommand),
    HostTask(Vec<(Operand, AccessMode)>, Arc<HostTask>),
    SubGraph(&'g Graph),
    /// A conditional, a switch or a loop.
    Control {
        kind: ControlKind,
        flag: Operand,
        bodies: Vec<&'g Graph>,
    },
}

impl<'g> NewNode<'g> {
    pub(crate) fn control(
        kind: ControlKind,
        flag: impl MemoryArg<u32>,
        bodies: impl IntoIterator<Item = &'g Graph>,
    ) -> Self {
        Self::Control { kind, flag: flag.operand(), bodies: bodies.into_iter().collect() }
    }

    pub(crate) fn write<T: Pod>(dst: &Buffer<T>, elements: &[T]) -> Self {
        match dst.device().host_buffer_from(elements) {
            Ok(staging) => Self::Copy(Transfer::copy(&staging, dst)),
            Err(error) => Self::Memory(MemoryCommand::refused(CommandKind::BufferWrite, error)),
        }
    }

    /// The graphs that it holds copies of, as they are now, with the present values of their parameters.
    pub(crate) fn snapshots(&self) -> Result<SmallVec<[Graph; 2]>> {
        match self {
            Self::SubGraph(graph) => Ok(smallvec![graph.snapshot()?]),
            Self::Control { bodies, .. } => bodies.iter().map(|body| body.snapshot()).collect(),
            _ => Ok(SmallVec::new()),
        }
    }

    /// Replaces the graphs.
    pub(crate) fn with_graphs<'s>(&self, graphs: &'s [Graph]) -> NewNode<'s>
    where
        'g: 's,
    {
        match (self, graphs) {
            (Self::SubGraph(_), [graph]) => NewNode::SubGraph(graph),
            (Self::Control { kind, flag, .. }, graphs) => {
                NewNode::Control { kind: *kind, flag: flag.clone(), bodies: graphs.iter().collect() }
            }
            (new, _) => new.clone(),
        }
    }
}

impl Graph {
    #[track_caller]
    pub(crate) fn push(&mut self, new: NewNode<'_>) -> NodeBuilder<'_> {
        match new {
            NewNode::Empty => self.empty(),
            NewNode::Launch(call, range) => self.add_launch(call, range),
            NewNode::Copy(Transfer::Staged(copy)) => self.staged(copy),
            NewNode::Copy(Transfer::Direct(command)) | NewNode::Memory(command) => {
                self.memory_command(command)
            }
            NewNode::HostTask(declared, task) => self.add_host_task(declared, task),
            NewNode::SubGraph(graph) => self.add_sub_graph(graph),
            NewNode::Control { kind, flag, bodies } => self.add_control(kind, flag, &bodies),
        }
    }

    #[track_caller]
    pub(super) fn memory_command(&mut self, command: MemoryCommand) -> NodeBuilder<'_> {
        let device = command.preferred_device().cloned();
        let MemoryCommand { kind, command, uses } = command;
        let owned = scratch::check_owner(uses.iter().map(|(view, _)| view), self.scratch_owner.as_ref());
        let command = match owned.and(command) {
            Ok(command) => Arc::new(command),
            Err(error) => return self.refuse(kind, error),
        };
        let accesses = accesses(&uses);
        let mut views = uses.into_iter().map(|(view, _)| view);
        let uses = [views.next(), views.next()];
        self.add(kind, device, Ok(accesses), || Command::Memory { command, uses })
    }

    /// Between devices that cannot reach each other's memory: a read on the one and a write on the
    /// other, as a sub-graph.
    #[track_caller]
    fn staged(&mut self, copy: StagedCopy) -> NodeBuilder<'_> {
        let (from, to) = (copy.src.allocation.device().clone(), copy.dst.allocation.device().clone());
        let staging = match HostBuffer::<u8>::allocate(&from, copy.src.len) {
            Ok(staging) => staging.view().clone(),
            Err(error) => return self.refuse(CommandKind::BufferCopy, error),
        };
        let mut child = Graph::new(&from);
        child.scratch_owner = self.scratch_owner.clone();
        let [read, write] = copy.halves(&staging);
        let read = child.memory_command(read).on(&from).id();
        // Said, because no edge follows from staging memory without bytes.
        child.memory_command(write).on(&to).after([read]);
        self.add_sub_graph(&child).name("staged copy").staged()
    }

    #[track_caller]
    fn add_control(
        &mut self,
        kind: ControlKind,
        Operand(flag): Operand,
        bodies: &[&Graph],
    ) -> NodeBuilder<'_> {
        let command_kind = kind.command_kind();
        let snapshots = bodies.iter().map(|body| body.snapshot().map(Arc::new)).collect::<Result<_>>();
        let checked =
            check_control(kind, &flag, bodies).and_then(|()| Control::new(flag.clone(), kind, snapshots?));
        let (control, device) = match checked {
            Ok(checked) => checked,
            Err(error) => return self.refuse(command_kind, error),
        };
        let accesses = control.accesses();
        let find = |id| bodies.iter().find_map(|body| body.find_device(id));
        let device: Option<Device> = device.and_then(find).or(Some(flag.allocation.device())).cloned();
        self.add(command_kind, device, Ok(accesses), || Command::Control(Arc::new(control)))
    }
}

fn check_control(kind: ControlKind, flag: &View, bodies: &[&Graph]) -> Result<()> {
    if let Some(error) = bodies.iter().find_map(|body| body.errors.first()) {
        return Err(error.clone());
    }
    if flag.len != size_of::<u32>() {
        let why = format!("the {} has {} elements, not one", kind.operand(), flag.len / size_of::<u32>());
        return Err(Error::new(ErrorKind::InvalidSize, why).help("pass a slice of one element"));
    }
    Ok(())
}
