//! Updates of recordings: in place if the device has mutable dispatch, else by a new recording.
#![expect(unsafe_code, reason = "enqueues what the test orders, and stands in for the driver")]

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::{
    AccessMode, Backend as _, Command, CommandBuffer as _, CommandBufferDesc, CommandHandle, CommandUpdate,
    Device as _, Event, EventDesc, EventStatus, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources,
    MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, Queue, QueueDesc, QueueOrder, Range, Signal,
    ValueBytes, WaitList,
};

use super::super::OpenclDevice;
use super::super::queue::OpenclCommandBuffer;
use super::super::{Lowering, OpenclBackend, OpenclOptions, sys};
use super::kept;

const SOURCE: &str = "KERNEL(add, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += n; }\n\
                      KERNEL(set, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] = n; }";
const WORDS: usize = 8;

struct Bench {
    device: OpenclDevice,
    queue: Arc<dyn Queue>,
    set: Arc<dyn Kernel>,
    x: MemoryView,
    buffer: OpenclCommandBuffer,
    handle: CommandHandle,
    done: Arc<dyn Event>,
}

fn number(n: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&n.to_ne_bytes()))
}

impl Bench {
    /// A recording of one launch of `add` with 1 over the first half of the memory.
    fn new(index: usize, in_order: bool, order: QueueOrder) -> Self {
        let options = OpenclOptions::new().lowering(Lowering::CommandBuffer);
        Self::on(OpenclDevice::open(index, options).unwrap(), in_order, order)
    }

    fn on(device: OpenclDevice, in_order: bool, order: QueueOrder) -> Self {
        let queue = device.create_queue(&QueueDesc::new(order)).unwrap();
        let numbers = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let params = [
            Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
            Param { name: "x".into(), kind: numbers },
        ];
        let sources = KernelSources::new().c(SOURCE);
        let load = |name| device.create_kernel(&KernelDesc { name, params: &params, sources: &sources });
        let (add, set) = (load("add").unwrap(), load("set").unwrap());
        let desc = MemoryDesc::new(4 * WORDS, MemoryKind::Device);
        let x = MemoryView::whole(device.allocate(&desc).unwrap());
        let desc = CommandBufferDesc { updatable: true, in_order, profiling: false, low_latency: false };
        let mut buffer = OpenclCommandBuffer::new(&device.context, desc);
        let launch = KernelLaunch {
            kernel: add,
            args: vec![number(1), KernelArg::Memory(x.clone())],
            range: Range::linear(WORDS / 2),
            alternatives: vec![set.clone()],
        };
        let handle = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        let done = device.create_event(&EventDesc::default()).unwrap();
        Self { device, queue, set, x, buffer, handle, done }
    }

    /// The first or second half of the memory, as an argument.
    fn half(&self, index: usize) -> KernelArg {
        let len = 4 * WORDS / 2;
        KernelArg::Memory(MemoryView::new(self.x.memory().clone(), index * len, len).unwrap())
    }

    fn enqueue(&self) {
        let signal = Signal::new(&self.done);
        // SAFETY: everything lives until the end of the test, which waits for it.
        unsafe { self.buffer.enqueue(&*self.queue, WaitList::NONE, signal) }.unwrap();
    }

    fn run(&self) -> Vec<u32> {
        self.enqueue();
        assert!(matches!(self.done.wait(None), EventStatus::Complete));
        self.words()
    }

