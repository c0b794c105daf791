//! The hand-written base of the OpenCL benchmarks: loops of driver calls as one writes them without
//! this crate.
#![allow(dead_code, unreachable_pub, reason = "every benchmark uses a part of it")]
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use cl3::ext::{
    CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR, CL_COMMAND_BUFFER_FLAGS_KHR,
    CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, CL_COMPLETE, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR,
    CL_DEVICE_NAME, CL_DEVICE_TYPE_ALL, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_INVALID_OPERATION,
    CL_MEM_READ_WRITE, CL_SUCCESS, cl_command_buffer_khr, cl_command_queue, cl_context, cl_device_id,
    cl_event, cl_int, cl_kernel, cl_mem, cl_platform_id, cl_program, clCommandNDRangeKernelKHR_t,
    clCreateCommandBufferKHR_t, clEnqueueCommandBufferKHR_t, clFinalizeCommandBufferKHR_t,
    clReleaseCommandBufferKHR_t,
};
use cl3::{command_queue, context, device, event, kernel, load_library, memory, platform, program};
use tokio::sync::oneshot;
use wakegraph::hal::dialect;

/// An OpenCL device with an in-order queue, a small buffer, and a program.
pub struct RawDevice {
    platform: cl_platform_id,
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
    program: cl_program,
    memory: cl_mem,
    kernel_name: std::ffi::CString,
    elements: usize,
    command_buffers: Option<CommandBuffers>,
}

/// The extension's functions, and whether a buffer may be enqueued again before it is done.
struct CommandBuffers {
    create: clCreateCommandBufferKHR_t,
    finalize: clFinalizeCommandBufferKHR_t,
    release: clReleaseCommandBufferKHR_t,
    enqueue: clEnqueueCommandBufferKHR_t,
    append_kernel: clCommandNDRangeKernelKHR_t,
    simultaneous_use: bool,
}

// SAFETY: OpenCL objects may be used on any thread; one loop uses them at a time.
unsafe impl Send for RawDevice {}
// SAFETY: as above.
unsafe impl Sync for RawDevice {}

impl RawDevice {
    /// The device of that name, with the kernel `name(u32, SLICE(u32, x))` of a source in the
    /// portable dialect, whose buffer has that many elements.
    pub fn find(device_name: &str, source: &str, name: &str, elements: usize) -> Option<Arc<Self>> {
        let all = platform::get_platform_ids().ok()?.into_iter().flat_map(|platform| {
            let devices = device::get_device_ids(platform, CL_DEVICE_TYPE_ALL).unwrap_or_default();
            devices.into_iter().map(move |device| (platform, device))
        });
        let named = |device| {
            device::get_device_info(device, CL_DEVICE_NAME)
                .is_ok_and(|name| String::from(name) == device_name)
        };
        let (platform, device) = all.into_iter().find(|&(_, device)| named(device))?;
        Some(Arc::new(Self::open(platform, device, source, name, elements).expect("the device works")))
    }

    fn open(
        platform: cl_platform_id,
        device: cl_device_id,
        source: &str,
        name: &str,
        elements: usize,
    ) -> Result<Self, cl_int> {
        let context = context::create_context(&[device], null(), None, null_mut())?;
        // SAFETY: both are valid.
        let queue = unsafe { command_queue::create_command_queue(context, device, 0) }?;
        // `cl3` takes a list of sources for one of pointers, which goes well with one of them.
        let program = program::create_program_with_source(context, &[&dialect::opencl(source)])?;
        program::build_program(program, &[device], c"-cl-std=CL1.2", None, null_mut())?;
        // SAFETY: no host pointer is given.
        let memory = unsafe {
            memory::create_buffer(context, CL_MEM_READ_WRITE, elements * size_of::<u32>(), null_mut())
        }?;
        let kernel_name = std::ffi::CString::new(dialect::entry_name(name)).expect("a kernel's name");
        let command_buffers = CommandBuffers::of(platform, device);
        Ok(Self { platform, device, context, queue, program, memory, kernel_name, elements, command_buffers })
    }

