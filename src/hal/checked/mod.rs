//! The checking wrapper: the specification's error conditions, once, above all backends.
//!
//! [`checked`] wraps a device; what that device creates is wrapped in turn. A call that breaks a rule is refused before
//! the backend hears of it and changes nothing; every other call is passed on as it came.
//!
//! | file | what it decides |
//! |---|---|
//! | `device` | allocations, kernel signatures, properties against capabilities |
//! | `command_buffer` | states, sync-points, handles |
//! | `queue` | commands outside command-buffers |
//! | `submit` | wait lists and signals, for both |
//! | `command` | the operands of each command, in the specification's order |
//! | `memory`, `rect` | sides, bounds, overlap |
//! | `control` | commands that hold commands, native ones |
//! | `kernel` | signatures, arguments, index spaces |
//! | `update` | updates, against what each command holds by then |
//! | `topology` | whether a command-buffer can be updated from another one |
//!
//! **Wrappers are transparent.** A wrapper's `as_any` is that of the object it wraps, so a backend
//! recognises its own queue, device or command-buffer whether it is wrapped or not. A backend
//! therefore goes on with what it found behind `as_any`; calling the trait object it was given
//! would check everything once more. The wrapper of a command-buffer recognises its own by
//! `as_checked`.
//!
//! **Memory, kernels and events are not wrapped.** They travel in views, arguments and wait lists,
//! where a wrapper would cost an indirection at every use. `Memory::read` and `Memory::write`
//! therefore check their own bounds.
//!
//! What only a backend can know, it refuses itself: waiting for another device's event (an id leads
//! to no device that [`Device::can_wait_for`] could be asked about), kernels of another device,
//! commands that its queues cannot run outside a command-buffer, and whether the bytes behind a raw
//! pointer exist.

mod command;
mod command_buffer;
mod control;
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

use std::sync::Arc;

use super::Device;

/// Wraps a device, so that it and all it creates refuse wrong calls with the specification's errors.
///
/// A device that is wrapped already is returned as it is. The cost lies in building: an enqueue of
/// a command-buffer is checked with a few comparisons and a look at each event, without allocating:
/// [`status`](super::Event::status) of the one to signal, [`is_idle`](super::Event::is_idle) of
/// those to wait for.
///
/// What is refused, beside what the backend itself refuses:
///
/// | call | refused with |
/// |---|---|
/// | [`allocate`](Device::allocate) | `InvalidSize` for 0 bytes; `OutOfMemory` beyond `max_allocation` |
/// | [`create_kernel`](Device::create_kernel) | `InvalidArgument` for an impossible name or parameter, or an empty source |
/// | [`create_queue`](Device::create_queue), [`create_command_buffer`](Device::create_command_buffer) | `FeatureNotSupported` for a property beyond the capabilities |
/// | [`append`](super::CommandBuffer::append) | `InvalidOperation` after finalize; `FeatureNotSupported` for the command, or one that it holds; `InvalidSyncPoint`; `InvalidSize` and `InvalidArgument` for operands |
/// | [`finalize`](super::CommandBuffer::finalize) | `InvalidOperation` the second time |
/// | [`enqueue`](super::CommandBuffer::enqueue) | `InvalidOperation` before finalize or when the signalled event is pending; `InvalidArgument` for another device's queue or event; `InvalidWaitList` for an idle event or the signalled one |
/// | [`update`](super::CommandBuffer::update) | `InvalidOperation` before finalize or when not updatable; `InvalidCommandHandle`; `FeatureNotSupported` for a capability bit; `InvalidSize` and `InvalidArgument` for what the command would become |
/// | [`update_from`](super::CommandBuffer::update_from) | `InvalidOperation` before finalize or when not updatable; `InvalidArgument` for another device's buffer, other properties or another topology |
/// | [`Queue::enqueue`](super::Queue::enqueue) | as for `append` and `enqueue` |
pub fn checked(device: Arc<dyn Device>) -> Arc<dyn Device> {
    device::wrap(device)
}
