//! A model that an application has already, as a node of a graph: captured once, with all that it allocates.
//!
//! `cargo run --release -p embeddings [-- REQUESTS]`, with the driver, NVRTC and cuBLAS on the library path.
//!
//! The encoder of `encoder.rs` launches some 130 small kernels for a text, and the launches take longer than
//! the kernels. Requests are answered in three ways: by the encoder alone, in `spawn_blocking` behind a
//! semaphore; as a stream task, called in each submission; and as a native command, captured when its slot is
//! made. First within the process; then as services behind axum, with a batcher each (`serve.rs`).
#![expect(unsafe_code, reason = "hands memory and streams between cudarc and graphs")]

mod encoder;
mod serve;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr as _, result, sys};
use encoder::{Encoder, HIDDEN, Shape};
use tokio::sync::Semaphore;
use wakegraph::interop::{NativeAccess, NativeStream};
use wakegraph::service::ExecutablePool;
use wakegraph::{
    BoxError, Buffer, Device, Error as GraphError, ErrorKind, ExecutableGraph, Graph, HostBuffer,
};

const SHAPES: [Shape; 4] = [
    Shape { texts: 1, tokens: 32 },
    Shape { texts: 1, tokens: 128 },
    Shape { texts: 8, tokens: 32 },
    Shape { texts: 8, tokens: 128 },
];
const CLIENTS: usize = 64;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let requests = std::env::args().nth(1).map_or(Ok(300), |count| count.parse())?;
    let context = CudaContext::new(0)?;
    let encoder = Arc::new(Encoder::new(&context)?);
    let device = Device::open("cuda:0")?;
    println!("{}, {requests} requests each, {CLIENTS} clients", device.info().name);
    println!("texts x tokens | service | p50 ms | p99 ms | requests/s");
    for shape in SHAPES {
        let alone = Alone::new(&encoder, shape)?;
        // A first run loads what the library loads lazily, which no capture takes.
        let expected = alone.answer(tokens(0, shape), shape).await?;
        let live = slots(&device, &encoder, shape, Way::StreamTask);
        let captured = slots(&device, &encoder, shape, Way::Captured);
        for pool in [&live, &captured] {
            check(&expected, &answer(pool, tokens(0, shape)).await?);
        }
        let alone = &alone;
        report(shape, "alone", requests, |tokens| alone.answer(tokens, shape)).await?;
        report(shape, "stream task", requests, |tokens| answer(&live, tokens)).await?;
        report(shape, "captured", requests, |tokens| answer(&captured, tokens)).await?;
        bare(&device, &encoder, shape, requests).await?;
    }
    for tokens in [32, 128] {
        serve::report(&device, &encoder, tokens, requests).await?;
    }
    Ok(())
}

/// Made-up tokens of the request with this number.
fn tokens(request: usize, shape: Shape) -> Vec<u32> {
    (0..shape.rows()).map(|place| (request * 7919 + place * 104_729) as u32 % 30_000).collect()
}

fn check(expected: &[f32], found: &[f32]) {
    let off = expected.iter().zip(found).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    assert!(off < 1e-3 && expected.len() == found.len(), "off by {off}");
}

/// The encoder behind a semaphore, as services do it: a thread enqueues and waits.
struct Alone {
    encoder: Arc<Encoder>,
    permit: Semaphore,
    memory: Arc<Mutex<(CudaSlice<u32>, CudaSlice<f32>)>>,
}

impl Alone {
    /// For batches up to this shape.
    fn new(encoder: &Arc<Encoder>, largest: Shape) -> Result<Self, BoxError> {
        let stream = &encoder.stream;
        let memory = (stream.alloc_zeros(largest.rows())?, stream.alloc_zeros(largest.texts * HIDDEN)?);
        let memory = Arc::new(Mutex::new(memory));
        Ok(Self { encoder: encoder.clone(), permit: Semaphore::new(1), memory })
    }

