//! A storm of requests to a pool, of which half are given up: dropped at some moment between their
//! first poll and their end, or too late for their deadline.
//!
//! A request is dropped when so many others have ended, or when it has been polled so often, both
//! chosen at random: so it can be in the queue, between its slot and its submission, on the device,
//! in the host task between two kernels, or over. At the end no request has waited for ever, those that
//! were not given up have the right results, every slot is back, and the kernels have run hardly more
//! often than for these results.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::future::{Either, poll_fn, select};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use wakegraph::service::ExecutablePool;
use wakegraph::{Buffer, Device, ErrorKind, Graph, HostBuffer, Range, Result, write};

use crate::random::Random;
use crate::round::Kind;
use crate::watchdog::{watch, watch_named};

#[expect(unsafe_code, reason = "the kernel's code is vouched for")]
mod kernels {
    wakegraph::kernel! {
        /// Also counts how often it has run.
        pub(crate) fn step(x: &mut [u32], runs: &mut [u32]) {
            item: |i, x, runs| {
                x[i] = x[i].wrapping_mul(31).wrapping_add(7);
                runs[i] += 1;
            },
            // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
            // shortest slice.
            c: unsafe {
                "KERNEL(step, (SLICE(u32, x), SLICE(u32, runs))) {
                    x[GLOBAL_ID(0)] = 31 * x[GLOBAL_ID(0)] + 7;
                    runs[GLOBAL_ID(0)] += 1;
                }"
            },
        }
    }
}
use kernels::step;

const LEN: usize = 256;
const CLIENTS: usize = 128;
const SLOTS: usize = 2;
const THREADS: usize = 2;

/// How often the kernels may run for one result, with those for requests that were given up.
const MOST_BUSY: f64 = 1.1;
/// Runs that may be under way when everything is given up at once, of two kernels each.
const MOST_IN_FLIGHT: usize = 2 * SLOTS;

struct Buffers {
    input: HostBuffer<u32>,
    output: HostBuffer<u32>,
    runs: Buffer<u32>,
}

/// When a request is given up.
enum End {
    Answered,
    /// Its run does not start after this time, or stops after the partition that runs then.
    Deadline(Duration),
    /// So many other requests have ended.
    Ended(usize),
    Polled(usize),
}

impl End {
    fn random(random: &mut Random) -> Self {
        match random.below(32) {
            0 => Self::Polled(random.below(7)),
            1 | 2 => Self::Deadline(Duration::from_micros(random.below(20_000) as u64)),
            3..=16 => Self::Ended(random.below(CLIENTS)),
            17 => Self::Deadline(Duration::from_secs(1000)),
            _ => Self::Answered,
        }
    }
}

/// What all clients share.
struct Storm {
    pool: ExecutablePool<Buffers>,
    requests: usize,
    begun: AtomicUsize,
    ended: AtomicUsize,
    answered: AtomicUsize,
    too_late: AtomicUsize,
    dropped: AtomicUsize,
    /// Requests that are dropped when as many have ended.
    to_drop: Mutex<BTreeMap<usize, Vec<oneshot::Sender<()>>>>,
}

fn pool(device: &Device, token: &Arc<()>) -> ExecutablePool<Buffers> {
    let (device, token) = (device.clone(), token.clone());
    ExecutablePool::new(SLOTS, move |_| {
        let x = device.buffer::<u32>(LEN)?;
        let middle = device.host_buffer::<u32>(LEN)?;
        let (input, output) = (device.host_buffer(LEN)?, device.host_buffer(LEN)?);
        let runs = device.buffer(LEN)?;
        let mut graph = Graph::new(&device);
        graph.copy(&input, &x);
        graph.launch(step(&x, &runs), Range::linear(LEN));
        graph.copy(&x, &middle);
        let token = token.clone();
        graph.host_task((write(&middle),), async move |(mut middle,)| {
            tokio::task::yield_now().await;
            middle.iter_mut().for_each(|x| *x ^= 1);
            drop(token);
        });
        graph.copy(&middle, &x);
        graph.launch(step(&x, &runs), Range::linear(LEN));
        graph.copy(&x, &output);
        Ok((graph.finalize()?, Buffers { input, output, runs }))
    })
}

fn expected(number: u32) -> u32 {
    let step = |x: u32| x.wrapping_mul(31).wrapping_add(7);
    step(step(number) ^ 1)
}

impl Storm {
    async fn request(&self, number: u32, deadline: Option<Instant>) -> Result<bool> {
        let slot = self.pool.acquire().await?;
        slot.input.write().await.fill(number);
        let submission = slot.submit_with(|submit| match deadline {
            Some(at) => submit.deadline(at),
            None => submit,
        });
        submission.cancel_on_drop().await?;
        Ok(slot.output.read().await.iter().all(|x| *x == expected(number)))
    }

