//! A service over the pool and the batcher beside what services write by hand, all behind axum:
//! 256 clients with connections of their own send a request after the other.
//!
//! `cargo bench -p wakegraph-benches --bench service -- [--quick] [--check] [--device NAME] [--only-spin]`
//!
//! | contender | the handler |
//! |---|---|
//! | `pool` | acquires a slot of an `ExecutablePool` and submits |
//! | `batcher` | calls a `Batcher` |
//! | `semaphore` | by hand: a semaphore, a list of free executables |
//! | `channel` | by hand: a thread, a bounded channel, a oneshot per request, batches of what waits |
//!
//! All contenders take turns in the same process. Throughput and latency are over a contender's
//! rounds. A device that is not the CPU adds rows: `overlap.rs`, `memory_limit.rs`, `spin.rs`, which
//! `--only-spin` runs alone.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

#[allow(unreachable_pub, reason = "other benchmarks use it from elsewhere")]
#[path = "../support/cpu.rs"]
mod cpu;
mod memory_limit;
mod overlap;
mod spin;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use wakegraph::service::{Batcher, ExecutablePool};
use wakegraph::{Device, ErrorKind, ExecutableGraph, Graph, HostBuffer, Range, Result};

#[expect(unsafe_code, reason = "declares device code")]
mod kernels {
    use super::mixed;

    wakegraph::kernel! {
        /// Mixes the bits of each word, for so many rounds.
        pub(crate) fn mix(rounds: u32, x: &[u32], y: &mut [u32]) {
            item: |i, rounds, x, y| y[i] = mixed(x[i], rounds),
            // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
            // shortest slice.
            c: unsafe {
                "KERNEL(mix, (u32 rounds, SLICE(const u32, x), SLICE(u32, y))) {
                    u32 word = x[GLOBAL_ID(0)];
                    for (u32 round = 0; round < rounds; round++) {
                        word = (word ^ (word >> 15)) * 0x2c1b3c6du;
                        word = (word << 7) | (word >> 25);
                    }
                    y[GLOBAL_ID(0)] = word;
                }"
            },
        }
    }
}
use kernels::mix;

fn mixed(word: u32, rounds: u32) -> u32 {
    (0..rounds).fold(word, |word, _| (word ^ (word >> 15)).wrapping_mul(0x2c1b_3c6d).rotate_left(7))
}

/// Work that takes less time than its request.
const LIGHT: u32 = 16;
/// Work that takes some milliseconds.
const HEAVY: u32 = 10_000;
const CLIENTS: usize = 256;
/// Words in a request.
const WORDS: usize = 256;
/// Requests in a batch.
const ITEMS: usize = 32;

/// How long a client waits after it has been refused.
const PAUSE: Duration = Duration::from_millis(50);

/// What a slot has: room for some requests.
struct Slot {
    input: HostBuffer<u32>,
    output: HostBuffer<u32>,
}

fn slot(device: &Device, items: usize, rounds: u32) -> Result<(ExecutableGraph, Slot)> {
    let len = items * WORDS;
    let slot = Slot { input: device.host_buffer(len)?, output: device.host_buffer(len)? };
    let (x, y) = (device.buffer::<u32>(len)?, device.buffer::<u32>(len)?);
    let mut graph = Graph::new(device);
    graph.copy(&slot.input, &x);
    graph.launch(mix(rounds, &x, &y), Range::linear(len));
    graph.copy(&y, &slot.output);
    Ok((graph.finalize()?, slot))
}

