//! What the tasks and threads of a round do.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::timeout;
use wakegraph::{ErrorKind, HostBuffer, Submission};

use crate::executables::{Entry, mix, uniform};
use crate::faults::{Failure, PanickingWaker, calmly, panic_with};
use crate::ledger::{Flight, Outcome};
use crate::random::Random;
use crate::round::World;
use crate::support::{block_on, forget};
use crate::watchdog::watch_named;

/// A submission and what the ledger knows of it.
struct Pending {
    submission: Submission,
    flight: Arc<Flight>,
    profiled: bool,
}

impl Pending {
    async fn settle(self) {
        let Self { submission, flight, .. } = self;
        flight.ended(Outcome::of(submission.await));
    }

    fn discard(self) {
        calmly(|| drop(self.submission));
    }

    /// The destructor does not run, except where the submission keeps the device open, to ask it for times.
    fn forget(self) {
        match self.profiled {
            true => self.discard(),
            false => forget(self.submission),
        }
    }

    /// Polls once, with a waker that panics. Not for a worker of tokio's: where such a poll gives
    /// way to other tasks, the worker wakes the waker by itself, and tokio ends the process if that
    /// panics.
    fn poll_with_panicking_waker(&mut self) {
        let waker = Waker::from(Arc::new(PanickingWaker));
        let polled = calmly(|| Pin::new(&mut self.submission).poll(&mut Context::from_waker(&waker)));
        if let Some(Poll::Ready(result)) = polled {
            self.flight.ended(Outcome::of(result));
        }
    }
}

/// One that submits: a task or a thread.
struct Submitter {
    world: Arc<World>,
    random: Random,
    /// Whether a tokio runtime is there.
    outside: bool,
}

impl Submitter {
    fn entry(&mut self) -> Option<Arc<Entry>> {
        self.world.entry(|len| self.random.below(len))
    }

    /// Submits some executable; `after` says whether behind others. `None` if no task is going to
    /// see the end.
    fn submit(&mut self, after: bool) -> Option<Pending> {
        let entry = self.entry()?;
        let (mut earlier, mut future_fails, mut future) = (Vec::new(), None, None);
        let mut builder = entry.exec.prepare();
        if after {
            for _ in 0..self.random.below(3) {
                let Some(flight) = self.world.some_flight(&mut self.random) else { break };
                // One that has ended and is known no more is nothing to wait for.
                let Some(event) = flight.event() else { continue };
                builder = builder.after_event(&event);
                earlier.push(flight);
            }
            future = self.random.chance(3).then(|| self.random.below(8));
        }
        if let Some(what) = future {
            let number = (what < 2).then(|| self.world.failures.next());
            future_fails = number;
            builder = builder.after_future(async move {
                for _ in 0..what {
                    yield_now().await;
                }
                match (what, number) {
                    (0, Some(number)) => panic_with(number),
                    (_, Some(number)) => return Err(Failure::new(number, None)),
                    _ => {}
                }
                Ok(())
            });
        }
        let number = self.world.next_number();
        let flight = Flight::new(number, &entry.account, earlier, future_fails, self.outside);
        let flight = Arc::new(flight);
        let submission = calmly(|| builder.submit());
        let is_observed = submission.is_some() && !self.random.chance(6);
        let pending = match submission {
            Some(submission) if is_observed => {
                self.world.observe(&flight, submission.event());
                Some(Pending { submission, flight, profiled: entry.profiled })
            }
            submission => {
                entry.account.unobserved.fetch_add(1, Ordering::SeqCst);
                calmly(|| drop(submission));
                None
            }
        };
        calmly(|| drop(entry));
        pending
    }

    /// Guards of host buffers exclude other writers.
    async fn use_guard(&mut self) {
        let place = self.random.below(self.world.host.len());
        let buffer = self.world.host[place].clone();
        let (yields, limit) = (self.random.below(6), self.random.below(300) as u64);
        let name = format!("{}: a guard of host buffer {place}", self.world.name);
        let _watched = watch_named(name);
        match self.random.below(4) {
            0 => read(&buffer, yields).await,
            1 => write(&buffer, yields).await,
            2 => {
                // Dropped while it waits, or while the guard is there.
                let _ = timeout(Duration::from_micros(limit), write(&buffer, yields)).await;
            }
            _ => {
                if let Ok(mut guard) = buffer.try_write() {
                    let value = uniform(&guard);
                    guard.fill(value + 1);
                    yield_now().await;
                    assert_eq!(uniform(&guard), value + 1, "a writer runs beside a guard");
                }
                if let Ok(guard) = buffer.try_read() {
                    uniform(&guard);
                }
            }
        }
    }

