//! Host memory that a device keeps for later host buffers, as pinning memory takes milliseconds.
#![expect(unsafe_code, reason = "hands on the memory of a backend")]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wakegraph_hal::{DeviceId, ErrorKind, Memory, MemoryKind, ResourceId, Result, UsmPointer};

/// The memory of dropped host buffers, by its length.
///
/// Memory comes here when its last reference has gone, so nothing uses it any more.
#[derive(Debug)]
pub(crate) struct HostPool {
    state: Mutex<HostPoolState>,
}

#[derive(Debug)]
struct HostPoolState {
    classes: BTreeMap<usize, SizeClass>,
    stats: HostPoolStats,
    /// The most bytes that are kept.
    limit: usize,
    /// Counts the uses of all classes.
    now: u64,
}

#[derive(Default, Debug)]
struct SizeClass {
    idle: Vec<Arc<dyn Memory>>,
    last_use: u64,
}

/// Statistics of a device's pool of host memory:
/// [`Device::host_pool_stats`](crate::Device::host_pool_stats).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostPoolStats {
    /// Host buffers whose memory the driver had to allocate.
    pub allocations: u64,
    /// Host buffers whose memory an earlier one had left.
    pub reuses: u64,
    /// Bytes that are kept for later host buffers.
    pub idle_bytes: usize,
}

const DEFAULT_LIMIT: usize = 256 << 20;

/// The length of the memory for `len` bytes: a page at least, and up to a quarter more, so that buffers of
/// about the same size can have each other's memory.
fn class_of(len: usize) -> Option<usize> {
    let len = len.max(4096);
    len.checked_next_multiple_of(len.checked_next_power_of_two()? / 8)
}

impl Default for HostPool {
    fn default() -> Self {
        let (classes, stats) = (BTreeMap::new(), HostPoolStats::default());
        Self { state: Mutex::new(HostPoolState { classes, stats, limit: DEFAULT_LIMIT, now: 0 }) }
    }
}

impl HostPool {
    /// Memory of `len` bytes, zeroed or with anything in it: memory that is kept, or else what `allocate`
    /// gives for a number of bytes, zeroed if that is asked for. More than `largest` bytes are never kept.
    pub(super) fn allocate(
        self: &Arc<Self>,
        len: usize,
        largest: usize,
        zeroed: bool,
        allocate: impl Fn(usize) -> Result<Arc<dyn Memory>>,
    ) -> Result<Arc<dyn Memory>> {
        let allocate = |len| {
            let memory = allocate(len)?;
            self.state.lock().stats.allocations += 1;
            Ok(memory)
        };
        let Some(class) = class_of(len).filter(|&class| class <= largest) else { return allocate(len) };
        let memory = match self.take(class) {
            Some(memory) => {
                if let Some(start) = memory.host_ptr().filter(|_| zeroed) {
                    // SAFETY: nothing else has the memory, which is as long as that.
                    unsafe { start.write_bytes(0, len) };
                }
                memory
            }
            None => match allocate(class) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                    self.trim();
                    return allocate(len);
                }
                memory => memory?,
            },
        };
        let (resource, pool) = (ResourceId::unique(), Arc::downgrade(self));
        Ok(Arc::new(PooledMemory { resource, len, memory: Some(memory), pool }))
    }

    pub(super) fn stats(&self) -> HostPoolStats {
        self.state.lock().stats
    }

    fn take(&self, class: usize) -> Option<Arc<dyn Memory>> {
        let mut state = self.state.lock();
        let now = state.count_use();
        let of_class = state.classes.get_mut(&class)?;
        of_class.last_use = now;
        let memory = of_class.idle.pop()?;
        state.stats.idle_bytes -= class;
        state.stats.reuses += 1;
        Some(memory)
    }

    /// Keeps memory that nothing uses. What is too much then is freed.
    fn give_back(&self, memory: Arc<dyn Memory>) {
        let len = memory.len();
        let mut state = self.state.lock();
        let now = state.count_use();
        let of_class = state.classes.entry(len).or_default();
        of_class.last_use = now;
        of_class.idle.push(memory);
        state.stats.idle_bytes += len;
        let too_much = state.shrink();
        drop(state);
        // Calls the driver, which the lock must not wait for.
        drop(too_much);
    }

    pub(super) fn set_limit(&self, limit: usize) {
        let mut state = self.state.lock();
        state.limit = limit;
        let too_much = state.shrink();
        drop(state);
        drop(too_much);
    }

    /// Frees everything that is kept.
    pub(super) fn trim(&self) {
        let mut state = self.state.lock();
        state.stats.idle_bytes = 0;
        let classes = std::mem::take(&mut state.classes);
        drop(state);
        drop(classes);
    }
}

