//! A backend that accepts every command, runs none, and completes at once: the template of a new backend.
//!
//! Copy the folder to a crate of its own and fill in each file as its first lines say; the guide for
//! authors of backends (`docs/adding-a-backend.md`) has all steps. Everything here holds for a real backend
//! too: the states of a command-buffer, the order of a wait list, failures that spread along dependencies
//! and not along mere order, an event that is final before it is notified. It checks no operands, for
//! [`ValidatedDevice`] has done so.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | the backend: its devices; a device: its capabilities, and the creation of all other objects |
//! | `memory` | allocations |
//! | `kernel` | loaded kernels |
//! | `queue` | queues, commands outside command-buffers, and the events of both |
//! | `command_buffer` | append, finalize, enqueue, update |
//!
//! The vendor's symbols and types go into a module `sys` and nowhere else, its codes into `error`. What every
//! driver's backend needs is in [`wakegraph_hal::support`]: failure spreading, polling, transfers in pieces,
//! program caches.

mod command_buffer;
mod device;
mod kernel;
mod memory;
mod queue;

use device::TemplateBackend;
use wakegraph_hal::{
    Backend as _, Command, CommandBufferDesc, Error, ErrorKind, EventDesc, EventStatus, QueueDesc,
    QueueOrder, Result, Signal, ValidatedDevice, WaitList,
};

/// Opens the device as the runtime does, and runs a command-buffer on it.
#[expect(unsafe_code, reason = "enqueues commands on a device that touches no memory")]
fn main() -> Result<()> {
    let device = ValidatedDevice::new(TemplateBackend.open(0)?);
    let mut buffer = device.create_command_buffer(&CommandBufferDesc::new())?;
    let first = buffer.append(&Command::Empty, &[])?;
    buffer.append(&Command::Empty, &[first.sync_point])?;
    buffer.finalize()?;

    let queue = device.create_queue(&QueueDesc::new(QueueOrder::InOrder))?;
    let event = device.create_event(&EventDesc::new())?;
    // SAFETY: the commands touch no memory.
    unsafe { buffer.enqueue(&queue, WaitList::NONE, Signal::new(&event)) }?;
    match event.wait(None) {
        EventStatus::Complete => Ok(()),
        status => Err(Error::new(ErrorKind::Bug, format!("the event is {status:?}"))),
    }
}