    async fn answer(&self, tokens: Vec<u32>, shape: Shape) -> Result<Vec<f32>, BoxError> {
        let _permit = self.permit.acquire().await?;
        let (encoder, memory) = (self.encoder.clone(), self.memory.clone());
        let work = move || -> Result<Vec<f32>, BoxError> {
            let mut memory = memory.lock().map_err(|_| "an answer has panicked")?;
            let (input, output) = &mut *memory;
            let stream = &encoder.stream;
            stream.memcpy_htod(&tokens, input)?;
            let (from, to) = (input.device_ptr(stream).0, output.device_ptr(stream).0);
            // SAFETY: both have so many elements, and the thread waits.
            unsafe { encoder.encode(from, to, shape) }?;
            let answer = stream.clone_dtoh(&output.slice(..shape.texts * HIDDEN))?;
            stream.synchronize()?;
            Ok(answer)
        };
        tokio::task::spawn_blocking(work).await?
    }
}

#[derive(Clone, Copy)]
enum Way {
    StreamTask,
    Captured,
}

/// The buffers that a request writes and reads.
struct Slot {
    tokens: HostBuffer<u32>,
    means: HostBuffer<f32>,
}

/// Two slots, so that one request's copies run beside the other's kernels.
fn slots(device: &Device, encoder: &Arc<Encoder>, shape: Shape, way: Way) -> ExecutablePool<Slot> {
    let encoder = encoder.clone();
    ExecutablePool::builder()
        .device(device, 2)
        .queue(CLIENTS)
        .build(move |slot| copied_in_and_out(&slot.device()?, &encoder, shape, way))
}

/// Copies of the tokens to the device and of the means back, and the encoder between.
fn copied_in_and_out(
    device: &Device,
    encoder: &Arc<Encoder>,
    shape: Shape,
    way: Way,
) -> wakegraph::Result<(ExecutableGraph, Slot)> {
    let (tokens, input) = (device.host_buffer(shape.rows())?, device.buffer::<u32>(shape.rows())?);
    let (means, output) =
        (device.host_buffer(shape.texts * HIDDEN)?, device.buffer::<f32>(shape.texts * HIDDEN)?);
    let mut graph = Graph::new(device);
    graph.copy(&tokens, &input);
    add_encoder(&mut graph, encoder, &input, &output, shape, way);
    graph.copy(&output, &means);
    Ok((graph.finalize()?, Slot { tokens, means }))
}

fn add_encoder(
    graph: &mut Graph,
    encoder: &Arc<Encoder>,
    input: &Buffer<u32>,
    output: &Buffer<f32>,
    shape: Shape,
    way: Way,
) {
    let accesses = [NativeAccess::read(input), NativeAccess::write(output)];
    let encoder = encoder.clone();
    let enqueue = move |lent: &NativeStream<'_>, [from, to]: [usize; 2]| {
        // The encoder has one stream.
        let _lock = ENQUEUES.lock();
        let encode = || {
            // SAFETY: the graph's buffers have so many elements.
            unsafe { encoder.encode(from as u64, to as u64, shape) }
        };
        within(lent, &encoder.stream, encode)
            .map_err(|error| GraphError::new(ErrorKind::Driver, error.to_string()))
    };
    match way {
        // SAFETY: the encoder uses the two buffers and what it allocates, in the lent stream's order.
        Way::Captured => unsafe {
            graph.native("encode", accesses, move |lent, [from, to]| {
                enqueue(lent, [from.address(), to.address()])
            })
        },
        // SAFETY: as above.
        Way::StreamTask => unsafe {
            graph.stream_task("encode", accesses, move |lent, [from, to]| {
                let address = |address: Option<usize>| {
                    address.ok_or_else(|| GraphError::new(ErrorKind::FeatureNotSupported, "no address"))
                };
                enqueue(lent, [address(from.address())?, address(to.address())?])
            })
        },
    };
}