    /// Whether it has command-buffers.
    pub fn has_command_buffers(&self) -> bool {
        self.command_buffers.is_some()
    }

    /// A kernel with its arguments: a command's own, as arguments belong to the kernel object.
    fn kernel(&self) -> Result<cl_kernel, cl_int> {
        let kernel = kernel::create_kernel(self.program, &self.kernel_name)?;
        set_value(kernel, 1)?;
        let memory: *const cl_mem = &raw const self.memory;
        // SAFETY: the second parameter is a buffer, and the pointer is to one.
        unsafe { kernel::set_kernel_arg(kernel, 1, size_of::<cl_mem>(), memory.cast()) }?;
        let len = self.elements as u64;
        // SAFETY: the third parameter is the buffer's length, of 64 bits, and the pointer is to one.
        unsafe { kernel::set_kernel_arg(kernel, 2, size_of::<u64>(), (&raw const len).cast()) }?;
        Ok(kernel)
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        // Chains hold on to the device, so nothing uses these any more; a failure has no consequences here.
        // SAFETY: each is released once.
        let _ = unsafe { memory::release_mem_object(self.memory) };
        // SAFETY: as above.
        let _ = unsafe { program::release_program(self.program) };
        // SAFETY: as above.
        let _ = unsafe { command_queue::release_command_queue(self.queue) };
        // SAFETY: as above.
        let _ = unsafe { context::release_context(self.context) };
    }
}

impl CommandBuffers {
    fn of(platform: cl_platform_id, device: cl_device_id) -> Option<Self> {
        let capabilities = device::get_device_info(device, CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR).ok()?;
        let simultaneous = CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR;
        Some(Self {
            create: extension(platform, c"clCreateCommandBufferKHR")?,
            finalize: extension(platform, c"clFinalizeCommandBufferKHR")?,
            release: extension(platform, c"clReleaseCommandBufferKHR")?,
            enqueue: extension(platform, c"clEnqueueCommandBufferKHR")?,
            append_kernel: extension(platform, c"clCommandNDRangeKernelKHR")?,
            simultaneous_use: capabilities.to_ulong() & simultaneous != 0,
        })
    }
}

/// An extension's function. `F` is its type in `cl3`, an `Option` of a function pointer.
fn extension<F: Copy>(platform: cl_platform_id, name: &CStr) -> Option<F> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    let library = load_library().as_ref().ok()?;
    let address = library.clGetExtensionFunctionAddressForPlatform(platform, name.as_ptr())?;
    // SAFETY: a pointer, or null for `None`, to a function of this name and thus of this type.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// How a loop learns that a run is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// `clFinish`.
    Finish,
    /// `clWaitForEvents`.
    Event,
    /// Asks for the event's status again and again, and yields in between.
    Spin,
    /// A callback of the driver's wakes the task.
    Callback,
    /// Another thread of the runtime's calls `clWaitForEvents`.
    SpawnBlocking,
    /// As `Spin`, but yields to the other tasks.
    TaskYield,
}

impl Waiting {
    /// Those that keep a thread of the runtime's, so that no other task runs on it until the device is done.
    pub const BLOCKING: [Self; 3] = [Self::Finish, Self::Event, Self::Spin];
    /// Those that let other tasks run.
    pub const ASYNC: [Self; 3] = [Self::Callback, Self::SpawnBlocking, Self::TaskYield];
}

/// An event, which any thread may use.
#[derive(Clone, Copy)]
struct SharedEvent(cl_event);

// SAFETY: OpenCL objects may be used on any thread.
unsafe impl Send for SharedEvent {}
// SAFETY: as above.
unsafe impl Sync for SharedEvent {}

impl SharedEvent {
    fn wait(self) {
        event::wait_for_events(&[self.0]).expect("a run");
    }

    fn is_complete(self) -> bool {
        let status = event::get_event_info(self.0, CL_EVENT_COMMAND_EXECUTION_STATUS).expect("a status");
        match status.to_int() {
            CL_COMPLETE => true,
            code if code < 0 => panic!("the run failed with {code}"),
            _ => false,
        }
    }

