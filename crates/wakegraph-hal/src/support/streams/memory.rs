//! Memory, as the contract has it.
#![expect(unsafe_code, reason = "accesses memory that the caller orders")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use parking_lot::Mutex;

use super::signal::StreamDevice;
use super::stream::StreamHandle;
use super::{ContextFailure, DriverContext as _};
use crate::support::errors;
use crate::support::memory::CopyAddress;
use crate::{
    Command, DeviceId, Error, ErrorKind, Memory, MemoryDesc, MemoryKind, MemoryView, PlainMemory, ResourceId,
    Result, UserMemory, UsmPointer,
};

/// A device with memory. The host and all devices share one address space.
pub trait MemoryDevice: StreamDevice {
    /// An allocation of the driver's.
    type Allocation: StreamAllocation;

    /// Memory as described, of a length that is not 0. Memory of the device is allocated and cleared on the
    /// [memory stream](StreamDevice::memory_stream), and [counted](super::MemoryStream::count_allocation)
    /// there.
    fn allocate(&self, desc: &MemoryDesc) -> Result<Self::Allocation>;

    /// Registers host memory with the driver, if it can. The caller has bound the context.
    fn register(&self, memory: &UserMemory) -> Result<bool, ContextFailure<Self::Context>>;

    /// Memory that has been registered with the driver.
    fn registered(&self, memory: UserMemory) -> Self::Allocation;

    /// The host memory of other backends that is registered now.
    fn pinned() -> &'static PinnedMemories<Self::Allocation>;

    /// Returns unused memory to the system. The caller has bound the context.
    fn trim(&self) -> Result<(), ContextFailure<Self::Context>>;

    /// Enqueues a copy to the device. The caller has bound the context.
    ///
    /// # Safety
    /// Both sides hold as many bytes, and stay until the copy is done. The stream is live.
    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: *const u8,
        len: usize,
        stream: StreamHandle<Self::Context>,
    ) -> Result<(), ContextFailure<Self::Context>>;

    /// Enqueues a copy to the host. The caller has bound the context.
    ///
    /// # Safety
    /// As for [`copy_to_device`](Self::copy_to_device).
    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: u64,
        len: usize,
        stream: StreamHandle<Self::Context>,
    ) -> Result<(), ContextFailure<Self::Context>>;
}

/// Memory of a driver, freed when dropped.
pub trait StreamAllocation: Debug + Send + Sync {
    /// First byte.
    fn address(&self) -> u64;

    /// Kind of the memory.
    fn kind(&self) -> MemoryKind;

    /// The number of the allocation on the device's [memory stream](super::MemoryStream); 0 for memory that
    /// is not allocated there.
    fn number(&self) -> u64;
}

/// Calls `work`, and if it runs out of memory trims the pool that memory comes from and calls it once more:
/// drivers do not allocate graphs, modules and host memory from the pool.
pub fn retry_with_room<T, E: Into<Error>, F: Into<Error>>(
    trim: impl FnOnce() -> Result<(), F>,
    mut work: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    match work().map_err(E::into) {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {
            trim().map_err(F::into)?;
            work().map_err(E::into)
        }
        outcome => outcome,
    }
}

/// One allocation.
#[derive(Debug)]
pub struct StreamMemory<D: MemoryDevice> {
    allocation: D::Allocation,
    resource: ResourceId,
    len: usize,
    /// The device that it was allocated on.
    pub device: Arc<D>,
}

impl<D: MemoryDevice> StreamMemory<D> {
    /// Allocates memory.
    pub fn allocate(device: &Arc<D>, desc: &MemoryDesc) -> Result<Self> {
        if desc.len == 0 {
            return Err(errors::empty_allocation());
        }
        let (allocation, resource) = (device.allocate(desc)?, ResourceId::unique());
        Ok(Self { device: Arc::clone(device), resource, len: desc.len, allocation })
    }

