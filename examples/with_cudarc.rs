//! A graph in the middle of an application that uses CUDA through `cudarc`: on its memory, between its own
//! commands, with cuBLAS as a node. No bytes are copied for that, and no thread waits in between.
//!
//! `cargo run --release -p wakegraph-cuda --example with_cudarc`, with the driver, NVRTC and cuBLAS on the
//! library path.
#![expect(unsafe_code, reason = "hands memory, events and streams of cudarc to a graph")]

use std::ptr;

use cudarc::cublas::{CudaBlas, result as blas, sys::cublasOperation_t, sys::cublasSetWorkspace_v2};
use cudarc::driver::{CudaContext, DevicePtr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::compile_ptx;
use wakegraph::interop::{NativeAccess, NativeStream, UsmPointer};
use wakegraph::{Device, Error, ErrorKind, Graph, Range};

wakegraph::kernel! {
    /// x = 2 * x + 1
    fn step(x: &mut [f32]) {
        each: |_, x| *x = 2.0 * *x + 1.0,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(step, (SLICE(float, x))) { x[GLOBAL_ID(0)] = 2 * x[GLOBAL_ID(0)] + 1; }" },
    }
}

const FILL: &str = "
extern \"C\" __global__ void fill(float* to, float value, unsigned len) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < len) to[i] = value;
}";

/// Rows and columns of the matrices.
const N: usize = 512;

/// Enqueues `y = x * x`, matrices of `N` rows and columns.
fn square(
    cublas: &CudaBlas,
    lent: &NativeStream<'_>,
    [x, y, workspace]: [UsmPointer; 3],
) -> wakegraph::Result<()> {
    let (handle, n, one, zero) = (*cublas.handle(), N as i32, 1.0, 0.0);
    let plain = cublasOperation_t::CUBLAS_OP_N;
    let [x, y] = [x, y].map(|matrix| ptr::with_exposed_provenance_mut(matrix.address()));
    let room = ptr::with_exposed_provenance_mut(workspace.address());
    // SAFETY: the stream is alive.
    let on_stream = unsafe { blas::set_stream(handle, lent.stream().cast()) };
    on_stream
        // SAFETY: the workspace has so many bytes. Without one, cuBLAS would allocate.
        .and_then(|()| unsafe { cublasSetWorkspace_v2(handle, room, workspace.len()) }.result())
        // SAFETY: the matrices have so many elements.
        .and_then(|()| unsafe { blas::sgemm(handle, plain, plain, n, n, n, &one, x, n, x, n, &zero, y, n) })
        .map_err(|error| Error::new(ErrorKind::Driver, "cuBLAS failed").caused_by(error))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // What the application has already.
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let fill = context.load_module(compile_ptx(FILL)?)?.load_function("fill")?;
    let (mut x, y) = (stream.alloc_zeros::<f32>(N * N)?, stream.alloc_zeros::<f32>(N * N)?);
    let cublas = CudaBlas::new(stream.clone())?;

    // A graph on it, built once: their `x` becomes 2x + 1, and their `y` the square of that matrix.
    let device = Device::open("cuda:0")?;
    let (x_address, y_address) = (x.device_ptr(&stream).0 as usize, y.device_ptr(&stream).0 as usize);
    // SAFETY: the application keeps the memory; events order what uses it, below.
    let ours = unsafe { device.import::<f32>(x_address, N * N, ()) }?;
    // SAFETY: as above.
    let product = unsafe { device.import::<f32>(y_address, N * N, ()) }?;
    let workspace = device.buffer::<u8>(32 << 20)?;
    let mut graph = Graph::new(&device);
    graph.launch(step(&ours), Range::linear(N * N));
    let accesses =
        [NativeAccess::read(&ours), NativeAccess::write(&product), NativeAccess::write(&workspace)];
    // SAFETY: cuBLAS uses what is declared, and enqueues on the stream that it is given.
    unsafe { graph.native("product", accesses, move |lent, memory| square(&cublas, lent, memory)) };
    let exec = graph.finalize()?;
    // What the application has enqueued for the memory so far is over.
    stream.synchronize()?;

    for round in 1..=3_u16 {
        let (value, len) = (f32::from(round), (N * N) as u32);
        let mut launch = stream.launch_builder(&fill);
        launch.arg(&mut x).arg(&value).arg(&len);
        // SAFETY: the kernel writes so many elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(len)) }?;
        let filled = stream.record_event(None)?;
        // SAFETY: the event is alive.
        let filled = unsafe { device.import_event(filled.cu_event().cast()) }?;
        let submission = exec.prepare().after_native(&filled).submit();
        // SAFETY: the stream is alive.
        unsafe { submission.join(stream.cu_stream().cast()) }?;
        let result = stream.clone_dtoh(&y)?;
        stream.synchronize()?;
        submission.await?;
        let step = 2.0 * value + 1.0;
        assert!(result.iter().all(|&y| y == N as f32 * step * step));
        println!("the square of a matrix of {step}s has {}s, on {}", result[0], device.info().name);
    }
    Ok(())
}
