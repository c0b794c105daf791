//! The shared state of a pool, and the right to one of its slots.

use std::future::poll_fn;
use std::hash::RandomState;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use slab::Slab;
use smallvec::SmallVec;
use wakegraph_hal::util::Mutex;
use wakegraph_hal::{Error, ErrorKind, Priority, ResourceId, Result};

use crate::runtime::{Device, ExecutableGraph, HealthListener, Predecessor, on_thread};
use crate::service::drain::Drain;
use crate::service::fair_queue::{FairQueue, Position};
use crate::service::slot_table::{Claim, Made, SlotTable};
use crate::util::metrics::{Arrival, QueueMetrics};
use crate::util::panics;

/// The slot whose contents the closure of a pool makes.
#[derive(Clone, Debug)]
pub struct Slot {
    index: usize,
    device: Option<Device>,
}

impl Slot {
    /// The slot's number, counted from 0 in the order in which slots were added to the pool. A slot that is
    /// made again keeps its number. Slots of a [device that is added](super::ExecutablePool::add_device) have
    /// new ones, also where slots of a lost device are gone: then a number may exceed the number of slots.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The device that the slot is for: the one that the builder has been given, or else
    /// [`Device::best`].
    ///
    /// # Errors
    /// Those of opening the best device.
    pub fn device(&self) -> Result<Device> {
        self.device.clone().map_or_else(Device::best, Ok)
    }
}

/// State that all handles, guards and waiting requests of a pool share.
pub(super) struct PoolInner<T> {
    pub(super) name: Arc<str>,
    pub(super) make: Box<MakeSlot<T>>,
    /// Number of requests that may wait.
    pub(super) queue: usize,
    pub(super) skips_stalled: bool,
    pub(super) keys: RandomState,
    pub(super) metrics: QueueMetrics,
    pub(super) drain: Drain,
    pub(super) state: Mutex<PoolState<T>>,
}

pub(super) type MakeSlot<T> = dyn Fn(&Slot) -> Result<(ExecutableGraph, T)> + Send + Sync;

pub(super) struct PoolState<T> {
    pub(super) table: SlotTable<T>,
    /// Requests without an answer. While there is one, no slot is free.
    pub(super) waiting: FairQueue<usize>,
    /// All requests that wait or have yet to see their answer, by the numbers in the queue.
    requests: Slab<Request<T>>,
}

/// Parameters of a request.
pub(super) struct Ask {
    pub(super) priority: Priority,
    pub(super) key: u64,
    /// Number of requests that may wait before it is refused.
    pub(super) queue: usize,
    /// Place among those that wait, which it keeps until it has a slot.
    pub(super) position: Option<Position>,
}

/// A request that had to wait.
enum Request<T> {
    Waiting(Waker),
    /// A slot, or why there never will be one.
    Answered(Result<Claim<T>>),
}

/// Result of a request's entry into a pool.
enum Entered<'a, T> {
    Permit(Permit<T>),
    Waiting(Waiter<'a, T>),
}

impl<T> PoolInner<T> {
    /// The right to a slot, when it is this request's turn. A slot that it was given `in_vain` before goes
    /// back when the request is in the queue again: a drain finds one or the other.
    pub(super) async fn permit(
        self: &Arc<Self>,
        ask: &mut Ask,
        mut in_vain: Option<Permit<T>>,
    ) -> Result<Permit<T>> {
        let mut waiter = None;
        poll_fn(|cx| match &mut waiter {
            Some(waiter) => Waiter::poll(waiter, cx),
            None => match self.enter(ask, cx.waker())? {
                Entered::Permit(permit) => Poll::Ready(Ok(permit)),
                Entered::Waiting(new) => {
                    waiter = Some(new);
                    in_vain = None;
                    Poll::Pending
                }
            },
        })
        .await
    }

