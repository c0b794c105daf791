//! Two layers of a neural network, each split over several GPUs, with an all-reduce of NCCL between the GPUs.
//!
//! `cargo run --release -p wakegraph-nccl --example tensor_parallel [-- --devices cuda:0,cuda:1]`, with the
//! driver, NVRTC and NCCL on the library path.
//!
//! `y = relu(x * a) * b`: each GPU has some columns of `a` and the same rows of `b`, so its product is a part
//! of each element of `y`, and the all-reduce adds the parts. The result is compared with that of one GPU.
//! Then the all-reduce alone is timed beside NCCL called by hand, through `cudarc`. For one GPU, NCCL makes
//! it a copy.
#![expect(unsafe_code, reason = "declares device code, and sets a variable of the environment")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use cudarc::nccl::{Comm, ReduceOp, group_end, group_start};
use tokio::runtime::Runtime;
use wakegraph::{BoxError, Buffer, Device, ExecutableGraph, Graph, Range};
use wakegraph_nccl::{Communicator, Reduction};

wakegraph::kernel! {
    /// The product of two matrices, row by row; negative elements become 0 if `relu` is not 0.
    fn multiply(relu: u32, inner: u32, a: &[f32], b: &[f32], product: &mut [f32]) {
        range: |_, inner, a, b, product| {
            let (rows, columns) = (a.len() / inner as usize, b.len() / inner as usize);
            if rows * columns <= product.len() { [columns, rows] } else { [0, 0] }
        },
        // SAFETY: a work-item uses a row of `a`, a column of `b` and an element of the product, which the
        // range bounds.
        c: unsafe { "KERNEL(multiply, (u32 relu, u32 inner, SLICE(const float, a), SLICE(const float, b), SLICE(float, product))) {
                         u64 column = GLOBAL_ID(0), row = GLOBAL_ID(1), columns = LEN(b) / inner;
                         float sum = 0;
                         for (u64 i = 0; i < inner; i++) sum += a[row * inner + i] * b[i * columns + column];
                         product[row * columns + column] = relu != 0 && sum < 0 ? 0 : sum;
                     }" },
    }
}

const ROWS: usize = 64;
const WIDTH: usize = 1024;
const HIDDEN: usize = 4096;

fn main() -> Result<(), BoxError> {
    for name in ["NCCL_NVLS_ENABLE", "NCCL_GRAPH_MIXING_SUPPORT"] {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread has been started.
            unsafe { std::env::set_var(name, "0") };
        }
    }
    Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), BoxError> {
    let devices = devices()?;
    let nccl = Communicator::new(&devices)?;
    let (exec, outputs) = network(&nccl)?;
    exec.submit().await?;
    let one = Communicator::new(&devices[..1])?;
    let (alone, expected) = network(&one)?;
    alone.submit().await?;
    let expected = expected[0].to_vec().await?;
    for output in &outputs {
        let found = output.to_vec().await?;
        let off = found.iter().zip(&expected).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        let largest = expected.iter().copied().fold(0.0, f32::max);
        assert!(off <= 1e-4 * largest, "{} is off by {off} of {largest}", output.device().selector());
    }
    let [split, whole] = [median(&exec, 50).await?, median(&alone, 50).await?];
    println!("{} GPUs give what one gives: {split:.1} us, and one alone {whole:.1} us", devices.len());
    println!("{}", exec.plan_text());
    times(&nccl).await
}

/// The devices that `--devices` names, else the first GPU.
fn devices() -> Result<Vec<Device>, BoxError> {
    let mut arguments = std::env::args().skip(1);
    let names = match (arguments.next().as_deref(), arguments.next()) {
        (Some("--devices"), Some(names)) => names,
        (None, None) => "cuda:0".to_owned(),
        _ => return Err("the arguments are `--devices cuda:0,cuda:1`".into()),
    };
    Ok(names.split(',').map(Device::open).collect::<wakegraph::Result<_>>()?)
}

/// The graph of both layers, and `y` on each device.
fn network(nccl: &Communicator) -> Result<(ExecutableGraph, Vec<Buffer<f32>>), BoxError> {
    let devices = nccl.devices();
    let columns = HIDDEN / devices.len();
    if columns * devices.len() != HIDDEN {
        return Err(format!("{HIDDEN} columns do not divide by {} devices", devices.len()).into());
    }
    let mut graph = Graph::new(&devices[0]);
    let mut outputs = Vec::new();
    for (rank, device) in devices.iter().enumerate() {
        let first = rank * columns;
        let x = matrix(device, 1, 0..ROWS, 0..WIDTH)?;
        let a = matrix(device, 2, 0..WIDTH, first..first + columns)?;
        let b = matrix(device, 3, first..first + columns, 0..WIDTH)?;
        let hidden = device.buffer::<f32>(ROWS * columns)?;
        let y = device.buffer::<f32>(ROWS * WIDTH)?;
        graph
            .launch(multiply(1, WIDTH as u32, &x, &a, &hidden), Range::new([columns, ROWS]))
            .name("first layer");
        graph
            .launch(multiply(0, columns as u32, &hidden, &b, &y), Range::new([WIDTH, ROWS]))
            .name("second layer");
        outputs.push(y);
    }
    nccl.all_reduce(&mut graph, Reduction::Sum, &outputs, &outputs);
    Ok((graph.finalize()?, outputs))
}

