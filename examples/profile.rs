//! Profiles: where the time of a submission goes, as data and as a timeline.
//!
//! `cargo run --release --example profile [-- host:0]`
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::{Device, FinalizeOptions, Graph, Range, Result, read};

wakegraph::kernel! {
    /// Advances each element by `steps` steps of a random number generator.
    fn scramble(steps: u32, x: &mut [u32]) {
        each: |_, steps, x| for _ in 0..steps {
            *x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        },
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(scramble, (u32 steps, SLICE(u32, x))) {
                         u32 value = x[GLOBAL_ID(0)];
                         for (u32 i = 0; i < steps; i++) value = value * 1664525u + 1013904223u;
                         x[GLOBAL_ID(0)] = value;
                     }" },
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let n = 1 << 14;
    let (x, y) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    let out = device.host_buffer::<u32>(n)?;

    let mut graph = Graph::new(&device);
    for (buffer, steps, name) in [(&x, 100, "short"), (&y, 400, "long")] {
        graph.fill(buffer, 1);
        graph.launch(scramble(steps, buffer), Range::linear(n)).name(name);
    }
    graph.copy(&y, &out).name("fetch");
    graph.host_task((read(&out),), async |(out,)| println!("first result: {}", out[0])).name("report");

    // Without this option profiling costs nothing; with it, commands are timed one by one.
    let exec = graph.finalize_with(FinalizeOptions::new().profiling(true))?;
    exec.submit().await?; // warm up

    let mut submission = exec.submit();
    (&mut submission).await?;
    let profile = submission.profile().expect("the run has ended and was profiled");
    println!("{}", profile.timeline(60));
    let slowest = profile.nodes.iter().max_by_key(|node| node.duration()).expect("the graph has nodes");
    println!("slowest: {} with {:?} of {:?}", slowest.label, slowest.duration(), profile.total());
    Ok(())
}
