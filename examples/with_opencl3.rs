//! A graph in the middle of an application that uses OpenCL through `opencl3`: on its context, its buffer,
//! between its own commands. No bytes are copied for that, and no thread waits in between.
//!
//! `cargo run --release -p wakegraph-opencl --example with_opencl3 -- 0`: the number is a platform's.
#![expect(unsafe_code, reason = "hands objects of opencl3 to a graph")]

use std::ptr;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE, ClMem};
use opencl3::platform::get_platforms;
use opencl3::types::{CL_FALSE, cl_float};
use wakegraph::backend::opencl::{OpenclOptions, open_in_context};
use wakegraph::{Device, Graph, Range};

wakegraph::kernel! {
    /// x = x * x
    fn square(x: &mut [f32]) {
        each: |_, x| *x *= *x,
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice.
        c: unsafe { "KERNEL(square, (SLICE(float, x))) { x[GLOBAL_ID(0)] *= x[GLOBAL_ID(0)]; }" },
    }
}

const LEN: usize = 1 << 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let platform: usize = std::env::args().nth(1).map_or(Ok(0), |number| number.parse())?;
    let platforms = get_platforms()?;
    let platform = platforms.get(platform).ok_or("there is no such OpenCL platform")?;
    let id = *platform.get_devices(CL_DEVICE_TYPE_ALL)?.first().ok_or("the platform has no device")?;

    // What the application has already.
    let context = Context::from_device(&ClDevice::new(id))?;
    // SAFETY: the device is the context's.
    let queue = unsafe { CommandQueue::create(&context, id, 0) }?;
    // SAFETY: there is no memory of the host behind the buffer.
    let mut theirs =
        unsafe { Buffer::<cl_float>::create(&context, CL_MEM_READ_WRITE, LEN, ptr::null_mut()) }?;

    // A graph on it, built once.
    // SAFETY: the context is alive.
    let device = Device::from_hal(unsafe { open_in_context(context.get(), id, OpenclOptions::new()) }?);
    // SAFETY: the buffer is alive; events order what uses it, below.
    let x = unsafe { device.import_memory::<f32>(theirs.get(), LEN) }?;
    let mut graph = Graph::new(&device);
    graph.launch(square(&x), Range::linear(LEN));
    let exec = graph.finalize()?;

    for round in 1..=3 {
        let value = [round as f32];
        // SAFETY: what used the buffer before is over: the queue was finished.
        let filled = unsafe { queue.enqueue_fill_buffer(&mut theirs, &value, 0, 4 * LEN, &[]) }?;
        // SAFETY: the event is alive.
        let filled = unsafe { device.import_event(filled.get()) }?;
        let submission = exec.prepare().after_native(&filled).submit();
        // SAFETY: the queue is alive.
        unsafe { submission.join(queue.get()) }?;
        let mut result = vec![0.0; LEN];
        // SAFETY: the queue is finished before `result` is used.
        unsafe { queue.enqueue_read_buffer(&theirs, CL_FALSE, 0, &mut result, &[]) }?;
        queue.finish()?;
        submission.await?;
        assert!(result.iter().all(|&x| x == value[0] * value[0]));
        println!("{} squared is {} on {}", value[0], result[0], device.info().name);
    }
    Ok(())
}
