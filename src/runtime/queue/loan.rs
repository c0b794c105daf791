//! Loans: device memory of ours that another library uses, in the order of the submissions.

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use smallvec::smallvec;
use wakegraph_hal::{self as hal, AccessMode, Error, ErrorKind, QueueOrder, Result};

use crate::runtime::completion::tasks::{take_turn, wake_after_locks};
use crate::runtime::execution::accesses::UsedAllocation;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::run::{
    FenceGuard, FenceHolder, Predecessor, Run, with_other_devices, without_failed,
};
use crate::runtime::queue::QueueInner;
use crate::runtime::queue::command::QueueCommand;
use crate::runtime::resource::allocation::{AllocationLoans, View};
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::raw_memory::NativeEvent;
use crate::runtime::resource::scratch;
use crate::util::attachment::Attachment;

/// Device memory that another library may use, by the [address](Buffer::address) of the buffer: made by
/// [`Buffer::lend`]. Submissions and guards that conflict with the use wait until the loan is dropped, and
/// until the events that it is [held](Self::hold_until) for have ended.
///
/// The other library's calls say that the memory is a pointer, which is their `unsafe`; a loan is
/// about order.
#[must_use = "submissions do not wait for a loan that is dropped"]
pub struct Loan<T: Pod> {
    buffer: Buffer<T>,
    mode: AccessMode,
    /// Present until the drop.
    lease: Option<Arc<FenceGuard>>,
    /// Each has ended after one of the events.
    held: Vec<Arc<Run>>,
}

impl<T: Pod> Buffer<T> {
    /// Lends the buffer to another library that uses the driver directly. Waits until no submission and no
    /// guard uses the elements in a conflicting way; later ones wait for the loan.
    ///
    /// With [`AccessMode::Read`] the other library only reads, and submissions may read meanwhile.
    ///
    /// Do not await a submission that waits for the loan while holding it.
    ///
    /// ```
    /// use wakegraph::memory::AccessMode;
    /// use wakegraph::{Device, Graph};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # fn their_call(_: Option<usize>, _: usize) {}
    /// let device = Device::open("host")?;
    /// let x = device.buffer::<f32>(100)?;
    /// let mut graph = Graph::new(&device);
    /// graph.fill(&x, 1.0);
    /// let exec = graph.finalize()?;
    ///
    /// let loan = x.lend(AccessMode::Read).await?;
    /// let submission = exec.submit(); // waits for the loan
    /// their_call(x.address(), x.len());
    /// drop(loan);
    /// submission.await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for scratch memory.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the order, nothing else.
    #[track_caller]
    pub fn lend(&self, mode: AccessMode) -> impl Future<Output = Result<Loan<T>>> {
        let location = Location::caller();
        async move {
            let mut lease = place(self, mode, location)?;
            lease.turn().await?;
            take_turn().await;
            Ok(Loan::new(self, mode, lease))
        }
    }

    /// Lends as [`lend`](Self::lend) does, for what the other library enqueues on `queue` from now on: the
    /// queue waits on the device, and no thread does. The queue is the driver's handle, as for
    /// [`Submission::join`](crate::Submission::join).
    ///
    /// # Errors
    /// Those of [`lend`](Self::lend) and of [`Submission::join`](crate::Submission::join), where submissions
    /// use the elements; [`InvalidOperation`](ErrorKind::InvalidOperation) while a guard or another loan
    /// holds them, or a submission of which not all is on devices. Await [`lend`](Self::lend) then.
    ///
    /// # Safety
    /// The handle is null or that of a live queue.
    #[expect(unsafe_code, reason = "takes a handle that the caller vouches for")]
    #[track_caller]
    pub unsafe fn lend_to(&self, mode: AccessMode, queue: *mut c_void) -> Result<Loan<T>> {
        let lease = place(self, mode, Location::caller())?;
        let predecessors = with_other_devices(without_failed(lease.before().collect()));
        predecessors.iter().find_map(Predecessor::given_up).map_or(Ok(()), Err)?;
        let mut events = Vec::new();
        for predecessor in predecessors {
            match predecessor {
                Predecessor::Run(run) if run.is_all_enqueued() => {
                    events.extend(run.last_events().unwrap_or_default());
                }
                _ if predecessor.has_freed_memory() => {}
                _ => {
                    let why = "the buffer is used by a guard, a loan or a submission that is not on devices";
                    return Err(Error::new(ErrorKind::InvalidOperation, why).help("await `lend` instead"));
                }
            }
        }
        let events: Vec<&dyn hal::Event> = events.iter().map(|event| &**event).collect();
        if !events.is_empty() {
            // SAFETY: passed on to the caller.
            unsafe { self.view().allocation.device().hal().order_after(queue, &events) }?;
        }
        // What waits for the loan also waits for what comes before it, if that takes longer.
        Ok(Loan::new(self, mode, lease))
    }
}

