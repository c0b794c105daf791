//! A one-way flag that tasks can wait for.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::sync::{AtomicU8, Mutex, Ordering};

/// Set once, waited for by any number of tasks. Waiters that come late see it set.
#[derive(Debug)]
pub(crate) struct Latch {
    /// [`SET`] and [`AWAITED`]. Whichever of a setter and a waiter comes second sees the other's bit.
    state: AtomicU8,
    waiters: Mutex<Waiters>,
}

const SET: u8 = 1;
/// There may be a waiter in the list; without one, setting takes no lock.
const AWAITED: u8 = 2;

thread_local! {
    /// The wakers of latches that this thread sets, while it gathers them.
    static GATHERED: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// Does some work, and adds to `wakers` whom the latches that it sets would have woken, for the caller to wake.
pub(crate) fn gather(wakers: &mut Vec<Waker>, work: impl FnOnce()) {
    let before = GATHERED.with(|gathered| gathered.replace(Some(std::mem::take(wakers))));
    work();
    *wakers = GATHERED.with(|gathered| gathered.replace(before)).unwrap_or_default();
}

fn wake(waker: Waker) {
    let mut waker = Some(waker);
    // A thread that is ending gathers nothing any more.
    let _ = GATHERED.try_with(|gathered| {
        if let Ok(mut gathered) = gathered.try_borrow_mut()
            && let Some(gathered) = &mut *gathered
        {
            gathered.extend(waker.take());
        }
    });
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Slots, so that a waiter that polls again replaces its waker instead of adding one.
type Waiters = SmallVec<[Option<Waker>; 1]>;

/// A waiter's slot in one latch.
#[derive(Debug, Default)]
pub(crate) struct WaiterKey(Option<usize>);

impl Latch {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(0), waiters: Mutex::new(Waiters::new()) }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) & SET != 0
    }

    /// Sets the flag and wakes everybody. Wakers run outside the lock.
    pub(crate) fn set(&self) {
        if self.state.fetch_or(SET, Ordering::AcqRel) & AWAITED == 0 {
            return;
        }
        // A waiter announces itself inside the lock, so it is in the list by now.
        let mut waiters = std::mem::take(&mut *self.waiters.lock());
        waiters.drain(..).flatten().for_each(wake);
    }

    /// Whether somebody may be waiting.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state.load(Ordering::Acquire) & AWAITED != 0
    }

    /// Has everybody polled again, although the flag is not set.
    pub(crate) fn nudge(&self) {
        if self.state.load(Ordering::Acquire) & AWAITED == 0 {
            return;
        }
        // The slots stay: whoever is polled again puts its waker back into its own.
        let wakers: SmallVec<[Waker; 1]> = self.waiters.lock().iter_mut().filter_map(Option::take).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Back to not set. The exclusive reference proves that nobody waits.
    pub(crate) fn reset(&mut self) {
        self.state = AtomicU8::new(0);
        self.waiters = Mutex::new(Waiters::new());
    }

    pub(crate) fn poll(&self, cx: &Context<'_>, key: &mut WaiterKey) -> Poll<()> {
        if self.is_set() {
            return Poll::Ready(());
        }
        let new = cx.waker().clone();
        let mut waiters = self.waiters.lock();
        if self.state.fetch_or(AWAITED, Ordering::AcqRel) & SET != 0 {
            return Poll::Ready(());
        }
        let slot = *key.0.get_or_insert(waiters.len());
        if slot == waiters.len() {
            waiters.push(None);
        }
        let old = waiters[slot].replace(new);
        drop(waiters);
        // Wakers are somebody else's code: they are dropped outside the lock.
        drop(old);
        Poll::Pending
    }

    /// Forgets a waiter that stops waiting, so that it is not woken in vain.
    pub(crate) fn forget(&self, key: &WaiterKey) {
        if let Some(slot) = key.0
            && !self.is_set()
        {
            let mut waiters = self.waiters.lock();
            let waker = waiters.get_mut(slot).and_then(Option::take);
            // Somebody who waits again and again, as in a `select!` in a loop, does not make the list grow.
            while waiters.last().is_some_and(Option::is_none) {
                waiters.pop();
            }
            drop(waiters);
            drop(waker);
        }
    }

    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { latch: self, key: WaiterKey::default() }
    }
}

/// Future of [`Latch::wait`]. Cancel safe: dropping it removes the waiter.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    latch: &'a Latch,
    key: WaiterKey,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.latch.poll(cx, &mut this.key)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.latch.forget(&self.key);
    }
}

/// Every interleaving of the few operations, in loom's model. Run them alone, in release:
///
/// `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg wakegraph_loom" cargo test --release --lib --target-dir target/loom loom_`
#[cfg(all(test, wakegraph_loom))]
mod loom_tests {
    use std::sync::Arc;
    use std::task::Waker;