    fn enter(self: &Arc<Self>, ask: &mut Ask, waker: &Waker) -> Result<Entered<'_, T>> {
        let mut state = self.state.lock();
        if ask.position.is_none() {
            self.drain.accepts()?;
        }
        if let Some(error) = state.table.closed() {
            return Err(error);
        }
        if state.waiting.is_empty()
            && let Some(claim) = state.table.take()
        {
            ask.position.get_or_insert_with(|| state.waiting.arrive(ask.priority, ask.key));
            drop(state);
            self.metrics.served(&self.metrics.arrival());
            return Ok(Entered::Permit(Permit::new(self, claim)));
        }
        if ask.position.is_none() && state.waiting.len() >= ask.queue {
            drop(state);
            return Err(self.refuse());
        }
        let request = state.requests.insert(Request::Waiting(waker.clone()));
        let position = match ask.position {
            // The slot that it was given did not fit into the memory.
            Some(position) => {
                state.waiting.put_back(position, request);
                position
            }
            None => *ask.position.insert(state.waiting.push(ask.priority, ask.key, request)),
        };
        drop(state);
        self.metrics.entered();
        let arrival = self.metrics.arrival();
        Ok(Entered::Waiting(Waiter { pool: self, request, position, arrival, has_left: false }))
    }

    /// The error of a request that is refused.
    pub(super) fn refuse(&self) -> Error {
        self.metrics.refused();
        let help = "`acquire` waits for one while the pool's queue has room; try again later, or give the pool \
                    more slots or a longer queue";
        let why = format!("no slot of the pool '{}' is free", self.name);
        Error::new(ErrorKind::Overloaded, why).help(help)
    }

    /// Takes a free slot, unless requests wait.
    pub(super) fn try_take(
        self: &Arc<Self>,
        take: impl FnOnce(&mut SlotTable<T>) -> Option<Claim<T>>,
    ) -> Result<Option<Permit<T>>> {
        let mut state = self.state.lock();
        self.drain.accepts()?;
        if let Some(error) = state.table.closed() {
            return Err(error);
        }
        let claim = state.waiting.is_empty().then(|| take(&mut state.table)).flatten();
        drop(state);
        Ok(claim.map(|claim| Permit::new(self, claim)))
    }

    pub(super) fn take_unmade(self: &Arc<Self>) -> Result<Option<Permit<T>>> {
        let mut state = self.state.lock();
        self.drain.accepts()?;
        if let Some(error) = state.table.closed() {
            return Err(error);
        }
        let claim = state.table.take_unmade();
        drop(state);
        Ok(claim.map(|claim| Permit::new(self, claim)))
    }

    pub(super) fn close(&self) {
        let _state = self.state.lock();
        self.drain.close();
    }

    /// Describes requests that wait and slots that are in use, if there are any.
    pub(super) fn what_is_left(&self) -> Option<String> {
        let state = self.state.lock();
        let (waiting, used) = (state.waiting.len(), state.table.in_use());
        drop(state);
        let is_empty = waiting == 0 && used == 0;
        (!is_empty).then(|| format!("requests waiting: {waiting}, slots in use: {used}"))
    }

    fn lose(&self, claim: &mut Claim<T>, error: Error) {
        let dropped = self.state.lock().table.lose(claim, error);
        drop_values(dropped.made);
        drop(dropped.devices);
    }

    /// Adds slots, and gives them to requests that wait.
    pub(super) fn add_device(self: &Arc<Self>, device: Device, slots: usize)
    where
        T: Send + 'static,
    {
        self.listen_to([&device]);
        self.state.lock().table.add(Some(device), slots);
        self.serve(None);
    }

    /// Hears when devices hang and when they go on, if the pool skips those that hang.
    pub(super) fn listen_to<'d>(self: &Arc<Self>, devices: impl IntoIterator<Item = &'d Device>)
    where
        T: Send + 'static,
    {
        if self.skips_stalled {
            let listener: Weak<dyn HealthListener> = Arc::<Self>::downgrade(self);
            devices.into_iter().for_each(|device| device.tell_of_health(listener.clone()));
        }
    }

    /// Takes a slot back, if there is one to take back, and gives free slots to requests that wait. Wakes
    /// them, and drops what is no longer needed, after the lock.
    fn serve(&self, given_back: Option<Claim<T>>) {
        let mut state = self.state.lock();
        let dropped = match given_back {
            Some(claim) if state.table.can_hand_over(&claim) && !state.waiting.is_empty() => {
                // No other slot has become free.
                let answered = state.answer(Ok(claim));
                drop(state);
                return answered.into_iter().for_each(wake);
            }
            Some(claim) => state.table.put_back(claim),
            None => None,
        };
        let mut answered: SmallVec<[Waker; 2]> = SmallVec::new();
        while let Some(waker) = state.grant() {
            answered.push(waker);
        }
        drop(state);
        self.drain.work_left();
        // The drop of a slot may take long.
        answered.into_iter().for_each(wake);
        drop_values(dropped);
    }
}

