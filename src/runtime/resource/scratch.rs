//! Memory that belongs to a graph: buffers that exist only while one of its executables runs, and
//! share bytes where they are not needed at a time.
//!
//! A scratch buffer is a name. Commands are built with it as with any other memory; at finalize the
//! plan gives each a place in one allocation a device, and its commands are recorded with that
//! instead. Several executables can share these allocations in an arena.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::{
    Access, AccessMode, Command, DeviceId, Error, ErrorKind, KernelArg, Memory, MemoryKind, MemoryView,
    ResourceId, Result, UsmPointer,
};

use crate::plan::{ArenaSize, Origin, Plan, Transient};
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::device::Device;

/// Offsets are multiples of this, if the device does not need more: what allocations are aligned to.
const ALIGNMENT: usize = 256;

/// Amount of memory of its own that an executable has on a device, see
/// [`ExecutableGraph::graph_memory`](crate::ExecutableGraph::graph_memory).
#[derive(Clone, Debug)]
pub struct GraphMemory {
    /// The device.
    pub device: Device,
    /// Bytes for all scratch buffers, allocated for this executable or in its
    /// [arena](crate::memory::ScratchArena).
    pub bytes: usize,
    /// Bytes more that they would need if each had memory of its own.
    pub saved: usize,
}

/// Tells graphs apart.
pub(crate) type Owner = Arc<()>;

/// Stands for memory that there is only at finalize.
#[derive(Debug)]
pub(crate) struct ScratchMemory {
    resource: ResourceId,
    device: DeviceId,
    len: usize,
    owner: Owner,
}

impl ScratchMemory {
    pub(crate) fn new(device: DeviceId, len: usize, owner: &Owner) -> Self {
        Self { resource: ResourceId::unique(), device, len, owner: owner.clone() }
    }

    /// The scratch memory behind an allocation, if it is that.
    pub(crate) fn of(allocation: &Allocation) -> Option<&Self> {
        allocation.memory().downcast_ref()
    }

    fn no_bytes() -> Error {
        Error::new(
            ErrorKind::InvalidOperation,
            "a graph's scratch buffer has memory only while the graph runs",
        )
        .help("copy it to a buffer inside the graph")
    }
}

#[expect(unsafe_code, reason = "implements accesses whose safety is the caller's to keep")]
impl Memory for ScratchMemory {
    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn usm(&self) -> Option<UsmPointer> {
        None
    }

    unsafe fn write(&self, _: usize, _: &[u8]) -> Result<()> {
        Err(Self::no_bytes())
    }

    unsafe fn read(&self, _: usize, _: &mut [u8]) -> Result<()> {
        Err(Self::no_bytes())
    }
}

/// The error where scratch buffers cannot be used.
pub(crate) fn refused(what: &str) -> Error {
    let why =
        format!("{what} cannot use scratch buffers, whose places are planned for nodes of the graph itself");
    Error::new(ErrorKind::InvalidArgument, why).help("use a buffer of the device")
}

/// Refuses scratch buffers of other graphs than this one.
pub(crate) fn check_owner<'v>(
    views: impl IntoIterator<Item = &'v View>,
    graph: Option<&Owner>,
) -> Result<()> {
    let is_foreign = |view: &View| {
        let scratch = ScratchMemory::of(&view.allocation);
        scratch.is_some_and(|scratch| graph.is_none_or(|graph| !Arc::ptr_eq(graph, &scratch.owner)))
    };
    if views.into_iter().any(is_foreign) {
        return Err(Error::new(ErrorKind::InvalidArgument, "a scratch buffer belongs to another graph")
            .help("make one with this graph's `scratch`, or copy it to a buffer inside its own graph"));
    }
    Ok(())
}

/// Uses of scratch buffers by nodes: the places of all are planned for these uses.
#[derive(Default)]
pub(crate) struct PlannedUses(HashSet<(Origin, ResourceId)>);

impl PlannedUses {
    pub(crate) fn new<'v>(uses: impl Iterator<Item = (Origin, &'v View)>) -> Self {
        let scratch =
            uses.filter_map(|(node, view)| Some((node, ScratchMemory::of(&view.allocation)?.resource)));
        Self(scratch.collect())
    }

    /// Refuses scratch buffers that the node does not use in the finalized graph.
    pub(crate) fn check<'v>(&self, node: Origin, mut views: impl Iterator<Item = &'v View>) -> Result<()> {
        let is_planned = |view: &View| match ScratchMemory::of(&view.allocation) {
            Some(scratch) => self.0.contains(&(node, scratch.resource)),
            None => true,
        };
        if views.all(is_planned) {
            return Ok(());
        }
        let why = "an update gives the node a scratch buffer that it does not use in the finalized graph";
        Err(Error::new(ErrorKind::InvalidArgument, why).help(
            "use a buffer of the device, or finalize the graph again: the places of scratch buffers are \
             planned",
        ))
    }
}

