//! Updates: change the arguments of an executable between submissions, without finalizing again.
//!
//! `cargo run --example update [-- host:0]`
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::{Device, FinalizeOptions, Graph, Range, Result};

wakegraph::kernel! {
    /// y = y + n * x
    fn add(n: u32, x: &[u32], y: &mut [u32]) {
        each: |i, n, x, y| *y += n * x[i],
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { "KERNEL(add, (u32 n, SLICE(const u32, x), SLICE(u32, y))) {
                         y[GLOBAL_ID(0)] += n * x[GLOBAL_ID(0)];
                     }" },
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let [ones, tens] = [1, 10].map(|value| device.buffer_from(&[value; 4]));
    let (ones, tens) = (ones?, tens?);
    let y = device.buffer::<u32>(4)?;

    let mut graph = Graph::new(&device);
    let clear = graph.fill(&y, 0).id();
    let sum = graph.launch(add(1, &ones, &y), Range::linear(4)).id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;

    let first = exec.submit(); // y = 1

    // The update takes its place behind the submission and waits for nothing. A submission in flight
    // keeps its values.
    exec.update().launch(sum, add(5, &tens, &y)).apply().await?;
    first.await?;
    assert_eq!(y.to_vec().await?, [1; 4]);
    exec.submit().await?; // y = 5 * 10
    assert_eq!(y.to_vec().await?, [50; 4]);

    // Several changes apply together or not at all. Without the fill, sums accumulate.
    exec.update().range(sum, Range::linear(2).starting_at([2])).enabled(clear, false).apply().await?;
    exec.submit().await?;
    assert_eq!(y.to_vec().await?, [50, 50, 100, 100]);

    // A range beyond the bound of the kernel is refused, and nothing changes.
    let error = exec.update().range(sum, Range::linear(5)).apply().await.expect_err("y has 4 elements");
    println!("refused: {error}");
    println!("{:?}", y.to_vec().await?);
    Ok(())
}
