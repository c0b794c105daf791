//! Validation: the specification's error conditions, once, above all backends.
//!
//! A [`ValidatedDevice`] holds a backend's device, and the queues and command-buffers that it makes
//! are validated, too. A call that breaks a rule is refused before the backend hears of it and
//! changes nothing; every other call is passed on as it came.
//!
//! | file | what it decides |
//! |---|---|
//! | this one | allocations, and properties against capabilities |
//! | `command_buffer` | states, sync-points, handles, wait lists and signals; commands on queues |
//! | `command` | the operands of each command, in the specification's order, and of those that it holds |
//! | `operand` | views, the bytes that they cover, and whether two of them share some |
//! | `kernel` | signatures, arguments, index spaces |
//! | `update` | updates, against what each command holds by then |
//!
//! The validated types are not implementations of the contract's traits: a backend only ever sees
//! its own objects, and the type tells whether a call is checked.
//!
//! **Memory, kernels and events are not wrapped.** They travel in views, arguments and wait lists,
//! where a wrapper would cost an indirection at every use. `Memory::read` and `Memory::write`
//! therefore check their own bounds.
//!
//! A backend itself refuses what only it can know: waiting for another device's event (an id leads
//! to no device that [`Device::can_wait_for`](crate::Device::can_wait_for) could be asked about),
//! kernels of another device, commands that its queues cannot run outside a command-buffer, and
//! whether the bytes behind a raw pointer exist.
#![expect(unsafe_code, reason = "passes handles of other libraries on")]

mod command;
mod command_buffer;
mod kernel;
mod operand;
mod update;

#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::util::console;
use crate::{
    Capabilities, ClockSample, Command, CommandBufferDesc, Device, DeviceInfo, Error, ErrorKind, Event,
    EventDesc, GraphSupport, Kernel, KernelDesc, Memory, MemoryDesc, QueueDesc, QueueOrder, Result,
    UserMemory,
};

pub use command_buffer::{ValidatedCommandBuffer, ValidatedQueue};

/// A device that validates each call before it passes it on to the backend's [`Device`].
///
/// Its methods are the contract's, and its queues and command-buffers are validated, too. What is
/// refused is listed as the errors of the contract's methods; in addition
/// [`allocate`](Self::allocate) refuses more than [`max_allocation`](Capabilities::max_allocation)
/// bytes, and [`create_kernel`](Self::create_kernel) an impossible name or parameter and an empty
/// source. A refused call has no effect.
///
/// The cost lies in building: an enqueue of a command-buffer is checked with a few comparisons and
/// one call for each event, without allocating: [`Event::status`] of the one to signal,
/// [`Event::is_idle`] of those to wait for.
#[derive(Clone, Debug)]
pub struct ValidatedDevice {
    inner: Arc<dyn Device>,
    console: console::Resource,
}

