//! The operator beside Arrow's kernels, and what it does when something is in the way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::iter::repeat_with;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;

use arrow_array::{Array as _, Float64Array, Int64Array, RecordBatch};
use arrow_schema::ArrowError;
use columns::reference::{self, batch, of_columns, percentile};
use columns::{Selected, select};
use futures::{Stream, StreamExt as _, TryStreamExt as _, poll, stream};
use tokio::task::yield_now;
use wakegraph::Device;
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};

/// The CPU, and the devices of OpenCL that there are.
fn devices() -> impl Iterator<Item = Device> {
    let opencl = (0..).map_while(|number| Device::open(&format!("opencl:{number}")).ok());
    [Device::open("host").unwrap()].into_iter().chain(opencl)
}

/// A device that computes nothing, and whose work ends when the control says so.
fn held() -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    (Device::from_hal(device), control)
}

fn input(batches: &[RecordBatch]) -> impl Stream<Item = Result<RecordBatch, ArrowError>> + '_ {
    stream::iter(batches).map(|batch| Ok(batch.clone()))
}

/// Batches of all sizes, and parts that begin anywhere, which share memory also while they are in flight.
fn batches() -> Vec<RecordBatch> {
    let mut batches: Vec<_> =
        [0, 1, 2, 255, 256, 257, 1001, 65_536, 200_003].map(|rows| batch(rows as u64, rows)).into();
    let long = batches.last().unwrap().clone();
    batches.extend(
        [(0, 0), (1, 1), (3, 256), (3, 5), (100, 65_537), (199_999, 4)]
            .map(|(from, rows)| long.slice(from, rows)),
    );
    batches.extend([long.clone(), long]);
    let extremes = Int64Array::from(vec![i64::MIN, i64::MAX, -1, 0, 1]);
    batches.push(of_columns(extremes.clone(), extremes));
    batches
}

#[tokio::test]
async fn results_are_those_of_arrows_kernels() {
    let batches = batches();
    for device in devices() {
        for limit in [i64::MIN, percentile(0), percentile(3), percentile(50), percentile(100)] {
            let selected: Vec<_> = select(input(&batches), &device, limit).try_collect().await.unwrap();
            assert_eq!(selected.len(), batches.len());
            for (number, (ours, batch)) in selected.iter().zip(&batches).enumerate() {
                let arrows = reference::select(batch, limit).unwrap();
                let of = || format!("batch {number} of {} rows, limit {limit}, {device:?}", batch.num_rows());
                assert_eq!(ours.sum, arrows.sum, "{}", of());
                assert!(ours.batch == arrows.batch, "{}", of());
            }
        }
    }
}

#[tokio::test]
async fn results_outlive_the_stream_and_its_input() {
    let [device, other] = ["host", "host:1"].map(|selector| Device::open(selector).unwrap());
    let batches = [batch(1, 1000), batch(2, 1000)];
    let ours: Vec<Selected> = select(input(&batches), &device, 0).try_collect().await.unwrap();
    let again = select(stream::iter(ours).map(|ours| with_discount(&ours.batch)), &other, 0);
    drop(device);
    let again: Vec<_> = again.try_collect().await.unwrap();
    for (again, batch) in again.iter().zip(&batches) {
        let arrows = with_discount(&reference::select(batch, 0).unwrap().batch).unwrap();
        assert_eq!(again.batch, reference::select(&arrows, 0).unwrap().batch);
    }
}

/// The operator's result as its input: amounts become discounts.
fn with_discount(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter([("price", batch.column(0).clone()), ("discount", batch.column(1).clone())])
}

#[tokio::test]
async fn errors_come_in_the_place_of_their_batch() {
    let torn = || ArrowError::IpcError("torn".into());
    let nulls = of_columns(Int64Array::from(vec![Some(1), None]), Int64Array::from(vec![1, 2]));
    let floats: [(_, arrow_array::ArrayRef); 1] = [("price", Arc::new(Float64Array::from(vec![1.0])))];
    let floats = RecordBatch::try_from_iter(floats).unwrap();
    let no_discount = batch(0, 10).project(&[0]).unwrap();
    let input = [Ok(batch(0, 10)), Err(torn()), Ok(nulls), Ok(floats), Ok(no_discount), Ok(batch(1, 10))];
    let device = Device::open("host").unwrap();
    let outcomes =
        select(stream::iter(input), &device, 0).map(|selected| selected.map(|selected| selected.sum));
    let sum = |seed| Ok(reference::select(&batch(seed, 10), 0).unwrap().sum);
    let expected = [
        sum(0),
        Err("Ipc error: torn"),
        Err("Compute error: column 'price' has 1 nulls, which the operator does not take"),
        Err("Schema error: column 'price' is of Float64, not of Int64"),
        Err("Schema error: the batch has no column 'discount'"),
        sum(1),
    ];
    let outcomes: Vec<_> = outcomes.map_err(|error| error.to_string()).collect().await;
    assert_eq!(outcomes, expected.map(|expected| expected.map_err(str::to_owned)));
}

#[tokio::test]
async fn an_error_of_the_device_is_that_of_its_batch() {
    let (device, control) = FakeDevice::open(FakeOptions::new());
    let device = Device::from_hal(device);
    control.fail_next(wakegraph::Error::new(wakegraph::ErrorKind::Driver, "overheated"));
    let batches = [0, 1, 2].map(|seed| batch(seed, 10));
    let outcomes: Vec<_> = select(input(&batches), &device, 0).collect().await;
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    let [error] = &errors[..] else { panic!("the other batches have their results: {errors:?}") };
    assert!(error.to_string().contains("overheated"), "{error}");
}

#[tokio::test]
async fn at_most_two_batches_are_in_flight() {
    let (device, control) = held();
    let taken = Arc::new(AtomicUsize::new(0));
    let (batches, count) = (repeat_with(|| batch(0, 1000)), taken.clone());
    let input = stream::iter(batches.take(5)).map(Ok).inspect(move |_| _ = count.fetch_add(1, SeqCst));
    let mut selected = Box::pin(select(input, &device, 0));
    while device.in_flight().len() < 2 {
        assert!(poll!(selected.next()).is_pending(), "the device holds them");
        yield_now().await;
    }
    for _ in 0..10 {
        assert!(poll!(selected.next()).is_pending());
        assert_eq!(taken.load(SeqCst), 2);
        yield_now().await;
    }
    let mut given = 0;
    while given < 5 {
        control.complete_all();
        if let Poll::Ready(result) = poll!(selected.next()) {
            result.unwrap().unwrap();
            given += 1;
        }
        assert!(taken.load(SeqCst) <= given + 2);
        yield_now().await;
    }
    assert!(selected.next().await.is_none());
}

#[tokio::test]
async fn a_dropped_stream_gives_its_memory_back() {
    let (device, control) = held();
    let batches = [1, 2, 3].map(|seed| batch(seed, 1000));
    let mut selected = Box::pin(select(input(&batches), &device, 0));
    while device.in_flight().len() < 2 {
        assert!(poll!(selected.next()).is_pending());
        yield_now().await;
    }
    drop(selected);
    assert!(users(&batches[0]) > 1, "the device still reads it");
    control.complete_all();
    while !device.in_flight().is_empty() || batches.iter().any(|batch| users(batch) > 1) {
        yield_now().await;
    }
}

/// Number of references to the memory of a batch's first column.
fn users(batch: &RecordBatch) -> usize {
    batch.column(0).to_data().buffers()[0].strong_count() - 1
}