    /// Memory of the device with these bytes.
    pub fn with_bytes(device: &Arc<D>, bytes: &[u8]) -> Result<Self> {
        let desc = MemoryDesc::new(bytes.len(), MemoryKind::Device).zeroed(false);
        let memory = Self::allocate(device, &desc)?;
        // SAFETY: the memory has just been allocated.
        unsafe { memory.write(0, bytes) }?;
        Ok(memory)
    }

    /// Memory of the application's, registered with the driver, if it can. What it refuses, as pages that
    /// another library has registered, stays as it is: the driver stages its copies, and kernels cannot use
    /// it. The caller has bound the context.
    pub fn of_user(device: &Arc<D>, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        let is_registered = device.register(&memory).or_else(|failure| {
            let error = Error::from(failure);
            if error.kind() == ErrorKind::DeviceLost {
                return Err(error);
            }
            let why = "memory is not registered: the driver stages its copies";
            tracing::warn!(target: "wakegraph", %error, "{why}");
            Ok(false)
        })?;
        if !is_registered {
            return Ok(Arc::new(PlainMemory::new(device.id(), memory, false)));
        }
        let (len, resource) = (memory.len(), ResourceId::unique());
        let allocation = device.registered(memory);
        Ok(Arc::new(Self { device: Arc::clone(device), resource, len, allocation }))
    }

    /// First byte.
    pub fn address(&self) -> u64 {
        self.allocation.address()
    }

    /// The address at which a view begins. Kernels take the driver's memory only.
    pub fn address_of(view: &MemoryView) -> Result<u64> {
        let memory = view.memory().downcast_ref::<Self>();
        Ok(memory.ok_or_else(|| errors::foreign("memory"))?.address() + view.offset() as u64)
    }

    /// Start of one side of a copy. Copies also take the host memory of other backends. Unless a
    /// [`PinnedMemory`] has it registered, the driver has to stage it.
    pub fn copy_address_of(view: &MemoryView) -> Result<CopyAddress> {
        match foreign_start::<D>(view.memory()) {
            Some(start) => {
                let address = start.as_ptr().expose_provenance() as u64 + view.offset() as u64;
                let is_foreign = !D::pinned().contains(view.memory().resource());
                Ok(CopyAddress { address, is_foreign })
            }
            None => Ok(CopyAddress { address: Self::address_of(view)?, is_foreign: false }),
        }
    }

    fn range(&self, offset: usize, len: usize) -> Result<u64> {
        let checked = errors::check_range(offset, len, self.len);
        checked.map_err(|error| self.device.context().error(error))?;
        Ok(self.address() + offset as u64)
    }

    /// Enqueues a copy on the device's own stream, and waits for it.
    fn transfer(
        &self,
        copy: impl FnOnce(StreamHandle<D::Context>) -> Result<(), ContextFailure<D::Context>>,
    ) -> Result<()> {
        let stream = self.device.memory_stream();
        self.device.context().run(|| {
            copy(stream.raw())?;
            // A copy from memory that is not pinned returns before the data has arrived.
            stream.synchronize()
        })
    }
}

/// The host memory of other backends that a driver has registered for copies. All devices share it: the
/// driver registers memory once.
#[derive(Debug)]
pub struct PinnedMemories<A>(Mutex<BTreeMap<ResourceId, Registration<A>>>);

/// A registration, which ends when it is dropped.
#[derive(Debug)]
struct Registration<A> {
    users: usize,
    _allocation: A,
}

impl<A> PinnedMemories<A> {
    /// No memory is registered.
    #[expect(clippy::new_without_default, reason = "made in constants only")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn contains(&self, memory: ResourceId) -> bool {
        self.0.lock().contains_key(&memory)
    }
}

/// Keeps the host memory of another backend registered, so that the engines of a device copy from and to it
/// by themselves. The driver stages other memory: the call that launches such a copy waits for all that comes
/// before it, or reads the memory too early.
#[derive(Debug)]
pub struct PinnedMemory<D: MemoryDevice> {
    memory: Arc<dyn Memory>,
    device: PhantomData<fn() -> D>,
}

