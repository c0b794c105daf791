// error[E0594]: cannot assign to data in dereference of `HostRef<f32>`
use wakegraph::{Graph, HostBuffer, read};

pub fn add(graph: &mut Graph, input: &HostBuffer<f32>) {
    graph.host_task((read(input),), async |(mut input,)| input[0] = 1.0);
}
