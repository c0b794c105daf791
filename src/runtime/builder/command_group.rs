//! Dynamic command groups: alternatives for the command of a node, fixed when the group is built.

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use wakegraph_hal::{Access, CommandKind, Error, ErrorKind, Range, Result};

use crate::runtime::builder::binding::Binding;
use crate::runtime::builder::command::{Command, Dynamic, Group, GroupKey, Membership};
use crate::runtime::builder::node::NodeBuilder;
use crate::runtime::builder::parameter::DynamicParam;
use crate::runtime::builder::{Graph, host_task_command, preferred_device};
use crate::runtime::execution::accesses;
use crate::runtime::execution::host_guard::{HostAccesses, TaskClosure, TaskOutput};
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::resource::scratch;
use crate::sync::{AtomicU32, Ordering};

/// Alternatives for the command of a node, made by [`Graph::command_group`]. One group may be shared
/// by several nodes, which all run the same alternative.
///
/// [`choose`](Self::choose) selects an alternative for the graph: for executables that are finalized
/// from then on. [`Update::choose`](crate::update::Update::choose) selects one in one executable.
///
/// ```
/// # use wakegraph::{Device, FinalizeOptions, Graph, Range};
/// wakegraph::kernel! {
///     fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
///     fn double(x: &mut [u32]) { item: |i, x| x[i] *= 2 }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// # let device = Device::open("host")?;
/// let x = device.buffer_from(&[1u32; 4])?;
/// let range = Range::linear(4);
/// let mut graph = Graph::new(&device);
/// let group = graph.command_group().launch(add(10, &x), range).launch(double(&x), range).build();
/// graph.add_group(&group);
/// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
/// exec.submit().await?;
/// assert_eq!(x.to_vec().await?, [11; 4]);
/// exec.update().choose(&group, 1).apply().await?;
/// exec.submit().await?;
/// assert_eq!(x.to_vec().await?, [22; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CommandGroup {
    inner: Arc<Group>,
}

impl Group {
    pub(crate) fn graph(&self) -> u32 {
        self.graph
    }

    pub(crate) fn key(self: &Arc<Self>) -> GroupKey {
        GroupKey(Arc::as_ptr(self) as usize)
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire) as usize
    }

    /// Checks that there is such an alternative.
    pub(crate) fn check(&self, index: usize) -> Result<()> {
        let count = self.alternatives.len();
        if index < count {
            return Ok(());
        }
        let why = format!("alternative {index} does not exist: the command group has {count}");
        Err(Error::new(ErrorKind::InvalidArgument, why)
            .help("choose by the order in which the alternatives were added, counting from 0"))
    }
}

impl CommandGroup {
    /// Selects an alternative for the graph, by the order in which they were added, counting from 0.
    /// The first is selected when the group is built. Executables that exist keep theirs.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an alternative that the group does not
    /// have. Nothing has changed then.
    pub fn choose(&self, index: usize) -> Result<()> {
        self.inner.check(index)?;
        self.inner.active.store(index as u32, Ordering::Release);
        self.inner.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The alternative that the graph has.
    pub fn chosen(&self) -> usize {
        self.inner.active()
    }

    /// Number of alternatives; 0 if the group was refused.
    pub fn len(&self) -> usize {
        self.inner.alternatives.len()
    }

    /// Whether there are no alternatives, because the group was refused.
    pub fn is_empty(&self) -> bool {
        self.inner.alternatives.is_empty()
    }

    pub(crate) fn inner(&self) -> &Arc<Group> {
        &self.inner
    }
}

impl Debug for CommandGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (alternatives, chosen) = (self.len(), self.chosen());
        f.debug_struct("CommandGroup")
            .field("alternatives", &alternatives)
            .field("chosen", &chosen)
            .finish_non_exhaustive()
    }
}

/// A [`CommandGroup`] in the making: see [`Graph::command_group`].
#[must_use = "`build` makes the group"]
pub struct CommandGroupBuilder<'g> {
    graph: &'g mut Graph,
    alternatives: Vec<Command>,
    /// The first mistake.
    refused: Option<Error>,
    at: &'static Location<'static>,
}