impl<D: MemoryDevice> PinnedMemory<D> {
    /// The operands of a copy that can be registered. The caller has bound the context.
    pub fn of_copy<'a>(device: &'a D, command: &'a Command) -> impl Iterator<Item = Self> + 'a {
        command.copy_sides().into_iter().flatten().filter_map(|view| Self::of(device, view.memory()))
    }

    fn of(device: &D, memory: &Arc<dyn Memory>) -> Option<Self> {
        let start = foreign_start::<D>(memory)?;
        let mut pinned = D::pinned().0.lock();
        match pinned.entry(memory.resource()) {
            Entry::Occupied(mut entry) => entry.get_mut().users += 1,
            Entry::Vacant(entry) => {
                // SAFETY: this object keeps the memory, whose bytes are valid for all threads, until it is
                // registered no more.
                let bytes = unsafe { UserMemory::new(start, memory.len(), false, Box::new(())) };
                match device.register(&bytes) {
                    Ok(true) => {
                        entry.insert(Registration { users: 1, _allocation: device.registered(bytes) })
                    }
                    Ok(false) => return None,
                    Err(failure) => {
                        let error = device.context().error(failure);
                        tracing::debug!(target: "wakegraph", %error, "the driver stages host memory");
                        return None;
                    }
                };
            }
        }
        Some(Self { memory: Arc::clone(memory), device: PhantomData })
    }
}

impl<D: MemoryDevice> Drop for PinnedMemory<D> {
    fn drop(&mut self) {
        let mut pinned = D::pinned().0.lock();
        if let Entry::Occupied(mut entry) = pinned.entry(self.memory.resource()) {
            entry.get_mut().users -= 1;
            if entry.get().users == 0 {
                // Under the lock, as the driver refuses to register memory twice.
                entry.remove();
            }
        }
    }
}

/// Start of host memory of another backend.
fn foreign_start<D: MemoryDevice>(memory: &Arc<dyn Memory>) -> Option<NonNull<u8>> {
    let is_foreign = memory.kind() == MemoryKind::Host && memory.downcast_ref::<StreamMemory<D>>().is_none();
    memory.host_ptr().filter(|_| is_foreign)
}

impl<D: MemoryDevice> Memory for StreamMemory<D> {
    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn kind(&self) -> MemoryKind {
        self.allocation.kind()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        match self.kind() {
            MemoryKind::Device => None,
            MemoryKind::Host => NonNull::new(self.address() as *mut u8),
        }
    }

    fn usm(&self) -> Option<UsmPointer> {
        // SAFETY: the bytes are valid on the device, and pinned ones on the host and all devices.
        // The caller of an enqueue promises that the memory outlives the pointer's use.
        Some(unsafe { UsmPointer::new(self.address() as usize, self.len) })
    }

    fn wait_until_ready(&self) -> Result<()> {
        let (context, stream) = (self.device.context(), self.device.memory_stream());
        stream.wait_for(self.allocation.number()).map_err(|failure| context.error(failure))
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let (to, from, len) = (self.range(offset, bytes.len())?, bytes.as_ptr(), bytes.len());
        match self.kind() {
            _ if bytes.is_empty() => Ok(()),
            MemoryKind::Host => {
                // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches
                // the bytes.
                unsafe { ptr::copy_nonoverlapping(from, to as *mut u8, len) };
                Ok(())
            }
            MemoryKind::Device => self.transfer(|stream| {
                // SAFETY: both sides hold as many bytes, and stay until the copy is done.
                unsafe { self.device.copy_to_device(to, from, len, stream) }
            }),
        }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (from, to, len) = (self.range(offset, bytes.len())?, bytes.as_mut_ptr(), bytes.len());
        match self.kind() {
            _ if bytes.is_empty() => Ok(()),
            MemoryKind::Host => {
                // SAFETY: `range` checked the bounds; the caller vouched that nothing writes the
                // bytes.
                unsafe { ptr::copy_nonoverlapping(from as *const u8, to, len) };
                Ok(())
            }
            MemoryKind::Device => self.transfer(|stream| {
                // SAFETY: both sides hold as many bytes, and stay until the copy is done.
                unsafe { self.device.copy_to_host(to, from, len, stream) }
            }),
        }
    }
}
