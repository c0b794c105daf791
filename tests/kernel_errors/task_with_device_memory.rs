// error[E0308]: mismatched types
use wakegraph::{Buffer, Graph, read};

pub fn add(graph: &mut Graph, input: &Buffer<f32>) {
    graph.host_task((read(input),), async |(input,)| println!("{}", input[0]));
}