/// Whether `device` could copy from scratch memory of another device.
pub(crate) fn is_reachable(owner: &Device, device: &Device) -> Result<bool> {
    if owner == device {
        return Ok(true);
    }
    // What there will be is memory like any other of its device.
    let like_it = Allocation::on_device(owner, 1, false)?;
    Ok(device.hal().can_access(&**like_it.memory()))
}

/// The places of an executable's scratch buffers.
#[derive(Default)]
pub(crate) struct Places {
    by_resource: HashMap<ResourceId, (Arc<Allocation>, usize)>,
    /// The allocations that hold several buffers.
    arenas: HashMap<DeviceId, Arc<Allocation>>,
    /// Source of the arenas, if other executables share them.
    shared: Option<ScratchArena>,
    pub(crate) memory: Box<[GraphMemory]>,
}

impl Places {
    /// No places so far. Those [allocated](Self::allocate) after them lie in the shared arena, if there
    /// is one.
    pub(crate) fn none(shared: Option<&ScratchArena>) -> Self {
        Self { shared: shared.cloned(), ..Self::default() }
    }

    /// No places, with the arena of these.
    pub(crate) fn emptied(&self) -> Self {
        Self::none(self.shared.as_ref())
    }

    /// Allocates what the scratch buffers need that `uses` names, with the planned node that uses
    /// each. Takes the shared arena of `earlier` places, or else their own arenas where these are large
    /// enough.
    pub(crate) fn allocate<'g>(
        plan: &Plan,
        uses: impl Iterator<Item = (u32, &'g View)>,
        earlier: &Self,
    ) -> Result<Self> {
        let mut buffers: Vec<(Arc<Allocation>, Transient)> = Vec::new();
        let mut known: HashMap<ResourceId, usize> = HashMap::new();
        for (node, view) in uses {
            let Some(memory) = ScratchMemory::of(&view.allocation) else { continue };
            let at = *known.entry(memory.resource).or_insert_with(|| {
                let transient = Transient { device: memory.device, bytes: memory.len, uses: Vec::new() };
                buffers.push((view.allocation.clone(), transient));
                buffers.len() - 1
            });
            let nodes = &mut buffers[at].1.uses;
            if nodes.last() != Some(&node) {
                nodes.push(node);
            }
        }
        if buffers.is_empty() {
            return Ok(earlier.emptied());
        }
        // Devices that cannot use parts of one allocation at once cannot have several buffers in one.
        let (shared, apart): (Vec<_>, Vec<_>) =
            buffers.into_iter().partition(|(of, _)| of.device().capabilities().concurrent_parts);
        let mut places = earlier.emptied();
        let mut memory: Vec<GraphMemory> = Vec::new();
        for (of, Transient { bytes, .. }) in apart {
            // What has no such multiple is refused as it is.
            let bytes = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(bytes);
            let device = of.device().clone();
            let own = Allocation::on_device(&device, bytes, false)?;
            places.by_resource.insert(of.memory().resource(), (own, 0));
            match memory.iter_mut().find(|known| known.device == device) {
                Some(known) => known.bytes += bytes,
                None => memory.push(GraphMemory { device, bytes, saved: 0 }),
            }
        }
        let buffers = shared;
        let alignments = buffers.iter().map(|(of, _)| of.device().capabilities().view_alignment);
        let alignment = alignments.fold(ALIGNMENT, |all, own| all.max(own.next_multiple_of(ALIGNMENT)));
        let (allocations, transients): (Vec<_>, Vec<_>) = buffers.into_iter().unzip();
        let arenas = plan.plan_memory(&transients, alignment);

        let mut pieces: HashMap<DeviceId, Arc<Allocation>> = HashMap::new();
        for &ArenaSize { device: id, bytes, unshared } in arenas.sizes() {
            let of_device = allocations.iter().find(|allocation| allocation.device().id() == id);
            let Some(device) = of_device.map(|allocation| allocation.device()) else { continue };
            let known = earlier.arenas.get(&id).filter(|known| known.memory().len() >= bytes);
            let piece = match (&places.shared, known) {
                (Some(shared), _) => shared.at_least(device, bytes)?,
                (None, Some(known)) => known.clone(),
                (None, None) => Allocation::on_device(device, bytes, false)?,
            };
            pieces.insert(id, piece);
            memory.push(GraphMemory { device: device.clone(), bytes, saved: unshared - bytes });
        }
        let offsets = transients.iter().zip(&allocations).zip(arenas.offsets());
        places.by_resource.extend(offsets.filter_map(|((transient, allocation), &offset)| {
            let piece = pieces.get(&transient.device)?;
            Some((allocation.memory().resource(), (piece.clone(), offset)))
        }));
        places.memory = memory.into();
        places.arenas = pieces;
        Ok(places)
    }

    /// The allocations that the buffers lie in, one for each buffer.
    pub(crate) fn allocations(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.by_resource.values().map(|(allocation, _)| allocation)
    }