/// A place in the order for a loan.
fn place<T: Pod>(
    buffer: &Buffer<T>,
    mode: AccessMode,
    location: &'static Location<'static>,
) -> Result<FenceGuard> {
    scratch::check_owner([buffer.view()], None)?;
    let holder = FenceHolder::of(buffer.view(), "a loan of the buffer", Some(location));
    Ok(conflicts::acquire(buffer.view(), mode, holder))
}

impl<T: Pod> Loan<T> {
    fn new(buffer: &Buffer<T>, mode: AccessMode, lease: FenceGuard) -> Self {
        Self { buffer: buffer.clone(), mode, lease: Some(Arc::new(lease)), held: Vec::new() }
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    /// Has the loan last until `event` has ended, also when it is dropped before: what the other
    /// library has enqueued may still use the memory. Submissions that come after the drop wait for
    /// the event on the device; those that wait already go on when a thread has noticed its end.
    /// The memory is kept until then.
    ///
    /// ```no_run
    /// # #![allow(unsafe_code)]
    /// # use std::ffi::c_void;
    /// # use wakegraph::memory::AccessMode;
    /// # use wakegraph::{Buffer, Result};
    /// # unsafe fn their_call(_: Option<usize>, _: *mut c_void) -> *mut c_void { std::ptr::null_mut() }
    /// # fn example(x: &Buffer<f32>, stream: *mut c_void) -> Result<()> {
    /// // SAFETY: the stream is alive.
    /// let mut loan = unsafe { x.lend_to(AccessMode::ReadWrite, stream) }?;
    /// // SAFETY: it writes the buffer, on the stream, and records an event behind that.
    /// let written = unsafe { their_call(x.address(), stream) };
    /// // SAFETY: the event is alive.
    /// loan.hold_until(&unsafe { x.device().import_event(written) }?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an event that another device than the buffer's has
    /// imported; those of a submission: the device takes no more work, or is lost. The loan is not held for
    /// the event then.
    #[track_caller]
    pub fn hold_until(&mut self, event: &NativeEvent) -> Result<()> {
        let (view, location) = (self.buffer.view(), Location::caller());
        if event.hal().device() != view.allocation.device().id() {
            let why = "the event has been imported on another device than the buffer's";
            return Err(Error::new(ErrorKind::InvalidArgument, why).help("import it on the buffer's device"));
        }
        let Some(lease) = &self.lease else { return Ok(()) };
        let queue = queue_of(view)?;
        let uses = smallvec![UsedAllocation::new(view.allocation.clone(), view.access(self.mode))];
        let (template, lease) = (queue.next_template(), lease.clone());
        let command = QueueCommand::holding(template, hal::Command::Empty, uses, lease, location);
        let run = queue.run_after_native(&command, event)?;
        if run.has_ended() {
            return run.result();
        }
        self.held.push(run);
        Ok(())
    }
}

impl Attachment for AllocationLoans {
    type Value = OnceLock<Arc<QueueInner>>;
}

/// The queue on which loans of an allocation wait, and transfers of it run.
pub(super) fn queue_of(view: &View) -> Result<&Arc<QueueInner>> {
    let queue = view.allocation.loans.get_or_default();
    if let Some(queue) = queue.get() {
        return Ok(queue);
    }
    let new = QueueInner::new(view.allocation.device(), QueueOrder::InOrder)?;
    Ok(queue.get_or_init(|| new))
}

impl<T: Pod> Drop for Loan<T> {
    fn drop(&mut self) {
        let (lease, held) = (self.lease.take(), std::mem::take(&mut self.held));
        wake_after_locks(|| {
            if let Some(lease) = lease.filter(|_| !held.is_empty()) {
                // The runs have the lease as well.
                conflicts::hand_over(self.buffer.view(), self.mode, &lease, &held);
            }
        });
    }
}

impl<T: Pod> Debug for Loan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan")
            .field("buffer", &self.buffer)
            .field("mode", &self.mode)
            .field("held", &self.held.len())
            .finish()
    }
}
