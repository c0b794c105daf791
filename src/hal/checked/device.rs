//! Allocations, kernel signatures, and properties against capabilities.

use std::any::Any;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::command_buffer::CheckedCommandBuffer;
use super::kernel;
use super::queue::CheckedQueue;
use crate::hal::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Event, EventDesc,
    GraphSupport, Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, QueueOrder,
};
use crate::types::{Error, ErrorKind, Result};

/// All wrapped devices. `as_any` shows the wrapped object, never the wrapper, so a downcast cannot
/// tell them apart.
static WRAPPED: Mutex<Vec<Weak<CheckedDevice>>> = Mutex::new(Vec::new());

/// Wraps `device`, unless it is a wrapper already.
pub(super) fn wrap(device: Arc<dyn Device>) -> Arc<dyn Device> {
    let mut wrapped = WRAPPED.lock();
    wrapped.retain(|known| known.strong_count() > 0);
    // A `Weak` keeps the address from being reused, so an equal address is the same object.
    if wrapped.iter().any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(&device))) {
        return device;
    }
    let device = Arc::new(CheckedDevice { inner: device });
    wrapped.push(Arc::downgrade(&device));
    device
}

#[derive(Debug)]
struct CheckedDevice {
    inner: Arc<dyn Device>,
}

impl CheckedDevice {
    fn unsupported(&self, what: &str) -> Error {
        Error::new(ErrorKind::FeatureNotSupported, format!("the device has no {what}"))
            .on_device(&*self.inner.info().selector)
    }

    fn here(&self) -> impl FnOnce(Error) -> Error + '_ {
        |error| error.on_device(&*self.inner.info().selector)
    }
}

// SAFETY: every object is one of the inner device, whose implementer has vouched; the wrapper only refuses.
#[expect(unsafe_code, reason = "passes on what the wrapped device vouches for")]
unsafe impl Device for CheckedDevice {
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn status(&self) -> Result<()> {
        self.inner.status()
    }

    fn clock(&self) -> Result<ClockSample> {
        self.inner.clock()
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        check_allocation(desc, self.capabilities()).map_err(self.here())?;
        self.inner.allocate(desc)
    }

    fn trim(&self) -> Result<()> {
        self.inner.trim()
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        kernel::check_signature(desc).map_err(self.here())?;
        self.inner.create_kernel(desc)
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        if desc.order == QueueOrder::OutOfOrder && !self.capabilities().out_of_order_queues {
            return Err(self.unsupported("out-of-order queues").help("create an in-order queue"));
        }
        if desc.profiling && !self.capabilities().profiling {
            return Err(self.unsupported("profiling of queues").help("create the queue without profiling"));
        }
        let queue = self.inner.create_queue(desc)?;
        Ok(Arc::new(CheckedQueue::new(queue, Arc::clone(&self.inner))))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        if desc.profiling && !self.capabilities().profiling {
            return Err(self.unsupported("profiling of events").help("create the event without profiling"));
        }
        self.inner.create_event(desc)
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        let capabilities = self.capabilities();
        if capabilities.graph_support() == GraphSupport::None {
            return Err(self.unsupported("command-buffers").help("enqueue the commands on a queue instead"));
        }
        if desc.updatable && capabilities.update.is_empty() {
            return Err(self.unsupported("updatable command-buffers").help("create it without `updatable`"));
        }
        if desc.profiling && !capabilities.profiling {
            return Err(self
                .unsupported("profiling of command-buffers")
                .help("create it without `profiling`"));
        }
        let buffer = self.inner.create_command_buffer(desc)?;
        Ok(Box::new(CheckedCommandBuffer::new(buffer, Arc::clone(&self.inner), *desc)))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        self.inner.can_access(memory)
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        self.inner.can_wait_for(other)
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        Ok(self.inner.sub_devices(count)?.into_iter().map(wrap).collect())
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