    /// Resolves once the driver has called back.
    fn called_back(self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let sender = Box::into_raw(Box::new(sender));
        event::set_event_callback(self.0, CL_COMPLETE, on_complete, sender.cast()).expect("a callback");
        receiver
    }

    fn release(self) {
        // SAFETY: it came from an enqueue, and it is not used any more.
        unsafe { event::release_event(self.0) }.expect("an event");
    }
}

extern "C" fn on_complete(_: cl_event, _: cl_int, sender: *mut c_void) {
    // SAFETY: the box that `called_back` gave to the driver, which gives it back once.
    let sender = unsafe { Box::from_raw(sender.cast::<oneshot::Sender<()>>()) };
    let _ = sender.send(());
}

/// How a chain is handed to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lowering {
    /// Enqueues in order, one a kernel.
    Enqueues,
    /// One command-buffer.
    CommandBuffer,
}

/// Kernels in a chain.
pub struct Chain {
    device: Arc<RawDevice>,
    kernels: Vec<cl_kernel>,
    command_buffer: Option<cl_command_buffer_khr>,
    waiting: Waiting,
}

// SAFETY: OpenCL objects may be used on any thread.
unsafe impl Send for Chain {}
// SAFETY: as above; one loop uses it at a time.
unsafe impl Sync for Chain {}

impl Chain {
    /// A chain of `length` kernels; `None` where the device cannot.
    pub fn new(device: &Arc<RawDevice>, length: usize, lowering: Lowering, waiting: Waiting) -> Option<Self> {
        if lowering == Lowering::CommandBuffer && !device.has_command_buffers() {
            return None;
        }
        let kernels = (0..length).map(|_| device.kernel().expect("a kernel")).collect();
        let mut chain = Self { device: device.clone(), kernels, command_buffer: None, waiting };
        if let (Lowering::CommandBuffer, Some(functions)) = (lowering, &device.command_buffers) {
            chain.command_buffer = Some(chain.record(functions).expect("a command-buffer"));
        }
        Some(chain)
    }

    fn record(&self, functions: &CommandBuffers) -> Result<cl_command_buffer_khr, cl_int> {
        let CommandBuffers { create: Some(create), append_kernel: Some(append), .. } = functions else {
            return Err(CL_INVALID_OPERATION);
        };
        let flags = if functions.simultaneous_use { CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR } else { 0 };
        let properties = [CL_COMMAND_BUFFER_FLAGS_KHR, flags, 0];
        let mut status = CL_SUCCESS;
        // SAFETY: one queue, and a list of properties that ends with 0.
        let buffer = unsafe { create(1, &raw const self.device.queue, properties.as_ptr(), &raw mut status) };
        check(status)?;
        let mut last = 0;
        for (index, &kernel) in self.kernels.iter().enumerate() {
            let (after, mut point) = (last, 0);
            // SAFETY: the buffer records, the size is of one dimension, the sync-point is of this buffer.
            let status = unsafe {
                append(
                    buffer,
                    null_mut(),
                    null(),
                    kernel,
                    1,
                    null(),
                    &raw const self.device.elements,
                    null(),
                    u32::from(index > 0),
                    if index > 0 { &raw const after } else { null() },
                    &raw mut point,
                    null_mut(),
                )
            };
            check(status)?;
            last = point;
        }
        let Some(finalize) = functions.finalize else { return Err(CL_INVALID_OPERATION) };
        // SAFETY: it records.
        check(unsafe { finalize(buffer) })?;
        Ok(buffer)
    }

    /// Enqueues the chain once and waits for it.
    pub async fn run(&self) {
        let event = self.enqueue(self.waiting != Waiting::Finish);
        self.wait(event).await;
    }

    /// Enqueues the chain `count` times and waits for the last.
    pub async fn run_deep(&self, count: usize) {
        for _ in 1..count {
            self.enqueue(false);
        }
        self.run().await;
    }

    /// Enqueues the chain `count` times and waits for each of these runs by its own event.
    pub async fn run_deep_each(&self, count: usize) {
        let events: Vec<_> = (0..count).map(|_| self.enqueue(true)).collect();
        self.flush();
        if self.waiting == Waiting::Finish {
            command_queue::finish(self.device.queue).expect("the runs");
        }
        for event in events.into_iter().flatten() {
            self.wait_for(event).await;
        }
    }