impl HostPoolState {
    fn count_use(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Takes memory out until the limit is kept, first of the sizes that have not been used for longest.
    fn shrink(&mut self) -> Vec<Arc<dyn Memory>> {
        let mut out = Vec::new();
        while self.stats.idle_bytes > self.limit {
            let used = self.classes.values_mut().filter(|class| !class.idle.is_empty());
            let Some(memory) = used.min_by_key(|class| class.last_use).and_then(|class| class.idle.pop())
            else {
                break;
            };
            self.stats.idle_bytes -= memory.len();
            out.push(memory);
        }
        out
    }
}

/// Host memory of the pool while it is in use. Backends see their own object.
#[derive(Debug)]
struct PooledMemory {
    resource: ResourceId,
    /// Length that was requested and can be used.
    len: usize,
    /// Present until it is dropped.
    memory: Option<Arc<dyn Memory>>,
    /// The device's. Without one, its memory is freed.
    pool: Weak<HostPool>,
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        if let (Some(memory), Some(pool)) = (self.memory.take(), self.pool.upgrade()) {
            pool.give_back(memory);
        }
    }
}

impl PooledMemory {
    fn memory(&self) -> &dyn Memory {
        // Taken by `drop` only.
        &**self.memory.as_ref().expect("memory in use has not been given back")
    }
}

