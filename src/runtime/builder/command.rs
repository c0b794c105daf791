//! The commands that the nodes of a user's graph hold. Conditionals and loops are among them: graphs inside a
//! node, which a device runs where it can, else the host.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::{ptr, slice};

use smallvec::SmallVec;
use wakegraph_hal as hal;
use wakegraph_hal::{
    Access, AccessMode, CommandKinds, DeviceId, Error, ErrorKind, KindPlace, Range, ResourceId, Result,
};

use crate::graph::{self, Content, Payload};
use crate::runtime::builder::binding::Binding;
use crate::runtime::builder::{Graph, merged_accesses};
use crate::runtime::execution::accesses::merged_by_allocation;
use crate::runtime::execution::host_control::ControlKind;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::resource::scratch::{self, ScratchMemory};
use crate::sync::{AtomicU32, AtomicU64};

/// A node's command: plain data and references, ready to be recorded for a device.
#[derive(Clone)]
pub(crate) enum Command {
    /// A kernel; loaded for its device at finalize.
    Kernel {
        call: Arc<KernelCall>,
        range: Range,
        /// Kernels that an update may use instead of this one.
        alternatives: Arc<[KernelRef]>,
        /// Present if the node holds dynamic parameters.
        dynamic: Option<Arc<Dynamic>>,
    },
    /// A copy, fill or hint; the views' allocations come along so that they stay alive. Where it would do
    /// nothing, the device's command is empty.
    Memory { command: Arc<hal::Command>, uses: [Option<View>; 2] },
    /// A conditional, a switch or a loop; its bodies are planned and recorded at finalize.
    Control(Arc<Control>),
    /// The user's own work on a device's stream, captured or, as a stream task, live.
    Native { command: Arc<hal::Command>, uses: Arc<[View]> },
    /// In a body, what an update has disabled: it does nothing, and keeps its memory and its place.
    Disabled(Arc<Self>),
    /// A closure of the host.
    HostTask {
        task: Arc<HostTask>,
        uses: Arc<[View]>,
        /// One for each of `uses`.
        accesses: Arc<[Access]>,
        /// Present if the node runs an alternative of a command group.
        dynamic: Option<Arc<Dynamic>>,
    },
}

/// Parts of a node that can be changed by other names than the node's own.
#[derive(Clone, Default)]
pub(crate) struct Dynamic {
    /// Of the kernel that the node launches.
    pub(crate) params: Vec<Binding>,
    pub(crate) group: Option<Membership>,
}

/// Membership of a node in a group: its alternatives in their current state. A change that an
/// update made in one stays with it.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) group: Arc<Group>,
    /// The one that the node's command is; its place in the list is out of date.
    pub(crate) active: usize,
    pub(crate) alternatives: Vec<Command>,
}

/// The alternatives of a command group.
pub(crate) struct Group {
    /// Identity that the ids of its graph's nodes carry.
    pub(super) graph: u32,
    /// None if the group was refused.
    pub(super) alternatives: Box<[Command]>,
    pub(super) active: AtomicU32,
    /// Counts the changes of the graph's parameters and groups.
    pub(super) changes: Arc<AtomicU64>,
}

/// Tells groups apart while they live.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupKey(pub(super) usize);

impl Command {
    /// A kernel in it that runs in blocks, if there is one, also as long as it is disabled.
    fn divided_kernel(&self) -> Option<&KernelRef> {
        match self {
            Self::Kernel { call, alternatives, .. } => {
                std::iter::once(&call.kernel).chain(&**alternatives).find(|kernel| kernel.runs_in_blocks())
            }
            Self::Control(control) => control.divided.as_ref(),
            Self::Disabled(command) => command.divided_kernel(),
            _ => None,
        }
    }

    /// Whether the device can end a kernel in it before all of it has run.
    pub(crate) fn can_be_stopped(&self, device: &Device) -> bool {
        self.divided_kernel().is_some_and(|kernel| kernel.can_be_stopped(device))
    }

