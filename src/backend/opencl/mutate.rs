//! Updates of a recording in place, by mutable dispatch: for launches of the same kernel, with the fields that the device
//! can change.
#![expect(unsafe_code, reason = "calls the driver's extension")]

use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::kernel::{self, Argument};
use super::record::{Handle, Recording};
use super::sys::{self, Failure, call};
use crate::hal::KernelLaunch;
use crate::types::Range;

/// A launch that an update has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    /// The step that it is.
    pub(super) step: usize,
    pub(super) old: &'a KernelLaunch,
    pub(super) new: &'a KernelLaunch,
}

/// The values of one change, in places that the driver can be pointed to.
struct Values<'a> {
    handle: Handle,
    dimensions: u32,
    args: Vec<(sys::cl_uint, Argument<'a>)>,
    offset: [usize; 3],
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

/// Changes the recording in place, all of it or nothing. False where that cannot be done: then it has to be made anew.
pub(super) fn change(recording: &Recording, changes: &[Change<'_>]) -> bool {
    let values: Option<Vec<_>> = changes.iter().map(|change| values(recording, change)).collect();
    values.is_some_and(|values| match apply(recording, &values) {
        Ok(()) => true,
        Err(Failure { call, code }) => {
            tracing::debug!(target: "wakegraph::opencl", call, code, "an update in place was refused");
            false
        }
    })
}

fn values<'a>(recording: &Recording, change: &Change<'a>) -> Option<Values<'a>> {
    let Change { step, old, new } = *change;
    let handle = recording.handles.get(step).copied().filter(|handle| !handle.is_null())?;
    let (before, now) = (&old.range, &new.range);
    // A work-group size that is left to the device now cannot be said.
    let local = match (before.local_size(), now.local_size()) {
        (None, None) => None,
        (_, Some(local)) => Some(local),
        (Some(_), None) => return None,
    };
    let same_kernel = ptr::addr_eq(Arc::as_ptr(&old.kernel), Arc::as_ptr(&new.kernel));
    let needed = sys::CL_MUTABLE_DISPATCH_ARGUMENTS_KHR | needed_fields(before, now);
    if !same_kernel || before.dimensions() != now.dimensions() || needed & !recording.mutable != 0 {
        return None;
    }
    let mut parts = SmallVec::new();
    let mut args = Vec::with_capacity(new.args.len());
    for (index, arg) in new.args.iter().enumerate() {
        args.push((index as sys::cl_uint, kernel::argument(recording.shared(), arg, &mut parts).ok()?));
    }
    // Parts of buffers would have to outlive this call, and the recording.
    parts.is_empty().then_some(Values {
        handle,
        dimensions: now.dimensions() as u32,
        args,
        offset: now.global_offset(),
        global: now.global_size(),
        local,
    })
}

fn needed_fields(before: &Range, now: &Range) -> sys::cl_mutable_dispatch_fields_khr {
    let field = |changed: bool, bit| if changed { bit } else { 0 };
    field(before.global_size() != now.global_size(), sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR)
        | field(before.local_size() != now.local_size(), sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR)
        | field(before.global_offset() != now.global_offset(), sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR)
}

