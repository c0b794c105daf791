//! Waits in the driver for events whose callbacks may come late.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::sys::{self, Context, Core, Event, Owned, call};

/// From when on a callback is late, be it that its kernel started late or that it takes so long: ten times
/// what the callback of a short kernel takes, and a small part of a time slice of the system's.
const LATE: Duration = Duration::from_micros(100);

/// How many events the thread waits for after a late callback. To wake it for so many takes about as long as
/// one kernel that starts a time slice late.
const WAITED_AFTER: u32 = 1000;

/// Has a thread of the device wait in the driver while callbacks come late.
///
/// Intel's CPU runtime runs kernels on threads of its own, one less than there are cores, and on those that
/// wait. Its own threads yield to other programs while they search for work: where those keep all cores busy,
/// each kernel of a long series may begin a time slice late. A thread that waits for an event runs the kernel
/// itself, or a part of it. To wake that thread takes longer than a callback that is in time, so it waits
/// only after a late one.
///
/// The callback notifies of the event in any case. So an event that never completes keeps the thread, and
/// nothing else: the callbacks after it may come late again.
#[derive(Debug)]
pub(super) struct LateCallbacks {
    /// For how many of the next events the thread waits.
    waited: AtomicU32,
    thread: WaitingThread<WaitedEvent>,
}

/// When a callback should come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExpectedCallback {
    /// In time. Whether it does is to be [recorded](LateCallbacks::record).
    InTime { from: Instant },
    /// Late, unless a thread [waits](LateCallbacks::wait_for) for the event.
    Late,
}

impl Default for LateCallbacks {
    fn default() -> Self {
        Self { waited: AtomicU32::new(0), thread: WaitingThread::new(WaitedEvent::wait) }
    }
}

impl LateCallbacks {
    /// What to expect of the next event.
    pub(super) fn expected(&self) -> ExpectedCallback {
        let next = |left: u32| left.checked_sub(1);
        match self.waited.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => ExpectedCallback::Late,
            Err(_) => ExpectedCallback::InTime { from: Instant::now() },
        }
    }

    /// Records how long the callback of an event took that no thread waited for.
    pub(super) fn record(&self, took: Duration) {
        if took >= LATE {
            self.waited.store(WAITED_AFTER, Ordering::Relaxed);
        }
    }

    /// Has the thread wait for an event, unless it still waits for others.
    pub(super) fn wait_for(&self, event: WaitedEvent) {
        self.thread.wait_for(event);
    }
}

/// An event, with a reference of its own, to wait for.
#[derive(Debug)]
pub(super) struct WaitedEvent {
    event: Owned<Event>,
    core: &'static Core,
    /// Released after the event.
    _context: Arc<Owned<Context>>,
}

impl WaitedEvent {
    /// Keeps an event of this context that is alive. `None`, with a message in the log, if the driver refuses
    /// that.
    pub(super) fn keep(
        core: &'static Core,
        context: &Arc<Owned<Context>>,
        event: sys::cl_event,
    ) -> Option<Self> {
        // SAFETY: the event is alive.
        let kept = unsafe { call!(core, clRetainEvent(event)) };
        match kept.and_then(|()| sys::adopt_event(core, event)) {
            Ok(event) => Some(Self { event, core, _context: Arc::clone(context) }),
            Err(failure) => {
                sys::report(Err(failure), "an event is left to its callback");
                None
            }
        }
    }

    /// Blocks until the event is over, or the driver cannot wait. The callback tells how it ended.
    fn wait(self) {
        let event = self.event.raw();
        // SAFETY: the event is alive.
        let _ = unsafe { call!(self.core, clWaitForEvents(1, &raw const event)) };
    }
}

/// A thread that waits for one thing after another. It begins with the first, and ends after this is dropped,
/// which does not block.
#[derive(Debug)]
struct WaitingThread<T> {
    wait: fn(T),
    /// `None` if the thread could not be started.
    sender: OnceLock<Option<SyncSender<T>>>,
}

impl<T: Send + 'static> WaitingThread<T> {
    fn new(wait: fn(T)) -> Self {
        Self { wait, sender: OnceLock::new() }
    }

    /// Has the thread wait for this. Where it waits for another one and a next one is there already, nothing
    /// waits for this one.
    fn wait_for(&self, next: T) {
        if let Some(sender) = self.sender.get_or_init(|| self.start()) {
            let _ = sender.try_send(next);
        }
    }

    #[cold]
    fn start(&self) -> Option<SyncSender<T>> {
        let (sender, all): (_, Receiver<T>) = sync_channel(1);
        let wait = self.wait;
        let run = move || all.into_iter().for_each(wait);
        match thread::Builder::new().name("wakegraph-wait".into()).spawn(run) {
            Ok(_) => Some(sender),
            Err(error) => {
                let consequence = "callbacks of a busy machine may come late";
                tracing::warn!(target: "wakegraph::opencl", %error, consequence, "a thread was not started");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    #[test]
    fn a_late_callback_has_the_next_events_waited_for() {
        let callbacks = LateCallbacks::default();
        let waited = || (0..).take_while(|_| callbacks.expected() == ExpectedCallback::Late).count();
        assert_eq!(waited(), 0);
        for late in [false, true, true, false] {
            callbacks.record(if late { LATE } else { LATE / 10 });
            assert_eq!(waited(), if late { WAITED_AFTER as usize } else { 0 });
        }
    }

    /// Tells that it is waited for, and is over when the other end is dropped.
    struct Gate(Sender<()>, Receiver<()>);

    impl Gate {
        fn pass(self) {
            let _ = self.0.send(());
            let _ = self.1.recv();
        }
    }

    #[test]
    fn what_is_never_over_keeps_the_thread_and_blocks_no_caller() {
        let thread = WaitingThread::new(Gate::pass);
        let gate = || {
            let ((started, has_started), (open, opened)) = (channel(), channel::<()>());
            thread.wait_for(Gate(started, opened));
            (has_started, open)
        };
        let (first_started, first) = gate();
        first_started.recv().unwrap();
        let (next_started, _next) = gate();
        assert!(gate().0.recv().is_err(), "there is no place for a third one");
        assert!(next_started.try_recv().is_err());
        drop(first);
        next_started.recv().unwrap();
    }

    #[test]
    fn the_thread_ends_when_its_owner_is_dropped() {
        let thread = WaitingThread::new(Gate::pass);
        let ((started, has_started), (open, opened)) = (channel(), channel());
        thread.wait_for(Gate(started, opened));
        has_started.recv().unwrap();
        drop(thread);
        assert!(open.send(()).is_ok(), "it still waits");
        assert!(has_started.recv().is_err(), "the thread has let go of all that it was given");
    }
}