impl<T: Send> HealthListener for PoolInner<T> {
    fn health_changed(&self) {
        self.serve(None);
    }
}

/// Drops what slots consist of. The values are the user's: if the drop of one panics, nothing else is the
/// worse for it.
fn drop_values<T>(values: impl IntoIterator<Item = Box<Made<T>>>) {
    values.into_iter().for_each(|made| panics::catch_and_log("the drop of a slot", || drop(made)));
}

/// Wakes one task of possibly many. If its waker panics, the others must still be woken.
fn wake(waker: Waker) {
    panics::catch_and_log("a waker", || waker.wake());
}

impl<T> PoolState<T> {
    pub(super) fn new(table: SlotTable<T>) -> Self {
        Self { table, waiting: FairQueue::default(), requests: Slab::new() }
    }

    /// Answers the next request, if it can be answered. Returns the task to wake.
    fn grant(&mut self) -> Option<Waker> {
        if self.waiting.is_empty() {
            return None;
        }
        let answer = match self.table.closed() {
            None => Ok(self.table.take()?),
            Some(error) => Err(error),
        };
        self.answer(answer)
    }

    /// Gives the next request its answer. Returns the task to wake.
    fn answer(&mut self, answer: Result<Claim<T>>) -> Option<Waker> {
        let request = self.requests.get_mut(self.waiting.pop()?)?;
        match std::mem::replace(request, Request::Answered(answer)) {
            Request::Waiting(waker) => Some(waker),
            Request::Answered(_) => None,
        }
    }
}

/// A request in the queue. It leaves the queue when it is dropped.
struct Waiter<'a, T> {
    pool: &'a Arc<PoolInner<T>>,
    request: usize,
    position: Position,
    arrival: Arrival,
    /// It has seen its answer.
    has_left: bool,
}

impl<T> Waiter<'_, T> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<Permit<T>>> {
        let mut state = self.pool.state.lock();
        if let Some(Request::Waiting(waker)) = state.requests.get_mut(self.request) {
            let new = (!waker.will_wake(cx.waker())).then(|| cx.waker().clone());
            let old = new.map(|new| std::mem::replace(waker, new));
            drop(state);
            drop(old);
            return Poll::Pending;
        }
        let request = state.requests.try_remove(self.request);
        drop(state);
        self.has_left = true;
        Poll::Ready(match request {
            Some(Request::Answered(answer)) => answer.map(|claim| {
                self.pool.metrics.served(&self.arrival);
                Permit::new(self.pool, claim)
            }),
            _ => Err(Error::new(ErrorKind::Bug, "a pool forgot a request")),
        })
    }
}

impl<T> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        self.pool.metrics.left(1);
        if self.has_left {
            return;
        }
        self.pool.metrics.given_up(1);
        let mut state = self.pool.state.lock();
        state.waiting.remove(self.position);
        let request = state.requests.try_remove(self.request);
        drop(state);
        self.pool.drain.work_left();
        if let Some(Request::Answered(Ok(claim))) = request {
            // The next request gets the slot.
            drop(Permit::new(self.pool, claim));
        }
    }
}

/// The right to a slot. Wherever it is dropped, the slot goes back to the pool, and from there to
/// the request whose turn it is.
pub(super) struct Permit<T> {
    pool: Arc<PoolInner<T>>,
    /// None once it has been given back.
    claim: Option<Claim<T>>,
}

impl<T> Permit<T> {
    fn new(pool: &Arc<PoolInner<T>>, claim: Claim<T>) -> Self {
        pool.metrics.slot_taken();
        Self { pool: pool.clone(), claim: Some(claim) }
    }

    /// Moves the claim out; this permit then has none.
    pub(super) fn take(&mut self) -> Self {
        Self { pool: self.pool.clone(), claim: self.claim.take() }
    }

