//! OpenCL by hand, with `opencl3`.
#![expect(unsafe_code, reason = "enqueues commands")]

use std::ptr::null_mut;

use axum::body::Bytes;
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_all_devices};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING};

use crate::by_hand::{gather, reply};
use crate::shape::{Answer, Shape};

const SOURCE: &str = r#"
kernel void mix_bits(global const uint* x, global uint* y) {
    uint word = x[get_global_id(0)];
    for (uint round = 0; round < 16; round++) {
        word = (word ^ (word >> 15)) * 0x2c1b3c6du;
        word = (word << 7) | (word >> 25);
    }
    y[get_global_id(0)] = word;
}"#;

/// Work-items of a work-group: a divisor of all requests' words.
const GROUP: usize = 256;

/// The context and the program.
pub(crate) struct Opencl {
    device: Device,
    context: Context,
    program: Program,
}

impl Opencl {
    /// Opens the device of that name.
    pub(crate) fn open(name: &str) -> Self {
        let devices = get_all_devices(CL_DEVICE_TYPE_ALL).expect("devices");
        let mut devices = devices.into_iter().map(Device::new);
        let device = devices.find(|one| one.name().is_ok_and(|one| one == name)).expect("the device");
        let context = Context::from_device(&device).expect("a context");
        let program = Program::create_and_build_from_source(&context, SOURCE, "").expect("a valid kernel");
        Self { device, context, program }
    }

    pub(crate) fn name(&self) -> String {
        self.device.name().expect("a name")
    }
}

/// A queue, and memory for some requests.
pub(crate) struct Worker {
    queue: CommandQueue,
    mix: Kernel,
    kernels: usize,
    from: Buffer<u8>,
    to: Buffer<u8>,
    host: Vec<u8>,
}

impl Worker {
    pub(crate) fn new(opencl: &Opencl, shape: Shape, items: usize) -> Self {
        let len = items * shape.bytes();
        let buffer = || {
            // SAFETY: no host pointer is given.
            unsafe { Buffer::create(&opencl.context, CL_MEM_READ_WRITE, len, null_mut()) }.expect("memory")
        };
        Self {
            queue: CommandQueue::create_default_with_properties(&opencl.context, 0, 0).expect("a queue"),
            mix: Kernel::create(&opencl.program, "mix_bits").expect("the kernel"),
            kernels: shape.kernels,
            from: buffer(),
            to: buffer(),
            host: vec![0; len],
        }
    }

    pub(crate) fn run<F: FnOnce(Answer)>(&mut self, jobs: Vec<(Bytes, F)>) {
        let bytes: usize = jobs.iter().map(|(body, _)| body.len()).sum();
        let (queue, host) = (&self.queue, &mut self.host[..bytes]);
        gather(host, &jobs);
        // SAFETY: `host` is left alone until the read below has ended, which comes after this.
        unsafe { queue.enqueue_write_buffer(&mut self.from, CL_NON_BLOCKING, 0, host, &[]) }.expect("a copy");
        for _ in 0..self.kernels {
            let mut launch = ExecuteKernel::new(&self.mix);
            // SAFETY: the kernel's first parameter is a buffer.
            unsafe { launch.set_arg(&self.from) };
            // SAFETY: and its second.
            unsafe { launch.set_arg(&self.to) };
            // PoCL compiles a kernel again for each size of its work-groups.
            launch.set_global_work_size(bytes / 4).set_local_work_size(GROUP);
            // SAFETY: both buffers have that many words.
            unsafe { launch.enqueue_nd_range(queue) }.expect("a launch");
            std::mem::swap(&mut self.from, &mut self.to);
        }
        // SAFETY: the call blocks until the result is there.
        unsafe { queue.enqueue_read_buffer(&self.from, CL_BLOCKING, 0, host, &[]) }.expect("a copy");
        reply(jobs, host);
    }
}
