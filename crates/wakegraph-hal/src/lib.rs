//! The contract between wakegraph and its backends: the Rust form of Unified Runtime's command-buffer
//! specification.
//!
//! The crate has a version of its own. Backends match commands and descriptors exhaustively, so a release that
//! adds to them is a breaking one, and the compiler shows each backend what is new.
//!
//! A [`Device`] allocates [`Memory`], loads [`Kernel`]s and creates [`Queue`]s, [`Event`]s and
//! [`CommandBuffer`]s. A command-buffer is created, [appended](CommandBuffer::append) to,
//! [finalized](CommandBuffer::finalize), and from then on [enqueued](CommandBuffer::enqueue) any
//! number of times: wait list in, event out.
//!
//! The traits are object-safe, so one graph can span backends; one dynamic call is nothing beside a
//! driver call. They may be used on their own, without graphs and without tokio. Backends do not
//! validate: a [`ValidatedDevice`] does, once for all of them, with the specification's error
//! conditions.
//!
//! # What a backend must provide
//!
//! Safe code relies on all of it, so a backend vouches for it with `unsafe impl Device`.
//!
//! 1. Every method of the traits. What the hardware lacks is refused with
//!    [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) and absent from its
//!    [`Capabilities`].
//! 2. **Errors, no panics.** A missing library, a driver's code, a lost device are errors. In
//!    `drop` they go to tracing.
//! 3. **Any thread.** Every object may be used and dropped on any thread; contexts are bound per
//!    call.
//! 4. **Order.** On an in-order queue, things complete in the order in which they were enqueued. An
//!    event completes only after all its commands have, and their writes are visible to everything
//!    that saw it complete. An event may fail as soon as something has that it needs, or that is before
//!    it on its queue, and before other things that it comes after are over: what waits for it in order
//!    comes after all of these all the same.
//! 5. **Failure spreads** along dependencies: what needs the result of a failed event does not run,
//!    and its event fails with the same error. It does not spread along mere order (a queue's, or
//!    [`WaitList::order`]). An error of a single command says which one
//!    ([`Error::at_command`](crate::Error::at_command)).
//! 6. **Truth.** [`Event::status`] is the real status at that moment. A [`Notify`] only says that
//!    it is worth asking.
//! 7. **No allocation** in a repeated [`CommandBuffer::enqueue`], as far as the driver allows.
//! 8. **Whole or failed.** An enqueue that returns an error has enqueued nothing. Where one enqueue
//!    is several driver calls and a later one fails, it returns `Ok`, and the event fails when what
//!    did start is done.
//! 9. **Loss.** Where a fault of one command ends everything on the device (an illegal address on a
//!    GPU), every pending event fails with [`DeviceLost`](crate::ErrorKind::DeviceLost), and so
//!    does [`Device::status`]. A device whose driver no longer says whether work is over is lost, too:
//!    its work [may still run](Device::may_still_run), and what that uses is never released.
//!
//! # What a backend need not check
//!
//! Sizes, bounds (but those of [`Memory::read`] and [`Memory::write`]), pitches, patterns, argument
//! counts and kinds, states of a command-buffer, whose sync-point or handle it is:
//! [`ValidatedDevice`] has done so. `backend/null` is the template to start from, `docs/backends/`
//! the tables that lay each object beside the vendor's calls.
//!
//! This crate depends on no other crate of wakegraph. Backends, the plan and the runtime build on it.

mod command;
mod device;
pub mod dialect;
mod event;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod kernel;
mod memory;
mod native;
pub mod null;
mod queue;
pub mod support;
mod types;
mod update;
pub mod util;
mod validation;

pub use command::{Advice, Body, Command, KernelLaunch};
pub use device::{
    Backend, Capabilities, ClockSample, Device, DeviceInfo, GraphSupport, Progress, UpdateCapabilities,
};
pub use event::{
    CommandTimes, Event, EventDesc, EventProfile, EventStatus, Notification, Notify, Signal, WaitList,
};
pub use kernel::{
    Bytes, HostArgs, HostFn, Kernel, KernelArg, KernelDesc, KernelSources, Param, ParamKind, ValueBytes,
};
pub use memory::{Memory, MemoryDesc, MemoryKind, MemoryView, PlainMemory, UserMemory, UsmPointer};
pub use native::{NativeCommand, NativeFn, NativeMemory, NativeStream};
pub use queue::{
    Appended, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo, CommandBufferState,
    CommandHandle, EngineKind, Enqueued, Priority, Queue, QueueDesc, QueueOrder, SyncPoint,
};
/// The list type of `ValueBytes`, of patterns in `Command`s and of other short lists, as a
/// dependency of this crate has it.
// Without links: rustdoc crashes on links in the comment of a re-export from another crate while this
// module is private.
pub use smallvec::SmallVec;
pub use types::{
    Access, AccessMode, BoxError, CommandKind, CommandKinds, DeviceId, Error, ErrorKind, Fault, Pitch, Range,
    RangeBound, Rect, ResourceId, Result,
};
pub use update::{CommandChange, CommandUpdate, LaunchBefore, NewArguments};
pub use validation::{ValidatedCommandBuffer, ValidatedDevice, ValidatedQueue};
