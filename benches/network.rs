//! A request of 8 MiB over TCP, through a graph, and its answer over TCP.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `request` | a request whose bytes the socket reads into a host buffer, and writes from one | one with vectors: a read, a copy to a host buffer, the graph, a copy from one, a write | 1.0 |
//! | `request_allocations` | heap allocations of a request, on all threads | the same | 0 |
//! | `request_pinned` | allocations of host memory by the driver, of a request | the same | 0 |
//! | `request_elsewhere` | bytes of a request that a socket reads or writes elsewhere than in the host buffers | the same | 0 |
//!
//! The graph copies the request to the device, adds 1 to each number, and copies the answer back. The client
//! is a thread. The line `THROUGHPUT` says how much `request` is in a second. `--device=cuda:0` chooses the
//! device, which is the CPU otherwise.
#![expect(unsafe_code, reason = "declares device code")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

mod support;

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::ops::Range;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use support::counting::{self, Counting};
use support::{Contender, Report, Row};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use wakegraph::{Device, ExecutableGraph, Graph, HostBuffer};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BYTES: usize = 8 << 20;
/// Windows in which allocations are counted; the median is the figure.
const WINDOWS: usize = 5;
const ELEMENTS: usize = BYTES / size_of::<u32>();

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        host: |_range, x| x.iter_mut().for_each(|x| *x = x.wrapping_add(1)),
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice's length.
        c: unsafe { "KERNEL(bump, (SLICE(u32, x))) { x[GLOBAL_ID(0)] += 1; }" },
    }
}

fn main() -> ExitCode {
    let selector = std::env::args().find_map(|arg| arg.strip_prefix("--device=").map(str::to_owned));
    let device = Device::open(selector.as_deref().unwrap_or("host")).expect("the device");
    println!("{device:?}");
    let (mut report, runtime) = (Report::from_args(), support::multi_thread());
    let (mut ours, mut base) =
        (Direct(Handler::new(&device, &runtime)), Copying(Handler::new(&device, &runtime)));
    let requests = report.reduced(200);
    let (ours_counts, base_counts) =
        (counts(&runtime, &device, &mut ours, requests), counts(&runtime, &device, &mut base, requests));
    let names = ["request_allocations", "request_pinned", "request_elsewhere"];
    let units = ["allocations", "allocations", "bytes"];
    for (index, name) in names.into_iter().enumerate() {
        let (ours, base) = (ours_counts.0[index], base_counts.0[index]);
        if report.wants(name) {
            report.figure(name, ours, base, units[index], ours > 0.0);
        }
    }
    if report.wants("request") {
        let rate = |counts: &Counts| BYTES as f64 / (1 << 20) as f64 / counts.1;
        let (ours, base) = (rate(&ours_counts), rate(&base_counts));
        println!("THROUGHPUT ours={ours:.0} base={base:.0} unit=MiB/s ratio={:.2}", ours / base);
    }
    report.race(Row::new("request").rounds(20, 10).limit(1.0), &runtime, ours, base);
    report.finish()
}

/// Of one request, by the names in `main`; and the seconds that one takes.
struct Counts([f64; 3], f64);

fn counts<C: AsMut<Handler> + Contender>(
    runtime: &Runtime,
    device: &Device,
    contender: &mut C,
    requests: usize,
) -> Counts {
    let pinned = || device.host_pool_stats().allocations;
    runtime.block_on(async {
        // What grows once.
        for _ in 0..30 {
            contender.once().await;
        }
        let (pinned_before, start) = (pinned(), Instant::now());
        contender.as_mut().socket.elsewhere.store(0, Ordering::Relaxed);
        // A thread that gets no core for long may allocate for the first time at any moment.
        let mut windows = Vec::new();
        for _ in 0..WINDOWS {
            counting::start();
            for _ in 0..requests / WINDOWS {
                contender.once().await;
            }
            windows.push(counting::stop().allocations as f64 / (requests / WINDOWS) as f64);
        }
        let count = (requests / WINDOWS * WINDOWS) as f64;
        let elsewhere = contender.as_mut().socket.elsewhere.load(Ordering::Relaxed);
        let each = |sum: u64| sum as f64 / count;
        let counts = [support::median(&windows), each(pinned() - pinned_before), each(elsewhere)];
        Counts(counts, start.elapsed().as_secs_f64() / count)
    })
}

