//! Numbers of 16 bits, as models store them: half the memory and traffic of `f32`, computed with as `f32`.
//!
//! `cargo run --release -p wakegraph-conformance --example half [-- opencl]`
#![expect(unsafe_code, reason = "declares device code")]

use wakegraph::memory::{bf16, f16};
use wakegraph::{Device, Graph, Range};

wakegraph::kernel! {
    /// y = a * x + y
    pub fn axpy(a: f32, x: &[f16], y: &mut [f16]) {
        each: |i, a, x, y| *y = f16::from_f32(a.mul_add(x[i].to_f32(), y.to_f32())),
        // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
        // shortest slice.
        c: unsafe { include_str!("half.c") },
    }
    /// Weights of a model, which have the range of `f32`, as `f32`.
    pub fn widen(weights: &[bf16], out: &mut [f32]) {
        each: |i, weights, out| *out = weights[i].to_f32(),
        // SAFETY: as above.
        c: unsafe { include_str!("half.c") },
    }
}

#[tokio::main]
async fn main() -> wakegraph::Result<()> {
    let device = Device::open(&std::env::args().nth(1).unwrap_or_else(|| "host".into()))?;
    let numbers: Vec<f16> = (0..1000).map(|n| f16::from_f32(n as f32 / 8.0)).collect();
    let weights: Vec<bf16> = (0..1000).map(|n| bf16::from_f32(1e30 * n as f32)).collect();
    let (x, y) = (device.buffer_from(&numbers)?, device.buffer_from(&vec![f16::ONE; 1000])?);
    let (narrow, wide) = (device.buffer_from(&weights)?, device.buffer::<f32>(1000)?);

    let mut graph = Graph::new(&device);
    graph.launch(axpy(2.0, &x, &y), Range::linear(1000));
    graph.launch(widen(&narrow, &wide), Range::linear(1000));
    graph.finalize()?.submit().await?;

    let (sums, wide) = (y.to_vec().await?, wide.to_vec().await?);
    for (at, (sum, wide)) in sums.into_iter().zip(wide).enumerate() {
        assert_eq!(sum, f16::from_f32(at as f32 / 4.0 + 1.0), "{at}");
        assert_eq!(wide, weights[at].to_f32(), "{at}");
    }
    println!("{}: 1000 sums and 1000 weights are right", device.selector());
    Ok(())
}
