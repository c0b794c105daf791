// error[E0277]: `wakegraph::Buffer<u32>` is not memory of `f32`
use wakegraph::{Buffer, Graph, Range, kernel};

kernel! {
    fn scale(factor: f32, x: &[f32], y: &mut [f32]) { each: |i, factor, x, y| *y = factor * x[i] }
}

pub fn launch(graph: &mut Graph, x: &Buffer<u32>, y: &Buffer<f32>) {
    graph.launch(scale(2.0, x, y), Range::linear(4));
}
