//! What the stream task of candle's operations costs beside the same kernels and operations by hand on
//! candle's stream, which the thread waits for.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `stream_task_candle_policy_runtime` | kernel, three operations of candle that allocate, kernel | the same on one stream, synchronize | 1.1 |
#![expect(unsafe_code, reason = "launches a kernel by hand")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]
#![allow(unexpected_cfgs, reason = "features of the main package")]

#[path = "../../../benches/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Arc;

use candle_core::cuda::cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg, sys};
use candle_core::cuda::cudarc::nvrtc::compile_ptx;
use candle_core::{DType, Device as CandleDevice, Tensor};
use support::{Contender, Report, Row};
use tokio::runtime::Builder;
use wakegraph::{Device, ExecutableGraph, WakePolicy};
use with_candle::{graph, import, softmax};

const SHAPE: (usize, usize) = (1024, 4096);

const SCALE: &str = "
extern \"C\" __global__ void scale(float by, float* x, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) x[i] *= by;
}";

fn main() -> ExitCode {
    let candle = CandleDevice::new_cuda_with_stream(0).unwrap();
    let device = Device::open("cuda:0").unwrap();
    let x = Tensor::zeros(SHAPE, DType::F32, &candle).unwrap();
    let y = x.zeros_like().unwrap();
    let (_, stream) = import(&device, &x).unwrap();
    let mut report = Report::from_args();
    for (flavour, mut builder) in [("current", Builder::new_current_thread()), ("multi", Builder::new_multi_thread())] {
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        for (name, policy) in [("latency", WakePolicy::Latency), ("balanced", WakePolicy::Balanced)] {
            device.set_wake_policy(policy);
            let ours = Ours(graph(&device, &x, &y).unwrap());
            let base = ByHand::new(&device, &stream, &x, &y);
            let name = format!("stream_task_candle_{name}_{flavour}");
            report.race(Row::new(&name).rounds(50, 50).limit(1.1), &runtime, ours, base);
        }
    }
    report.finish()
}

struct Ours(ExecutableGraph);

impl Contender for Ours {
    async fn once(&mut self) {
        self.0.submit().await.unwrap();
    }
}

struct ByHand {
    stream: Arc<CudaStream>,
    scale: CudaFunction,
    x: Tensor,
    y: Tensor,
    addresses: [sys::CUdeviceptr; 2],
}

impl ByHand {
    fn new(device: &Device, stream: &Arc<CudaStream>, x: &Tensor, y: &Tensor) -> Self {
        let module = stream.context().load_module(compile_ptx(SCALE).unwrap()).unwrap();
        let address = |tensor| import(device, tensor).unwrap().0.address().unwrap() as sys::CUdeviceptr;
        Self {
            stream: stream.clone(),
            scale: module.load_function("scale").unwrap(),
            x: x.clone(),
            y: y.clone(),
            addresses: [x, y].map(address),
        }
    }

    fn launch(&self, by: f32, address: sys::CUdeviceptr) {
        let len = (SHAPE.0 * SHAPE.1) as u32;
        let mut launch = self.stream.launch_builder(&self.scale);
        launch.arg(&by).arg(&address).arg(&len);
        // SAFETY: the tensors have so many elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(len)) }.unwrap();
    }
}

impl Contender for ByHand {
    async fn once(&mut self) {
        self.launch(0.5, self.addresses[0]);
        softmax(&self.x, &self.y).unwrap();
        self.launch(100.0, self.addresses[1]);
        self.stream.synchronize().unwrap();
    }
}
