//! A process that does the same with `opencl3`, which builds from sources. The driver finds what it keeps on
//! disk.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_all_devices};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;

use crate::Started;
use crate::work::{ELEMENTS, PIXELS, TAPS, WIDTH, Work, checksum, frame, level, programs};

/// A context of the device of this name, and a queue.
struct Opened {
    context: Context,
    queue: CommandQueue,
}

pub(crate) fn run(start: Instant, work: Work, device: &str) -> Started {
    let devices = get_all_devices(CL_DEVICE_TYPE_ALL).expect("devices");
    let mut devices = devices.into_iter().map(Device::new);
    let device = devices.find(|one| one.name().is_ok_and(|name| name == device)).expect("the device");
    let context = Context::from_device(&device).expect("a context");
    let queue = CommandQueue::create_default_with_properties(&context, 0, 0).expect("a queue");
    let opened = start.elapsed();
    let mut kernels = Vec::new();
    for (source, names) in programs(work, false) {
        let program = Program::create_and_build_from_source(&context, &source, "").expect("a valid source");
        kernels.extend(names.iter().map(|name| Kernel::create(&program, name).expect("a kernel")));
    }
    let device = Opened { context, queue };
    let (total, checksum) = match work {
        Work::Photo => device.photo(start, &kernels),
        Work::Chain => device.chain(start, &kernels),
    };
    Started { total, opened, checksum }
}

impl Opened {
    fn buffer<T: Clone>(&self, contents: &[T]) -> Buffer<T> {
        // SAFETY: no host pointer is given.
        let buffer = unsafe { Buffer::create(&self.context, CL_MEM_READ_WRITE, contents.len(), null_mut()) };
        let mut buffer = buffer.expect("memory");
        // SAFETY: the call blocks until the contents are copied.
        let written = unsafe { self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, contents, &[]) };
        written.expect("a copy");
        buffer
    }

    fn read<T: Clone>(&self, buffer: &Buffer<T>, mut contents: Vec<T>) -> Vec<T> {
        // SAFETY: the call blocks until the contents are there.
        let read = unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, 0, &mut contents, &[]) };
        read.expect("a copy");
        contents
    }

    fn chain(&self, start: Instant, kernels: &[Kernel]) -> (Duration, u64) {
        let (x, count) = (self.buffer(&vec![0u32; ELEMENTS]), ELEMENTS as i32);
        for kernel in kernels {
            let mut launch = ExecuteKernel::new(kernel);
            // SAFETY: the kernel's first parameter is a buffer.
            unsafe { launch.set_arg(&x) };
            // SAFETY: its second one is an `int`.
            unsafe { launch.set_arg(&count) };
            // SAFETY: the kernel changes as many elements as there are.
            unsafe { launch.set_global_work_size(ELEMENTS).enqueue_nd_range(&self.queue) }.expect("a launch");
        }
        let out = self.read(&x, vec![0u32; ELEMENTS]);
        (start.elapsed(), checksum(bytemuck::cast_slice(&out)))
    }

    fn photo(&self, start: Instant, kernels: &[Kernel]) -> (Duration, u64) {
        let [grayscale, blur_rows, blur_columns, sobel, histogram, threshold] = kernels else {
            panic!("six kernels")
        };
        let (rgb, taps) = (self.buffer(&frame()), self.buffer(&TAPS));
        let [gray, smeared, blurred, gradient, edges] = [(); 5].map(|()| self.buffer(&vec![0u8; PIXELS]));
        let bins = self.buffer(&[0u32; 256]);
        let (width, pixels, count) = (WIDTH as i32, PIXELS as i32, TAPS.len() as i32);
        /// Launches a kernel with these arguments.
        macro_rules! launch {
            ($kernel:ident($($argument:expr),*)) => {{
                let mut launch = ExecuteKernel::new($kernel);
                // SAFETY: this is the kernel's next parameter.
                $(unsafe { launch.set_arg($argument) };)*
                // SAFETY: the kernels stay within the image, as their last argument says its size.
                unsafe { launch.set_global_work_size(PIXELS).enqueue_nd_range(&self.queue) }
                    .expect("a launch");
            }};
        }
        launch!(grayscale(&rgb, &gray, &pixels));
        launch!(blur_rows(&taps, &count, &gray, &smeared, &width));
        launch!(blur_columns(&taps, &count, &smeared, &blurred, &width));
        launch!(sobel(&blurred, &gradient, &width));
        launch!(histogram(&gradient, &bins, &pixels));
        let level = level(&self.read(&bins, vec![0; 256]));
        launch!(threshold(&level, &gradient, &edges, &pixels));
        let picture = self.read(&edges, vec![0; PIXELS]);
        (start.elapsed(), checksum(&picture))
    }
}
