//! Requests of a service, in one process and without HTTP: our pool and batcher beside what services write
//! with `cudarc`, in which no line is ours.
//!
//! Clients send one request after the other: 1 KB and one kernel, or 200 KB and three. All contenders take
//! turns, on the same runtime of eight workers, and every answer is checked. Figures are over a contender's
//! rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use wakegraph::service::{Batcher, ExecutablePool};
use wakegraph::{Device, ExecutableGraph, Graph, HostBuffer, Range, Result};

use crate::requests_by_hand::{Blocking, Cudarc, GpuThread, Memory};
use crate::support::{self, Report, cpu};

wakegraph::kernel! {
    /// Mixes the bits of each word.
    fn mix(x: &[u32], y: &mut [u32]) {
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the shortest
        // slice.
        c: unsafe { "KERNEL(mix, (SLICE(const u32, x), SLICE(u32, y))) {
                         u32 word = x[GLOBAL_ID(0)];
                         for (u32 round = 0; round < 16; round++) {
                             word = (word ^ (word >> 15)) * 0x2c1b3c6du;
                             word = (word << 7) | (word >> 25);
                         }
                         y[GLOBAL_ID(0)] = word;
                     }" },
    }
}

fn mixed(word: u32) -> u32 {
    (0..16).fold(word, |word, _| (word ^ (word >> 15)).wrapping_mul(0x2c1b_3c6d).rotate_left(7))
}

/// The words of a request or of its answer.
pub(crate) type Words = Arc<[u32]>;

/// A request on its way to a thread, with the place for its answer.
pub(crate) type Request = (Words, oneshot::Sender<Vec<u32>>);

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    name: &'static str,
    pub(crate) words: usize,
    pub(crate) kernels: usize,
    /// Requests in a batch.
    pub(crate) items: usize,
}

const SHAPES: [Shape; 2] = [
    Shape { name: "1k", words: 256, kernels: 1, items: 32 },
    Shape { name: "200k", words: 51_200, kernels: 3, items: 8 },
];

const CLIENTS: [usize; 5] = [1, 16, 64, 256, 1024];

/// Requests that may wait: more than there are clients.
pub(crate) const QUEUE: usize = 4096;

const WINDOW: Duration = Duration::from_millis(200);

pub(crate) fn rows(report: &mut Report, device: &Device) {
    let runtime =
        Builder::new_multi_thread().worker_threads(8).enable_all().build().expect("a tokio runtime");
    for shape in SHAPES {
        let wanted: Vec<_> =
            CLIENTS.into_iter().filter(|clients| report.wants(&name(shape, *clients))).collect();
        if wanted.is_empty() {
            continue;
        }
        let contenders = runtime.block_on(async { contenders(device, shape) });
        for clients in wanted {
            clients_rows(report, &runtime, &contenders, shape, clients);
        }
    }
}

fn name(shape: Shape, clients: usize) -> String {
    format!("requests_{}_{clients}", shape.name)
}

/// Ours, which come first.
const OURS: usize = 2;

fn contenders(device: &Device, shape: Shape) -> Vec<(&'static str, Service)> {
    let cudarc = Cudarc::open(shape);
    vec![
        ("pool", Service::Pool(pool(device, shape, 1))),
        ("batcher", Service::Batcher(batcher(device, shape))),
        ("thread", Service::Thread(GpuThread::start(&cudarc, Memory::Plain, shape.items))),
        ("thread_pinned", Service::Thread(GpuThread::start(&cudarc, Memory::Pinned, shape.items))),
        ("thread_one_pinned", Service::Thread(GpuThread::start(&cudarc, Memory::Pinned, 1))),
        ("blocking_pinned", Service::Blocking(Blocking::new(&cudarc, 8))),
    ]
}

