//! A failure does not spread along mere order, and what follows it stays in order.
#![expect(unsafe_code, reason = "enqueues, and fails events by hand")]

use std::sync::Arc;
use std::time::Duration;

use wakegraph_hal::{
    Backend as _, Command, CommandBufferDesc, Device as _, Event, EventStatus, MemoryDesc, MemoryKind,
    MemoryView, NativeCommand, NativeStream, Queue, Signal, WaitList,
};

use super::super::OpenclDevice;
use super::super::events::{OpenclEvent, OpenclSignal};
use super::super::platform::POCL;
use super::super::{Lowering, OpenclBackend, OpenclOptions};
use super::{CODE, devices, end, pending, queue, sys_event};

/// Time in which a command that wrongly starts ends. A correct result does not depend on it.
const A_MOMENT: Duration = Duration::from_millis(200);

/// With PoCL failures spread along order, and it may crash where many do.
fn is_tested(device: &OpenclDevice) -> bool {
    device.context.platform.name != POCL
}

/// An event of another library, and what ends it.
fn imported(device: &OpenclDevice) -> (OpenclEvent, sys_event::Raw) {
    let user = device.context.user_event().unwrap();
    let end = sys_event::Raw(user.raw());
    (OpenclEvent::signalled(&device.context, OpenclSignal::foreign(&device.context, user)), end)
}

/// `b` needs the event of another library, which fails, and `p`, which ends later. Intel's runtime ends `b`
/// at the failure, and skips what waits for an event that fails, but reports it as complete.
#[test]
fn what_comes_after_a_failure_runs_and_in_order() {
    for device in devices().into_iter().filter(is_tested) {
        let (a, end_a) = imported(&device);
        let [first, second, third, fourth] = [(); 4].map(|()| queue(&device));
        let (p, end_p) = pending(&device, &fourth);
        let enqueue = |queue: &dyn Queue, wait: WaitList<'_>| {
            let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
            let (dst, pattern) = (MemoryView::whole(memory.clone()), [7].as_slice().into());
            let fill = Arc::new(Command::BufferFill { dst, pattern });
            let event: Arc<dyn Event> = Arc::new(OpenclEvent::new(&device.context));
            // SAFETY: the memory lives until the end of this test, and nothing else uses it.
            unsafe { queue.enqueue(&fill, wait, Signal::new(&event)) }.unwrap();
            (event, memory)
        };
        let b = enqueue(&first, WaitList::dependencies(&[&a, &*p]));
        let behind_b = enqueue(&first, WaitList::NONE);
        let after_b = enqueue(&second, WaitList::order(&[&*b.0]));
        let behind_that = enqueue(&second, WaitList::NONE);
        let needs_b = enqueue(&third, WaitList::dependencies(&[&*b.0]));
        let needs_that = enqueue(&first, WaitList::dependencies(&[&*needs_b.0]));
        let after_that = enqueue(&fourth, WaitList::order(&[&*needs_b.0]));
        let others = [&behind_b, &after_b, &behind_that, &after_that];

        end(&device, &end_a, CODE);
        for (event, _) in others {
            let status = event.wait(Some(A_MOMENT / 4));
            assert!(!matches!(status, EventStatus::Complete), "it overtook what `b` waits for");
        }
        end(&device, &end_p, 0);
        let outcome = |(event, memory): &(Arc<dyn Event>, Arc<dyn wakegraph_hal::Memory>)| {
            let (is_complete, mut bytes) = (matches!(event.wait(None), EventStatus::Complete), [9; 4]);
            // SAFETY: nothing uses the memory any more.
            unsafe { memory.read(0, &mut bytes) }.unwrap();
            (is_complete, bytes)
        };
        for failed in [&b, &needs_b, &needs_that] {
            assert_eq!(outcome(failed), (false, [0; 4]));
        }
        for other in others {
            assert_eq!(outcome(other), (true, [7; 4]));
        }
    }
}

/// A replay is one call for each command. Intel's runtime would skip the first only.
#[test]
fn no_command_of_a_buffer_runs_after_a_failure() {
    for lowering in [Lowering::Replay, Lowering::CommandBuffer] {
        let open = |index| OpenclDevice::open(index, OpenclOptions::new().lowering(lowering)).unwrap();
        let devices = (0..OpenclBackend.device_count().unwrap_or(0)).map(open);
        for device in devices.filter(is_tested) {
            let (a, end_a) = imported(&device);
            let desc =
                CommandBufferDesc { updatable: false, in_order: true, profiling: false, low_latency: false };
            let mut buffer = device.create_command_buffer(&desc).unwrap();
            let memories = [(); 3].map(|()| {
                let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
                let (dst, pattern) = (MemoryView::whole(memory.clone()), [7].as_slice().into());
                buffer.append(&Command::BufferFill { dst, pattern }, &[]).unwrap();
                memory
            });
            buffer.finalize().unwrap();
            let done: Arc<dyn Event> = Arc::new(OpenclEvent::new(&device.context));
            let needed: &[&dyn Event] = &[&a];
            let (wait, signal) = (WaitList::dependencies(needed), Signal::new(&done));
            // SAFETY: the memory lives until the end of this test, and nothing else uses it.
            unsafe { buffer.enqueue(&queue(&device), wait, signal) }.unwrap();
            end(&device, &end_a, CODE);
            assert!(matches!(done.wait(None), EventStatus::Failed(_)));
            for memory in memories {
                let mut bytes = [9; 4];
                // SAFETY: nothing uses the memory any more.
                unsafe { memory.read(0, &mut bytes) }.unwrap();
                assert_eq!(bytes, [0; 4], "{lowering:?}");
            }
        }
    }
}

/// The task's closure is called at once. What it enqueues is the user's, and what needs it is not.
#[test]
fn what_needs_a_stream_task_does_not_run_after_its_failure() {
    for device in devices().into_iter().filter(is_tested) {
        let (a, end_a) = imported(&device);
        let event = || Arc::new(OpenclEvent::new(&device.context)) as Arc<dyn Event>;
        let ([first, second], [task_done, done]) = ([(); 2].map(|()| queue(&device)), [event(), event()]);
        // SAFETY: it touches no memory.
        let task = unsafe { NativeCommand::new("task", Vec::new(), |_: &NativeStream<'_>| Ok(())) };
        let task = Arc::new(Command::StreamTask(task));
        // SAFETY: it touches no memory.
        unsafe { first.enqueue(&task, WaitList::dependencies(&[&a]), Signal::new(&task_done)) }.unwrap();
        let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
        let (dst, pattern) = (MemoryView::whole(memory.clone()), [7].as_slice().into());
        let fill = Arc::new(Command::BufferFill { dst, pattern });
        // SAFETY: the memory lives until the end of this test, and nothing else uses it.
        unsafe { second.enqueue(&fill, WaitList::dependencies(&[&*task_done]), Signal::new(&done)) }.unwrap();
        end(&device, &end_a, CODE);
        for event in [task_done, done] {
            assert!(matches!(event.wait(None), EventStatus::Failed(_)));
        }
        let mut bytes = [9; 4];
        // SAFETY: nothing uses the memory any more.
        unsafe { memory.read(0, &mut bytes) }.unwrap();
        assert_eq!(bytes, [0; 4]);
    }
}