/// Held while something enqueues on the encoder's stream.
static ENQUEUES: Mutex<()> = Mutex::new(());

/// Puts the work that `enqueue` enqueues on the encoder's stream into the order of the lent one, by two
/// events. While the lent stream is captured, so is the other from the first event on.
fn within(
    lent: &NativeStream<'_>,
    stream: &CudaStream,
    enqueue: impl FnOnce() -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let lent = lent.stream().cast();
    let before = stream.context().new_event(None)?;
    // SAFETY: the event and the stream are alive, and of one device.
    unsafe { result::event::record(before.cu_event(), lent) }?;
    stream.wait(&before)?;
    enqueue()?;
    let after = stream.record_event(None)?;
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: as above.
    unsafe { result::stream::wait_event(lent, after.cu_event(), flags) }?;
    Ok(())
}

async fn answer(pool: &ExecutablePool<Slot>, tokens: Vec<u32>) -> Result<Vec<f32>, BoxError> {
    let slot = pool.acquire().await?;
    slot.tokens.write().await.copy_from_slice(&tokens);
    slot.submit().await?;
    Ok(slot.means.read().await.to_vec())
}

/// Times of one client alone, and the rate at which many are served.
async fn report<F>(
    shape: Shape,
    name: &str,
    requests: usize,
    answer: impl Fn(Vec<u32>) -> F,
) -> Result<(), BoxError>
where
    F: Future<Output = Result<Vec<f32>, BoxError>>,
{
    let mut times = Vec::with_capacity(requests);
    for request in 0..requests {
        let start = Instant::now();
        answer(tokens(request, shape)).await?;
        times.push(start.elapsed());
    }
    let start = Instant::now();
    let clients = (0..CLIENTS).map(async |client| {
        for request in 0..requests.div_ceil(CLIENTS) {
            answer(tokens(client + request, shape)).await?;
        }
        Ok::<_, BoxError>(())
    });
    futures::future::try_join_all(clients).await?;
    let rate = (requests.div_ceil(CLIENTS) * CLIENTS) as f64 / start.elapsed().as_secs_f64();
    let [p50, p99] = quantiles(&mut times);
    println!("{} x {} | {name} | {p50:.3} | {p99:.3} | {rate:.0}", shape.texts, shape.tokens);
    Ok(())
}

fn quantiles(times: &mut [Duration]) -> [f64; 2] {
    times.sort_unstable();
    [50, 99].map(|percent| times[times.len() * percent / 100].as_secs_f64() * 1e3)
}

/// The graph of the encoder alone, awaited, beside the same capture launched and waited for by hand.
async fn bare(device: &Device, encoder: &Arc<Encoder>, shape: Shape, runs: usize) -> Result<(), BoxError> {
    let (input, output) = (device.buffer::<u32>(shape.rows())?, device.buffer::<f32>(shape.texts * HIDDEN)?);
    let mut graph = Graph::new(device);
    add_encoder(&mut graph, encoder, &input, &output, shape, Way::Captured);
    let exec = graph.finalize()?;

    let stream = &encoder.stream;
    let address = |address: Option<usize>| address.map(|address| address as u64).ok_or("no address");
    let (from, to) = (address(input.address())?, address(output.address())?);
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    // SAFETY: the buffers have so many elements, and outlive the graph.
    unsafe { encoder.encode(from, to, shape) }?;
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let by_hand = stream.end_capture(flags)?.ok_or("nothing was captured")?;

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let start = Instant::now();
        exec.submit().await?;
        ours.push(start.elapsed());
        let start = Instant::now();
        by_hand.launch()?;
        stream.synchronize()?;
        theirs.push(start.elapsed());
    }
    let ([ours, _], [theirs, _]) = (quantiles(&mut ours), quantiles(&mut theirs));
    let ratio = ours / theirs;
    println!("{} x {} | graph alone | {ours:.3}, by hand {theirs:.3}: {ratio:.2}", shape.texts, shape.tokens);
    Ok(())
}