fn apply(recording: &Recording, values: &[Values<'_>]) -> Result<(), Failure> {
    let args: Vec<_> = values.iter().map(arguments).collect();
    let configs: Vec<_> =
        values.iter().zip(&args).map(|(values, args)| config(recording, values, args)).collect();
    let types = vec![sys::CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR; configs.len()];
    let mut list: Vec<_> = configs.iter().map(|config| ptr::from_ref(config).cast()).collect();
    let (count, types, list) = (configs.len() as sys::cl_uint, types.as_ptr(), list.as_mut_ptr());
    let extensions = &recording.shared().platform.extensions;
    // SAFETY: the recording is finalized and not pending; the configurations, and what they point to, outlive the call.
    unsafe { call!(extensions, clUpdateMutableCommandsKHR(recording.raw(), count, types, list)) }
}

/// Arguments by value, and those by address.
type Arguments = [Vec<sys::cl_mutable_dispatch_arg_khr>; 2];

fn arguments(values: &Values<'_>) -> Arguments {
    let mut lists = Arguments::default();
    for (arg_index, argument) in &values.args {
        let (list, arg_size, arg_value) = match argument {
            Argument::Bytes(bytes) => (0, bytes.len(), bytes.as_ptr().cast()),
            Argument::Local(bytes) => (0, *bytes, ptr::null()),
            Argument::Pointer(address) => (1, 0, ptr::with_exposed_provenance(*address)),
        };
        lists[list].push(sys::cl_mutable_dispatch_arg_khr { arg_index: *arg_index, arg_size, arg_value });
    }
    lists
}

fn config(
    recording: &Recording,
    values: &Values<'_>,
    [by_value, by_address]: &Arguments,
) -> sys::cl_mutable_dispatch_config_khr {
    // A field that the device cannot change may not be given, and has not changed.
    let given = |bit, place: *const usize| if recording.mutable & bit == 0 { ptr::null() } else { place };
    sys::cl_mutable_dispatch_config_khr {
        command: values.handle,
        num_args: by_value.len() as sys::cl_uint,
        num_svm_args: by_address.len() as sys::cl_uint,
        num_exec_infos: 0,
        work_dim: values.dimensions,
        arg_list: super::op::list(by_value).1,
        arg_svm_list: super::op::list(by_address).1,
        exec_info_list: ptr::null(),
        global_work_offset: given(sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR, values.offset.as_ptr()),
        global_work_size: given(sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR, values.global.as_ptr()),
        local_work_size: given(
            sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR,
            values.local.as_ref().map_or(ptr::null(), |local| local.as_ptr()),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "enqueues what the test orders")]

    use crate::backend::opencl::command_buffer::OpenclCommandBuffer;
    use crate::backend::opencl::device::OpenclDevice;
    use crate::backend::opencl::{Lowering, OpenclBackend, OpenclOptions};
    use crate::hal::{
        Backend as _, Command, CommandBuffer as _, CommandBufferDesc, CommandHandle, Device as _, Event,
        EventDesc, EventStatus, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources, KernelUpdate,
        MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, Queue, QueueDesc, QueueOrder, Signal,
        ValueBytes, WaitList,
    };
    use crate::types::AccessMode;

    use super::*;

    const SOURCE: &str = "KERNEL(add, (u32 n, GLOBAL u32 *x)) { x[GLOBAL_ID(0)] += n; }\n\
                          KERNEL(set, (u32 n, GLOBAL u32 *x)) { x[GLOBAL_ID(0)] = n; }";
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
        fn new(index: usize, in_order: bool) -> Self {
            let device =
                OpenclDevice::open(index, OpenclOptions::new().lowering(Lowering::CommandBuffer)).unwrap();
            let queue =
                device.create_queue(&QueueDesc { order: QueueOrder::InOrder, profiling: false }).unwrap();
            let numbers =
                ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
            let params = [
                Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
                Param { name: "x".into(), kind: numbers },
            ];
            let sources = KernelSources::new().c(SOURCE);
            let load = |name| device.create_kernel(&KernelDesc { name, params: &params, sources: &sources });
            let (add, set) = (load("add").unwrap(), load("set").unwrap());
            let desc = MemoryDesc { len: 4 * WORDS, kind: MemoryKind::Device };
            let x = MemoryView::whole(device.allocate(&desc).unwrap());
            let desc = CommandBufferDesc { updatable: true, in_order, profiling: false };
            let mut buffer = OpenclCommandBuffer::new(device.shared(), desc);
            let launch = KernelLaunch {
                kernel: add,
                args: vec![number(1), KernelArg::Memory(x.clone())],
                range: Range::linear(WORDS / 2),
                alternatives: vec![set.clone()],
            };
            let handle = buffer.append(&Command::Kernel(Box::new(launch)), &[]).unwrap().handle.unwrap();
            buffer.finalize().unwrap();
            let done = device.create_event(&EventDesc::default()).unwrap();
            Self { device, queue, set, x, buffer, handle, done }
        }

        fn enqueue(&self) {
            let signal = Signal { event: &self.done, notification: None };
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

        /// Updates, and tells whether the recording is still the same one.
        fn in_place(&mut self, change: impl FnOnce(&mut KernelUpdate)) -> bool {
            let before = self.buffer.recording().unwrap().raw();
            let mut update = KernelUpdate::new(self.handle);
            change(&mut update);
            self.buffer.update(&[update]).unwrap();
            self.buffer.recording().unwrap().raw() == before
        }
    }

    /// On every device that records: with mutable dispatch an update of the same kernel changes the recording itself, of
    /// another kernel, or without, there is a new one. The results are the same.
    #[test]
    fn recordings_change_in_place_where_the_device_can() {
        for index in 0..OpenclBackend.device_count().unwrap_or(0) {
            for in_order in [true, false] {
                let mut bench = Bench::new(index, in_order);
                let Some(features) = bench.device.shared().features.recording else { continue };
                let can = |fields: sys::cl_mutable_dispatch_fields_khr| features.mutable & fields == fields;
                let arguments = can(sys::CL_MUTABLE_DISPATCH_ARGUMENTS_KHR);
                let sizes = arguments
                    && can(sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR
                        | sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR
                        | sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR);
                if bench.device.shared().platform.name == "Intel(R) OpenCL" {
                    assert!(sizes, "Intel's runtime has mutable dispatch 0.9.3 with all fields");
                }
                assert_eq!(bench.run(), [1, 1, 1, 1, 0, 0, 0, 0]);
                assert_eq!(bench.in_place(|update| update.args = vec![(0, number(10))]), arguments);
                assert_eq!(bench.run(), [11, 11, 11, 11, 0, 0, 0, 0]);
                let second_half =
                    KernelArg::Memory(MemoryView::new(bench.x.memory().clone(), 16, 16).unwrap());
                bench.in_place(|update| update.args = vec![(1, second_half)]);
                assert_eq!(bench.run(), [11, 11, 11, 11, 10, 10, 10, 10]);
                let (whole, set) = (KernelArg::Memory(bench.x.clone()), bench.set.clone());
                bench.in_place(|update| update.args = vec![(1, whole)]);
                let in_place = bench.in_place(|update| {
                    update.global_size = Some([2, 1, 1]);
                    update.global_offset = Some([5, 0, 0]);
                    update.local_size = Some(Some([2, 1, 1]));
                });
                assert_eq!(in_place, sizes);
                assert_eq!(bench.run(), [11, 11, 11, 11, 10, 20, 20, 10]);
                assert!(!bench.in_place(|update| update.kernel = Some(set)), "another kernel");
                assert_eq!(bench.run(), [11, 11, 11, 11, 10, 10, 10, 10]);
                assert_eq!(bench.in_place(|update| update.args = vec![(0, number(7))]), arguments);
                assert_eq!(bench.run(), [11, 11, 11, 11, 10, 7, 7, 10]);
                // What is in flight keeps its values, in whichever way.
                for n in 20..30 {
                    let before = bench.words()[0];
                    bench.enqueue();
                    bench.in_place(|update| update.args = vec![(0, number(n))]);
                    assert!(matches!(bench.done.wait(None), EventStatus::Complete));
                    let found = bench.words();
                    let expected = if n == 20 { 7 } else { n - 1 };
                    assert_eq!((found[0], found[5]), (before, expected));
                }
            }
        }
    }
}