    pub(crate) fn dynamic(&self) -> Option<&Arc<Dynamic>> {
        match self {
            Self::Kernel { dynamic, .. } | Self::HostTask { dynamic, .. } => dynamic.as_ref(),
            Self::Memory { .. } | Self::Control(_) | Self::Native { .. } | Self::Disabled(_) => None,
        }
    }

    /// Place where a command that can have something dynamic keeps it.
    pub(crate) fn dynamic_mut(&mut self) -> Option<&mut Option<Arc<Dynamic>>> {
        match self {
            Self::Kernel { dynamic, .. } | Self::HostTask { dynamic, .. } => Some(dynamic),
            Self::Memory { .. } | Self::Control(_) | Self::Native { .. } | Self::Disabled(_) => None,
        }
    }

    /// The accesses, if the command can run so.
    ///
    /// # Errors
    /// Those of a launch with these arguments.
    pub(crate) fn check(&self, scratch_owner: Option<&scratch::Owner>) -> Result<Vec<Access>> {
        scratch::check_owner(self.views(), scratch_owner)?;
        match self {
            Self::Kernel { call, range, .. } => {
                let accesses = call.accesses()?;
                call.check_range(range)?;
                Ok(accesses)
            }
            Self::HostTask { accesses, .. } => Ok(accesses.to_vec()),
            _ => Err(Error::new(ErrorKind::Bug, "a command whose accesses are not known")),
        }
    }

    /// The accesses with their allocations; none for a command that cannot run so.
    pub(crate) fn accesses_with_allocations(&self) -> Vec<(Arc<Allocation>, Access)> {
        match self {
            Self::Kernel { call, .. } => call.accesses_with_allocations(),
            Self::HostTask { uses, accesses, .. } => {
                uses.iter().map(View::allocation).cloned().zip(accesses.iter().copied()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it has nothing to do: a launch without work-items, a fill or copy of no bytes.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Kernel { range, .. } => range.is_empty(),
            Self::Memory { command, .. } => matches!(**command, hal::Command::Empty),
            _ => false,
        }
    }

    /// The command that a disabled one is while it is enabled.
    pub(crate) fn while_enabled(&self) -> &Self {
        match self {
            Self::Disabled(command) => command,
            _ => self,
        }
    }

    /// Returns the views that it uses itself; a conditional's or a loop's bodies are left out.
    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        let (call, some, all): (_, &[Option<View>], &[View]) = match self.while_enabled() {
            Self::Kernel { call, .. } => (Some(call), &[], &[]),
            Self::Memory { uses, .. } => (None, uses, &[]),
            Self::Control(control) => (None, &[], slice::from_ref(&control.condition)),
            Self::Native { uses, .. } | Self::HostTask { uses, .. } => (None, &[], uses),
            Self::Disabled(_) => (None, &[], &[]),
        };
        call.into_iter().flat_map(|call| call.views()).chain(some.iter().flatten()).chain(all)
    }

    /// Everything it keeps alive.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        let (views, bodies) = match self {
            Self::Control(control) => (None, &control.allocations[..]),
            _ => (Some(self.views()), &[][..]),
        };
        views.into_iter().flatten().map(View::allocation).chain(bodies)
    }
}

impl Payload for Command {
    fn describe(&self) -> Cow<'_, str> {
        match self {
            Self::Kernel { call, range, .. } => call.describe(range).into(),
            Self::Memory { command, .. } => format!("{command:?}").into(),
            Self::Control(control) => control.describe(),
            Self::Disabled(command) => format!("disabled: {}", command.describe()).into(),
            Self::Native { uses, .. } | Self::HostTask { uses, .. } => {
                format!("{} accesses", uses.len()).into()
            }
        }
    }

    fn needs_host(&self, device: DeviceId, supported: &dyn Fn(DeviceId) -> CommandKinds) -> bool {
        matches!(self, Self::Control(control) if control.needs_host(device, supported))
    }
}

/// The accesses of a list of views, all of one mode.
pub(crate) fn accesses(uses: &[(View, AccessMode)]) -> Vec<Access> {
    uses.iter().map(|(view, mode)| view.access(*mode)).collect()
}

