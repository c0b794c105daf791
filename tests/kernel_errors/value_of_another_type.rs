// error[E0308]: mismatched types
use wakegraph::{Buffer, Graph, Range, kernel};

kernel! {
    fn scale(factor: f32, x: &[f32], y: &mut [f32]) { each: |i, factor, x, y| *y = factor * x[i] }
}

pub fn launch(graph: &mut Graph, x: &Buffer<f32>, y: &Buffer<f32>) {
    graph.launch(scale(2, x, y), Range::linear(4));
}