impl Graph {
    /// Starts a dynamic command group: commands of one kind with the same accesses, of which a node
    /// runs the one that is chosen. All kernels are loaded by an updatable finalize.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](ErrorKind::InvalidArgument) for a group without
    /// alternatives, with kernels beside host tasks, with ranges of different dimensions, or whose
    /// alternatives use other memory or the same memory in another way: the nodes would depend on
    /// other nodes. Swap memory with a [dynamic parameter](Self::param). Those of
    /// [`launch`](Self::launch) and [`host_task`](Self::host_task), for each alternative.
    #[track_caller]
    pub fn command_group(&mut self) -> CommandGroupBuilder<'_> {
        CommandGroupBuilder { graph: self, alternatives: Vec::new(), refused: None, at: Location::caller() }
    }

    /// Adds a node that runs the chosen alternative of a group. Several nodes may share a group.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](ErrorKind::InvalidArgument) for a group of another graph,
    /// and for one that was refused.
    #[track_caller]
    pub fn add_group(&mut self, group: &CommandGroup) -> NodeBuilder<'_> {
        let group = &group.inner;
        let invalid = |why, help| Error::new(ErrorKind::InvalidArgument, why).help(help);
        if group.graph != self.nodes.source() {
            let error = invalid(
                "the command group belongs to another graph",
                "make it with `command_group` of the graph that the node is to be in",
            );
            return self.refuse(CommandKind::Empty, error);
        }
        let Some(command) = member(group) else {
            let error = invalid("the command group was refused", "see the graph's errors for the reason");
            return self.refuse(CommandKind::Empty, error);
        };
        let kind = command.group_kind();
        let command = command.present().unwrap_or(command);
        let checked = command.check(self.scratch_owner.as_ref());
        let device = match &command {
            Command::Kernel { call, .. } => preferred_device(call),
            _ => None,
        };
        let name = command.default_name();
        let index = self.nodes.len() as u32;
        let node = self.add(kind, device, checked, || command);
        let node = node.refine(|graph, _| {
            graph.bound.nodes.push(index);
            Ok(())
        });
        match name {
            Some(name) => node.name(name),
            None => node,
        }
    }
}

impl CommandGroupBuilder<'_> {
    /// Adds a kernel launch as an alternative.
    pub fn launch(mut self, call: impl Into<KernelCall>, range: Range) -> Self {
        let command = Command::Kernel {
            call: Arc::new(call.into()),
            range,
            alternatives: Arc::default(),
            dynamic: None,
        };
        let checked = range.check();
        self.push(command, checked);
        self
    }

    /// Adds a host task as an alternative, as for [`Graph::host_task`].
    pub fn host_task<A, F, R>(mut self, accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + TaskClosure,
        R: Future + Send + 'static,
        R::Output: TaskOutput,
    {
        let declared = accesses.declared();
        match host_task_command(declared, Arc::new(HostTask::new(accesses, closure))) {
            Ok(command) => self.push(command, Ok(())),
            Err(error) => self.refused = self.refused.take().or(Some(error)),
        }
        self
    }

    /// Binds a dynamic parameter to an argument of the alternative that was added last, as
    /// [`NodeBuilder::param`] does.
    pub fn param<T: ?Sized + 'static>(mut self, name: &str, param: &DynamicParam<T>) -> Self {
        let graph = self.graph.nodes.source();
        let bound = match self.alternatives.last_mut() {
            Some(Command::Kernel { call, dynamic, .. }) => {
                Binding::of(graph, &call.kernel, name, param.inner())
                    .map(|binding| Arc::make_mut(dynamic.get_or_insert_default()).bind(binding))
            }
            other => Err(Binding::not_a_kernel(other.map_or(CommandKind::Empty, |other| other.group_kind()))),
        };
        self.refused = self.refused.take().or(bound.err());
        self
    }

    /// Makes the group.
    pub fn build(self) -> CommandGroup {
        let Self { graph, alternatives, refused, at } = self;
        let checked = refused.map_or(Ok(()), Err);
        let checked = checked.and_then(|()| check(&alternatives, graph.scratch_owner.as_ref()));
        let alternatives = match checked {
            Ok(()) => alternatives,
            Err(error) => {
                graph.keep_error(Err(error.at(at)));
                Vec::new()
            }
        };
        let inner = Group {
            graph: graph.nodes.source(),
            alternatives: alternatives.into(),
            active: AtomicU32::new(0),
            changes: graph.bound.changes(),
        };
        CommandGroup { inner: Arc::new(inner) }
    }

    fn push(&mut self, command: Command, checked: Result<()>) {
        self.refused = self.refused.take().or(checked.err());
        self.alternatives.push(command);
    }
}

impl Debug for CommandGroupBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alternatives = self.alternatives.len();
        f.debug_struct("CommandGroupBuilder").field("alternatives", &alternatives).finish_non_exhaustive()
    }
}

/// Checks that the alternatives are of one kind, have the same accesses, and can run.
fn check(alternatives: &[Command], scratch_owner: Option<&scratch::Owner>) -> Result<()> {
    let invalid =
        |why: String, help: &'static str| Err(Error::new(ErrorKind::InvalidArgument, why).help(help));
    let Some(first) = alternatives.first() else {
        return invalid("a command group has no alternatives".into(), "add at least one before `build`");
    };
    let mut accesses: Option<Vec<Access>> = None;
    for (index, alternative) in alternatives.iter().enumerate() {
        let (kind, first_kind) = (alternative.group_kind(), first.group_kind());
        if kind != first_kind {
            let why = format!(
                "the alternatives of a command group differ in kind: {first_kind} first, {kind} as number \
                 {index}"
            );
            return invalid(why, "make a group of kernels, or a group of host tasks");
        }
        if let (Command::Kernel { range, .. }, Command::Kernel { range: first, .. }) = (alternative, first)
            && range.dimensions() != first.dimensions()
        {
            let why = format!(
                "the alternatives of a command group differ in dimensions: range {first} first, {range} as \
                 number {index}"
            );
            return invalid(why, "give all ranges the same number of dimensions");
        }
        let present = alternative.present();
        let own = present.as_ref().unwrap_or(alternative).check(scratch_owner)?;
        let own = accesses::merged_by_allocation(own);
        match &accesses {
            Some(first) if *first != own => {
                let why = format!(
                    "the alternatives of a command group differ in their dependencies: number {index} \
                     accesses other memory than the first, or the same memory in another way"
                );
                return invalid(
                    why,
                    "let all alternatives use the same memory in the same way; swap memory with a dynamic \
                     parameter",
                );
            }
            Some(_) => {}
            None => accesses = Some(own),
        }
    }
    Ok(())
}

