//! Each way as a service: axum before a batcher, which gathers texts of one length; and clients of the same
//! process that keep their connections.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wakegraph::service::{Batcher, ExecutablePool, PoolGuard};
use wakegraph::{BoxError, Device, Error as GraphError, ExecutableGraph, Graph, Result};

use crate::encoder::{Encoder, HIDDEN, Shape};
use crate::{Alone, CLIENTS, Slot, Way, check, copied_in_and_out, quantiles, tokens};

/// Numbers of texts that batches are run with: a batch is filled up to the next of them.
const TEXTS: [usize; 4] = [1, 2, 4, 8];
const MOST_TEXTS: usize = 8;

/// A text as its tokens, answered by their mean.
type Texts = Batcher<Bytes, Bytes>;

/// Serves texts of `tokens` tokens in each of the three ways, and prints the times that the clients measure.
pub(crate) async fn report(
    device: &Device,
    encoder: &Arc<Encoder>,
    tokens: usize,
    requests: usize,
) -> std::result::Result<(), BoxError> {
    let alone = Arc::new(Alone::new(encoder, Shape { texts: MOST_TEXTS, tokens })?);
    let mut expected = Vec::new();
    for texts in TEXTS {
        let shape = Shape { texts, tokens };
        // The first run of a shape loads what the library loads lazily, which no capture takes.
        let means = alone.answer(crate::tokens(0, shape), shape).await?;
        expected = means[..HIDDEN].to_vec();
    }
    let services = [
        ("alone", by_itself(device, alone, tokens)),
        ("stream task", in_graphs(device, encoder, tokens, Way::StreamTask).await?),
        ("captured", in_graphs(device, encoder, tokens, Way::Captured).await?),
    ];
    for (name, batcher) in services {
        let address = serve(batcher, tokens).await?;
        let expected = expected.clone();
        let clients = move || clients(address, tokens, 10 * requests, &expected);
        let (mut times, rate) = tokio::task::spawn_blocking(clients).await??;
        let [p50, p99] = quantiles(&mut times);
        println!("1 x {tokens} over HTTP | {name} | {p50:.3} | {p99:.3} | {rate:.0}");
    }
    Ok(())
}

/// The encoder alone: one batch at a time, on a thread that waits.
fn by_itself(device: &Device, alone: Arc<Alone>, tokens: usize) -> Texts {
    let device = device.clone();
    let pool = ExecutablePool::new(1, move |_| Ok((Graph::new(&device).finalize()?, ())));
    pool.batcher().max_items(MOST_TEXTS).build(async move |_slot, texts: Vec<Bytes>| {
        let shape = Shape { texts: batch_of(texts.len()), tokens };
        let mut batch = vec![0; shape.rows()];
        fill(&mut batch, &texts);
        let means = alone.answer(batch, shape).await;
        let means =
            means.map_err(|error| GraphError::new(wakegraph::ErrorKind::Driver, error.to_string()))?;
        Ok(answers(&means, texts.len()))
    })
}

/// An executable for each number of texts, and its memory.
struct Sizes([(ExecutableGraph, Slot); TEXTS.len()]);

/// The encoder in graphs: two slots, so that the copies of one run beside the kernels of the other.
async fn in_graphs(device: &Device, encoder: &Arc<Encoder>, tokens: usize, way: Way) -> Result<Texts> {
    let encoder = encoder.clone();
    let pool = ExecutablePool::builder().device(device, 2).build(move |slot| {
        let device = slot.device()?;
        let sizes = TEXTS.map(|texts| copied_in_and_out(&device, &encoder, Shape { texts, tokens }, way));
        let [one, two, four, eight] = sizes;
        // Slots have an executable of their own, and these have several.
        Ok((Graph::new(&device).finalize()?, Sizes([one?, two?, four?, eight?])))
    });
    pool.warm_up().await?;
    Ok(pool.batcher().max_items(MOST_TEXTS).build(run))
}

async fn run(slot: PoolGuard<Sizes>, texts: Vec<Bytes>) -> Result<Vec<Bytes>> {
    let (exec, slot) = &slot.0[batch_of(texts.len()).ilog2() as usize];
    fill(&mut slot.tokens.write().await, &texts);
    exec.submit().await?;
    Ok(answers(&slot.means.read().await, texts.len()))
}

fn batch_of(texts: usize) -> usize {
    texts.next_power_of_two()
}

fn fill(batch: &mut [u32], texts: &[Bytes]) {
    let len = texts[0].len();
    let places = bytemuck::cast_slice_mut(batch).chunks_exact_mut(len);
    places.zip(texts).for_each(|(place, text)| place.copy_from_slice(text));
}

fn answers(means: &[f32], texts: usize) -> Vec<Bytes> {
    let means = means.chunks_exact(HIDDEN).take(texts);
    means.map(|mean| Bytes::copy_from_slice(bytemuck::cast_slice(mean))).collect()
}

/// Serves at a free port of this machine, for as long as the process runs.
async fn serve(batcher: Texts, tokens: usize) -> std::io::Result<SocketAddr> {
    let answer = async move |State(batcher): State<Arc<Texts>>, text: Bytes| {
        if text.len() != 4 * tokens {
            return Err((StatusCode::BAD_REQUEST, format!("a text has {tokens} tokens of four bytes")));
        }
        batcher.call(text).await.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
    };
    let router = Router::new().route("/", post(answer)).with_state(Arc::new(batcher));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Sends requests from all clients, on a runtime of their own. Returns the time of each, and how many were
/// answered a second.
fn clients(
    address: SocketAddr,
    length: usize,
    requests: usize,
    expected: &[f32],
) -> std::result::Result<(Vec<Duration>, f64), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let each = requests.div_ceil(CLIENTS);
    runtime.block_on(async {
        let clients = (0..CLIENTS).map(|_| Client::open(address, length, expected));
        let clients = try_join_all(clients).await?;
        let start = Instant::now();
        let times = try_join_all(clients.into_iter().map(|client| tokio::spawn(client.run(each)))).await?;
        let rate = (each * CLIENTS) as f64 / start.elapsed().as_secs_f64();
        let mut all = Vec::with_capacity(each * CLIENTS);
        for times in times {
            all.extend(times?);
        }
        Ok((all, rate))
    })
}

/// A connection that stays open, and its requests.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    received: Vec<u8>,
}

impl Client {
    /// Connects, and checks a first answer.
    async fn open(address: SocketAddr, length: usize, expected: &[f32]) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let text = tokens(0, Shape { texts: 1, tokens: length });
        let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 4 * length);
        let request = [head.as_bytes(), bytemuck::cast_slice(&text)].concat();
        let mut client = Self { stream, request, received: Vec::new() };
        check(expected, &client.ask().await?);
        Ok(client)
    }

    async fn run(mut self, requests: usize) -> std::io::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(requests);
        for _ in 0..requests {
            let start = Instant::now();
            self.ask().await?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    async fn ask(&mut self) -> std::io::Result<Vec<f32>> {
        self.stream.write_all(&self.request).await?;
        self.received.clear();
        loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Some(end) = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
            if !self.received.starts_with(b"HTTP/1.1 200") {
                return Err(Error::other(String::from_utf8_lossy(&self.received).into_owned()));
            }
            if let Some(body) = self.received.get(end + 4..end + 4 + 4 * HIDDEN) {
                return Ok(body.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect());
            }
        }
    }
}
