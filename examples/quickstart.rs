//! Two kernels and an async host task as one graph, submitted inside tokio.
//!
//! `cargo run --release --example quickstart [-- --device host:0]`
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::{Device, Graph, Range, read};

wakegraph::kernel! {
    /// y = a * x + y
    pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
        each: |i, a, x, y| *y += a * x[i],
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { include_str!("quickstart.c") },
    }
    /// x = x * x
    pub fn square(x: &mut [f32]) {
        each: |_, x| *x *= *x,
        // SAFETY: as above.
        c: unsafe { include_str!("quickstart.c") },
    }
}

#[tokio::main]
async fn main() -> wakegraph::Result<()> {
    let device = match std::env::args().skip_while(|word| word != "--device").nth(1) {
        Some(selector) => Device::open(&selector)?,
        None => Device::best()?,
    };
    let n = 1 << 20;
    let x = device.buffer_from(&vec![3.0f32; n])?;
    let y = device.buffer::<f32>(n)?;
    let out = device.host_buffer::<f32>(n)?;

    let mut graph = Graph::new(&device);
    graph.fill(&y, 1.0);
    graph.launch(saxpy(2.0, &x, &y), Range::linear(n)); // edges follow from & and &mut
    graph.launch(square(&y), Range::linear(n));
    graph.copy(&y, &out);
    graph.host_task((read(&out),), async |(out,)| {
        tokio::task::yield_now().await; // any await will do: a socket, a database, a timer
        println!("{} results, the first is {}", out.len(), out[0]);
    });

    let exec = graph.finalize()?;
    println!("{device:?}\n{}", exec.plan_text());
    exec.submit().await?; // as often as you like
    exec.submit().await
}