    use loom::future::block_on;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    /// Polls once with a waker that nobody hears.
    fn poll_once(latch: &Latch, key: &mut WaiterKey) -> bool {
        latch.poll(&Context::from_waker(Waker::noop()), key).is_ready()
    }

    #[test]
    fn loom_a_waiter_is_woken_and_sees_what_was_written_before() {
        loom::model(|| {
            let shared = Arc::new((Latch::new(), AtomicUsize::new(0)));
            let setter = shared.clone();
            let thread = thread::spawn(move || {
                setter.1.store(7, Ordering::Relaxed);
                setter.0.set();
            });
            block_on(shared.0.wait());
            assert_eq!(shared.1.load(Ordering::Relaxed), 7);
            thread.join().unwrap();
        });
    }

    #[test]
    fn loom_all_waiters_are_woken() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let latch = latch.clone();
                    thread::spawn(move || block_on(latch.wait()))
                })
                .collect();
            latch.set();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn loom_a_waiter_that_gives_up_takes_nobody_with_it() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let (fickle, setter) = (latch.clone(), latch.clone());
            let giving_up = thread::spawn(move || {
                let mut key = WaiterKey::default();
                poll_once(&fickle, &mut key);
                fickle.forget(&key);
            });
            let setting = thread::spawn(move || setter.set());
            block_on(latch.wait());
            giving_up.join().unwrap();
            setting.join().unwrap();
        });
    }

    #[test]
    fn loom_a_nudge_takes_no_wakeup_away() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let (nudger, setter) = (latch.clone(), latch.clone());
            let nudging = thread::spawn(move || nudger.nudge());
            let setting = thread::spawn(move || setter.set());
            block_on(latch.wait());
            nudging.join().unwrap();
            setting.join().unwrap();
        });
    }

    #[test]
    fn loom_who_polls_again_is_woken_through_the_new_waker() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let setter = latch.clone();
            let thread = thread::spawn(move || setter.set());
            let mut wait = latch.wait();
            poll_once(&latch, &mut wait.key);
            block_on(wait);
            thread.join().unwrap();
        });
    }
}

#[cfg(all(test, not(wakegraph_loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use crate::sync::AtomicU32;

    use super::*;

    #[test]
    fn a_nudge_wakes_everybody_and_forgets_nobody() {
        let latch = Latch::new();
        let wakers = [Arc::new(Count::default()), Arc::new(Count::default())];
        let mut keys = [WaiterKey::default(), WaiterKey::default()];
        let counts = || [0, 1].map(|i| wakers[i].0.load(Ordering::Relaxed));
        latch.nudge();
        for round in 1..=3 {
            for (count, key) in wakers.iter().zip(&mut keys) {
                let waker = Waker::from(count.clone());
                assert!(latch.poll(&Context::from_waker(&waker), key).is_pending());
            }
            latch.nudge();
            latch.nudge(); // nobody has polled since, so nobody is woken twice
            assert_eq!(counts(), [round, round]);
        }
        let waker = Waker::from(wakers[1].clone());
        assert!(latch.poll(&Context::from_waker(&waker), &mut keys[1]).is_pending());
        latch.set();
        assert_eq!(counts(), [3, 4]);
    }

    #[test]
    fn who_gathers_wakes_by_itself() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let latches = [Latch::new(), Latch::new()];
        for latch in &latches {
            assert!(latch.poll(&Context::from_waker(&waker), &mut WaiterKey::default()).is_pending());
        }
        let mut wakers = Vec::new();
        gather(&mut wakers, || latches[0].set());
        assert!(latches[0].is_set());
        assert_eq!((wakers.len(), count.0.load(Ordering::Relaxed)), (1, 0));
        wakers.into_iter().for_each(Waker::wake);
        latches[1].set();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn waiters_that_give_up_leave_no_room_behind() {
        let latch = Latch::new();
        let cx = Context::from_waker(Waker::noop());
        let (mut first, mut last) = (WaiterKey::default(), WaiterKey::default());
        assert!(latch.poll(&cx, &mut first).is_pending());
        for _ in 0..1000 {
            let mut key = WaiterKey::default();
            assert!(latch.poll(&cx, &mut key).is_pending());
            assert!(latch.poll(&cx, &mut key).is_pending());
            latch.forget(&key);
        }
        assert!(latch.poll(&cx, &mut last).is_pending());
        assert_eq!(latch.waiters.lock().len(), 2);
        latch.forget(&first);
        latch.forget(&last);
        assert!(latch.waiters.lock().is_empty());
        latch.set();
        assert!(latch.poll(&cx, &mut first).is_ready());
    }
}
