//! A one-way flag that tasks can wait for.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use smallvec::SmallVec;

use crate::runtime::completion::tasks::{wake, wake_or_defer};
use crate::sync::{AtomicU8, Mutex, Ordering};
use crate::util::deferred_drop::drop_later;

/// Set once, waited for by any number of tasks. Waiters that come late see it set.
#[derive(Debug)]
pub(crate) struct Latch {
    /// [`SET`] and [`AWAITED`]. Whichever of a setter and a waiter comes second sees the other's bit.
    state: AtomicU8,
    waiters: Mutex<Waiters>,
}

const SET: u8 = 1;
/// A slot of the list belongs to a waiter; without one, setting takes no lock. Changes only under
/// the list's lock.
const AWAITED: u8 = 2;

/// The waiters of one latch. A slot belongs to its waiter until the waiter is forgotten or the
/// latch is set. To wake the waiter takes its waker away, but not its slot, so that no other waiter
/// can come to bear the same key.
#[derive(Debug, Default)]
struct Waiters {
    /// For each waiter the waker of its last poll, or one that does nothing if it was woken since. `None`
    /// for a vacant slot.
    slots: SmallVec<[Option<Waker>; 1]>,
    /// No slot before this one is vacant.
    vacant_from: u32,
    /// Number of slots that belong to a waiter.
    occupied: u32,
}

/// A waiter's slot in one latch. Not `Clone`: only its waiter can give the slot back, and only once.
#[derive(Debug, Default)]
pub(crate) struct WaiterKey(Option<u32>);

impl Waiters {
    /// Puts a waker into the slot of its waiter, who gets one with its first poll. Gives back the
    /// waker that was there.
    fn register(&mut self, key: &mut WaiterKey, waker: Waker) -> Option<Waker> {
        let index = match key.0 {
            Some(index) => index,
            None => *key.0.insert(self.take_slot()),
        };
        self.slots[index as usize].replace(waker)
    }

    /// A slot that belonged to no waiter.
    fn take_slot(&mut self) -> u32 {
        let all = self.slots.len() as u32;
        let index = (self.vacant_from..all).find(|&index| self.slots[index as usize].is_none());
        let index = index.unwrap_or_else(|| {
            self.slots.push(None);
            all
        });
        self.vacant_from = index + 1;
        self.occupied += 1;
        index
    }

    /// Takes the slot back from its waiter. Gives back the waker that was there.
    fn release(&mut self, key: &mut WaiterKey) -> Option<Waker> {
        let index = key.0.take()?;
        // None if the latch was set meanwhile: it has no slots then.
        let old = self.slots.get_mut(index as usize)?.take();
        self.vacant_from = self.vacant_from.min(index);
        self.occupied -= 1;
        if self.occupied == 0 {
            self.slots.clear();
            self.vacant_from = 0;
        }
        old
    }
}

impl Latch {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU8::new(0), waiters: Mutex::new(Waiters::default()) }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) & SET != 0
    }

    /// Sets the flag and wakes all waiters, also where a waker panics. Wakers run outside the lock.
    #[inline]
    pub(crate) fn set(&self) {
        if self.state.fetch_or(SET, Ordering::AcqRel) & AWAITED != 0 {
            self.wake_waiters();
        }
    }

    /// Wakes all waiters of a flag that has just been set.
    fn wake_waiters(&self) {
        // A waiter announces itself inside the lock, so it is in the list by now.
        let waiters = mem::take(&mut *self.waiters.lock());
        waiters.slots.into_iter().flatten().for_each(wake_or_defer);
    }

    /// Has all waiters polled again, although the flag is not set.
    pub(crate) fn wake_all(&self) {
        if self.state.load(Ordering::Acquire) & AWAITED == 0 {
            return;
        }
        let woken = || Waker::noop().clone();
        let wakers: SmallVec<[Waker; 1]> = {
            let mut waiters = self.waiters.lock();
            waiters.slots.iter_mut().flatten().map(|waker| mem::replace(waker, woken())).collect()
        };
        wakers.into_iter().for_each(wake);
    }

    /// Clears the flag. The exclusive reference proves that no task waits, and both setting the flag
    /// and forgetting the last waiter leave the list empty.
    pub(crate) fn reset(&mut self) {
        self.state = AtomicU8::new(0);
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
        let old = waiters.register(key, new);
        drop(waiters);
        // Wakers are an executor's code: they are dropped outside the lock.
        drop(old);
        Poll::Pending
    }

    /// Forgets a waiter that stops waiting, so that it is not woken in vain.
    #[inline]
    pub(crate) fn forget(&self, key: &mut WaiterKey) {
        if key.0.is_some() && !self.is_set() {
            self.take_out(key);
        }
    }

    fn take_out(&self, key: &mut WaiterKey) {
        let mut waiters = self.waiters.lock();
        let old = waiters.release(key);
        if waiters.occupied == 0 {
            self.state.fetch_and(!AWAITED, Ordering::AcqRel);
        }
        drop(waiters);
        drop(old);
    }

    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { latch: self, key: WaiterKey::default() }
    }

    /// Drops a value when the flag is set, on a thread for such drops. Gives it back if the flag is set.
    pub(crate) fn drop_when_set(&self, value: Box<dyn Send>) -> Option<Box<dyn Send>> {
        let later = Arc::new(DropWhenWoken(parking_lot::Mutex::new(Some(value))));
        let waker = Waker::from(later.clone());
        // The slot in the list stays until the flag is set.
        let polled = self.poll(&Context::from_waker(&waker), &mut WaiterKey::default());
        if polled.is_ready() { later.0.lock().take() } else { None }
    }
}