fn clients_rows(
    report: &mut Report,
    runtime: &Runtime,
    contenders: &[(&'static str, Service)],
    shape: Shape,
    clients: usize,
) {
    let mut figures: Vec<Figures> = contenders.iter().map(|_| Figures::default()).collect();
    for round in 0..report.reduced(50) + 1 {
        for (figures, (_, service)) in figures.iter_mut().zip(contenders) {
            let one = runtime.block_on(ask(service, shape, clients));
            // The first round makes slots and fills caches.
            if round > 0 {
                figures.add(one);
            }
        }
    }
    let rates: Vec<f64> = figures.iter().map(|figures| support::median(&figures.rates)).collect();
    let Some((best, base)) =
        rates.iter().enumerate().skip(OURS).max_by(|(_, one), (_, other)| one.total_cmp(other))
    else {
        return;
    };
    let row = name(shape, clients);
    for (index, (contender, _)) in contenders.iter().enumerate() {
        let [p50, p99] = [0.5, 0.99].map(|share| support::percentile(&figures[index].latencies, share));
        let cores = support::median(&figures[index].cores);
        println!(
            "REQUESTS {row} {contender} per_second={:.0} p50_us={p50:.0} p99_us={p99:.0} cores={cores:.2}",
            rates[index]
        );
        if index < OURS {
            let rival = contenders[best].0;
            report.figure(
                &format!("{row}_{contender}_beside_{rival}"),
                rates[index],
                *base,
                "per_second",
                false,
            );
        }
    }
}

/// What the rounds of one contender gave.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    cores: Vec<f64>,
    /// Microseconds.
    latencies: Vec<f64>,
}

impl Figures {
    fn add(&mut self, round: RoundFigures) {
        self.rates.push(round.latencies.len() as f64 / round.seconds);
        self.cores.push(round.cpu / round.seconds);
        self.latencies.extend(round.latencies);
    }
}

struct RoundFigures {
    seconds: f64,
    cpu: f64,
    /// Microseconds.
    latencies: Vec<f64>,
}

/// Has so many clients ask the service, each one request after the other.
async fn ask(service: &Service, shape: Shape, clients: usize) -> RoundFigures {
    let stop = Arc::new(AtomicBool::new(false));
    let (start, cpu) = (Instant::now(), cpu::seconds());
    let tasks: Vec<_> = (1..=clients)
        .map(|client| tokio::spawn(client_loop(service.clone(), shape, client as u32, stop.clone())))
        .collect();
    tokio::time::sleep(WINDOW).await;
    stop.store(true, Relaxed);
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("right answers"));
    }
    RoundFigures { seconds: start.elapsed().as_secs_f64(), cpu: cpu::seconds() - cpu, latencies }
}

async fn client_loop(service: Service, shape: Shape, client: u32, stop: Arc<AtomicBool>) -> Vec<f64> {
    let request: Words = (0..shape.words as u32).map(|word| word.wrapping_mul(client)).collect();
    let last = (0..shape.kernels).fold(request[shape.words - 1], |word, _| mixed(word));
    let mut latencies = Vec::new();
    while !stop.load(Relaxed) {
        let start = Instant::now();
        let answer = service.call(request.clone()).await;
        latencies.push(start.elapsed().as_nanos() as f64 / 1e3);
        assert_eq!((answer.len(), answer[shape.words - 1]), (shape.words, last));
    }
    latencies
}

#[derive(Clone)]
enum Service {
    Pool(ExecutablePool<Slot>),
    Batcher(Batcher<Words, Vec<u32>>),
    Thread(GpuThread),
    Blocking(Blocking),
}

impl Service {
    async fn call(&self, request: Words) -> Vec<u32> {
        match self {
            Self::Pool(pool) => in_pool(pool, &request).await.expect("an answer"),
            Self::Batcher(batcher) => batcher.call(request).await.expect("an answer"),
            Self::Thread(thread) => thread.call(request).await,
            Self::Blocking(blocking) => blocking.call(request).await,
        }
    }
}

struct Slot {
    input: HostBuffer<u32>,
    output: HostBuffer<u32>,
}

/// Four slots with room for so many requests each.
fn pool(device: &Device, shape: Shape, items: usize) -> ExecutablePool<Slot> {
    let device = device.clone();
    ExecutablePool::builder().slots(4).queue(QUEUE).build(move |_| slot(&device, shape, items))
}

fn slot(device: &Device, shape: Shape, items: usize) -> Result<(ExecutableGraph, Slot)> {
    let len = shape.words * items;
    let slot = Slot { input: device.host_buffer(len)?, output: device.host_buffer(len)? };
    let (mut from, mut to) = (device.buffer::<u32>(len)?, device.buffer::<u32>(len)?);
    let mut graph = Graph::new(device);
    graph.copy(&slot.input, &from);
    for _ in 0..shape.kernels {
        graph.launch(mix(&from, &to), Range::linear(len));
        std::mem::swap(&mut from, &mut to);
    }
    graph.copy(&from, &slot.output);
    Ok((graph.finalize()?, slot))
}

async fn in_pool(pool: &ExecutablePool<Slot>, request: &[u32]) -> Result<Vec<u32>> {
    let slot = pool.acquire().await?;
    slot.input.write().await.copy_from_slice(request);
    slot.submit().await?;
    Ok(slot.output.read().await.to_vec())
}

fn batcher(device: &Device, shape: Shape) -> Batcher<Words, Vec<u32>> {
    let pool = pool(device, shape, shape.items);
    pool.batcher().max_items(shape.items).queue(QUEUE).build(async move |slot, requests: Vec<Words>| {
        let mut input = slot.input.write().await;
        input.chunks_mut(shape.words).zip(&requests).for_each(|(to, request)| to.copy_from_slice(request));
        drop(input);
        slot.submit().await?;
        let output = slot.output.read().await;
        Ok(output.chunks(shape.words).take(requests.len()).map(<[u32]>::to_vec).collect())
    })
}