/// The contract's methods, as [`Device`] documents them. Their errors are those of validation and
/// of the backend.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
impl ValidatedDevice {
    /// Validates the calls to this device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let console = console::Resource::device(&device.info().selector, &device.info().name);
        Self { inner: device, console }
    }

    /// The backend's device. Calls to it are not validated.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }

    /// Descriptive data about the device: [`Device::info`].
    pub fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    /// Capabilities of the device: [`Device::capabilities`].
    pub fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    /// Whether the device still works: [`Device::status`].
    pub fn status(&self) -> Result<()> {
        self.inner.status()
    }

    /// Whether work may still run on a lost device: [`Device::may_still_run`].
    pub fn may_still_run(&self) -> bool {
        self.inner.may_still_run()
    }

    /// The device's clock, read together with the host's: [`Device::clock`].
    pub fn clock(&self) -> Result<ClockSample> {
        self.inner.clock()
    }

    /// Allocates memory, zeroed unless the description says otherwise: [`Device::allocate`].
    pub fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        check_allocation(desc, self.capabilities()).map_err(|error| self.here(error))?;
        self.inner.allocate(desc)
    }

    /// Uses memory of the application's: [`Device::register`].
    pub fn register(&self, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        self.inner.register(memory).map_err(|error| self.here(error))
    }

    /// Gives unused memory back to the system: [`Device::trim`].
    pub fn trim(&self) -> Result<()> {
        self.inner.trim()
    }

    /// Loads a kernel: [`Device::create_kernel`].
    pub fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        kernel::check_signature(desc).map_err(|error| self.here(error))?;
        self.inner.create_kernel(desc)
    }

    /// Creates a queue: [`Device::create_queue`].
    pub fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<ValidatedQueue>> {
        let out_of_order = desc.order == QueueOrder::OutOfOrder;
        self.require(!out_of_order || self.capabilities().out_of_order_queues, "out-of-order queues")?;
        self.require(!desc.profiling || self.capabilities().profiling, "profiling of queues")?;
        let inner = self.inner.create_queue(desc)?;
        let order = if out_of_order { "out of order" } else { "in order" };
        let console = console::Resource::queue(&self.console, &self.info().selector, order);
        Ok(Arc::new(ValidatedQueue::new(inner, Arc::clone(&self.inner), console)))
    }

    /// Creates an event: [`Device::create_event`].
    pub fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        self.require(!desc.profiling || self.capabilities().profiling, "profiling of events")?;
        self.inner.create_event(desc)
    }

    /// Creates an empty command-buffer: [`Device::create_command_buffer`].
    pub fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<ValidatedCommandBuffer> {
        let capabilities = self.capabilities();
        self.require(capabilities.graph_support() != GraphSupport::None, "command-buffers")?;
        self.require(!desc.updatable || !capabilities.update.is_empty(), "updatable command-buffers")?;
        self.require(!desc.profiling || capabilities.profiling, "profiling of command-buffers")?;
        let buffer = self.inner.create_command_buffer(desc)?;
        Ok(ValidatedCommandBuffer::new(buffer, Arc::clone(&self.inner), *desc))
    }

    /// Memory of another library: [`Device::import_memory`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn import_memory(&self, handle: *mut c_void, len: usize) -> Result<Arc<dyn Memory>> {
        self.check_handle(handle, "a null handle is no memory object")?;
        // SAFETY: passed on to the caller.
        unsafe { self.inner.import_memory(handle, len) }.map_err(|error| self.here(error))
    }

    /// Checks an address of another library: [`Device::check_address`].
    pub fn check_address(&self, address: usize, len: usize) -> Result<()> {
        self.inner.check_address(address, len).map_err(|error| self.here(error))
    }

    /// An event of another library: [`Device::import_event`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn import_event(&self, handle: *mut c_void) -> Result<Arc<dyn Event>> {
        self.check_handle(handle, "a null handle is no event")?;
        // SAFETY: passed on to the caller.
        unsafe { self.inner.import_event(handle) }.map_err(|error| self.here(error))
    }

    /// Has another library's queue wait for events: [`Device::order_after`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn order_after(&self, queue: *mut c_void, events: &[&dyn Event]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.inner.order_after(queue, events) }.map_err(|error| self.here(error))
    }

    /// Calls `work` with this thread prepared for the driver: [`Device::bind_thread`].
    pub fn bind_thread<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let (mut work, mut outcome) = (Some(work), None);
        self.inner.bind_thread(&mut || outcome = work.take().map(|work| work()))?;
        outcome
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Bug, "a backend has not called what it was given")))
    }

    fn check_handle(&self, handle: *mut c_void, why: &str) -> Result<()> {
        if handle.is_null() {
            return Err(self.here(Error::new(ErrorKind::InvalidArgument, why)));
        }
        Ok(())
    }

    /// Checks a command that is to be enqueued on queues of this device, as these do.
    ///
    /// # Errors
    /// The errors of the command's operands.
    pub fn check_command(&self, command: &Command) -> Result<()> {
        command::check(command, &*self.inner).map_err(|error| self.here(error))
    }

    /// Whether commands on this device can use `memory` where it is: [`Device::can_access`].
    pub fn can_access(&self, memory: &dyn Memory) -> bool {
        self.inner.can_access(memory)
    }

    /// Whether queues of this device can wait for events of `other` without the host.
    pub fn can_wait_for(&self, other: &Self) -> bool {
        self.inner.can_wait_for(&*other.inner)
    }

    /// Splits the device into `count` devices of equal size: [`Device::sub_devices`].
    pub fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Self>> {
        Ok(self.inner.sub_devices(count)?.into_iter().map(Self::new).collect())
    }

    /// Divides the compute units between two devices, of which the first has at least `units`:
    /// [`Device::share`].
    pub fn share(&self, units: usize) -> Result<[Self; 2]> {
        let all = self.info().compute_units;
        if units == 0 || units >= all {
            let why = format!("a share of {units} of {all} compute units");
            let error = Error::new(ErrorKind::InvalidArgument, why);
            return Err(self.here(error.help("ask for at least 1, and leave at least 1")));
        }
        Ok(self.inner.share(units)?.map(Self::new))
    }

    fn require(&self, is_there: bool, what: &str) -> Result<()> {
        if is_there {
            return Ok(());
        }
        let error = Error::new(ErrorKind::FeatureNotSupported, format!("the device has no {what}"));
        Err(self.here(error.help("leave it out, or use a device whose `Capabilities` have it")))
    }

    fn here(&self, error: Error) -> Error {
        error.on_device(&*self.inner.info().selector)
    }
}

fn check_allocation(desc: &MemoryDesc, capabilities: &Capabilities) -> Result<()> {
    if desc.len == 0 {
        return Err(
            Error::new(ErrorKind::InvalidSize, "an allocation of 0 bytes").help("allocate at least 1 byte")
        );
    }
    if desc.len > capabilities.max_allocation {
        let (len, most) = (desc.len, capabilities.max_allocation);
        return Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("an allocation of {len} bytes exceeds the device's largest, {most} bytes"),
        )
        .help("split it into several allocations"));
    }
    Ok(())
}
