// error[E0061]: this function takes 3 arguments but 2 arguments were supplied
use wakegraph::{Buffer, Graph, Range, kernel};

kernel! {
    fn scale(factor: f32, x: &[f32], y: &mut [f32]) { each: |i, factor, x, y| *y = factor * x[i] }
}

pub fn launch(graph: &mut Graph, x: &Buffer<f32>, _y: &Buffer<f32>) {
    graph.launch(scale(2.0, x), Range::linear(4));
}