    /// Sends requests until there have been enough.
    async fn client(self: Arc<Self>, mut random: Random) {
        loop {
            let number = self.begun.fetch_add(1, Ordering::SeqCst);
            if number >= self.requests {
                return;
            }
            let watched = watch_named(format!("request {number}"));
            self.run(number as u32, End::random(&mut random)).await;
            drop(watched);
            self.end();
        }
    }

    async fn run(&self, number: u32, end: End) {
        let deadline = match end {
            End::Deadline(after) => Some(Instant::now() + after),
            _ => None,
        };
        let mut request = pin!(self.request(number, deadline));
        let result = match end {
            End::Answered | End::Deadline(_) => Some(request.await),
            End::Ended(others) => {
                let (signal, is_over) = oneshot::channel();
                let at = self.ended.load(Ordering::SeqCst) + others;
                self.to_drop.lock().entry(at).or_default().push(signal);
                match select(is_over, request).await {
                    Either::Left(_) => None,
                    Either::Right((result, _)) => Some(result),
                }
            }
            End::Polled(times) => {
                let mut left = times;
                poll_fn(|cx| {
                    if left == 0 {
                        return Poll::Ready(None);
                    }
                    left -= 1;
                    let result = request.as_mut().poll(cx).map(Some);
                    // The task that is not polled again is dropped by its client at once.
                    if result.is_pending() && left == 0 { Poll::Ready(None) } else { result }
                })
                .await
            }
        };
        match result {
            None => self.dropped.fetch_add(1, Ordering::SeqCst),
            Some(Ok(is_right)) => {
                assert!(is_right, "request {number} has another one's result");
                self.answered.fetch_add(1, Ordering::SeqCst)
            }
            Some(Err(error)) => {
                let is_late = error.kind() == ErrorKind::DeadlineExceeded && deadline.is_some();
                assert!(is_late, "request {number}: {error}");
                self.too_late.fetch_add(1, Ordering::SeqCst)
            }
        };
    }

    /// A request has ended: drops those that are to be dropped now.
    fn end(&self) {
        let ended = self.ended.fetch_add(1, Ordering::SeqCst) + 1;
        let due = {
            let mut to_drop = self.to_drop.lock();
            let later = to_drop.split_off(&(ended + 1));
            std::mem::replace(&mut *to_drop, later)
        };
        // One that is over already has no receiver.
        for signal in due.into_values().flatten() {
            let _ = signal.send(());
        }
    }
}

/// The storm on one device. Returns the figures in words.
///
/// # Errors
/// Why there is no such device.
pub(crate) fn storm(name: &str, kind: Kind, requests: usize, seed: u64) -> Result<String> {
    let mut random = Random::new(seed);
    let (device, _) = kind.open(&mut random)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    let token = Arc::new(());
    let storm = Arc::new(Storm {
        pool: pool(&device, &token),
        requests,
        begun: AtomicUsize::new(0),
        ended: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
        too_late: AtomicUsize::new(0),
        dropped: AtomicUsize::new(0),
        to_drop: Mutex::default(),
    });
    let figures = runtime.block_on(async {
        storm.pool.warm_up().await.unwrap();
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| tokio::spawn(storm.clone().client(Random::new(random.next())))).collect();
        for client in clients {
            client.await.unwrap();
        }
        let pool = storm.pool.clone();
        let watched = watch(move || Some(format!("the slots of the pool: {:?}", pool.status())));
        // Runs of the requests that were dropped last may be in flight.
        let mut slots = Vec::new();
        for _ in 0..SLOTS {
            slots.push(storm.pool.acquire().await.unwrap());
        }
        drop(watched);
        let mut kernels = 0;
        for slot in &slots {
            let runs = slot.runs.to_vec().await.unwrap();
            assert!(runs.iter().all(|one| *one == runs[0]));
            kernels += runs[0] as usize;
        }
        drop(slots);
        let [answered, too_late, dropped] =
            [&storm.answered, &storm.too_late, &storm.dropped].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(answered + too_late + dropped, requests);
        assert!(kernels >= 2 * answered);
        let most = MOST_BUSY * (2 * answered) as f64 + (2 * MOST_IN_FLIGHT) as f64;
        assert!(kernels as f64 <= most, "kernels ran {kernels} times for {answered} results");
        let busy = kernels as f64 / (2 * answered).max(1) as f64;
        let status = storm.pool.status();
        assert_eq!((status.slots, status.made, status.idle, status.waiting), (SLOTS, SLOTS, SLOTS, 0));
        format!(
            "{requests} requests, {answered} answered, {dropped} dropped, {too_late} too late; \
             kernels ran {busy:.3} times as often as for the answers"
        )
    });
    drop(storm);
    drop(runtime);
    // What the requests captured is gone, with the graphs and all their closures.
    let _watched = watch_named(format!("storm/{name}: what is left of the requests"));
    while Arc::strong_count(&token) > 1 || !device.in_flight().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(figures)
}