    /// Gives each kernel another value.
    pub fn set_values(&self, value: u32) {
        self.kernels.iter().for_each(|&kernel| set_value(kernel, value).expect("a value"));
    }

    /// Enqueues the chain once; the event is of its end.
    fn enqueue(&self, with_event: bool) -> Option<SharedEvent> {
        let mut event: cl_event = null_mut();
        let wanted = if with_event { &raw mut event } else { null_mut() };
        match self.command_buffer {
            Some(buffer) => self.enqueue_buffer(buffer, wanted),
            None => self.enqueue_kernels(wanted),
        }
        .expect("an enqueue");
        with_event.then_some(SharedEvent(event))
    }

    fn enqueue_kernels(&self, event: *mut cl_event) -> Result<(), cl_int> {
        let library = load_library().as_ref().expect("loaded already");
        let last = self.kernels.len() - 1;
        for (index, &kernel) in self.kernels.iter().enumerate() {
            let event = if index == last { event } else { null_mut() };
            let size = &raw const self.device.elements;
            // `cl3`'s own function makes an event each time.
            let status = library.clEnqueueNDRangeKernel(
                self.device.queue,
                kernel,
                1,
                null(),
                size,
                null(),
                0,
                null(),
                event,
            );
            check(status.unwrap_or(CL_INVALID_OPERATION))?;
        }
        Ok(())
    }

    fn enqueue_buffer(&self, buffer: cl_command_buffer_khr, event: *mut cl_event) -> Result<(), cl_int> {
        let functions = self.device.command_buffers.as_ref().and_then(|functions| functions.enqueue);
        let enqueue = functions.ok_or(CL_INVALID_OPERATION)?;
        loop {
            // SAFETY: a finalized buffer, on the queue it was recorded for, without wait list.
            match unsafe { enqueue(0, null_mut(), buffer, 0, null(), event) } {
                // PoCL 3.1 may take a buffer for pending whose event is complete.
                CL_INVALID_OPERATION => std::thread::yield_now(),
                status => return check(status),
            }
        }
    }

    async fn wait(&self, event: Option<SharedEvent>) {
        let Some(event) = event else {
            command_queue::finish(self.device.queue).expect("a run");
            return;
        };
        self.flush();
        self.wait_for(event).await;
    }

    /// Hands what is enqueued to the device, unless the wait does so.
    fn flush(&self) {
        if self.waiting != Waiting::Event {
            command_queue::flush(self.device.queue).expect("a flush");
        }
    }

    async fn wait_for(&self, event: SharedEvent) {
        match self.waiting {
            Waiting::Finish | Waiting::Event => event.wait(),
            Waiting::Spin => {
                while !event.is_complete() {
                    std::thread::yield_now();
                }
            }
            Waiting::Callback => event.called_back().await.expect("the driver calls back"),
            Waiting::SpawnBlocking => {
                tokio::task::spawn_blocking(move || event.wait()).await.expect("a run");
            }
            Waiting::TaskYield => {
                while !event.is_complete() {
                    tokio::task::yield_now().await;
                }
            }
        }
        event.release();
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let release = self.device.command_buffers.as_ref().and_then(|functions| functions.release);
        if let (Some(buffer), Some(release)) = (self.command_buffer, release) {
            // SAFETY: released once, and no run is in flight.
            let _ = unsafe { release(buffer) };
        }
        for &kernel in &self.kernels {
            // SAFETY: as above.
            let _ = unsafe { kernel::release_kernel(kernel) };
        }
    }
}

fn set_value(kernel: cl_kernel, value: u32) -> Result<(), cl_int> {
    let value: *const u32 = &raw const value;
    // SAFETY: the first parameter is an `u32`.
    unsafe { kernel::set_kernel_arg(kernel, 0, size_of::<u32>(), value.cast()) }
}

fn check(status: cl_int) -> Result<(), cl_int> {
    if status == CL_SUCCESS { Ok(()) } else { Err(status) }
}