/// A conditional, a switch or a loop.
pub(crate) struct Control {
    /// The word that decides.
    pub(crate) condition: View,
    pub(crate) kind: ControlKind,
    pub(crate) bodies: Bodies,
    /// Allocations that it and its bodies keep alive, without scratch buffers of the bodies.
    pub(crate) allocations: Vec<Arc<Allocation>>,
    /// Nesting depth of conditionals and loops in it.
    depth: usize,
    /// Command kinds that a device has to support to run it by itself. `None` where no device can.
    on_device: Option<CommandKinds>,
    /// A kernel of the bodies that runs in blocks, if there is one.
    divided: Option<KernelRef>,
}

/// A graph as it was when it was given to a conditional, switch or loop.
pub(crate) type Body = Arc<Graph>;

/// The bodies of one of them.
pub(crate) type Bodies = SmallVec<[Body; 2]>;

impl Control {
    /// Searches the bodies. Gives, too, the first device that their commands run on, if there is one.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) for a nesting that is too deep;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a flag in scratch memory, and for a stream task in
    /// a body, by its name.
    pub(crate) fn new(
        condition: View,
        kind: ControlKind,
        bodies: Bodies,
    ) -> Result<(Self, Option<DeviceId>)> {
        if ScratchMemory::of(&condition.allocation).is_some() {
            return Err(scratch::refused(&format!("the {} of a {}", kind.operand(), kind.command_kind())));
        }
        let mut found = BodyContents {
            device: None,
            stream_task: None,
            needs_host: false,
            kinds: kind.command_kind().as_set(),
            depth: 0,
            divided: None,
            allocations: HashMap::new(),
        };
        found.keep(&condition.allocation);
        bodies.iter().for_each(|body| found.search(body.inner()));
        if let Some(task) = found.stream_task {
            let why = format!("{task} is in the body of a {}, and runs in no body", kind.command_kind());
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("call it before or after, or from a host task in the body"));
        }
        let depth = found.depth + 1;
        if depth >= hal::Body::MAX_DEPTH {
            let why = format!(
                "conditionals, switches and loops are nested more than {} deep",
                hal::Body::MAX_DEPTH - 1
            );
            return Err(Error::new(ErrorKind::InvalidSize, why));
        }
        let on_device = (!found.needs_host).then_some(found.kinds);
        let allocations = found.allocations.into_values().collect();
        let divided = found.divided;
        Ok((Self { condition, kind, bodies, allocations, depth, on_device, divided }, found.device))
    }

    /// Whether the host has to run it, because `device` cannot.
    pub(crate) fn needs_host(&self, device: DeviceId, supported: &dyn Fn(DeviceId) -> CommandKinds) -> bool {
        let has_flag = self.condition.allocation.device().id() == device;
        !self.on_device.is_some_and(|kinds| has_flag && supported(device).contains(kinds))
    }

    /// Whether a device that runs it by itself decides about a loop.
    pub(crate) fn has_loop_on_device(&self) -> bool {
        self.on_device.is_some_and(|kinds| kinds.contains(CommandKinds::WHILE))
    }

    /// With other commands in the nodes of one of its bodies.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn with_body(&self, slot: usize, nodes: graph::Graph<Command>) -> Result<Self> {
        let mut bodies = self.bodies.clone();
        if let Some(body) = bodies.get_mut(slot) {
            *body = Arc::new(body.with_nodes(nodes));
        }
        Ok(Self::new(self.condition.clone(), self.kind, bodies)?.0)
    }

    /// The flag is read, and the bodies may do all that they can do, but for their scratch buffers,
    /// which nothing else uses.
    pub(crate) fn accesses(&self) -> Vec<Access> {
        let shared: HashSet<_> =
            self.allocations.iter().map(|allocation| allocation.memory().resource()).collect();
        let of_bodies = self.bodies.iter().flat_map(|body| merged_accesses(body.inner()));
        let mut all = vec![self.condition.access(AccessMode::Read)];
        all.extend(of_bodies.filter(|access| shared.contains(&access.resource)));
        merged_by_allocation(all)
    }

    /// In words, for verbose drawings.
    pub(crate) fn describe(&self) -> Cow<'_, str> {
        let start = self.condition.offset;
        let (end, resource) = (start + self.condition.len, self.condition.allocation.memory().resource());
        let word = format_args!("{resource:?}[{start}..{end}]");
        let mut text = match self.kind {
            ControlKind::If => format!("if {word} != 0"),
            ControlKind::While => format!("while {word} != 0"),
            ControlKind::Switch => format!("switch {word}"),
        };
        for (number, body) in self.bodies.iter().enumerate() {
            text += &format!("\n{}", NodeList(&self.kind.body_name(number), body));
        }
        text.into()
    }
}