/// The command of a node with the group, with its first alternative.
fn member(group: &Arc<Group>) -> Option<Command> {
    let mut command = group.alternatives.first()?.clone();
    if let Command::Kernel { alternatives, .. } = &mut command {
        let kernels = group.alternatives.iter().filter_map(|alternative| match alternative {
            Command::Kernel { call, .. } => Some(call.kernel.clone()),
            _ => None,
        });
        *alternatives = kernels
            .fold(Vec::<KernelRef>::new(), |mut known, kernel| {
                if !known.iter().any(|known| known.is(&kernel)) {
                    known.push(kernel);
                }
                known
            })
            .into();
    }
    let alternatives = group.alternatives.to_vec();
    command.join(Membership { group: group.clone(), active: 0, alternatives });
    Some(command)
}

impl Command {
    /// The command with another alternative of its group, if it has a group and another one active.
    pub(crate) fn with_alternative(&self, index: usize) -> Option<Self> {
        let mut membership = self.membership()?.clone();
        if membership.active == index {
            return None;
        }
        let mut new = membership.alternatives.get(index)?.clone();
        if let (Self::Kernel { alternatives: all, .. }, Self::Kernel { alternatives, .. }) = (self, &mut new)
        {
            alternatives.clone_from(all);
        }
        let mut old = self.clone();
        old.leave();
        membership.alternatives[membership.active] = old;
        membership.active = index;
        new.join(membership);
        Some(new)
    }

    fn leave(&mut self) {
        if let Some(dynamic) = self.dynamic_mut() {
            Arc::make_mut(dynamic.get_or_insert_default()).group = None;
        }
    }

    fn join(&mut self, membership: Membership) {
        if let Some(dynamic) = self.dynamic_mut() {
            Arc::make_mut(dynamic.get_or_insert_default()).group = Some(membership);
        }
    }

    /// The group that the node runs an alternative of.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.dynamic()?.group.as_ref()
    }

    fn group_kind(&self) -> CommandKind {
        match self {
            Self::Kernel { .. } => CommandKind::Kernel,
            Self::HostTask { .. } => CommandKind::HostTask,
            _ => CommandKind::Empty,
        }
    }

    fn default_name(&self) -> Option<Arc<str>> {
        match self {
            Self::Kernel { call, .. } => Some(call.kernel.name().into()),
            _ => None,
        }
    }
}

impl Dynamic {
    /// Whether both hold the same parameters and the same group.
    pub(crate) fn has_names_of(&self, other: &Self) -> bool {
        let group = |dynamic: &Self| dynamic.group.as_ref().map(|membership| membership.group.key());
        let is_same = |(one, other): (&Binding, &Binding)| Arc::ptr_eq(&one.param, &other.param);
        group(self) == group(other)
            && self.params.len() == other.params.len()
            && self.params.iter().zip(&other.params).all(is_same)
    }

    /// Returns the same parameters and group for a command of another graph. If its node has a group,
    /// too, with as many alternatives, these replace the group's own, with the one that it has chosen.
    pub(crate) fn with_choice_of(self: &Arc<Self>, other: Option<&Self>) -> Arc<Self> {
        let theirs = other.and_then(|other| other.group.as_ref());
        let (Some(own), Some(theirs)) = (&self.group, theirs) else { return self.clone() };
        if own.alternatives.len() != theirs.alternatives.len() {
            return self.clone();
        }
        let params = |index: usize| match own.alternatives[index].dynamic() {
            _ if index == own.active => self.params.clone(),
            dynamic => dynamic.map(|dynamic| dynamic.params.clone()).unwrap_or_default(),
        };
        let mut alternatives = theirs.alternatives.clone();
        for (index, alternative) in alternatives.iter_mut().enumerate() {
            if let Some(dynamic) = alternative.dynamic_mut() {
                *dynamic = Some(Arc::new(Self { params: params(index), group: None }));
            }
        }
        let (group, active) = (own.group.clone(), theirs.active);
        Arc::new(Self { params: params(active), group: Some(Membership { group, active, alternatives }) })
    }

    /// Adds a binding, in the place of an earlier one for the argument.
    pub(super) fn bind(&mut self, binding: Binding) {
        self.params.retain(|known| known.name != binding.name);
        self.params.push(binding);
    }
}
