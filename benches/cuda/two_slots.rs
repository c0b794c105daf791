//! Two slots of a pool overlap copies with kernels: requests of upload, kernel and download take as
//! long as the longest of their legs alone.

use std::time::Instant;

use wakegraph::service::ExecutablePool;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, HostBuffer, Range, Result};

use crate::four_workers;
use crate::support::{Report, median};

wakegraph::kernel! {
    /// Mixes the bits of each word, for so many rounds.
    fn mix(rounds: u32, x: &[u32], y: &mut [u32]) {
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the shortest
        // slice.
        c: unsafe { "KERNEL(mix, (u32 rounds, SLICE(const u32, x), SLICE(u32, y))) {
                         u32 word = x[GLOBAL_ID(0)];
                         for (u32 round = 0; round < rounds; round++) {
                             word = (word ^ (word >> 15)) * 0x2c1b3c6du;
                             word = (word << 7) | (word >> 25);
                         }
                         y[GLOBAL_ID(0)] = word;
                     }" },
    }
}

/// Words that a request sends and receives.
const LEN: usize = 16 << 20;
const REQUESTS: usize = 40;
const TURNS: usize = 5;

/// The memory of a request.
struct Memory {
    input: HostBuffer<u32>,
    x: Buffer<u32>,
    y: Buffer<u32>,
    output: HostBuffer<u32>,
}

impl Memory {
    fn new(device: &Device) -> Result<Self> {
        let (input, output) = (device.host_buffer(LEN)?, device.host_buffer(LEN)?);
        Ok(Self { input, x: device.buffer(LEN)?, y: device.buffer(LEN)?, output })
    }

    fn upload(&self, graph: &mut Graph) {
        graph.copy(&self.input, &self.x);
    }

    fn kernel(&self, graph: &mut Graph, rounds: u32) {
        graph.launch(mix(rounds, &self.x, &self.y), Range::linear(LEN));
    }

    fn download(&self, graph: &mut Graph) {
        graph.copy(&self.y, &self.output);
    }
}

fn executable(device: &Device, record: impl FnOnce(&mut Graph)) -> Result<ExecutableGraph> {
    let mut graph = Graph::new(device);
    record(&mut graph);
    graph.finalize()
}

/// Seconds of a run, when one run follows the other.
async fn alone(exec: &ExecutableGraph) -> Result<f64> {
    exec.submit().await?;
    let start = Instant::now();
    let runs: Vec<_> = (0..REQUESTS).map(|_| exec.submit()).collect();
    for run in runs {
        run.await?;
    }
    Ok(start.elapsed().as_secs_f64() / REQUESTS as f64)
}

/// Seconds of a request, with two clients a slot.
async fn requests(pool: &ExecutablePool<()>, slots: usize) -> f64 {
    let start = Instant::now();
    let clients: Vec<_> = (0..2 * slots)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for _ in 0..REQUESTS / (2 * slots) {
                    pool.acquire().await.expect("a slot").submit().await.expect("a run");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    start.elapsed().as_secs_f64() / (REQUESTS / (2 * slots) * 2 * slots) as f64
}

pub(crate) fn rows(report: &mut Report, device: &Device) {
    const NAME: &str = "two_slots";
    if report.wants(NAME) {
        let (request, longest) = four_workers().block_on(measure(device)).expect("runs");
        report.figure(NAME, request * 1e9, longest * 1e9, "ns", request > 1.05 * longest);
    }
}

/// Seconds that a request takes, and its longest leg alone.
async fn measure(device: &Device) -> Result<(f64, f64)> {
    let memory = Memory::new(device)?;
    let upload = executable(device, |graph| memory.upload(graph))?;
    let download = executable(device, |graph| memory.download(graph))?;
    let copies = alone(&upload).await? + alone(&download).await?;
    // The kernel takes a little longer than both copies: then two slots are enough.
    let of_rounds = async |rounds| alone(&executable(device, |graph| memory.kernel(graph, rounds))?).await;
    let (few, many) = (of_rounds(100).await?, of_rounds(1100).await?);
    let rounds = 100 + ((1.15 * copies - few) / (many - few) * 1000.0).max(0.0) as u32;

    let kernel = executable(device, |graph| memory.kernel(graph, rounds))?;
    let pool = {
        let device = device.clone();
        ExecutablePool::new(2, move |_| {
            let memory = Memory::new(&device)?;
            let exec = executable(&device, |graph| {
                memory.upload(graph);
                memory.kernel(graph, rounds);
                memory.download(graph);
            })?;
            Ok((exec, ()))
        })
    };
    pool.warm_up().await?;
    let (mut legs, mut together) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new());
    for _ in 0..TURNS {
        for (times, exec) in legs.iter_mut().zip([&upload, &kernel, &download]) {
            times.push(alone(exec).await?);
        }
        together.push(requests(&pool, 2).await);
    }
    let longest = legs.map(|times| median(&times)).into_iter().fold(0.0, f64::max);
    Ok((median(&together), longest))
}