    /// Returns the executable's accesses to arenas that others share.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (&Arc<Allocation>, Access)> {
        let is_shared = self.shared.is_some();
        self.arenas.values().filter(move |_| is_shared).map(|allocation| {
            let device = allocation.device();
            let needed = self.memory.iter().find(|memory| memory.device == *device);
            let memory = allocation.memory();
            let end = needed.map_or(memory.len(), |needed| needed.bytes);
            let mode = AccessMode::ReadWrite;
            (allocation, Access { resource: memory.resource(), start: 0, end, mode })
        })
    }

    /// Whether the shared arena has become larger than these places know it.
    pub(crate) fn are_outgrown(&self) -> bool {
        let has_outgrown = |shared: &ScratchArena| self.arenas.values().any(|own| shared.has_outgrown(own));
        self.shared.as_ref().is_some_and(has_outgrown)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_resource.is_empty()
    }

    /// The command with the memory that its scratch buffers have.
    pub(crate) fn resolve(&self, command: &mut Command) -> Result<()> {
        command.views_mut().try_for_each(|view| self.resolve_view(view))
    }

    /// An argument with the memory that it has, if it is a scratch buffer.
    pub(crate) fn resolve_arg(&self, arg: &mut KernelArg) -> Result<()> {
        match arg {
            KernelArg::Memory(view) => self.resolve_view(view),
            KernelArg::Value(_) | KernelArg::Usm(_) | KernelArg::Local(_) => Ok(()),
        }
    }

    fn resolve_view(&self, view: &mut MemoryView) -> Result<()> {
        if let Some((piece, offset)) = self.by_resource.get(&view.memory().resource()) {
            *view = MemoryView::new(piece.memory().clone(), offset + view.offset(), view.len())?;
        }
        Ok(())
    }
}

/// Memory for the [scratch buffers](crate::Graph::scratch) of several executables, which take as
/// much as the largest of them.
///
/// Graphs are given an arena with [`share_scratch`](crate::Graph::share_scratch). Runs of
/// executables that share an arena come one after the other, in the order of their submission, even
/// where they have nothing else in common. So an arena suits executables of which one runs at a time
/// anyway: those of an [`ExecutableCache`](crate::service::ExecutableCache), with an arena for each
/// cache.
///
/// An arena grows when an executable is finalized that needs more. Those finalized before keep the
/// smaller allocation. So finalize the largest one first, or [`reserve`](Self::reserve) what it
/// needs; a cache drops executables that an arena has outgrown, and makes them again.
///
/// Clones are handles to the same arena. Its memory is freed when no handle and no executable uses
/// it.
///
/// ```
/// # use wakegraph::memory::ScratchArena;
/// # use wakegraph::{Device, Graph};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// # let device = Device::open("host")?;
/// let arena = ScratchArena::new();
/// let double_sum = |len: usize| {
///     let input = device.buffer_from(&vec![1u32; len])?;
///     let mut graph = Graph::new(&device);
///     graph.share_scratch(&arena);
///     let copy = graph.scratch::<u32>(len)?;
///     graph.copy(&input, &copy);
///     graph.copy(&copy, &input);
///     graph.finalize()
/// };
/// let executables = [1000, 500, 20].map(double_sum);
/// assert_eq!(arena.bytes(&device), 4096); // what the largest needs
/// for executable in executables {
///     executable?.submit().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct ScratchArena {
    /// The allocation of each device. Locked while a larger one is allocated.
    allocations: Arc<Mutex<HashMap<DeviceId, Arc<Allocation>>>>,
}

impl ScratchArena {
    /// An arena without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the arena at least `bytes` large on a device, so that executables which need no more
    /// than that all use the same memory, whichever is finalized first.
    ///
    /// # Errors
    /// Those of the allocation. The arena is as it was then.
    pub fn reserve(&self, device: &Device, bytes: usize) -> Result<()> {
        if bytes > 0 {
            self.at_least(device, bytes)?;
        }
        Ok(())
    }

    /// Returns the size of the arena on a device, in bytes.
    pub fn bytes(&self, device: &Device) -> usize {
        self.find(device.id()).map_or(0, |allocation| allocation.memory().len())
    }

    /// Whether this is not, or no longer, the arena's memory.
    pub(crate) fn has_outgrown(&self, allocation: &Arc<Allocation>) -> bool {
        !self.find(allocation.device().id()).is_some_and(|own| Arc::ptr_eq(&own, allocation))
    }

    /// The memory of a device, which has these bytes or more.
    pub(crate) fn at_least(&self, device: &Device, bytes: usize) -> Result<Arc<Allocation>> {
        let mut allocations = self.allocations.lock();
        if let Some(known) = allocations.get(&device.id())
            && known.memory().len() >= bytes
        {
            return Ok(known.clone());
        }
        let larger = Allocation::on_device(device, bytes, false)?;
        let outgrown = allocations.insert(device.id(), larger.clone());
        drop(allocations);
        drop(outgrown);
        Ok(larger)
    }

    fn find(&self, device: DeviceId) -> Option<Arc<Allocation>> {
        self.allocations.lock().get(&device).cloned()
    }
}

impl Debug for ScratchArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.allocations.lock().values()).finish()
    }
}
