// error[E0277]: a host task cannot return `f32`
use wakegraph::{Graph, HostBuffer, read};

pub fn add(graph: &mut Graph, input: &HostBuffer<f32>) {
    graph.host_task((read(input),), async |(input,)| input[0]);
}