/// Some rows and columns of a matrix of made-up numbers between -1 and 1.
fn matrix(
    device: &Device,
    seed: usize,
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
) -> wakegraph::Result<Buffer<f32>> {
    let number = |row: usize, column: usize| {
        let hash = (row * 7919 + column * 104_729 + seed * 15_485_863) % 2003;
        hash as f32 / 1001.0 - 1.0
    };
    let values: Vec<f32> =
        rows.flat_map(|row| columns.clone().map(move |column| number(row, column))).collect();
    device.buffer_from(&values)
}

/// The time of an all-reduce, in a graph and by hand: one after the other, and 100 at a time.
async fn times(nccl: &Communicator) -> Result<(), BoxError> {
    println!("all-reduce of f32 | graph us | by hand us | ratio | graph, 100 in flight | by hand | ratio");
    let by_hand = ByHand::new(nccl.devices())?;
    for len in [1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 24] {
        let [from, to] = [(); 2].map(|()| {
            let buffers = nccl.devices().iter().map(|device| device.buffer::<f32>(len));
            buffers.collect::<wakegraph::Result<Vec<_>>>()
        });
        let (from, to) = (from?, to?);
        let mut graph = Graph::new(&nccl.devices()[0]);
        nccl.all_reduce(&mut graph, Reduction::Sum, &from, &to);
        let exec = graph.finalize()?;
        let (mut ranks, mut rounds) = (by_hand.ranks(len)?, [(); 4].map(|()| Vec::new()));
        // In turns, so that both are timed under the same clocks.
        for _ in 0..200 {
            rounds[0].push(timed(async || exec.submit().await.map_err(BoxError::from)).await?);
            rounds[1].push(timed(async || by_hand.reduce(&mut ranks, 1)).await?);
        }
        for _ in 0..50 {
            rounds[2].push(timed(async || in_flight(&exec, 100).await).await?);
            rounds[3].push(timed(async || by_hand.reduce(&mut ranks, 100)).await?);
        }
        let [graph, hand, graphs, hands] = rounds.map(middle);
        let (graphs, hands) = (graphs / 100.0, hands / 100.0);
        let (ratio, of_many) = (graph / hand, graphs / hands);
        println!(
            "{} KiB | {graph:.1} | {hand:.1} | {ratio:.2} | {graphs:.1} | {hands:.1} | {of_many:.2}",
            len / 256
        );
    }
    Ok(())
}

async fn in_flight(exec: &ExecutableGraph, count: usize) -> Result<(), BoxError> {
    let submissions: Vec<_> = (0..count).map(|_| exec.submit()).collect();
    Ok(futures::future::try_join_all(submissions).await.map(drop)?)
}

/// NCCL as an application calls it.
struct ByHand {
    streams: Vec<Arc<CudaStream>>,
    ranks: Vec<Comm>,
}

type RankMemory = Vec<(CudaSlice<f32>, CudaSlice<f32>)>;

impl ByHand {
    fn new(devices: &[Device]) -> Result<Self, BoxError> {
        let open = |device: &Device| -> Result<_, BoxError> {
            let index = device.selector().trim_start_matches("cuda:").parse()?;
            Ok(CudaContext::new(index)?.new_stream()?)
        };
        let streams: Vec<_> = devices.iter().map(open).collect::<Result<_, _>>()?;
        let ranks = Comm::from_devices(streams.clone()).map_err(|error| format!("{error:?}"))?;
        Ok(Self { streams, ranks })
    }

    fn ranks(&self, len: usize) -> Result<RankMemory, BoxError> {
        let memory =
            self.streams.iter().map(|stream| Ok((stream.alloc_zeros(len)?, stream.alloc_zeros(len)?)));
        memory.collect()
    }

    fn reduce(&self, memory: &mut RankMemory, times: usize) -> Result<(), BoxError> {
        let failed = |error| format!("{error:?}");
        for _ in 0..times {
            group_start().map_err(failed)?;
            for (rank, (from, to)) in self.ranks.iter().zip(&mut *memory) {
                rank.all_reduce(from, to, &ReduceOp::Sum).map_err(failed)?;
            }
            group_end().map_err(failed)?;
        }
        self.streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }
}

async fn median(exec: &ExecutableGraph, runs: usize) -> Result<f64, BoxError> {
    let mut times = Vec::new();
    for _ in 0..runs {
        times.push(timed(async || exec.submit().await.map_err(BoxError::from)).await?);
    }
    Ok(middle(times))
}

async fn timed(run: impl AsyncFnOnce() -> Result<(), BoxError>) -> Result<Duration, BoxError> {
    let start = Instant::now();
    run().await?;
    Ok(start.elapsed())
}

/// The median, in microseconds.
fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}
