//! Progress of a long loop: the device iterates by itself, and a host task says every now and then how far
//! it is.
//!
//! `cargo run --release --example progress [-- host:0]`
//!
//! A loop inside a loop: no host takes part in the inner one, where the device can decide about loops. The
//! outer one ends each time with a host task, which passes the count on to whoever waits for it.
#![expect(unsafe_code, reason = "declares device code")]

use tokio::sync::watch;
use wakegraph::{Buffer, Device, Graph, Range, Result, read};

wakegraph::kernel! {
    /// One step of a random number generator for each element.
    fn advance(x: &mut [u32]) {
        each: |_, x| *x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223),
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(advance, (SLICE(u32, x))) {
                         x[GLOBAL_ID(0)] = x[GLOBAL_ID(0)] * 1664525u + 1013904223u;
                     }" },
    }
    /// How often a loop still goes on.
    fn count_down(left: &mut [u32]) {
        each: |_, left| *left -= 1,
        // SAFETY: as above.
        c: unsafe { "KERNEL(count_down, (SLICE(u32, left))) { left[GLOBAL_ID(0)] -= 1; }" },
    }
}

const LEN: usize = 1 << 12;
/// Steps between two reports.
const STEPS: u32 = 500;
const REPORTS: u32 = 10;

#[tokio::main]
async fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let x = device.buffer::<u32>(LEN)?;
    let (reports, mut progress) = watch::channel(0);

    let outer = device.buffer::<u32>(1)?;
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    graph.fill(&outer, REPORTS);
    graph.while_nonzero(&outer, &some_steps(&device, &x, &outer, reports)?);
    let exec = graph.finalize()?;

    let mut submission = exec.submit();
    loop {
        tokio::select! {
            result = &mut submission => break result?,
            Ok(()) = progress.changed() => {
                println!("{} %", *progress.borrow_and_update() * 100 / (REPORTS * STEPS));
            }
        }
    }
    let expected =
        (0..REPORTS * STEPS).fold(1u32, |x, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    assert_eq!(x.to_vec().await?, [expected; LEN]);
    assert_eq!(*progress.borrow(), REPORTS * STEPS);
    println!("{device:?}: {} steps, with the same result as a plain loop", REPORTS * STEPS);
    Ok(())
}

/// What the outer loop repeats: a loop of `STEPS` steps, and a report.
fn some_steps(
    device: &Device,
    x: &Buffer<u32>,
    outer: &Buffer<u32>,
    reports: watch::Sender<u32>,
) -> Result<Graph> {
    let inner = device.buffer::<u32>(1)?;
    let left = device.host_buffer::<u32>(1)?;

    let mut step = Graph::new(device);
    step.launch(advance(x), Range::linear(LEN));
    step.launch(count_down(&inner), Range::linear(1));

    let mut graph = Graph::new(device);
    graph.fill(&inner, STEPS);
    graph.while_nonzero(&inner, &step);
    graph.launch(count_down(outer), Range::linear(1));
    graph.copy(outer, &left);
    graph.host_task((read(&left),), async move |(left,)| {
        reports.send_replace((REPORTS - left[0]) * STEPS);
    });
    Ok(graph)
}