fn pool(device: &Device, slots: usize, items: usize, rounds: u32, queue: usize) -> ExecutablePool<Slot> {
    let device = device.clone();
    ExecutablePool::builder().slots(slots).queue(queue).build(move |_| slot(&device, items, rounds))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn bytes(words: &[u32]) -> Bytes {
    Bytes::copy_from_slice(bytemuck::cast_slice(words))
}

fn write(to: &mut [u32], item: &[u8]) {
    to.iter_mut().zip(words(item)).for_each(|(to, word)| *to = word);
}

type Answer = std::result::Result<Bytes, StatusCode>;

fn status(error: wakegraph::Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn pool_handler(State(pool): State<ExecutablePool<Slot>>, body: Bytes) -> Answer {
    run_in(&pool, &body).await.map_err(status)
}

async fn run_in(pool: &ExecutablePool<Slot>, body: &[u8]) -> Result<Bytes> {
    let slot = pool.acquire().await?;
    write(&mut slot.input.write().await, body);
    slot.submit().await?;
    Ok(bytes(&slot.output.read().await[..WORDS]))
}

fn batcher(pool: &ExecutablePool<Slot>, queue: usize) -> Batcher<Bytes, Bytes> {
    let batcher = pool.batcher().max_items(ITEMS).queue(queue);
    batcher.build(async |slot, items: Vec<Bytes>| {
        let mut input = slot.input.write().await;
        input.chunks_mut(WORDS).zip(&items).for_each(|(to, item)| write(to, item));
        drop(input);
        slot.submit().await?;
        Ok(slot.output.read().await.chunks(WORDS).take(items.len()).map(bytes).collect())
    })
}

async fn batcher_handler(State(batcher): State<Batcher<Bytes, Bytes>>, body: Bytes) -> Answer {
    batcher.call(body).await.map_err(status)
}

/// By hand: as many permits as executables, which lie in a list.
struct BySemaphore {
    permits: Semaphore,
    free: Mutex<Vec<(ExecutableGraph, Slot)>>,
}

impl BySemaphore {
    fn new(device: &Device, slots: usize) -> Result<Arc<Self>> {
        let free = (0..slots).map(|_| slot(device, 1, LIGHT)).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(Self { permits: Semaphore::new(slots), free: Mutex::new(free) }))
    }

    async fn run(&self, body: &[u8]) -> Result<Bytes> {
        let _permit = self.permits.acquire().await.unwrap();
        let (exec, slot) = self.free.lock().pop().unwrap();
        write(&mut slot.input.write().await, body);
        let result = exec.submit().await;
        let output = bytes(&slot.output.read().await[..WORDS]);
        self.free.lock().push((exec, slot));
        result.map(|()| output)
    }
}

async fn semaphore_handler(State(state): State<Arc<BySemaphore>>, body: Bytes) -> Answer {
    state.run(&body).await.map_err(status)
}

/// By hand: a thread owns the executable. It takes what waits in its channel, up to a batch, blocks
/// on the run, and answers through a oneshot per request.
#[derive(Clone)]
struct ByThread(mpsc::Sender<(Bytes, oneshot::Sender<Result<Bytes>>)>);

impl ByThread {
    fn new(device: &Device, items: usize) -> Result<Self> {
        let (sender, mut requests) = mpsc::channel::<(Bytes, oneshot::Sender<Result<Bytes>>)>(1024);
        let (exec, slot) = slot(device, items, LIGHT)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let mut batch = Vec::new();
                while requests.recv_many(&mut batch, items).await > 0 {
                    let mut input = slot.input.write().await;
                    input.chunks_mut(WORDS).zip(&batch).for_each(|(to, (item, _))| write(to, item));
                    drop(input);
                    let result = exec.submit().await;
                    let output = slot.output.read().await;
                    for ((_, answer), output) in batch.drain(..).zip(output.chunks(WORDS)) {
                        let _ = answer.send(result.clone().map(|()| bytes(output)));
                    }
                }
            });
        });
        Ok(Self(sender))
    }
}

