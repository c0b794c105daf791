//! A graph on candle's tensors, with operations of candle as one of its nodes.
#![expect(unsafe_code, reason = "hands memory and streams of candle to a graph")]

use std::error::Error;
use std::sync::Arc;

use candle_core::cuda::cudarc::driver::{CudaStream, DevicePtr, result, sys};
use candle_core::{Storage, Tensor};
use wakegraph::interop::{NativeAccess, NativeStream};
use wakegraph::{Buffer, Device, Error as GraphError, ErrorKind, ExecutableGraph, Graph, Range};

wakegraph::kernel! {
    /// x = by * x
    fn scale(by: f32, x: &mut [f32]) {
        each: |_, by, x| *x *= by,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(scale, (float by, SLICE(float, x))) { x[GLOBAL_ID(0)] *= by; }" },
    }
}

/// The tensor's memory as a buffer, which keeps the tensor, and the stream of candle's device.
///
/// # Errors
/// The tensor is not contiguous, has other elements, or is not on a CUDA device.
pub fn import(device: &Device, tensor: &Tensor) -> Result<(Buffer<f32>, Arc<CudaStream>), Box<dyn Error>> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else { return Err("the tensor is not on a CUDA device".into()) };
    let Some((first, end)) = layout.contiguous_offsets() else { return Err("the tensor has gaps".into()) };
    let stream = storage.device.cuda_stream();
    let address = storage.as_cuda_slice::<f32>()?.device_ptr(&stream).0 as usize;
    // SAFETY: the tensor has so many elements, and the clone keeps them. Who uses the graph orders its
    // submissions against what candle does with the tensor.
    let buffer = unsafe { device.import::<f32>(address + 4 * first, end - first, tensor.clone()) }?;
    Ok((buffer, stream))
}

/// The softmax of each row of `x` into `y`, with three temporary tensors.
///
/// # Errors
/// Those of candle.
pub fn softmax(x: &Tensor, y: &Tensor) -> candle_core::Result<()> {
    let exp = x.broadcast_sub(&x.max_keepdim(1)?)?.exp()?;
    y.slice_set(&exp.broadcast_div(&exp.sum_keepdim(1)?)?, 0, 0)
}

/// `x *= 0.5; y = softmax(x); y *= 100`, where candle computes the middle.
///
/// # Errors
/// The tensors cannot be [imported](import), or the graph is refused.
pub fn graph(device: &Device, x: &Tensor, y: &Tensor) -> Result<ExecutableGraph, Box<dyn Error>> {
    let ((x_memory, candle), (y_memory, _)) = (import(device, x)?, import(device, y)?);
    let (x, y) = (x.clone(), y.clone());
    let mut graph = Graph::new(device);
    graph.launch(scale(0.5, &x_memory), Range::linear(x_memory.len()));
    let accesses = [NativeAccess::read(&x_memory), NativeAccess::write(&y_memory)];
    // SAFETY: candle uses the two tensors and what it allocates, all of it in the lent stream's order.
    unsafe {
        graph.stream_task("softmax", accesses, move |lent, _| {
            within(lent, &candle, || Ok(softmax(&x, &y)?))
                .map_err(|error| GraphError::new(ErrorKind::Driver, format!("candle failed: {error}")))
        })
    };
    graph.launch(scale(100.0, &y_memory), Range::linear(y_memory.len()));
    Ok(graph.finalize()?)
}

/// Has what `enqueue` enqueues on candle's stream lie in the order of the lent one, by two events.
fn within(
    lent: &NativeStream<'_>,
    candle: &CudaStream,
    enqueue: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let lent = lent.stream().cast();
    let before = candle.context().new_event(None)?;
    // SAFETY: the event and the stream are alive, and of one device.
    unsafe { result::event::record(before.cu_event(), lent) }?;
    candle.wait(&before)?;
    enqueue()?;
    let after = candle.record_event(None)?;
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: as above.
    unsafe { result::stream::wait_event(lent, after.cu_event(), flags) }?;
    Ok(())
}
