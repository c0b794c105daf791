//! The contract between wakegraph and its backends: the Rust form of Unified Runtime's command-buffer
//! specification.
//!
//! A backend drives the devices of one vendor's driver. A [`Device`] allocates [`Memory`], loads
//! [`Kernel`]s and creates [`Queue`]s, [`Event`]s and [`CommandBuffer`]s. A command-buffer is created,
//! [appended](CommandBuffer::append) to, [finalized](CommandBuffer::finalize), and from then on
//! [enqueued](CommandBuffer::enqueue) any number of times: wait list in, event out. The crate `wakegraph`
//! plans graphs as such command-buffers and awaits their events inside tokio; this crate knows neither
//! graphs nor tokio and can be used without them.
//!
//! # Why this layer is unsafe
//!
//! A device touches memory at a time that no borrow describes. An enqueue returns long before its commands
//! run, and nothing in its arguments says which other work uses the same bytes. So each side takes the
//! other's word, and no compiler checks either:
//!
//! - The caller vouches for **order and life**. [`Queue::enqueue`], [`CommandBuffer::enqueue`],
//!   [`Memory::read`] and [`Memory::write`] are `unsafe fn`: nothing else uses the bytes in a conflicting
//!   way, and everything that the commands use stays until their event is final.
//! - The backend vouches for **truth**. Safe code hands out memory again as soon as an event is final, so a
//!   backend whose events end too early would break programs without a line of unsafe code of their own.
//!   That is why [`Device`] is an `unsafe trait`.
//!
//! # What it leaves to its caller
//!
//! - **Validation.** Backends check no operands. A [`ValidatedDevice`] does so once for all of them, with the
//!   specification's error conditions; it costs a few comparisons for each enqueue.
//! - **Dependencies.** A queue keeps its own order. Everything else, also between devices, is in the wait
//!   lists that the caller writes; whether a queue can wait for another device's events,
//!   [`Device::can_wait_for`] tells.
//! - **Waiting.** [`Event::status`] tells the truth when it is asked, and a [`Notify`] says that it is
//!   worth asking. Threads, tasks, timers and wakers are the caller's.
//! - **Policy.** Placement, copies between devices, reuse of memory, retries and deadlines are decided above.
//!
//! # What it is not
//!
//! It is no portable API that hides differences: what the hardware lacks is absent from [`Capabilities`]
//! and refused by name, not emulated. It is no comfortable way to use a device; that is `wakegraph`. And it
//! is not frozen: the crate has a version of its own, backends match commands and descriptors exhaustively,
//! and a release that adds to them is a breaking one, so that the compiler shows each backend what is new.
//!
//! The traits are object-safe, so one graph can span backends; one dynamic call is nothing beside a driver
//! call.
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
//! 4. **Order.** On an in-order queue, things complete in the order in which they were enqueued. An event
//!    completes only after all its commands have, and their writes are visible to everything that saw it
//!    complete. An event may fail as soon as something that it needs has failed, or something before it on
//!    its queue, even if other things that it comes after still run: what waits for it in order comes after
//!    all of these all the same.
//! 5. **Failure spreads** along dependencies: what needs the result of a failed event does not run,
//!    and its event fails with the same error. It does not spread along mere order (a queue's, or
//!    [`WaitList::order`]). An error of a single command says which one
//!    ([`Error::at_command`](crate::Error::at_command)).
//! 6. **Truth.** [`Event::status`] is the real status at that moment. A [`Notify`] only says that
//!    it is worth asking.
//! 7. **No allocation** in a repeated [`CommandBuffer::enqueue`], as far as the driver allows.
//! 8. **Whole or failed.** An enqueue that returns an error has enqueued nothing. Where one enqueue
//!    is several driver calls and a later one fails, it returns `Ok`, and the event fails when what
//!    did start has ended.
//! 9. **Loss.** Where a fault of one command ends everything on the device (an illegal address on a
//!    GPU), every pending event fails with [`DeviceLost`](crate::ErrorKind::DeviceLost), and so
//!    does [`Device::status`]. A device whose driver no longer says whether work has ended is lost, too:
//!    its work [may still run](Device::may_still_run), and what that uses is never released.
//!
//! # What a backend need not check
//!
//! Sizes, bounds (but those of [`Memory::read`] and [`Memory::write`]), pitches, patterns, argument
//! counts and kinds, states of a command-buffer, the owners of sync-points and handles:
//! [`ValidatedDevice`] has done so.
//!
//! # Where to start
//!
//! | place | what it holds |
//! |---|---|
//! | `examples/template` | a backend that accepts every command and runs none: copy it |
//! | `device`, `memory`, `kernel`, `queue`, `event` | the traits of a backend, with their descriptors |
//! | `host_code`, `block` | kernels in Rust, and the blocks in which a launch is run |
//! | `command`, `native`, `update` | plain data: what is appended or enqueued, and how it changes |
//! | `types` | plain values: ids, ranges, accesses, errors |
//! | `validation` | the checks above all backends |
//! | [`support`] | what backends share: signals, lowering, caches, streams and graphs of drivers like CUDA |
//! | [`dialect`] | the portable C in which one kernel source serves several backends |
//! | `fake` (feature `fake`) | a device for tests: work ends when the test says so, and faults are injected |
//! | [`util`] | helpers for panics and values of users' code |
//!
//! `docs/adding-a-backend.md` has the steps, and `docs/backends/` lays each object of the contract beside the
//! vendors' calls.

// First, as the others use its macro.
#[macro_use]
pub mod util;

mod block;
mod command;
mod device;
pub mod dialect;
mod event;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod host_code;
mod kernel;
mod memory;
mod native;
mod queue;
pub mod support;
mod types;
mod update;
mod validation;

pub use block::{Block, BlockUnit, Division, GroupParts, Part, Row};
pub use command::{Advice, Body, Command, KernelLaunch};
pub use device::{
    Backend, Capabilities, ClockSample, Device, DeviceInfo, GraphSupport, Progress, UpdateCapabilities,
    share_selectors,
};
pub use event::{
    CommandTimes, Event, EventDesc, EventProfile, EventStatus, Notification, Notify, Signal, WaitList,
};
pub use host_code::{BlockCode, BlockFn, CpuLevel, HostArgs, HostCode, HostFn};
pub use kernel::{
    Bytes, CodeOrigin, Compilation, Kernel, KernelArg, KernelDesc, KernelSources, Param, ParamKind,
    ValueBytes,
};
pub use memory::{Memory, MemoryDesc, MemoryKind, MemoryView, PlainMemory, UserMemory, UsmPointer};
pub use native::{NativeCommand, NativeFn, NativeMemory, NativeStream};
pub use queue::{
    Appended, CommandBuffer, CommandBufferDesc, CommandBufferInfo, CommandBufferState, EngineKind, Enqueued,
    Priority, Queue, QueueDesc, QueueOrder,
};
/// The list type of `ValueBytes`, of patterns in `Command`s and of other short lists, as a
/// dependency of this crate has it.
// Without links: rustdoc crashes on links in the comment of a re-export from another crate while this
// module is private.
pub use smallvec::SmallVec;
pub use support::kernel_cache::KernelCache;
pub use types::{
    Access, AccessMode, BoxError, CommandBufferId, CommandHandle, CommandKind, CommandKinds, DeviceId, Error,
    ErrorKind, Fault, KindPlace, KindRow, Pitch, Range, RangeBound, Rect, ResourceId, Result, SyncPoint,
};
pub use update::{CommandChange, CommandUpdate, LaunchBefore, NewArguments};
pub use validation::{ValidatedCommandBuffer, ValidatedDevice, ValidatedQueue};
