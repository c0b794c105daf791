//! A device that passes everything on to another one, but whose enqueues and updates fail and whose
//! kernels take long to load when the test says so. It also takes native commands: it calls their
//! closures, and they do nothing else.
#![expect(unsafe_code, reason = "passes on enqueues that the caller vouched for")]

use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use wakegraph::capabilities::CommandKinds;
use wakegraph::hal::{
    Appended, Capabilities, Command, CommandBuffer, CommandBufferDesc, CommandBufferInfo, CommandUpdate,
    Device, DeviceInfo, Event, Kernel, KernelDesc, Memory, MemoryDesc, NativeStream, Queue, QueueDesc,
    Signal, SyncPoint, WaitList,
};
use wakegraph::{Error, ErrorKind, Result};

use crate::support::{Held, Hold};

/// Whether enqueues fail.
pub(crate) type Switch = Arc<AtomicBool>;

/// How many updates more succeed.
pub(crate) type Updates = Arc<AtomicUsize>;

#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Device>,
    capabilities: Capabilities,
    fails: Switch,
    updates: Updates,
    /// Kernels of this name wait here before they are loaded.
    slow: Option<(&'static str, Held)>,
}

impl Faulty {
    fn new(inner: Arc<dyn Device>) -> Self {
        let mut capabilities = inner.capabilities().clone();
        capabilities.commands |= CommandKinds::NATIVE;
        let updates = Updates::new(AtomicUsize::new(usize::MAX));
        Self { inner, capabilities, fails: Switch::default(), updates, slow: None }
    }
}

#[derive(Debug)]
struct FaultyBuffer {
    inner: Box<dyn CommandBuffer>,
    fails: Switch,
    updates: Updates,
}

/// Wraps a device.
pub(crate) fn faulty(inner: Arc<dyn Device>) -> (wakegraph::Device, Switch) {
    let faulty = Faulty::new(inner);
    let fails = faulty.fails.clone();
    (wakegraph::Device::from_hal(Arc::new(faulty)), fails)
}

/// Wraps a device, whose updates fail when so many have succeeded.
pub(crate) fn faulty_updates(inner: Arc<dyn Device>) -> (wakegraph::Device, Updates) {
    let faulty = Faulty::new(inner);
    let updates = faulty.updates.clone();
    (wakegraph::Device::from_hal(Arc::new(faulty)), updates)
}

/// Wraps a device on which kernels of this name are loaded when the test lets them.
pub(crate) fn slow_to_load(inner: Arc<dyn Device>, kernel: &'static str, hold: &Hold) -> wakegraph::Device {
    let faulty = Faulty { slow: Some((kernel, hold.held())), ..Faulty::new(inner) };
    wakegraph::Device::from_hal(Arc::new(faulty))
}

impl FaultyBuffer {
    fn count_update(&self) -> Result<()> {
        let less = |left: usize| left.checked_sub(1);
        match self.updates.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Driver, "the update failed")),
        }
    }
}

// SAFETY: every object is one of the inner device, but for command-buffers, which may refuse to enqueue.
unsafe impl Device for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn status(&self) -> Result<()> {
        self.inner.status()
    }

    fn clock(&self) -> Result<wakegraph::hal::ClockSample> {
        self.inner.clock()
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        self.inner.allocate(desc)
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        if let Some((_, held)) = self.slow.as_ref().filter(|(name, _)| *name == desc.name) {
            held.pass();
        }
        self.inner.create_kernel(desc)
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.inner.create_queue(desc)
    }

    fn create_event(&self, desc: &wakegraph::hal::EventDesc) -> Result<Arc<dyn Event>> {
        self.inner.create_event(desc)
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        let inner = self.inner.create_command_buffer(desc)?;
        Ok(Box::new(FaultyBuffer { inner, fails: self.fails.clone(), updates: self.updates.clone() }))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        self.inner.can_access(memory)
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        self.inner.can_wait_for(other.downcast_ref::<Self>().map_or(other, |other| &*other.inner))
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        self.inner.sub_devices(count)
    }
}

impl CommandBuffer for FaultyBuffer {
    fn info(&self) -> CommandBufferInfo {
        self.inner.info()
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        let Command::Native(native) = command else { return self.inner.append(command, after) };
        // SAFETY: the closures of these tests do not use the handles.
        let stream = unsafe { NativeStream::new("none", ptr::null_mut(), ptr::null_mut()) };
        // SAFETY: the closures of these tests enqueue nothing.
        unsafe { native.call(&stream) }?;
        self.inner.append(&Command::Empty, after)
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.inner.command(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.inner.finalize()
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Driver, "the enqueue failed"));
        }
        // SAFETY: the caller's promises are the inner command-buffer's.
        unsafe { self.inner.enqueue(queue, wait, signal) }
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.count_update()?;
        self.inner.update(updates)
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        self.count_update()?;
        self.inner.update_from(other.downcast_ref::<Self>().map_or(other, |other| &*other.inner))
    }
}
