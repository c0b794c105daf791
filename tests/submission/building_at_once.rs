//! Many threads that run commands, record, add, finalize, update and submit at once, over the same memory,
//! queues and graph. Each kernel adds one: in the end, every one is accounted for.
//!
//! The environment variable `WAKEGRAPH_BUILDING_STEPS` says how much each thread does, 150 steps unless set.
use std::sync::atomic::{AtomicU32, Ordering};

// ThreadSanitizer sees its locks, and not those of the standard library.
use parking_lot::Mutex;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::graph::CommandKind;
use wakegraph::{Buffer, Device, Event, ExecutableGraph, FinalizeOptions, Graph, NodeId, Queue, Range};

wakegraph::kernel! {
    fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
}

const ELEMENTS: usize = 8;
const THREADS: u64 = 4;

/// What all threads share.
struct World {
    device: Device,
    /// What everything writes.
    total: Buffer<u32>,
    queues: Vec<Queue>,
    graph: Mutex<Graph>,
    /// What the kernels that ran should have added.
    expected: AtomicU32,
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

impl World {
    fn new(device: Device) -> Self {
        let queue = |at| if at % 2 == 0 { device.queue() } else { device.out_of_order_queue() };
        Self {
            total: device.buffer(ELEMENTS).unwrap(),
            queues: (0..4).map(|at| queue(at).unwrap()).collect(),
            graph: Mutex::new(Graph::new(&device)),
            expected: AtomicU32::new(0),
            device,
        }
    }

    /// Launches a kernel on a queue, which another thread may be recording at the moment.
    fn launch(&self, queue: &Queue) -> Event {
        let event = queue.launch(add(1, &self.total), Range::linear(ELEMENTS));
        if event.node().is_none() {
            self.expected.fetch_add(1, Ordering::Relaxed);
        }
        event
    }

    /// Submits an executable whose kernels add so much.
    async fn submit(&self, exec: &ExecutableGraph, adds: u32, through: &Queue) {
        let submission = exec.submit();
        self.expected.fetch_add(adds, Ordering::Relaxed);
        submission.await.unwrap();
        // The queue may be recording, which refuses the executable.
        if through.submit(exec).await.is_ok() {
            self.expected.fetch_add(adds, Ordering::Relaxed);
        }
    }

    fn finalize(&self, graph: &Graph) -> (ExecutableGraph, Vec<NodeId>) {
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let is_kernel = |&node: &NodeId| graph.kind(node).unwrap() == CommandKind::Kernel;
        (exec, graph.nodes().filter(is_kernel).collect())
    }

    async fn work(&self, seed: u64, steps: usize) {
        let mut random = Random(seed);
        let own = self.device.queue().unwrap();
        let mut events: Vec<Event> = Vec::new();
        for _ in 0..steps {
            let queue = &self.queues[random.below(4) as usize];
            match random.below(6) {
                0 => events.push(self.launch(queue)),
                1 => {
                    // Events of other threads' recordings make the queue join them, or are refused.
                    let after: Vec<_> = events.iter().rev().take(2).cloned().collect();
                    let event = queue.after(&after).launch(add(1, &self.total), Range::linear(ELEMENTS));
                    let runs = event.node().is_none() && event.wait().await.is_ok();
                    self.expected.fetch_add(u32::from(runs), Ordering::Relaxed);
                }
                2 => {
                    let mut graph = self.graph.lock();
                    if graph.len() > 40 {
                        *graph = Graph::new(&self.device);
                    }
                    graph.launch(add(1, &self.total), Range::linear(ELEMENTS));
                }
                3 => {
                    let (exec, nodes) = {
                        let mut graph = self.graph.lock();
                        if let Ok(_recording) = graph.record([queue]) {
                            events.push(self.launch(queue));
                            self.launch(queue);
                        }
                        drop(graph.take_errors());
                        self.finalize(&graph)
                    };
                    self.submit(&exec, nodes.len() as u32, queue).await;
                }
                4 => {
                    let mut graph = Graph::new(&self.device);
                    {
                        let _recording = graph.record([&own]).unwrap();
                        self.launch(&own);
                    }
                    self.launch(&own);
                    {
                        let _recording = graph.record([&own]).unwrap();
                        self.launch(&own);
                    }
                    let (exec, nodes) = self.finalize(&graph);
                    assert!(nodes.len() >= 2);
                    let changed = add(5, &self.total);
                    exec.update().launch(nodes[0], changed).apply().await.unwrap();
                    self.submit(&exec, nodes.len() as u32 + 4, &own).await;
                }
                _ => {
                    if let Some(event) = events.pop() {
                        assert_eq!(event.wait().await.is_err(), event.node().is_some());
                    }
                }
            }
        }
        own.wait().await.unwrap();
    }
}

#[test]
fn every_kernel_is_accounted_for() {
    let steps = std::env::var("WAKEGRAPH_BUILDING_STEPS").ok().and_then(|steps| steps.parse().ok());
    let steps = steps.unwrap_or(150);
    for (round, polled) in [(1, false), (2, true)] {
        let options = HostOptions::new().threads(2).polled(polled);
        let world = World::new(Device::from_hal(host::open(options).unwrap()));
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let world = &world;
                scope.spawn(move || runtime().block_on(world.work(round * 1000 + thread, steps)));
            }
        });
        runtime().block_on(async {
            for queue in &world.queues {
                // The failures are those of refused dependencies.
                let _ = queue.wait().await;
                assert!(!queue.is_recording());
            }
            let expected = world.expected.load(Ordering::Relaxed);
            assert_eq!(world.total.to_vec().await.unwrap(), [expected; ELEMENTS]);
            assert!(expected > 0);
        });
    }
}
