//! Scratch memory that several executables share.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::{DeviceId, Result};

use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::device::Device;

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
        let larger = Allocation::on_device(device, bytes)?;
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
