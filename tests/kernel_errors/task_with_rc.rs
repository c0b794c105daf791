// error[E0277]: this closure cannot be a host task, which runs in every submission and on any thread
// error: future cannot be sent between threads safely
use wakegraph::{Graph, HostBuffer, read};

pub fn add(graph: &mut Graph, input: &HostBuffer<f32>) {
    let counter = std::rc::Rc::new(0);
    graph.host_task((read(input),), async move |(input,)| println!("{} {counter}", input[0]));
}