async fn thread_handler(State(ByThread(requests)): State<ByThread>, body: Bytes) -> Answer {
    let (answer, answered) = oneshot::channel();
    requests.try_send((body, answer)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let answer = answered.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    answer.map_err(status)
}

/// A service that listens.
struct Contender {
    name: &'static str,
    address: SocketAddr,
    /// Requests with the right answers, of which each client sends one.
    exchanges: Arc<[(Bytes, Bytes)]>,
    latencies: Vec<Duration>,
    time: Duration,
    /// Seconds of CPU time of the whole process, its clients included.
    cpu: f64,
    refused: usize,
    failed: usize,
}

impl Contender {
    async fn new(name: &'static str, rounds: u32, router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let exchanges = (1..9).map(|number| exchange(number, rounds)).collect();
        Self {
            name,
            address,
            exchanges,
            latencies: Vec::new(),
            time: Duration::ZERO,
            cpu: 0.0,
            refused: 0,
            failed: 0,
        }
    }

    /// `clients` clients send requests for some time, one after the other each.
    async fn round(&mut self, clients: usize, time: Duration, counts: bool) {
        let stop = Arc::new(AtomicBool::new(false));
        let (start, cpu) = (Instant::now(), cpu::seconds());
        let exchanges = self.exchanges.iter().cycle().take(clients);
        let clients = exchanges.map(|exchange| client_loop(self.address, exchange.clone(), stop.clone()));
        let tasks: Vec<_> = clients.map(tokio::spawn).collect();
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            let outcome = task.await.unwrap();
            if counts {
                self.latencies.extend(outcome.latencies);
                self.refused += outcome.refused;
                self.failed += outcome.failed;
            }
        }
        if counts {
            self.time += start.elapsed();
            self.cpu += cpu::seconds() - cpu;
        }
    }

    fn throughput(&self) -> f64 {
        self.latencies.len() as f64 / self.time.as_secs_f64()
    }

    fn percentile(&mut self, share: f64) -> f64 {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.latencies.get(at).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
    }

    fn print(&mut self, row: &str) {
        let (p50, p99) = (self.percentile(0.5), self.percentile(0.99));
        let (throughput, refused, failed) = (self.throughput(), self.refused, self.failed);
        let cpu = self.cpu * 1e6 / self.latencies.len() as f64;
        println!(
            "BENCH {row}_{} requests_per_s={throughput:.0} p50_us={p50:.0} p99_us={p99:.0} \
             cpu_us={cpu:.1} refused={refused} failed={failed}",
            self.name
        );
    }
}

#[derive(Default)]
struct Outcome {
    latencies: Vec<Duration>,
    refused: usize,
    failed: usize,
}

/// A request and the right answer.
fn exchange(number: u32, rounds: u32) -> (Bytes, Bytes) {
    let input: Vec<u32> = (0..WORDS as u32).map(|index| index.wrapping_mul(number)).collect();
    let output: Vec<u32> = input.iter().map(|&word| mixed(word, rounds)).collect();
    (bytes(&input), bytes(&output))
}

async fn client_loop(
    address: SocketAddr,
    (body, expected): (Bytes, Bytes),
    stop: Arc<AtomicBool>,
) -> Outcome {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut outcome = Outcome::default();
    while !stop.load(Ordering::Relaxed) {
        let request = Request::post("/").header("host", "localhost").body(Full::new(body.clone())).unwrap();
        let start = Instant::now();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        match status {
            StatusCode::OK if answer == expected => outcome.latencies.push(start.elapsed()),
            StatusCode::SERVICE_UNAVAILABLE => {
                outcome.refused += 1;
                tokio::time::sleep(PAUSE).await;
            }
            _ => outcome.failed += 1,
        }
    }
    outcome
}

/// Lets the contenders take turns; who begins takes turns as well.
async fn race(contenders: &mut [Contender], clients: usize, rounds: usize, time: Duration) {
    for round in 0..=rounds {
        contenders.rotate_left(1);
        for contender in contenders.iter_mut() {
            // The first round makes slots and fills caches.
            contender.round(clients, time, round > 0).await;
        }
    }
    contenders.sort_by_key(|contender| contender.name);
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

struct Check {
    exceeded: bool,
}

impl Check {
    /// Prints a ratio that has to be at least, or at most, `limit`.
    fn ratio(&mut self, name: &str, ratio: f64, at_least: bool, limit: f64) {
        let holds = if at_least { ratio >= limit } else { ratio <= limit };
        self.exceeded |= !holds;
        let (sign, verdict) = (if at_least { ">=" } else { "<=" }, if holds { "" } else { " EXCEEDED" });
        println!("BENCH {name} ratio={ratio:.3} limit={sign}{limit}{verdict}");
    }
}

fn of<'a>(contenders: &'a mut [Contender], name: &str) -> &'a mut Contender {
    contenders.iter_mut().find(|contender| contender.name == name).unwrap()
}

fn serve_pool(pool: ExecutablePool<Slot>) -> Router {
    Router::new().route("/", post(pool_handler)).with_state(pool)
}