impl Memory for PooledMemory {
    fn wrapped(&self) -> Option<&dyn Memory> {
        Some(self.memory())
    }

    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.memory().device()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.memory().host_ptr()
    }

    fn usm(&self) -> Option<UsmPointer> {
        let pointer = self.memory().usm()?;
        // SAFETY: the first of the bytes that the backend vouches for.
        Some(unsafe { UsmPointer::new(pointer.address(), self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        wakegraph_hal::support::errors::check_range(offset, bytes.len(), self.len)?;
        // SAFETY: passed on to the caller.
        unsafe { self.memory().write(offset, bytes) }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        wakegraph_hal::support::errors::check_range(offset, bytes.len(), self.len)?;
        // SAFETY: passed on to the caller.
        unsafe { self.memory().read(offset, bytes) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;
    use crate::{Device, Graph};

    const PAGE: usize = 4096;

    fn fake(options: FakeOptions) -> (Device, wakegraph_hal::fake::FakeControl) {
        let (device, control) = FakeDevice::open(options);
        (Device::from_hal(device), control)
    }

    fn counts(device: &Device) -> (u64, u64, usize) {
        let stats = device.host_pool_stats();
        (stats.allocations, stats.reuses, stats.idle_bytes)
    }

    #[test]
    fn a_class_wastes_a_quarter_at_most() {
        for (len, class) in
            [(1, PAGE), (PAGE, PAGE), (PAGE + 1, 5120), (5121, 6144), (7000, 7168), (8 << 20, 8 << 20)]
        {
            assert_eq!(class_of(len), Some(class));
        }
        for len in (PAGE..1 << 20).step_by(if cfg!(miri) { 49_999 } else { 997 }) {
            let class = class_of(len).unwrap();
            assert!(class >= len && class - len <= len / 4, "{len} {class}");
            assert_eq!(class_of(class), Some(class));
        }
        assert_eq!(class_of(usize::MAX), None);
    }

    #[test]
    fn memory_is_reused_and_zeroed() {
        let (device, _control) = fake(FakeOptions::new());
        for round in 0..3 {
            let buffer = device.host_buffer::<u32>(1000).unwrap();
            assert_eq!(counts(&device), (1, round, 0));
            assert_eq!(buffer.try_read().unwrap()[..], [0; 1000]);
            buffer.try_write().unwrap().fill(7);
            let (slice, resource) = (buffer.slice(10..20).unwrap(), buffer.resource());
            drop(buffer);
            assert_eq!(counts(&device), (1, round, 0), "a slice is a use");
            assert_eq!(slice.resource(), resource);
            drop(slice);
            assert_eq!(counts(&device), (1, round, PAGE));
        }
    }

    #[test]
    fn buffers_in_use_have_memory_of_their_own() {
        let (device, _control) = fake(FakeOptions::new());
        let address = |buffer: &crate::HostBuffer<u8>| buffer.try_read().unwrap().as_ptr();
        let buffers: Vec<_> = (0..4).map(|_| device.host_buffer::<u8>(1).unwrap()).collect();
        let (one, two) = (address(&buffers[0]), address(&buffers[3]));
        drop(buffers);
        let again = [(), ()].map(|()| device.host_buffer::<u8>(1).unwrap());
        assert_ne!(address(&again[0]), address(&again[1]));
        assert_ne!(again[0].resource(), again[1].resource());
        assert_ne!(one, two);
        assert_eq!(counts(&device), (4, 2, 2 * PAGE));
    }

    #[test]
    fn elements_replace_what_was_there() {
        let (device, _control) = fake(FakeOptions::new());
        drop(device.host_buffer_from(&[9u8; 100]).unwrap());
        let buffer = device.host_buffer_from(&[1u8, 2, 3]).unwrap();
        assert_eq!(buffer.try_read().unwrap()[..], [1, 2, 3]);
        assert_eq!(counts(&device), (1, 1, 0));
    }

    #[test]
    fn memory_comes_back_when_the_device_is_done() {
        let (device, control) = fake(FakeOptions::new().manual(true));
        let buffer = device.host_buffer::<u8>(10).unwrap();
        let mut graph = Graph::new(&device);
        graph.copy(device.buffer::<u8>(10).unwrap(), &buffer);
        let exec = graph.finalize().unwrap();
        drop(exec.submit());
        drop((graph, exec, buffer));
        assert_eq!(counts(&device), (1, 0, 0));
        drop(device.host_buffer::<u8>(10).unwrap());
        assert_eq!(counts(&device), (2, 0, PAGE));
        control.complete_all();
        // The run is dropped by the thread that learns of its end.
        while counts(&device).2 < 2 * PAGE {
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_limit_frees_the_sizes_unused_for_longest() {
        let (device, _control) = fake(FakeOptions::new());
        device.set_host_pool_limit(10 * PAGE);
        let buffers = [1, 4, 2, 4].map(|pages| device.host_buffer::<u8>(pages * PAGE).unwrap());
        drop(buffers);
        assert_eq!(counts(&device), (4, 0, 10 * PAGE), "without the single page");
        drop(device.host_buffer::<u8>(2 * PAGE).unwrap());
        assert_eq!(counts(&device), (4, 1, 10 * PAGE));
        drop(device.host_buffer::<u8>(PAGE).unwrap());
        assert_eq!(counts(&device), (5, 1, 7 * PAGE), "without one of four pages");
        device.set_host_pool_limit(6 * PAGE);
        assert_eq!(counts(&device).2, 3 * PAGE);
        device.set_host_pool_limit(0);
        drop(device.host_buffer::<u8>(PAGE).unwrap());
        assert_eq!(counts(&device).2, 0);
    }

    #[test]
    fn trim_frees_everything() {
        let (device, _control) = fake(FakeOptions::new());
        drop([1, 2, 2].map(|pages| device.host_buffer::<u8>(pages * PAGE).unwrap()));
        assert_eq!(counts(&device), (3, 0, 5 * PAGE));
        device.trim().unwrap();
        assert_eq!(counts(&device), (3, 0, 0));
        device.host_buffer::<u8>(PAGE).unwrap();
        assert_eq!(counts(&device), (4, 0, PAGE));
    }

    #[test]
    fn a_lost_device_gives_no_memory() {
        let (device, control) = fake(FakeOptions::new());
        drop(device.host_buffer::<u8>(1).unwrap());
        control.lose_device();
        device.check_for_loss();
        assert_eq!(device.host_buffer::<u8>(1).unwrap_err().kind(), ErrorKind::DeviceLost);
    }
}