    /// Changes some nodes of an executable.
    async fn update(&mut self) {
        let Some(entry) = self.entry() else { return };
        if !entry.updatable || entry.kernels.is_empty() {
            return;
        }
        let node = entry.kernels[self.random.below(entry.kernels.len())];
        let n = self.random.below(100) as u32;
        let host = self.world.host[self.random.below(self.world.host.len())].clone();
        let memory = self.world.device_memory[self.random.below(self.world.device_memory.len())].clone();
        let update = entry.exec.update();
        let update = match self.random.below(4) {
            0 => update.enabled(node, false),
            1 => update.enabled(node, true),
            2 => update.launch(node, mix(n, &host)),
            _ => update.enabled(node, true).launch(node, mix(n, &memory)),
        };
        let Some(applied) = calmly(|| update.apply()) else { return };
        calmly(|| drop(entry));
        if self.random.chance(3) {
            return;
        }
        let name = format!("{}: an update", self.world.name);
        let _watched = watch_named(name);
        if let Err(error) = applied.await {
            // Memory that no edge orders, what the device cannot, and what its loss and that of
            // runtimes does.
            use ErrorKind as K;
            let expected = [
                K::InvalidArgument,
                K::FeatureNotSupported,
                K::DeviceLost,
                K::Cancelled,
                K::InvalidOperation,
            ];
            assert!(expected.contains(&error.kind()), "{error}");
        }
    }

    fn replace(&mut self) {
        let place = self.world.entry(|len| self.random.below(len)).map(|_| self.random.below(6));
        calmly(|| self.world.replace(place, &mut self.random));
    }

    async fn step(&mut self, number: usize) {
        let kind = self.random.below(21);
        let _watched = watch_named(format!("{}: step {number} of a task, of kind {kind}", self.world.name));
        match kind {
            0..=2 => self.submit_and_settle(false).await,
            3..=4 => self.submit_and_settle(true).await,
            5 => {
                if let Some(pending) = self.submit(true) {
                    pending.discard();
                }
            }
            6 => {
                if let Some(pending) = self.submit(false) {
                    pending.forget();
                }
            }
            7 => {
                if let Some(pending) = self.submit(true) {
                    pending.flight.will_be_cancelled();
                    pending.submission.cancel();
                    pending.settle().await;
                }
            }
            8 => {
                if let Some(Pending { submission, flight, .. }) = self.submit(true) {
                    flight.will_be_cancelled();
                    let limit = Duration::from_micros(self.random.below(500) as u64);
                    if let Ok(result) = timeout(limit, submission.cancel_on_drop()).await {
                        flight.ended(Outcome::of(result));
                    }
                }
            }
            9 => {
                let all: Vec<_> = (0..self.random.within(2..=6)).filter_map(|_| self.submit(false)).collect();
                join_all(all.into_iter().map(Pending::settle)).await;
            }
            10 => self.many_wait().await,
            11 => self.panicking_waker().await,
            12 => {
                if let Some(mut pending) = self.submit(false) {
                    let turns = self.random.below(4);
                    let given_up = tokio::select! {
                        biased;
                        () = yield_often(turns) => true,
                        result = &mut pending.submission => {
                            pending.flight.ended(Outcome::of(result));
                            false
                        }
                    };
                    if given_up || self.random.chance(2) {
                        pending.settle().await;
                    }
                }
            }
            13..=14 => self.use_guard().await,
            15 | 20 => self.update().await,
            16 => self.world.solo.submit_and_wait(),
            17 => self.world.solo.submit_and_drop(),
            18 => self.replace(),
            _ => {
                if let Some(pending) = self.submit(false) {
                    while !pending.submission.is_finished() {
                        yield_now().await;
                    }
                    pending.settle().await;
                }
            }
        }
    }

    async fn submit_and_settle(&mut self, after: bool) {
        if let Some(pending) = self.submit(after) {
            pending.settle().await;
        }
    }

    /// Several tasks wait for one submission, which is dropped or awaited, too; some give up.
    async fn many_wait(&mut self) {
        let Some(pending) = self.submit(true) else { return };
        let event = pending.submission.event();
        let mut tasks = Vec::new();
        for _ in 0..self.random.within(1..=4) {
            let (event, flight) = (event.clone(), pending.flight.clone());
            let limit = self.random.chance(3).then(|| Duration::from_micros(self.random.below(200) as u64));
            tasks.push(tokio::spawn(async move {
                let waiting = async {
                    // Twice: an event can be waited for as often as needed.
                    flight.ended(Outcome::of(event.wait().await));
                    flight.ended(Outcome::of(event.wait().await));
                };
                match limit {
                    Some(limit) => drop(timeout(limit, waiting).await),
                    None => waiting.await,
                }
            }));
        }
        match self.random.chance(2) {
            true => pending.discard(),
            false => pending.settle().await,
        }
        for task in tasks {
            joined(task).await;
        }
    }

