//! Tasks as the runtime treats them: it wakes them, lets others run, and spawns some of its own.
//!
//! - **Waking.** A waker is the code of an executor: it is called without locks, and its panics are logged
//!   and go no further.
//! - **Giving way.** What is often ready at once takes part in tokio's budget of each task.
//! - **Spawning.** tokio-console shows each task with a name and the place that it comes from. What blocks
//!   gets a thread.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::Location;
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::coop;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::util::panics::catch_and_log;

thread_local! {
    /// Whether this thread is inside [`wake_after_locks`].
    static DEFERRING: Cell<bool> = const { Cell::new(false) };
    /// Whether there are wakers in [`DEFERRED`]. It has no destructor, unlike those, so that reading
    /// it costs next to nothing.
    static HAS_DEFERRED: Cell<bool> = const { Cell::new(false) };
    /// The wakers that this thread calls when it leaves [`wake_after_locks`].
    static DEFERRED: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which takes locks, and wakes the tasks that it made ready once the locks are
/// released, because a waker is the code of an executor. Where no task is woken, this costs a few
/// accesses to flags of the thread. The tasks are woken even if `work` panics.
#[inline]
pub(crate) fn wake_after_locks<R>(work: impl FnOnce() -> R) -> R {
    struct Leave {
        outer: bool,
    }

    impl Drop for Leave {
        #[inline]
        fn drop(&mut self) {
            DEFERRING.set(self.outer);
            if !self.outer && HAS_DEFERRED.get() {
                wake_deferred();
            }
        }
    }

    let _leave = Leave { outer: DEFERRING.replace(true) };
    work()
}

#[inline(never)]
fn wake_deferred() {
    HAS_DEFERRED.set(false);
    let mut wakers = DEFERRED.try_with(RefCell::take).unwrap_or_default();
    wakers.drain(..).for_each(wake);
    // The next time needs no allocation.
    let _ = DEFERRED.try_with(|deferred| {
        let mut deferred = deferred.borrow_mut();
        if deferred.capacity() == 0 {
            *deferred = wakers;
        }
    });
}

/// Wakes at once, or when the locks are released if the caller is inside [`wake_after_locks`].
pub(crate) fn wake_or_defer(waker: Waker) {
    let mut waker = Some(waker);
    if DEFERRING.get() {
        // A thread that is ending has no list any more.
        let _ = DEFERRED.try_with(|deferred| deferred.borrow_mut().extend(waker.take()));
        HAS_DEFERRED.set(true);
    }
    if let Some(waker) = waker {
        wake(waker);
    }
}

/// Wakes one task of possibly many.
///
/// A waker is the code of an executor. If it panics, the tasks behind it must still be woken, and
/// the thread that wakes them, often a device's, has no part in the mistake: the panic is logged
/// and goes no further.
pub(crate) fn wake(waker: Waker) {
    catch_and_log("a waker", || waker.wake());
}

/// Uses up a part of the calling task's budget. Lets other tasks run first if nothing is left of it.
pub(crate) async fn take_turn() {
    let mut turn = Turn::default();
    poll_fn(|cx| turn.poll(cx)).await;
}

/// Lets other tasks run. Unlike tokio's own, it works inside executors of others, too.
pub(crate) async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|cx| match mem::replace(&mut has_given_way, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// The turn of a future that is ready.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    gave_way: bool,
}

impl Turn {
    /// Pending if other tasks should run first: once, and no longer. A task that blocks its worker, as
    /// `futures::executor::block_on` does, gets no new budget.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match coop::poll_proceed(cx) {
            Poll::Ready(turn) => turn.made_progress(),
            Poll::Pending if !mem::replace(&mut self.gave_way, true) => {
                // tokio wakes the task when its worker has nothing else to do, which a worker that is
                // blocked never comes to.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Pending => {}
        }
        self.gave_way = false;
        Poll::Ready(())
    }
}

/// Runs `work`, which may block, on a thread of its own inside the caller's tokio runtime, if there is one.
///
/// Not on tokio's blocking pool: all threads of that may be waiting for what `work` is to give them.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) when the system has no thread to give. `work` is dropped then.
pub(crate) fn on_thread<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<oneshot::Receiver<R>> {
    let (sender, receiver) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    let run = move || {
        let _inside = runtime.as_ref().map(Handle::enter);
        // The receiver may be gone, and the result with it.
        let _ = sender.send(work());
    };
    thread::Builder::new().name("wakegraph-work".into()).spawn(run).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "could not start a thread for work that blocks").caused_by(error)
    })?;
    Ok(receiver)
}

/// Spawns a task. `name` is called only if a subscriber listens.
#[track_caller]
pub(crate) fn spawn(
    handle: &Handle,
    name: impl FnOnce() -> String,
    task: impl Future<Output = ()> + Send + 'static,
) {
    spawn_at(handle, name, None, task);
}

/// Spawns a task that belongs to code at `location`, by default the caller. `name` is called only if a
/// subscriber listens.
#[cfg(all(tokio_unstable, feature = "tokio-console"))]
#[track_caller]
pub(crate) fn spawn_at(
    handle: &Handle,
    name: impl FnOnce() -> String,
    location: Option<&'static Location<'static>>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    // tokio's own span takes the place of its caller, so the name says where the node was added.
    let mut name = name();
    if let Some(location) = location {
        name += &format!(" at {}:{}", location.file(), location.line());
    }
    if let Err(error) = tokio::task::Builder::new().name(&name).spawn_on(task, handle) {
        tracing::error!(target: "wakegraph", %error, name, "could not spawn a task");
    }
}

/// Spawns a task that belongs to code at `location`, by default the caller. `name` is called only if a
/// subscriber listens.
#[cfg(not(all(tokio_unstable, feature = "tokio-console")))]
#[track_caller]
pub(crate) fn spawn_at(
    handle: &Handle,
    name: impl FnOnce() -> String,
    location: Option<&'static Location<'static>>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    use tracing::Instrument;

    let span = crate::util::console::task(name, location.unwrap_or(Location::caller()));
    handle.spawn(task.instrument(span));
}