    fn words(&self) -> Vec<u32> {
        let mut bytes = [0; 4 * WORDS];
        // SAFETY: nothing is in flight.
        unsafe { self.x.memory().read(0, &mut bytes) }.unwrap();
        bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn update(&mut self, change: impl FnOnce(&mut CommandUpdate)) {
        let mut update = CommandUpdate::new(self.handle);
        change(&mut update);
        self.buffer.update(&[update]).unwrap();
    }

    /// Updates, and returns whether the recording is still the same one.
    fn in_place(&mut self, change: impl FnOnce(&mut CommandUpdate)) -> bool {
        let before = self.buffer.recording.as_ref().unwrap().raw();
        self.update(change);
        self.buffer.recording.as_ref().unwrap().raw() == before
    }
}

/// With mutable dispatch, an update of a launch of the same kernel changes the recording itself. For
/// another kernel, or without mutable dispatch, there is a new recording. The results are the same.
#[test]
fn recordings_change_in_place_where_the_device_can() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        for in_order in [true, false] {
            let mut bench = Bench::new(index, in_order, QueueOrder::InOrder);
            let Some(features) = bench.device.context.features.recording else { continue };
            let can = |fields: sys::cl_bitfield| features.mutable & fields == fields;
            let arguments = can(sys::CL_MUTABLE_DISPATCH_ARGUMENTS_KHR);
            let sizes = arguments
                && can(sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR
                    | sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR
                    | sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR);
            if bench.device.context.platform.name == "Intel(R) OpenCL" {
                assert!(sizes, "Intel's runtime has mutable dispatch 0.9.3 with all fields");
            }
            assert_eq!(bench.run(), [1, 1, 1, 1, 0, 0, 0, 0]);
            assert_eq!(bench.in_place(|update| update.args = vec![(0, number(10))].into()), arguments);
            assert_eq!(bench.run(), [11, 11, 11, 11, 0, 0, 0, 0]);
            let second_half = bench.half(1);
            bench.in_place(|update| update.args = vec![(1, second_half)].into());
            assert_eq!(bench.run(), [11, 11, 11, 11, 10, 10, 10, 10]);
            let (whole, set) = (KernelArg::Memory(bench.x.clone()), bench.set.clone());
            bench.in_place(|update| update.args = vec![(1, whole)].into());
            let in_place = bench.in_place(|update| {
                update.global_size = Some([2, 1, 1]);
                update.global_offset = Some([5, 0, 0]);
                update.local_size = Some(Some([2, 1, 1]));
            });
            assert_eq!(in_place, sizes);
            assert_eq!(bench.run(), [11, 11, 11, 11, 10, 20, 20, 10]);
            assert!(!bench.in_place(|update| update.kernel = Some(set)), "another kernel");
            assert_eq!(bench.run(), [11, 11, 11, 11, 10, 10, 10, 10]);
            assert_eq!(bench.in_place(|update| update.args = vec![(0, number(7))].into()), arguments);
            assert_eq!(bench.run(), [11, 11, 11, 11, 10, 7, 7, 10]);
            // In both cases an enqueue in flight keeps its values.
            for n in 20..30 {
                let before = bench.words()[0];
                bench.enqueue();
                bench.in_place(|update| update.args = vec![(0, number(n))].into());
                assert!(matches!(bench.done.wait(None), EventStatus::Complete));
                let found = bench.words();
                let expected = if n == 20 { 7 } else { n - 1 };
                assert_eq!((found[0], found[5]), (before, expected));
            }
        }
    }
}

/// Recordings are for in-order queues; an out-of-order queue replays the same commands.
#[test]
fn out_of_order_queues_replay_recorded_commands() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let device = OpenclDevice::open(index, OpenclOptions::new()).unwrap();
        if !device.capabilities().out_of_order_queues {
            continue;
        }
        for in_order in [true, false] {
            let mut bench = Bench::new(index, in_order, QueueOrder::OutOfOrder);
            assert_eq!(bench.run(), [1, 1, 1, 1, 0, 0, 0, 0]);
            let mut expected = 1;
            for n in 2..30 {
                bench.update(|update| update.args = vec![(0, number(n))].into());
                // With an update while the enqueue is in flight, and without.
                bench.enqueue();
                expected += n;
                if n % 3 == 0 {
                    bench.update(|update| update.args = vec![(0, number(1000))].into());
                }
                assert!(matches!(bench.done.wait(None), EventStatus::Complete));
                assert_eq!(bench.words()[0], expected);
            }
            let set = bench.set.clone();
            bench.update(|update| update.kernel = Some(set));
            assert_eq!(bench.run(), [29, 29, 29, 29, 0, 0, 0, 0]);
        }
    }
}

