//! An operator over Arrow record batches: filter, projection and sum on any device, as a stream.
//!
//! `cargo run --release -p columns [-- --help]`

mod measure;

use std::pin::pin;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use columns::{Selected, reference, select};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tokio::task::spawn_blocking;
use wakegraph::{BoxError, Device};

use crate::measure::{PollTimes, Timed, resident};

const HELP: &str = "\
Filters, projects and adds up columns of Arrow on a device, and compares with Arrow's own kernels.

Usage: columns [OPTIONS]

  --device NAME    where to run, such as cuda:0, opencl:intel or host [the best there is]
  --batches N      how many batches [100]
  --rows N         rows of a batch, each of 16 bytes [4194304]
  --help           print this
";

/// Half of the rows are kept.
const LIMIT: i64 = reference::percentile(50);
/// Batches that differ. The input repeats them.
const DIFFERENT: u64 = 4;

struct Args {
    device: Option<String>,
    batches: usize,
    rows: usize,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    match parse(std::env::args().skip(1)) {
        Ok(Some(args)) => run(args).await,
        Ok(None) => {
            print!("{HELP}");
            Ok(())
        }
        Err(error) => Err(format!("{error}; see --help").into()),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, BoxError> {
    let mut args = Args { device: None, batches: 100, rows: 1 << 22 };
    while let Some(option) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
        match option.as_str() {
            "--help" | "-h" => return Ok(None),
            "--device" => args.device = Some(value()?),
            "--batches" => args.batches = value()?.parse()?,
            "--rows" => args.rows = value()?.parse()?,
            _ => return Err(format!("'{option}' is not an option").into()),
        }
    }
    Ok(Some(args))
}

async fn run(Args { device, batches, rows }: Args) -> Result<(), BoxError> {
    let device = match device {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let different: Vec<_> = (0..DIFFERENT).map(|seed| reference::batch(seed, rows)).collect();
    let input = || stream::iter(different.iter().cycle().take(batches).cloned()).map(Ok);

    check(select(input(), &device, LIMIT), input()).await?;
    println!("{device:?}: {batches} batches of {rows} rows, equal to those of Arrow's kernels");
    let times = PollTimes::default();
    let timed = Timed { stream: Box::pin(select(input(), &device, LIMIT)), times: times.clone() };
    let (ours, sum) = consume(timed).await?;
    println!("polls: {times}");
    let (arrows, arrows_sum) = consume(with_arrow(input())).await?;
    let rate = |time: Duration| (batches * rows) as f64 / time.as_secs_f64() / 1e6;
    println!(
        "{:.0} million rows a second; Arrow's kernels on spawn_blocking: {:.0}",
        rate(ours),
        rate(arrows)
    );
    println!("the sum of all amounts is {sum}");
    if sum == arrows_sum { Ok(()) } else { Err(format!("the sum is not {arrows_sum}").into()) }
}

/// Compares each batch with what Arrow's kernels make of it.
async fn check(
    ours: impl Stream<Item = Result<Selected, ArrowError>>,
    input: impl Stream<Item = Result<RecordBatch, ArrowError>>,
) -> Result<(), BoxError> {
    let mut pairs = pin!(ours.zip(with_arrow(input)).enumerate());
    while let Some((number, (ours, arrows))) = pairs.next().await {
        let (ours, arrows) = (ours?, arrows?);
        let is_equal = spawn_blocking(move || ours.sum == arrows.sum && ours.batch == arrows.batch).await?;
        if !is_equal {
            return Err(format!("batch {number} differs from that of Arrow's kernels").into());
        }
    }
    Ok(())
}

/// The operator as engines have it today: Arrow's kernels on threads that may block, two batches at a time.
fn with_arrow(
    input: impl Stream<Item = Result<RecordBatch, ArrowError>>,
) -> impl Stream<Item = Result<Selected, ArrowError>> {
    let on_thread = |batch: Result<RecordBatch, ArrowError>| async {
        let batch = batch?;
        let selected = spawn_blocking(move || reference::select(&batch, LIMIT)).await;
        selected.map_err(|error| ArrowError::ExternalError(Box::new(error)))?
    };
    input.map(on_thread).buffered(2)
}

/// Takes all that a stream has. Returns how long that took, and the sum of all amounts.
async fn consume(
    selected: impl Stream<Item = Result<Selected, ArrowError>>,
) -> Result<(Duration, i64), ArrowError> {
    let (begin, mut sum, mut number) = (Instant::now(), 0i64, 0);
    let mut selected = pin!(selected);
    while let Some(Selected { batch: _, sum: of_batch }) = selected.try_next().await? {
        (sum, number) = (sum.wrapping_add(of_batch), number + 1);
        if let (10 | 100 | 1000, Some(resident)) = (number, resident()) {
            println!("memory after {number} batches: {resident} MiB");
        }
    }
    Ok((begin.elapsed(), sum))
}
