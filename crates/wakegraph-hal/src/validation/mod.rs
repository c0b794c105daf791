//! Validation: the specification's error conditions, once, above all backends.
//!
//! A [`ValidatedDevice`] holds a backend's device, and the queues and command-buffers that it makes
//! are validated, too. A call that breaks a rule is refused before the backend hears of it and
//! changes nothing; every other call is passed on as it came.
//!
//! | file | what it decides |
//! |---|---|
//! | `device` | allocations, kernel signatures, properties against capabilities |
//! | `command_buffer` | states, sync-points, handles |
//! | `queue` | commands outside command-buffers |
//! | `submit` | wait lists and signals, for both |
//! | `command` | the operands of each command, in the specification's order, and of those that it holds |
//! | `memory`, `rect` | sides, bounds, overlap |
//! | `kernel` | signatures, arguments, index spaces |
//! | `update` | updates, against what each command holds by then |
//! | `topology` | whether a command-buffer can be updated from another one |
//!
//! The validated types are not implementations of the contract's traits: a backend only ever sees
//! its own objects, and the type tells whether a call is checked.
//!
//! **Memory, kernels and events are not wrapped.** They travel in views, arguments and wait lists,
//! where a wrapper would cost an indirection at every use. `Memory::read` and `Memory::write`
//! therefore check their own bounds.
//!
//! What only a backend can know, it refuses itself: waiting for another device's event (an id leads
//! to no device that [`Device::can_wait_for`](super::Device::can_wait_for) could be asked about),
//! kernels of another device, commands that its queues cannot run outside a command-buffer, and
//! whether the bytes behind a raw pointer exist.

mod command;
mod command_buffer;
mod device;
mod kernel;
mod memory;
mod queue;
mod rect;
mod submit;
mod topology;
mod update;

#[cfg(test)]
mod tests;

pub use command_buffer::ValidatedCommandBuffer;
pub use device::ValidatedDevice;
pub use queue::ValidatedQueue;