fn serve_batcher(pool: &ExecutablePool<Slot>) -> Router {
    Router::new().route("/", post(batcher_handler)).with_state(batcher(pool, 1024))
}

fn serve_semaphore(device: &Device, slots: usize) -> Result<Router> {
    let state = BySemaphore::new(device, slots)?;
    Ok(Router::new().route("/", post(semaphore_handler)).with_state(state))
}

fn serve_thread(device: &Device) -> Result<Router> {
    Ok(Router::new().route("/", post(thread_handler)).with_state(ByThread::new(device, ITEMS)?))
}

fn main() -> ExitCode {
    let options: Vec<_> = std::env::args().skip(1).collect();
    let has = |option: &str| options.iter().any(|given| given == option);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut check = Check { exceeded: false };
    // Of each contender 30 s at 256 clients.
    let (rounds, time) = if has("--quick") { (6, 500) } else { (30, 1000) };
    let name =
        options.iter().skip_while(|option| *option != "--device").nth(1).map_or("host", String::as_str);
    let device = match Device::open(name) {
        Ok(device) => device,
        Err(error) => {
            println!("nothing to measure: {error}");
            return ExitCode::FAILURE;
        }
    };
    let time = Duration::from_millis(time);
    let measured = match has("--only-spin") {
        true => runtime.block_on(spin::rows(&mut check, &device, time * rounds as u32)),
        false => runtime.block_on(measure(&mut check, &device, rounds, time)),
    };
    measured.unwrap();
    if has("--check") && check.exceeded { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn measure(check: &mut Check, device: &Device, rounds: usize, time: Duration) -> Result<()> {
    println!("{device:?}");

    // One request per run: the pool beside the semaphore, two slots each.
    let mut single = [
        Contender::new("pool", LIGHT, serve_pool(pool(device, 2, 1, LIGHT, 1024))).await,
        Contender::new("semaphore", LIGHT, serve_semaphore(device, 2)?).await,
    ];
    race(&mut single, CLIENTS, rounds, time).await;
    single.iter_mut().for_each(|contender| contender.print("clients_256"));
    compare(check, "pool_by_semaphore", &mut single, "pool", "semaphore", 1.0);

    // Many requests per run: the batcher beside the thread, one executable each.
    let batches = pool(device, 1, ITEMS, LIGHT, 1024);
    let mut batched = [
        Contender::new("batcher", LIGHT, serve_batcher(&batches)).await,
        Contender::new("channel", LIGHT, serve_thread(device)?).await,
    ];
    race(&mut batched, CLIENTS, 1, time).await;
    let before = resident_kib();
    batched.iter_mut().for_each(|contender| contender.latencies = Vec::new());
    batched.iter_mut().for_each(|contender| (contender.time, contender.cpu) = Default::default());
    race(&mut batched, CLIENTS, rounds, time).await;
    let latencies: usize = batched.iter().map(|one| one.latencies.capacity() * size_of::<Duration>()).sum();
    batched.iter_mut().for_each(|contender| contender.print("clients_256"));
    compare(check, "batcher_by_channel", &mut batched, "batcher", "channel", 1.0);
    let after = resident_kib().saturating_sub(latencies as u64 / 1024);
    let one_by_one = of(&mut single, "pool").throughput();
    check.ratio(
        "batcher_by_pool_throughput",
        of(&mut batched, "batcher").throughput() / one_by_one,
        true,
        1.0,
    );
    println!("BENCH memory_growth_kib before={before} after_without_samples={after}");

    // One client: the batcher beside the same executable without batches.
    let mut lone = [
        Contender::new("batcher", LIGHT, serve_batcher(&batches)).await,
        Contender::new("unbatched", LIGHT, serve_pool(batches.clone())).await,
        Contender::new("channel", LIGHT, serve_thread(device)?).await,
    ];
    race(&mut lone, 1, rounds * 2, time / 4).await;
    lone.iter_mut().for_each(|contender| contender.print("clients_1"));
    let ratio = of(&mut lone, "batcher").percentile(0.5) / of(&mut lone, "unbatched").percentile(0.5);
    check.ratio("batcher_lone_latency", ratio, false, 1.05);

    overload(check, device, rounds, time).await?;
    timers(check, device, rounds * 50).await?;
    if !device.selector().starts_with("host") {
        overlap::rows(check, device).await?;
        memory_limit::rows(check, device, time * 4).await?;
        return spin::rows(check, device, time * rounds as u32).await;
    }
    match Device::open("opencl:pocl") {
        Ok(device) => timers(check, &device, rounds * 50).await,
        Err(error) => {
            println!("no PoCL: {error}");
            Ok(())
        }
    }
}

/// How late tokio's timers are while a device has more to do than it can, beside an idle one. Both are up
/// to 2 ms late, as tokio rounds up to whole milliseconds twice, so what the device adds has the limit.
async fn timers(check: &mut Check, device: &Device, samples: usize) -> Result<()> {
    let idle = lateness(samples).await;
    let (pool, is_over) = (pool(device, 4, ITEMS, HEAVY, 1024), Arc::new(AtomicBool::new(false)));
    pool.warm_up().await?;
    let load = (0..8).map(|_| {
        let (pool, is_over) = (pool.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut runs = 0;
            while !is_over.load(Ordering::Relaxed) {
                pool.acquire().await.unwrap().submit().await.unwrap();
                runs += 1;
            }
            runs
        })
    });
    let load: Vec<_> = load.collect();
    let busy = lateness(samples).await;
    is_over.store(true, Ordering::Relaxed);
    let mut runs = 0;
    for task in load {
        runs += task.await.unwrap();
    }
    let share = |sorted: &[Duration], share: f64| {
        let at = ((sorted.len() - 1) as f64 * share).round() as usize;
        sorted[at].as_secs_f64() * 1e6
    };
    let added = share(&busy, 0.99) - share(&idle, 0.99);
    let verdict = if added < 1000.0 { "" } else { " EXCEEDED" };
    check.exceeded |= added >= 1000.0;
    println!(
        "BENCH timers_{} idle_p50_us={:.0} idle_p99_us={:.0} busy_p50_us={:.0} busy_p99_us={:.0} \
         added_p99_us={added:.0} runs={runs}{verdict}",
        device.selector(),
        share(&idle, 0.5),
        share(&idle, 0.99),
        share(&busy, 0.5),
        share(&busy, 0.99)
    );
    Ok(())
}

/// How much later than asked timers went off, sorted.
async fn lateness(samples: usize) -> Vec<Duration> {
    let mut late = Vec::with_capacity(samples);
    for sample in 0..samples as u64 {
        let at = tokio::time::Instant::now() + Duration::from_micros(1000 + sample * 7919 % 9000);
        tokio::time::sleep_until(at).await;
        late.push(at.elapsed());
    }
    late.sort_unstable();
    late
}

/// Ten times as many clients as there is room for, with work that takes longer than its request.
async fn overload(check: &mut Check, device: &Device, rounds: usize, time: Duration) -> Result<()> {
    let room = CLIENTS / 10;
    let service = || serve_pool(pool(device, 2, 1, HEAVY, room - 2));
    let mut full = Contender::new("full", HEAVY, service()).await;
    let mut over = Contender::new("over", HEAVY, service()).await;
    for round in 0..=rounds {
        full.round(room, time, round > 0).await;
        over.round(CLIENTS, time, round > 0).await;
    }
    full.print("overload");
    over.print("overload");
    if over.failed > 0 || over.refused == 0 {
        check.exceeded = true;
    }
    check.ratio("overload_p99_of_admitted", over.percentile(0.99) / full.percentile(0.99), false, 2.0);
    Ok(())
}

fn compare(check: &mut Check, row: &str, all: &mut [Contender], ours: &str, base: &str, limit: f64) {
    let throughput = of(all, ours).throughput() / of(all, base).throughput();
    let p99 = of(all, ours).percentile(0.99) / of(all, base).percentile(0.99);
    check.ratio(&format!("{row}_throughput"), throughput, true, limit);
    check.ratio(&format!("{row}_p99"), p99, false, limit);
    if all.iter().any(|contender| contender.failed + contender.refused > 0) {
        println!("BENCH {row}_errors EXCEEDED");
        check.exceeded = true;
    }
}