    /// Others wait beside a waker that panics.
    async fn panicking_waker(&mut self) {
        let Some(pending) = self.submit(false) else { return };
        let (event, flight) = (pending.submission.event(), pending.flight.clone());
        let polled_once = |mut pending: Pending| {
            spawn_blocking(move || {
                pending.poll_with_panicking_waker();
                pending
            })
        };
        let Some(mut pending) = joined(polled_once(pending)).await else { return };
        match self.random.below(3) {
            0 => pending.discard(),
            1 => pending.forget(),
            _ => {
                yield_now().await;
                pending = match joined(polled_once(pending)).await {
                    Some(pending) => pending,
                    None => return,
                };
                flight.ended(Outcome::of(event.wait().await));
                pending.settle().await;
                return;
            }
        }
        flight.ended(Outcome::of(event.wait().await));
    }

    /// What a thread without a runtime does.
    fn step_outside(&mut self, number: usize) {
        let kind = self.random.below(8);
        let _watched = watch_named(format!("{}: step {number} of a thread, of kind {kind}", self.world.name));
        match kind {
            0..=2 => {
                if let Some(pending) = self.submit(true) {
                    block_on(pending.settle());
                }
            }
            3 => {
                if let Some(pending) = self.submit(true) {
                    while !pending.submission.is_finished() {
                        thread::yield_now();
                    }
                    block_on(pending.settle());
                }
            }
            4 => {
                if let Some(mut pending) = self.submit(false) {
                    pending.poll_with_panicking_waker();
                    pending.discard();
                }
            }
            5 => {
                if let Some(pending) = self.submit(true) {
                    pending.flight.will_be_cancelled();
                    pending.submission.cancel();
                    pending.discard();
                }
            }
            6 => {
                let place = self.random.below(self.world.host.len());
                let name = format!("{}: a guard of host buffer {place}, outside", self.world.name);
                let _watched = watch_named(name);
                let (buffer, yields) = (self.world.host[place].clone(), 0);
                match self.random.chance(2) {
                    true => block_on(read(&buffer, yields)),
                    false => block_on(write(&buffer, yields)),
                }
            }
            _ => self.world.solo.submit_and_wait(),
        }
    }
}

/// What a task gives; `None` where its runtime shuts down.
async fn joined<T>(task: JoinHandle<T>) -> Option<T> {
    match task.await {
        Ok(output) => Some(output),
        Err(error) if error.is_cancelled() => None,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn yield_often(turns: usize) {
    for _ in 0..turns {
        yield_now().await;
    }
}

async fn read(buffer: &HostBuffer<u32>, yields: usize) {
    let guard = buffer.read().await;
    let value = uniform(&guard);
    for _ in 0..yields {
        yield_now().await;
        assert_eq!(uniform(&guard), value, "a writer runs beside a reader");
    }
}

async fn write(buffer: &HostBuffer<u32>, yields: usize) {
    let mut guard = buffer.write().await;
    let mut value = uniform(&guard);
    for _ in 0..yields {
        value = value.wrapping_add(1);
        guard.fill(value);
        yield_now().await;
        assert_eq!(uniform(&guard), value, "a writer runs beside a guard");
    }
}

/// A task of a runtime.
pub(crate) async fn worker(world: Arc<World>, seed: u64, steps: usize) {
    let mut submitter = Submitter { world, random: Random::new(seed), outside: false };
    for number in 0..steps {
        let step = pin!(AssertUnwindSafe(submitter.step(number)).catch_unwind()).await;
        if let Err(payload) = step {
            calmly(|| std::panic::resume_unwind(payload));
        }
    }
    calmly(|| drop(submitter));
}

/// A thread that drives futures itself, now and then inside a runtime's context.
pub(crate) fn foreign_thread(world: &Arc<World>, handle: &Handle, seed: u64, steps: usize) {
    let mut submitter = Submitter { world: world.clone(), random: Random::new(seed), outside: true };
    for number in 0..steps {
        let entered = submitter.random.chance(2).then(|| handle.enter());
        submitter.outside = entered.is_none();
        calmly(|| submitter.step_outside(number));
    }
}
