//! Prefetches reach the driver, or are replaced by markers.
#![expect(unsafe_code, reason = "enqueues, and allocates by hand")]

use std::sync::Arc;

use wakegraph_hal::{
    Command, Device as _, EventStatus, MemoryDesc, MemoryKind, Queue as _, UsmPointer, WaitList,
};

use super::super::OpenclDevice;
use super::super::events::{OpenclEvent, OpenclSignal};
use super::super::lower::OpenclOperation;
use super::super::sys::{self, call};
use super::super::{OpenclOptions, lower};
use super::{devices, queue};

/// The kind of command that the driver reports for an event, once it has ended.
fn kind_of(device: &OpenclDevice, signal: &OpenclSignal) -> u32 {
    let (core, event) = (device.context.core, signal.event().unwrap());
    // SAFETY: the event is alive.
    unsafe { call!(core, clWaitForEvents(1, &raw const event)) }.unwrap();
    let (mut kind, what) = (0u32, sys::CL_EVENT_COMMAND_TYPE);
    // SAFETY: the event is alive, and there is room for the answer.
    unsafe { call!(core, clGetEventInfo(event, what, 4, (&raw mut kind).cast(), std::ptr::null_mut())) }
        .unwrap();
    kind
}

/// The driver migrates shared virtual memory, and memory of Intel's extension if it has that. A prefetch
/// that it refuses, or has no function for, keeps its place in the order.
#[test]
fn prefetches_reach_the_driver_or_keep_the_order() {
    for device in devices() {
        let context = &device.context;
        if !context.features.shared_memory {
            continue;
        }
        let queue = queue(&device);
        let prefetch = |memory: UsmPointer| {
            let event: Arc<dyn wakegraph_hal::Event> = Arc::new(OpenclEvent::new(context));
            let signal = wakegraph_hal::Signal::new(&event);
            // SAFETY: the memory lives until the end of this test.
            unsafe { queue.enqueue(&Arc::new(Command::UsmPrefetch { memory }), WaitList::NONE, signal) }
                .unwrap();
            assert!(matches!(event.wait(None), EventStatus::Complete));
            let event = event.downcast_ref::<OpenclEvent>().unwrap();
            kind_of(&device, &event.signal.get().unwrap())
        };
        let (svm, usm) = (sys::CL_COMMAND_SVM_MIGRATE_MEM, sys::CL_COMMAND_MIGRATEMEM_INTEL);
        let memory = device.allocate(&MemoryDesc::new(4096, MemoryKind::Device)).unwrap();
        if context.features.migrates_shared_memory {
            let kind = prefetch(memory.usm().unwrap());
            assert_eq!(kind, svm, "{kind:#x}");
        }
        if context.features.unified_memory {
            let unified = unified::Memory::new(&device, 4096);
            let command = Command::UsmPrefetch { memory: unified.pointer() };
            let lowered = format!("{:?}", lower::lower(context, &command).unwrap());
            assert!(lowered.contains("unified: true"), "{lowered}");
            // Intel's CPU runtime can only migrate it to the host.
            let kind = prefetch(unified.pointer());
            assert!([usm, sys::CL_COMMAND_MARKER].contains(&kind), "{kind:#x}");
        }
        // Plain memory of the host: some drivers accept it, others refuse it.
        let own = vec![0u8; 4096];
        // SAFETY: the bytes live until the end of this test.
        prefetch(unsafe { UsmPointer::new(own.as_ptr().expose_provenance(), own.len()) });
        // On a driver that is too old, a prefetch is a marker.
        let mut old = OpenclDevice::open(0, OpenclOptions::new()).unwrap();
        let features =
            &mut Arc::get_mut(&mut old.context).expect("the test holds the only reference").features;
        (features.migrates_shared_memory, features.unified_memory) = (false, false);
        let lowered = lower::lower(&old.context, &Command::UsmPrefetch { memory: memory.usm().unwrap() });
        let operations = lowered.unwrap().operations;
        assert!(operations.len() == 1 && matches!(operations[0], OpenclOperation::Marker));
    }
}

/// Memory of `cl_intel_unified_shared_memory`, which the backend itself does not allocate.
mod unified {
    use std::ffi::{CStr, c_void};

    use super::*;

    pub(super) struct Memory<'a> {
        device: &'a OpenclDevice,
        start: *mut c_void,
        len: usize,
    }

    impl<'a> Memory<'a> {
        pub(super) fn new(device: &'a OpenclDevice, len: usize) -> Self {
            let (context, id) = (device.context.raw.raw(), device.context.id.raw());
            // SAFETY: the function of this name has this type.
            let allocate: opencl_sys::clSharedMemAllocINTEL_t =
                unsafe { std::mem::transmute(function(device, c"clSharedMemAllocINTEL")) };
            // SAFETY: the context and its device are alive.
            let start =
                unsafe { allocate.unwrap()(context, id, std::ptr::null(), len, 0, std::ptr::null_mut()) };
            assert!(!start.is_null());
            Self { device, start, len }
        }

        pub(super) fn pointer(&self) -> UsmPointer {
            // SAFETY: the memory lives as long as `self`, which outlives the commands.
            unsafe { UsmPointer::new(self.start.expose_provenance(), self.len) }
        }
    }

    impl Drop for Memory<'_> {
        fn drop(&mut self) {
            // SAFETY: the function of this name has this type.
            let free: opencl_sys::clMemFreeINTEL_t =
                unsafe { std::mem::transmute(function(self.device, c"clMemFreeINTEL")) };
            // SAFETY: allocated in this context, freed once, when the commands have ended.
            unsafe { free.unwrap()(self.device.context.raw.raw(), self.start) };
        }
    }

    fn function(device: &OpenclDevice, name: &CStr) -> *mut c_void {
        let context = &device.context;
        let find = context.core.clGetExtensionFunctionAddressForPlatform.unwrap();
        // SAFETY: the platform is the driver's own, and the name ends in NUL.
        unsafe { find(context.platform.id(), name.as_ptr()) }
    }
}