thread_local! {
    static CREATED: Cell<usize> = const { Cell::new(0) };
    /// The value that the driver refuses as an argument.
    static REFUSED: Cell<Option<u32>> = const { Cell::new(None) };
    /// Whether it refuses all arguments.
    static REFUSES_ALL: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn count_kernels(program: *mut c_void, name: *const c_char, code: *mut i32) -> *mut c_void {
    CREATED.set(CREATED.get() + 1);
    let create = sys::core().unwrap().clCreateKernel.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { create(program, name, code) }
}

unsafe extern "C" fn refuse_value(kernel: *mut c_void, index: u32, len: usize, value: *const c_void) -> i32 {
    if REFUSES_ALL.get() {
        return sys::CL_OUT_OF_RESOURCES;
    }
    // SAFETY: the first argument of the test's kernels has four bytes.
    if index == 0 && REFUSED.get().is_some_and(|refused| unsafe { value.cast::<u32>().read() } == refused) {
        return sys::CL_OUT_OF_RESOURCES;
    }
    let set = sys::core().unwrap().clSetKernelArg.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { set(kernel, index, len, value) }
}

/// The arguments of the driver's kernel may be the new ones or the old ones then.
#[test]
fn nothing_runs_after_an_update_that_cannot_be_undone() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let options = OpenclOptions::new().lowering(Lowering::Replay);
        let device = OpenclDevice::open_changed(index, options, |platform| {
            let mut core = platform.core.clone();
            core.clSetKernelArg = Some(refuse_value);
            platform.core = kept(core);
        });
        let mut bench = Bench::on(device.unwrap(), true, QueueOrder::InOrder);
        let update = CommandUpdate::new(bench.handle).args([(0, number(300))]);
        REFUSES_ALL.set(true);
        let refused = bench.buffer.update(std::slice::from_ref(&update)).unwrap_err();
        REFUSES_ALL.set(false);
        assert!(refused.message().contains("could not be undone"), "{refused}");
        let signal = Signal::new(&bench.done);
        // SAFETY: nothing is enqueued.
        let enqueued = unsafe { bench.buffer.enqueue(&*bench.queue, WaitList::NONE, signal) };
        for refused in [enqueued, bench.buffer.update(&[update])] {
            assert!(refused.unwrap_err().message().contains("could not be undone"));
        }
        assert!(matches!(bench.done.status(), EventStatus::Idle));
    }
}

/// An update of a replayed launch changes the arguments of the driver's kernel. If the driver refuses
/// one, all stay as they were.
#[test]
fn launches_keep_their_kernel_in_an_update() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let options = OpenclOptions::new().lowering(Lowering::Replay);
        let device = OpenclDevice::open_changed(index, options, |platform| {
            let mut core = platform.core.clone();
            core.clCreateKernel = Some(count_kernels);
            core.clSetKernelArg = Some(refuse_value);
            platform.core = kept(core);
        })
        .unwrap();
        let mut bench = Bench::on(device, true, QueueOrder::InOrder);
        CREATED.set(0);
        bench.enqueue();
        bench.update(|update| update.args = vec![(0, number(20))].into());
        assert!(matches!(bench.done.wait(None), EventStatus::Complete));
        assert_eq!(bench.words()[0], 1, "an enqueue in flight keeps its values");
        let mut update = CommandUpdate::new(bench.handle);
        update.global_size = Some([WORDS, 1, 1]);
        update.args = vec![(0, number(300))].into();
        REFUSED.set(Some(300));
        let accepted = CommandUpdate::new(bench.handle).args([(0, number(4)), (1, bench.half(1))]);
        bench.buffer.update(&[accepted, update]).unwrap_err();
        REFUSED.set(None);
        assert_eq!(bench.run(), [21, 21, 21, 21, 0, 0, 0, 0]);
        let mut other = OpenclCommandBuffer::new(&bench.device.context, bench.buffer.info().desc);
        let Some(Command::Kernel(launch)) = bench.buffer.command(0) else { panic!("it is a launch") };
        let mut launch = KernelLaunch::clone(launch);
        let whole = KernelArg::Memory(bench.x.clone());
        launch.args = vec![number(5), bench.half(1)];
        assert_eq!(CREATED.get(), 0);
        other.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap();
        other.finalize().unwrap();
        bench.buffer.update_from(&other).unwrap();
        assert_eq!(bench.run(), [21, 21, 21, 21, 5, 5, 5, 5]);
        bench.update(|update| update.args = vec![(0, number(20)), (1, whole)].into());
        assert_eq!(bench.run(), [41, 41, 41, 41, 5, 5, 5, 5]);
        assert_eq!(CREATED.get(), 1, "the other command-buffer's own");
        let set = bench.set.clone();
        bench.update(|update| update.kernel = Some(set));
        assert_eq!(bench.run(), [20, 20, 20, 20, 5, 5, 5, 5]);
        assert_eq!(CREATED.get(), 2, "another kernel");
    }
}

