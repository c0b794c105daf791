//! The tasks on wakegraph, with the options that it comes with.

use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range};

use crate::support::Contender;

wakegraph::kernel! {
    fn bump(n: u32, x: &mut [u32]) {
        range: |_, x| x.len().min(1),
        // SAFETY: the bound is one work-item, which changes the first element.
        ptx: unsafe { include_str!("../cuda/kernels.ptx") },
    }
}

#[derive(Clone)]
pub(crate) struct Task(ExecutableGraph);

impl Task {
    /// One graph of these chains of kernels, with an async host task between two of them.
    pub(crate) fn new(device: &Device, chains: &[usize], x: &Buffer<u32>) -> Self {
        let mut graph = Graph::new(device);
        let (mut kernel, mut task) = (None, None);
        for len in chains {
            if kernel.is_some() {
                task = Some(graph.host_task((), async |()| ()).after(kernel).id());
            }
            for _ in 0..*len {
                kernel = Some(graph.launch(bump(1, x), Range::linear(1)).after(task.take()).id());
            }
        }
        Self(graph.finalize().expect("a valid graph"))
    }
}

impl Contender for Task {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}