/// Contents of the bodies of a conditional or loop.
struct BodyContents {
    /// Place where the first of their commands runs.
    device: Option<DeviceId>,
    /// The name of a stream task, if there is one.
    stream_task: Option<String>,
    /// Whether something needs the host: a host task, a second device or its memory, scratch memory.
    needs_host: bool,
    kinds: CommandKinds,
    depth: usize,
    divided: Option<KernelRef>,
    allocations: HashMap<ResourceId, Arc<Allocation>>,
}

impl BodyContents {
    fn keep(&mut self, allocation: &Arc<Allocation>) {
        // An executable of the body has scratch memory of its own.
        if ScratchMemory::of(allocation).is_some() {
            self.needs_host = true;
            return;
        }
        self.allocations.entry(allocation.memory().resource()).or_insert_with(|| allocation.clone());
    }

    /// Visits each sub-graph once, however often it occurs, without recursion.
    fn search(&mut self, body: &graph::Graph<Command>) {
        let mut seen = HashSet::from([ptr::from_ref(body)]);
        let mut open = vec![body];
        while let Some(graph) = open.pop() {
            for index in 0..graph.len() {
                match graph.content_at(index) {
                    Content::Empty => {}
                    Content::SubGraph(inner) => {
                        if seen.insert(ptr::from_ref(&**inner)) {
                            open.push(inner);
                        }
                    }
                    Content::Command(command) => self.add(graph, index, command),
                }
            }
        }
    }

    fn add(&mut self, graph: &graph::Graph<Command>, index: usize, command: &Command) {
        command.allocations().for_each(|allocation| self.keep(allocation));
        let kind = graph.kinds()[index];
        match kind.row().place {
            KindPlace::Host => {
                self.needs_host = true;
                return;
            }
            KindPlace::Stream => {
                self.stream_task.get_or_insert_with(|| graph.label_at(index));
            }
            _ => {}
        }
        let device = graph.devices()[index];
        self.needs_host |= *self.device.get_or_insert(device) != device;
        // CUDA refuses bodies that copy from or to what another driver has allocated.
        self.needs_host |= command.allocations().any(|allocation| allocation.device().id() != device);
        self.divided = self.divided.take().or_else(|| command.divided_kernel().cloned());
        match command {
            Command::Control(control) => {
                self.depth = self.depth.max(control.depth);
                self.needs_host |= control.condition.allocation.device().id() != device;
                match control.on_device {
                    Some(kinds) => self.kinds |= kinds,
                    None => self.needs_host = true,
                }
            }
            _ => self.kinds |= kind.as_set(),
        }
    }
}

/// The nodes of a body in a line.
struct NodeList<'a>(&'a str, &'a Body);

impl std::fmt::Display for NodeList<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 6;
        let Self(word, body) = *self;
        let body = body.inner();
        write!(f, "{word}: ")?;
        for index in 0..body.len().min(SHOWN) {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}{}", body.label_at(index))?;
            if let Content::Command(command @ Command::Control(_)) = body.content_at(index) {
                write!(f, " ({})", command.describe().replace('\n', "; "))?;
            }
        }
        match body.len() {
            0 => f.write_str("nothing"),
            len if len > SHOWN => write!(f, ", {} more", len - SHOWN),
            _ => Ok(()),
        }
    }
}