thread_local! {
    /// While this is set, the driver changes recordings but reports that it has not, and creates none.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
    static CHANGE: Cell<opencl_sys::clUpdateMutableCommandsKHR_t> = const { Cell::new(None) };
    static CREATE: Cell<opencl_sys::clCreateCommandBufferKHR_t> = const { Cell::new(None) };
}

unsafe extern "C" fn change_and_refuse(
    recording: sys::cl_command_buffer_khr,
    count: u32,
    kinds: *const sys::cl_uint,
    configs: *mut *const c_void,
) -> i32 {
    // SAFETY: passed on to the caller.
    let code = unsafe { CHANGE.get().unwrap()(recording, count, kinds, configs) };
    if REFUSES.get() { sys::CL_OUT_OF_RESOURCES } else { code }
}

unsafe extern "C" fn refuse_creation(
    count: u32,
    queues: *const sys::cl_command_queue,
    properties: *const sys::cl_properties,
    code: *mut i32,
) -> sys::cl_command_buffer_khr {
    if REFUSES.get() {
        // SAFETY: the caller's place for the code.
        unsafe { code.write(sys::CL_OUT_OF_RESOURCES) };
        return ptr::null_mut();
    }
    // SAFETY: passed on to the caller.
    unsafe { CREATE.get().unwrap()(count, queues, properties, code) }
}

/// After a refused change in place it is unknown what the recording does. So a command-buffer that cannot
/// be recorded again is replayed, with the values from before the update.
#[test]
fn failed_re_recording_falls_back_to_replay() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let options = OpenclOptions::new().lowering(Lowering::CommandBuffer);
        let device = OpenclDevice::open_changed(index, options, |platform| {
            let extensions = &mut platform.extensions;
            CREATE.set(extensions.clCreateCommandBufferKHR);
            extensions.clCreateCommandBufferKHR = CREATE.get().and(Some(refuse_creation));
            CHANGE.set(extensions.clUpdateMutableCommandsKHR);
            extensions.clUpdateMutableCommandsKHR = CHANGE.get().and(Some(change_and_refuse));
        })
        .unwrap();
        let mut bench = Bench::on(device, true, QueueOrder::InOrder);
        if bench.device.context.features.recording.is_none() {
            continue;
        }
        assert_eq!(bench.buffer.info().lowering, "cl_khr_command_buffer");
        assert_eq!(bench.run(), [1, 1, 1, 1, 0, 0, 0, 0]);
        let mut update = CommandUpdate::new(bench.handle);
        update.args = vec![(0, number(10))].into();
        REFUSES.set(true);
        let refused = bench.buffer.update(std::slice::from_ref(&update));
        REFUSES.set(false);
        refused.unwrap_err();
        assert_eq!(bench.run(), [2, 2, 2, 2, 0, 0, 0, 0]);
        assert_eq!(bench.buffer.info().lowering, "replayed enqueues");
        bench.buffer.update(&[update]).unwrap();
        assert_eq!(bench.run(), [12, 12, 12, 12, 0, 0, 0, 0]);
    }
}
