// error[E0277]: `[f32; 4]` is not memory of `f32`
use wakegraph::{Buffer, Graph, Range, kernel};

kernel! {
    fn scale(factor: f32, x: &[f32], y: &mut [f32]) { each: |i, factor, x, y| *y = factor * x[i] }
}

pub fn launch(graph: &mut Graph, y: &Buffer<f32>) {
    graph.launch(scale(2.0, &[0.0f32; 4], y), Range::linear(4));
}
