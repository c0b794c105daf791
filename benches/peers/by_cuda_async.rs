//! The tasks on cuda-async.

use std::sync::Arc;

use cuda_async::cuda_graph::CudaGraph;
use cuda_async::device_operation::DeviceOp;
use cuda_async::launch::{AsyncKernelLaunch, AsyncKernelLaunchBuilder};
use cuda_async::scheduling_policies::SingleStream;
use cuda_core::{Context, DeviceAllocation, Function, LaunchConfig, RawDeviceBuffer, sys};
use wakegraph::Buffer;

use crate::support::Contender;

/// The context, which ours uses, too, and the kernel.
pub(crate) struct Peer {
    context: Arc<Context>,
    bump: Arc<Function>,
}

impl Peer {
    pub(crate) fn open() -> Self {
        let context = Context::new(0).expect("the primary context");
        let module =
            context.load_module_from_ptx_src(include_str!("../cuda/kernels.ptx")).expect("the module");
        let bump = module.load_function("bump").expect("the kernel").into();
        Self { context, bump }
    }

    /// A graph for each of these chains of kernels, on a stream of the task's own.
    pub(crate) fn task(&self, chains: &[usize], yields: bool, x: &Buffer<u32>) -> Task {
        let stream = self.context.new_stream().expect("a stream");
        let memory: Arc<dyn DeviceAllocation> = Arc::new(Memory(x.clone(), self.context.clone()));
        let x = RawDeviceBuffer::foreign(memory, 4);
        let chain = |len: &usize| {
            let record = |scope: &cuda_async::cuda_graph::Scope| {
                (0..*len).try_for_each(|_| scope.record(self.launch(&x)))
            };
            CudaGraph::scope(&stream, record).expect("a graph")
        };
        let graphs = chains.iter().map(chain).collect();
        Task { graphs, stream: Arc::new(SingleStream::from_stream(stream)), yields }
    }

    fn launch(&self, x: &RawDeviceBuffer) -> AsyncKernelLaunch<'static> {
        let mut launch = AsyncKernelLaunchBuilder::new(self.bump.clone());
        launch.push_arg(1_u32);
        // SAFETY: the kernel takes a pointer to a word, which it changes.
        unsafe { launch.push_device_ptr(x.cu_deviceptr()) };
        launch.retain_buffer(x.clone(), true);
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those of the kernel, for one thread; the launch retains the memory.
        unsafe { launch.finalize_unchecked(one) }
    }
}

/// Our memory as an allocation of cuda-core.
struct Memory(Buffer<u32>, Arc<Context>);

// SAFETY: a buffer keeps its address as long as it lives, and both contexts are the primary one.
unsafe impl DeviceAllocation for Memory {
    fn device_ptr(&self) -> sys::CUdeviceptr {
        self.0.address().expect("an address") as sys::CUdeviceptr
    }

    fn len_bytes(&self) -> usize {
        self.0.len() * 4
    }

    fn context(&self) -> Arc<Context> {
        self.1.clone()
    }
}

#[derive(Clone)]
pub(crate) struct Task {
    graphs: Arc<[CudaGraph<()>]>,
    stream: Arc<SingleStream>,
    yields: bool,
}

impl Contender for Task {
    async fn once(&mut self) {
        for (place, graph) in self.graphs.iter().enumerate() {
            if place > 0 {
                async {}.await;
            }
            graph.launch().schedule(&self.stream).expect("a future").await.expect("a run");
        }
        if self.yields {
            tokio::task::yield_now().await;
        }
    }
}