/// A value that is dropped by a wakeup.
struct DropWhenWoken(parking_lot::Mutex<Option<Box<dyn Send>>>);

impl Wake for DropWhenWoken {
    fn wake(self: Arc<Self>) {
        let value = self.0.lock().take();
        value.into_iter().for_each(drop_later);
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
        self.latch.forget(&mut self.key);
    }
}

/// Every interleaving of the few operations, in loom's model: `scripts/loom.sh`.
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
                fickle.forget(&mut key);
            });
            let setting = thread::spawn(move || setter.set());
            block_on(latch.wait());
            giving_up.join().unwrap();
            setting.join().unwrap();
        });
    }

    #[test]
    fn loom_wake_all_takes_no_wakeup_away() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let (waker, setter) = (latch.clone(), latch.clone());
            let waking = thread::spawn(move || waker.wake_all());
            let setting = thread::spawn(move || setter.set());
            block_on(latch.wait());
            waking.join().unwrap();
            setting.join().unwrap();
        });
    }

    /// Two waiters have polled. One thread wakes all and then sets the latch, one forgets the first
    /// waiter, and this one polls the second again.
    #[test]
    fn loom_a_woken_waiter_keeps_its_slot_until_it_polls() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let (mut first, mut second) = (WaiterKey::default(), latch.wait());
            poll_once(&latch, &mut first);
            poll_once(&latch, &mut second.key);
            let (setter, forgetter) = (latch.clone(), latch.clone());
            let setting = thread::spawn(move || {
                setter.wake_all();
                setter.set();
            });
            let forgetting = thread::spawn(move || forgetter.forget(&mut first));
            block_on(second);
            setting.join().unwrap();
            forgetting.join().unwrap();
        });
    }

    /// Two waiters have polled. One thread wakes all and then sets the latch, one forgets both, and
    /// this one begins to wait.
    #[test]
    fn loom_a_forgotten_waiter_takes_no_slot_of_a_later_one() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let (mut first, mut second) = (WaiterKey::default(), WaiterKey::default());
            poll_once(&latch, &mut first);
            poll_once(&latch, &mut second);
            let (setter, forgetter) = (latch.clone(), latch.clone());
            let setting = thread::spawn(move || {
                setter.wake_all();
                setter.set();
            });
            let forgetting = thread::spawn(move || {
                forgetter.forget(&mut second);
                forgetter.forget(&mut first);
            });
            block_on(latch.wait());
            setting.join().unwrap();
            forgetting.join().unwrap();
        });
    }

    /// The last waiter is forgotten while another one begins to wait and the latch is set: the bit
    /// that says that there is a waiter follows the list.
    #[test]
    fn loom_a_waiter_that_comes_while_the_last_one_goes_is_woken() {
        loom::model(|| {
            let latch = Arc::new(Latch::new());
            let mut last = WaiterKey::default();
            poll_once(&latch, &mut last);
            let (setter, forgetter) = (latch.clone(), latch.clone());
            let forgetting = thread::spawn(move || forgetter.forget(&mut last));
            let setting = thread::spawn(move || setter.set());
            block_on(latch.wait());
            forgetting.join().unwrap();
            setting.join().unwrap();
            assert!(latch.waiters.lock().slots.is_empty());
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

    use proptest::prelude::*;

    use super::*;
    use crate::runtime::completion::tasks::wake_after_locks;
    use crate::sync::AtomicU32;

    #[test]
    fn wake_all_wakes_each_waiter_and_forgets_none() {
        let latch = Latch::new();
        let wakers = [Arc::new(Count::default()), Arc::new(Count::default())];
        let mut keys = [WaiterKey::default(), WaiterKey::default()];
        let counts = || [0, 1].map(|i| wakers[i].get());
        latch.wake_all();
        for round in 1..=3 {
            for (count, key) in wakers.iter().zip(&mut keys) {
                let waker = Waker::from(count.clone());
                assert!(latch.poll(&Context::from_waker(&waker), key).is_pending());
            }
            latch.wake_all();
            latch.wake_all(); // no waiter has polled since, so none is woken twice
            assert_eq!(counts(), [round, round]);
        }
        let waker = Waker::from(wakers[1].clone());
        assert!(latch.poll(&Context::from_waker(&waker), &mut keys[1]).is_pending());
        latch.set();
        assert_eq!(counts(), [3, 4]);
    }

    #[test]
    fn work_that_panics_wakes_whom_it_let_go_on() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let latches = [Latch::new(), Latch::new()];
        for latch in &latches {
            assert!(latch.poll(&Context::from_waker(&waker), &mut WaiterKey::default()).is_pending());
        }
        let work = std::panic::AssertUnwindSafe(|| {
            latches[0].set();
            assert_eq!(count.0.load(Ordering::Relaxed), 0);
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(std::panic::catch_unwind(|| wake_after_locks(work)).is_err());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        latches[1].set();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn nested_work_wakes_when_the_outermost_ends() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let latch = Latch::new();
        assert!(latch.poll(&Context::from_waker(&waker), &mut WaiterKey::default()).is_pending());
        wake_after_locks(|| {
            wake_after_locks(|| latch.set());
            assert_eq!(count.get(), 0);
        });
        assert_eq!(count.get(), 1);
    }

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Count {
        fn get(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether setting the latch would take the lock of its waiters.
    fn is_awaited(latch: &Latch) -> bool {
        latch.state.load(Ordering::Acquire) & AWAITED != 0
    }

    #[test]
    fn waiters_that_give_up_leave_no_room_behind() {
        let latch = Latch::new();
        let cx = Context::from_waker(Waker::noop());
        let (mut first, mut last) = (WaiterKey::default(), WaiterKey::default());
        assert!(latch.poll(&cx, &mut first).is_pending());
        for _ in 0..if cfg!(miri) { 50 } else { 1000 } {
            let mut key = WaiterKey::default();
            assert!(latch.poll(&cx, &mut key).is_pending());
            assert!(latch.poll(&cx, &mut key).is_pending());
            latch.forget(&mut key);
        }
        assert!(latch.poll(&cx, &mut last).is_pending());
        assert_eq!(latch.waiters.lock().slots.len(), 2);
        assert!(is_awaited(&latch));
        latch.forget(&mut first);
        latch.forget(&mut last);
        assert!(latch.waiters.lock().slots.is_empty());
        assert!(!is_awaited(&latch));
        latch.set();
        assert!(latch.poll(&cx, &mut first).is_ready());
    }

    const WAITERS: usize = 5;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Poll(usize),
        Forget(usize),
        WakeAll,
        Set,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0..WAITERS).prop_map(Step::Poll),
            6 => (0..WAITERS).prop_map(Step::Forget),
            4 => Just(Step::WakeAll),
            1 => Just(Step::Set),
        ]
    }

    /// What a latch should do.
    #[derive(Default)]
    struct Model {
        set: bool,
        /// For each waiter that has polled and was not forgotten: with which of its wakers it
        /// polled last, if it was not woken since.
        waiting: [Option<Option<usize>>; WAITERS],
        /// How often each waker of each waiter was called.
        woken: [[u32; 2]; WAITERS],
    }

    impl Model {
        fn wake_all(&mut self) {
            for (waiting, woken) in self.waiting.iter_mut().zip(&mut self.woken) {
                if let Some(turn) = waiting.as_mut().and_then(Option::take) {
                    woken[turn] += 1;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn wakes_whom_a_simple_model_wakes(steps in proptest::collection::vec(step(), 1..60)) {
            let (latch, mut model) = (Latch::new(), Model::default());
            let mut keys: [WaiterKey; WAITERS] = Default::default();
            // Each waiter polls with two wakers in turn.
            let wakers: [[Arc<Count>; 2]; WAITERS] = Default::default();
            let (mut turns, mut most_waiting) = ([0; WAITERS], 0);
            for step in steps {
                match step {
                    Step::Poll(waiter) => {
                        turns[waiter] = 1 - turns[waiter];
                        let waker = Waker::from(wakers[waiter][turns[waiter]].clone());
                        let polled = latch.poll(&Context::from_waker(&waker), &mut keys[waiter]);
                        prop_assert_eq!(polled.is_ready(), model.set);
                        if !model.set {
                            model.waiting[waiter] = Some(Some(turns[waiter]));
                        }
                    }
                    Step::Forget(waiter) => {
                        latch.forget(&mut keys[waiter]);
                        model.waiting[waiter] = None;
                    }
                    Step::WakeAll => {
                        latch.wake_all();
                        model.wake_all();
                    }
                    Step::Set => {
                        latch.set();
                        model.set = true;
                        model.wake_all();
                    }
                }
                prop_assert_eq!(latch.is_set(), model.set);
                let woken = wakers.each_ref().map(|of_waiter| of_waiter.each_ref().map(|waker| waker.get()));
                prop_assert_eq!(woken, model.woken);
                if !model.set {
                    let waiting = model.waiting.iter().flatten().count();
                    prop_assert_eq!(is_awaited(&latch), waiting > 0);
                    prop_assert_eq!(latch.waiters.lock().occupied as usize, waiting);
                    most_waiting = most_waiting.max(waiting);
                    prop_assert!(latch.waiters.lock().slots.len() <= most_waiting, "slots are used again");
                }
            }
            // No waker is kept: the latch holds those of waiters alone.
            latch.set();
            for wakers in wakers.iter().flatten() {
                prop_assert_eq!(Arc::strong_count(wakers), 1);
            }
        }
    }
}
