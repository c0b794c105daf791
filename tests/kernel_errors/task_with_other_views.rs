// error[E0308]: mismatched types
use wakegraph::{Graph, HostBuffer, read};

pub fn add(graph: &mut Graph, input: &HostBuffer<f32>) {
    graph.host_task((read(input),), async |(input, output)| println!("{} {}", input[0], output[0]));
}
