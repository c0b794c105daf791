//! A service on the CPU: requests of 64 KiB from 64 tasks, each after its answer sends the next.
//!
//! | row | ours | base |
//! |---|---|---|
//! | `service_64k_of_rayon` | a pool of as many slots as there are cores, on the host device; 1.0 | a thread, a channel and a oneshot; rayon runs what waits |
//!
//! The pool copies a request into its slot and the answer out of it; the thread reads it where it is, and
//! writes the answer once. Figures are per request.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use wakegraph::service::ExecutablePool;
use wakegraph::{Device, Graph, HostBuffer, Range};

use crate::kernels;
use crate::support::{Report, Times};

const WORDS: usize = (64 << 10) / size_of::<u32>();
const TASKS: usize = 64;
const TURN: Duration = Duration::from_millis(200);

pub(crate) fn rows(report: &mut Report, runtime: &Runtime) {
    const NAME: &str = "service_64k_of_rayon";
    if !report.wants(NAME) {
        return;
    }
    let (pool, thread) = (Pool::new(), Thread::new());
    let request: Arc<[u32]> = (0..WORDS as u32).collect();
    let (mut ours, mut base) = (Times::default(), Times::default());
    for _ in 0..report.reduced(50).min(10) {
        let pool = pool.clone();
        let by_pool = move |request: Arc<[u32]>| {
            let pool = pool.clone();
            async move { pool.answer(&request).await }
        };
        ours.add_by_median(&[runtime.block_on(closed_loop(&request, by_pool))]);
        std::thread::sleep(Duration::from_millis(10));
        let thread = thread.clone();
        let by_thread = move |request: Arc<[u32]>| {
            let thread = thread.clone();
            async move { thread.answer(request).await }
        };
        base.add_by_median(&[runtime.block_on(closed_loop(&request, by_thread))]);
        std::thread::sleep(Duration::from_millis(10));
    }
    let (ours, base) = (ours.median(), base.median());
    report.figure(NAME, ours, base, "ns", ours > base);
}

/// Nanoseconds a request.
async fn closed_loop<F>(
    request: &Arc<[u32]>,
    answer: impl Fn(Arc<[u32]>) -> F + Clone + Send + 'static,
) -> f64
where
    F: Future<Output = Vec<u32>> + Send,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (request, answer) = (Arc::clone(request), answer.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                while start.elapsed() < TURN {
                    let words = answer(Arc::clone(&request)).await;
                    assert_eq!(words[1], kernels::mixed(1));
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    let mut answered = 0;
    for task in tasks {
        answered += task.await.expect("an answer");
    }
    start.elapsed().as_nanos() as f64 / f64::from(answered)
}

struct Slot {
    input: HostBuffer<u32>,
    output: HostBuffer<u32>,
}

#[derive(Clone)]
struct Pool(ExecutablePool<Slot>);

impl Pool {
    fn new() -> Self {
        let device = Device::open("host").expect("a host device");
        Self(ExecutablePool::builder().slots(crate::cores()).queue(TASKS).build(move |_| {
            let slot = Slot { input: device.host_buffer(WORDS)?, output: device.host_buffer(WORDS)? };
            let mut graph = Graph::new(&device);
            graph.launch(kernels::mix(&slot.input, &slot.output), Range::linear(WORDS));
            Ok((graph.finalize()?, slot))
        }))
    }

    async fn answer(&self, request: &[u32]) -> Vec<u32> {
        let slot = self.0.acquire().await.expect("a slot");
        slot.input.write().await.copy_from_slice(request);
        slot.submit().await.expect("a run");
        slot.output.read().await.to_vec()
    }
}

type Request = (Arc<[u32]>, oneshot::Sender<Vec<u32>>);

#[derive(Clone)]
struct Thread(mpsc::Sender<Request>);

impl Thread {
    fn new() -> Self {
        let (requests, mut received) = mpsc::channel::<Request>(TASKS);
        std::thread::spawn(move || {
            let mut waiting = Vec::with_capacity(TASKS);
            while received.blocking_recv_many(&mut waiting, TASKS) > 0 {
                waiting.par_drain(..).for_each(|(request, answer)| {
                    let words = request.iter().map(|word| kernels::mixed(*word)).collect();
                    let _ = answer.send(words);
                });
            }
        });
        Self(requests)
    }

    async fn answer(&self, request: Arc<[u32]>) -> Vec<u32> {
        let (answer, answered) = oneshot::channel();
        self.0.send((request, answer)).await.expect("the thread lives");
        answered.await.expect("an answer")
    }
}
