//! CUDA by hand, with `cudarc`.
#![expect(unsafe_code, reason = "launches kernels and takes pinned memory")]

use std::sync::Arc;

use axum::body::Bytes;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg as _,
};

use crate::by_hand::{gather, reply};
use crate::shape::{Answer, Shape};

const SOURCE: &str = r#"
extern "C" __global__ void mix(const unsigned* x, unsigned* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned word = x[i];
    for (unsigned round = 0; round < 16; round++) {
        word = (word ^ (word >> 15)) * 0x2c1b3c6du;
        word = (word << 7) | (word >> 25);
    }
    y[i] = word;
}"#;

/// Bytes of a request from which on memory that the driver has pinned was measured to be faster. Smaller
/// ones are slower with it, as the driver takes them along with the command.
const PINNED_FROM: usize = 64 << 10;

/// The context and the kernel.
pub(crate) struct Cudarc {
    context: Arc<CudaContext>,
    mix: CudaFunction,
}

impl Cudarc {
    pub(crate) fn open(index: usize) -> Self {
        let context = CudaContext::new(index).expect("a GPU");
        let program = cudarc::nvrtc::compile_ptx(SOURCE).expect("a valid kernel");
        let module = context.load_module(program).expect("a valid module");
        let mix = module.load_function("mix").expect("the kernel of the module");
        Self { context, mix }
    }

    pub(crate) fn name(&self) -> String {
        self.context.name().expect("a name")
    }
}

/// A stream, and memory for some requests.
pub(crate) struct Worker {
    stream: Arc<CudaStream>,
    mix: CudaFunction,
    kernels: usize,
    from: CudaSlice<u32>,
    to: CudaSlice<u32>,
    host: HostMemory,
}

/// Memory that requests are copied from, and results to.
enum HostMemory {
    Plain([Vec<u32>; 2]),
    Pinned([PinnedHostSlice<u32>; 2]),
}

impl HostMemory {
    fn new(cudarc: &Cudarc, len: usize, is_pinned: bool) -> Self {
        if !is_pinned {
            return Self::Plain([vec![0; len], vec![0; len]]);
        }
        // SAFETY: each run writes the memory before it reads it.
        let pinned = || unsafe { cudarc.context.alloc_pinned_with_flags(len, 0) }.expect("pinned memory");
        Self::Pinned([pinned(), pinned()])
    }

    fn slices(&mut self, len: usize) -> [&mut [u32]; 2] {
        match self {
            Self::Plain(both) => both.each_mut().map(|one| &mut one[..len]),
            Self::Pinned(both) => {
                both.each_mut().map(|one| &mut one.as_mut_slice().expect("pinned memory")[..len])
            }
        }
    }
}

impl Worker {
    pub(crate) fn new(cudarc: &Cudarc, shape: Shape, items: usize) -> Self {
        let stream = cudarc.context.new_stream().expect("a stream");
        let len = shape.words * items;
        Self {
            from: stream.alloc_zeros(len).expect("device memory"),
            to: stream.alloc_zeros(len).expect("device memory"),
            mix: cudarc.mix.clone(),
            kernels: shape.kernels,
            host: HostMemory::new(cudarc, len, shape.bytes() >= PINNED_FROM),
            stream,
        }
    }

    pub(crate) fn run<F: FnOnce(Answer)>(&mut self, jobs: Vec<(Bytes, F)>) {
        let Self { stream, mix, kernels, from, to, host } = self;
        let bytes: usize = jobs.iter().map(|(body, _)| body.len()).sum();
        let len = bytes / size_of::<u32>();
        let [input, output] = host.slices(len);
        gather(bytemuck::cast_slice_mut(input), &jobs);
        stream.memcpy_htod(&*input, from).expect("a copy");
        let groups = len.div_ceil(256) as u32;
        let config = LaunchConfig { grid_dim: (groups, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        for _ in 0..*kernels {
            let (mut launch, len) = (stream.launch_builder(mix), len as u32);
            launch.arg(&*from).arg(&mut *to).arg(&len);
            // SAFETY: both slices have `len` elements, which the kernel checks.
            unsafe { launch.launch(config) }.expect("a launch");
            std::mem::swap(from, to);
        }
        stream.memcpy_dtoh(&from.slice(..len), output).expect("a copy");
        stream.synchronize().expect("the end of the run");
        reply(jobs, bytemuck::cast_slice(output));
    }
}
