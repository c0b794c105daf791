//! Contenders that take turns. A turn is several runs, behind a pause: the threads of rayon and of OpenCL's
//! runtimes look for work for a while after each run, and would disturb what follows.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use wakegraph::kernel::KernelCall;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range};

use crate::support::Times;

/// Before each turn.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a turn lasts, if that is not more runs than these.
const TURN: Duration = Duration::from_millis(10);
const MOST_RUNS: usize = 200;

/// Turns of contenders that have run for so long are as many as needed for a median.
const LONG: Duration = Duration::from_secs(1);
const FEWEST_TURNS: usize = 3;

/// One way to do the work.
pub(crate) enum Work {
    Graph(ExecutableGraph),
    Loop(Box<dyn FnMut()>),
    /// A closure on rayon's pool that wakes this task.
    Spawn(Arc<Notify>),
}

impl Work {
    pub(crate) async fn once(&mut self) {
        match self {
            Self::Graph(exec) => exec.submit().await.expect("a run"),
            Self::Loop(run) => run(),
            Self::Spawn(wake) => {
                let by_worker = wake.clone();
                rayon::spawn(move || by_worker.notify_one());
                wake.notified().await;
            }
        }
    }

    /// One turn. Gives the nanoseconds of each run.
    async fn turn(&mut self) -> Vec<f64> {
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        // Not counted: threads that have to wake, caches that have to fill.
        let mut runs = 0;
        while runs < 5 && start.elapsed() < TURN / 2 {
            self.once().await;
            runs += 1;
        }
        let each = start.elapsed() / runs;
        let samples = (TURN.as_nanos() / each.as_nanos().max(1)).clamp(1, MOST_RUNS as u128);
        let mut nanoseconds = Vec::with_capacity(samples as usize);
        for _ in 0..samples {
            let start = Instant::now();
            self.once().await;
            nanoseconds.push(start.elapsed().as_nanos() as f64);
        }
        nanoseconds
    }
}

/// Lets all take so many turns. Gives the times of each by its name.
pub(crate) fn take_turns(
    runtime: &Runtime,
    all: &mut [(String, Work)],
    turns: usize,
) -> BTreeMap<String, Times> {
    let mut times: Vec<_> = all.iter().map(|_| (Times::default(), Duration::ZERO)).collect();
    runtime.block_on(async {
        for turn in 0..turns {
            // Who begins takes turns as well.
            let count = all.len();
            for next in (0..count).map(|next| (turn + next) % count) {
                let ((_, work), (times, took)) = (&mut all[next], &mut times[next]);
                if turn < FEWEST_TURNS || *took < LONG {
                    let start = Instant::now();
                    times.add_by_median(&work.turn().await);
                    *took += start.elapsed();
                }
            }
        }
    });
    all.iter().zip(times).map(|((name, _), (times, _))| (name.clone(), times)).collect()
}

/// Contenders that write the same `y` from the same `x`. Each has written it once, as the first one did.
pub(crate) struct Contenders<'a, X, Y> {
    runtime: &'a Runtime,
    host: &'a Device,
    x: Vec<X>,
    y: Vec<Y>,
    expected: Option<Vec<Y>>,
    all: Vec<(String, Work)>,
}

impl<'a, X: Pod, Y: Pod + Into<f64>> Contenders<'a, X, Y> {
    pub(crate) fn new(runtime: &'a Runtime, host: &'a Device, x: Vec<X>, y: Vec<Y>) -> Self {
        Self { runtime, host, x, y, expected: None, all: Vec::new() }
    }

    /// A loop by hand. Its memory is the host device's, because the place of memory in its page decides about
    /// a half of a stencil's time.
    pub(crate) fn by_hand(&mut self, name: &str, run: impl Fn(&[X], &mut [Y]) + 'static) {
        let (x, y) = (self.host.host_buffer_from(&self.x), self.host.host_buffer_from(&self.y));
        let (x, y) = (x.expect("memory"), y.expect("memory"));
        let (x, mut y) = self.runtime.block_on(async { (x.read().await, y.write().await) });
        run(&x, &mut y);
        self.check(name, &y);
        self.add(name, Work::Loop(Box::new(move || run(black_box(&x), black_box(&mut y)))));
    }

    /// A graph with one kernel.
    pub(crate) fn kernel(
        &mut self,
        name: &str,
        device: &Device,
        call: impl FnOnce(&Buffer<X>, &Buffer<Y>) -> KernelCall,
        range: Range,
    ) {
        let (x, y) =
            (device.buffer_from(&self.x).expect("memory"), device.buffer_from(&self.y).expect("memory"));
        let (mut graph, mut read) = (Graph::new(device), Graph::new(device));
        graph.launch(call(&x, &y), range);
        let written = device.host_buffer::<Y>(self.y.len()).expect("memory");
        read.copy(&y, &written);
        let [graph, read] = [graph, read].map(|graph| graph.finalize().expect("a valid graph"));
        self.runtime.block_on(async {
            graph.submit().await.expect("a run");
            read.submit().await.expect("a run");
            self.check(name, &written.read().await);
        });
        self.add(name, Work::Graph(graph));
    }

    pub(crate) fn into_all(self) -> Vec<(String, Work)> {
        self.all
    }

    fn add(&mut self, name: &str, work: Work) {
        self.all.push((name.into(), work));
    }

    fn check(&mut self, name: &str, y: &[Y]) {
        let expected = self.expected.get_or_insert_with(|| y.to_vec());
        let differs = expected.iter().zip(y).position(|(expected, y)| {
            let (expected, y): (f64, f64) = ((*expected).into(), (*y).into());
            (expected - y).abs() > 1e-4 * expected.abs()
        });
        assert_eq!(differs, None, "{name} writes another element there");
    }
}
