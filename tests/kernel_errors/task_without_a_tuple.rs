// error[E0277]: `ReadAccess<f32>` is not a list of accesses of a host task
use wakegraph::{Graph, HostBuffer, read};

pub fn add(graph: &mut Graph, input: &HostBuffer<f32>) {
    graph.host_task(read(input), async |input| println!("{}", input[0]));
}