/// What serves one client.
struct Handler {
    socket: Watched,
    input: HostBuffer<u32>,
    output: HostBuffer<u32>,
    exec: ExecutableGraph,
}

impl Handler {
    fn new(device: &Device, runtime: &Runtime) -> Self {
        let (input, output) = (host_buffer(device), host_buffer(device));
        let x = device.buffer::<u32>(ELEMENTS).expect("memory");
        let mut graph = Graph::new(device);
        graph.copy(&input, &x);
        graph.launch(bump(&x), wakegraph::Range::linear(ELEMENTS));
        graph.copy(&x, &output);
        let exec = graph.finalize().expect("a graph");
        let allowed = [&input, &output].map(|buffer| {
            let start = buffer.try_read().expect("nothing uses it").as_ptr().addr();
            start..start + BYTES
        });
        let socket = runtime.block_on(connect()).expect("a connection");
        Self { socket: Watched { socket, allowed, elsewhere: Arc::default() }, input, output, exec }
    }
}

fn host_buffer(device: &Device) -> HostBuffer<u32> {
    device.host_buffer(ELEMENTS).expect("memory")
}

/// A connection to a client, which sends the next request when it has read all of an answer.
async fn connect() -> io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        let mut socket = std::net::TcpStream::connect(address)?;
        let (request, mut answer) = (vec![7; BYTES], vec![0; BYTES]);
        loop {
            socket.write_all(&request)?;
            socket.read_exact(&mut answer)?;
            assert!(answer[..8] == [8, 7, 7, 7, 8, 7, 7, 7], "a wrong answer");
        }
    });
    let (socket, _) = listener.accept()?;
    socket.set_nonblocking(true)?;
    TcpStream::from_std(socket)
}

/// Reads into a host buffer and writes from one.
struct Direct(Handler);

impl Contender for Direct {
    async fn once(&mut self) {
        let Handler { socket, input, output, exec } = &mut self.0;
        input.write().await.read_from(socket).await.expect("a request");
        exec.submit().await.expect("a run");
        output.read().await.write_to(socket).await.expect("a client");
    }
}

/// Has vectors of the request and of the answer, as handlers of most frameworks have.
struct Copying(Handler);

impl Contender for Copying {
    async fn once(&mut self) {
        let Handler { socket, input, output, exec } = &mut self.0;
        let mut request = vec![0; BYTES];
        socket.read_exact(&mut request).await.expect("a request");
        input.write().await.copy_from_slice(bytemuck::cast_slice(&request));
        exec.submit().await.expect("a run");
        let answer = output.read().await.to_vec();
        socket.write_all(bytemuck::cast_slice(&answer)).await.expect("a client");
    }
}

impl AsMut<Handler> for Direct {
    fn as_mut(&mut self) -> &mut Handler {
        &mut self.0
    }
}

impl AsMut<Handler> for Copying {
    fn as_mut(&mut self) -> &mut Handler {
        &mut self.0
    }
}

/// A socket that counts the bytes which it reads or writes at addresses that are not allowed.
struct Watched {
    socket: TcpStream,
    allowed: [Range<usize>; 2],
    elsewhere: Arc<AtomicU64>,
}

impl Watched {
    fn count(&self, start: *const u8, len: usize) {
        let used = start.addr()..start.addr() + len;
        if !self.allowed.iter().any(|allowed| allowed.start <= used.start && used.end <= allowed.end) {
            self.elsewhere.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = bytes.filled().len();
        let outcome = Pin::new(&mut self.socket).poll_read(context, bytes);
        let read = &bytes.filled()[before..];
        self.count(read.as_ptr(), read.len());
        outcome
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = outcome {
            self.count(bytes.as_ptr(), written);
        }
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
