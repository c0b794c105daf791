//! Shapes that vary: a cache makes an executable for each shape when it is first asked for, and drops those
//! that were used least recently when they have more memory than the limit.
//!
//! `cargo run --release --example shapes [-- host:0]`
#![expect(unsafe_code, reason = "declares device code")]

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use wakegraph::service::ExecutableCache;
use wakegraph::{BoxError, Device, Error, Graph, HostBuffer, Range, Result};

wakegraph::kernel! {
    /// The sum of each row.
    fn sum_rows(columns: u32, x: &[u32], sums: &mut [u32]) {
        range: |columns, x, sums| match sums.len().checked_mul(columns as usize) {
            Some(elements) if elements == x.len() => [sums.len()],
            _ => [0],
        },
        each: |row, columns, x, sum| {
            let columns = columns as usize;
            *sum = x[row * columns..][..columns].iter().sum();
        },
        // SAFETY: the bound is 0 unless there are as many elements as rows and columns have, and keeps the
        // index below the number of rows.
        c: unsafe { "KERNEL(sum_rows, (u32 columns, SLICE(const u32, x), SLICE(u32, sums))) {
                         u64 row = GLOBAL_ID(0);
                         u32 sum = 0;
                         for (u32 column = 0; column < columns; column++) sum += x[row * columns + column];
                         sums[row] = sum;
                     }" },
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Shape {
    rows: usize,
    columns: usize,
}

/// The host's side of one executable. Its executable has one input, so its requests take turns.
type Buffers = Mutex<(HostBuffer<u32>, HostBuffer<u32>)>;

type Cache = ExecutableCache<Shape, Buffers>;

const MEMORY_LIMIT: u64 = 64 << 20;
const SHAPES: usize = 5;
const REQUESTS: usize = 40;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let name = format!("{device:?}");
    let cache = Cache::new(MEMORY_LIMIT, move |&Shape { rows, columns }| {
        let (input, output) = (device.host_buffer(rows * columns)?, device.host_buffer(rows)?);
        let (x, sums) = (device.buffer(rows * columns)?, device.buffer(rows)?);
        let mut graph = Graph::new(&device);
        graph.copy(&input, &x);
        graph.launch(sum_rows(columns as u32, &x, &sums), Range::linear(rows));
        graph.copy(&sums, &output);
        Ok((graph.finalize()?, Mutex::new((input, output))))
    });

    let mut requests = JoinSet::new();
    for number in 0..REQUESTS {
        let shape = Shape { rows: 8 << (number % SHAPES), columns: 100 + number % SHAPES };
        let cache = cache.clone();
        requests.spawn(async move {
            let x: Vec<u32> = (0..shape.rows * shape.columns).map(|i| (i + number) as u32).collect();
            let sums = row_sums(&cache, shape, &x).await?;
            let expected: Vec<u32> = x.chunks(shape.columns).map(|row| row.iter().sum()).collect();
            assert_eq!(sums, expected, "request {number}, of {shape:?}");
            Ok::<_, Error>(())
        });
    }
    while let Some(outcome) = requests.join_next().await {
        outcome??;
    }
    println!("{name}: {REQUESTS} requests, as a plain loop has them; {} executables were made", cache.len());
    assert_eq!(cache.len(), SHAPES);
    Ok(())
}

async fn row_sums(cache: &Cache, shape: Shape, x: &[u32]) -> Result<Vec<u32>> {
    let exec = cache.get(&shape).await?;
    let buffers = exec.lock().await;
    let (input, output) = &*buffers;
    input.write().await.copy_from_slice(x);
    exec.submit().await?;
    Ok(output.read().await.to_vec())
}