    pub(super) fn made(&self) -> Option<&Made<T>> {
        self.claim.as_ref()?.made.as_deref()
    }

    pub(super) fn made_mut(&mut self) -> Option<&mut Made<T>> {
        self.claim.as_mut()?.made.as_deref_mut()
    }

    /// Whether the slot has been made, and its device has not been lost since: then that device's slots are
    /// taken out.
    pub(super) fn is_usable(&mut self) -> bool {
        let Some(made) = self.made() else { return false };
        let Some(error) = made.loss() else { return true };
        if let Some(claim) = &mut self.claim {
            self.pool.lose(claim, error);
        }
        false
    }

    /// Returns what still uses the slot, so that it cannot go to the next request.
    pub(super) fn user(&mut self) -> Option<Predecessor> {
        self.made_mut()?.user()
    }

    /// Drops what the slot consists of, and counts it as unmade.
    fn discard(&mut self) {
        let Some(claim) = &mut self.claim else { return };
        let Some(made) = claim.made.take() else { return };
        let memory = made.memory().collect();
        drop_values([made]);
        self.pool.state.lock().table.unmade(claim, memory);
    }
}

impl<T: Send + 'static> Permit<T> {
    /// Makes the slot if it has not been made, on this thread. It stays unmade if it does not fit into the
    /// memory.
    pub(super) fn make_here(mut self) -> Result<Self> {
        let Some(claim) = self.claim.as_mut().filter(|claim| claim.made.is_none()) else { return Ok(self) };
        let device = self.pool.state.lock().table.device(claim);
        let slot = Slot { index: claim.index, device };
        let since = ResourceId::unique();
        let parts = panics::catch(|| (self.pool.make)(&slot)).unwrap_or_else(|panic| {
            let why = format!("the closure that makes slots panicked: {panic}");
            Err(Error::new(ErrorKind::HostTaskPanicked, why))
        });
        let (executable, value) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                if let Some(loss) = slot.device.as_ref().and_then(lost) {
                    self.pool.lose(claim, loss);
                }
                return Err(error);
            }
        };
        let bytes: u64 = executable.device_memory().map(|(_, bytes)| bytes).sum();
        let made = Box::new(Made { executable, value, since, runs: Default::default() });
        let (new, fits, is_only_one) = {
            let mut state = self.pool.state.lock();
            let new = state.table.note_devices(claim, &made.executable);
            (new, state.table.made(claim, made), state.table.is_only_one(claim))
        };
        self.pool.listen_to(&new);
        if fits {
            // Other slots may have waited to see how large this one is.
            self.pool.serve(None);
            return Ok(self);
        }
        self.discard();
        if !is_only_one {
            return Ok(self);
        }
        let why = format!("a slot of the pool uses {bytes} bytes of device memory, more than its limit");
        Err(Error::new(ErrorKind::OutOfMemory, why).help("raise `memory_limit`, or make smaller slots"))
    }

    /// As [`make_here`](Self::make_here), on a thread of its own. If the caller gives up meanwhile, the
    /// finished slot goes back to the pool.
    pub(super) async fn make(self) -> Result<Self> {
        let made = on_thread(move || self.make_here())?.await;
        made.unwrap_or_else(|_| Err(Error::new(ErrorKind::Bug, "the thread that makes a slot has panicked")))
    }
}

/// Why a device is lost, if it is. An error of this kind says nothing by itself: it may be of another device.
fn lost(device: &Device) -> Option<Error> {
    device.check_for_loss();
    device.loss()
}

impl<T> Drop for Permit<T> {
    fn drop(&mut self) {
        let Some(made) = self.made_mut() else { return self.give_back() };
        let runs = made.runs.get_mut();
        runs.settle();
        if let Some(error) = runs.take_failure() {
            tracing::debug!(target: "wakegraph::service", %error, "a slot of a pool is to be made again");
            let loss = made.executable.devices().find_map(lost);
            if let Some((claim, loss)) = self.claim.as_mut().zip(loss) {
                self.pool.lose(claim, loss);
            }
            self.discard();
        }
        self.give_back();
    }
}

impl<T> Permit<T> {
    fn give_back(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.pool.metrics.slot_given_back();
            self.pool.serve(Some(claim));
        }
    }
}
