//! The place of a stream task in the order of its queue.
#![expect(unsafe_code, reason = "enqueues, and waits for an event by hand")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use wakegraph_hal::{Command, Event, EventStatus, NativeCommand, NativeStream, Queue, Signal, WaitList};

use super::super::events::OpenclEvent;
use super::super::platform::POCL;
use super::{CODE, devices, end, pending, queue};

/// Time in which a command that wrongly starts ends. A correct result does not depend on it.
const A_MOMENT: Duration = Duration::from_millis(200);

/// Behind an in-order queue there are two of the driver: commands with times go to one with profiling. A
/// closure that enqueues on the queue itself changes the one that is used, in the middle of the stream task.
#[test]
fn what_follows_a_stream_task_comes_after_all_of_it() {
    for device in devices() {
        let (queue, other) = (Arc::new(queue(&device)), queue(&device));
        let (gate, open_gate) = pending(&device, &other);
        let event = || Arc::new(OpenclEvent::new(&device.context)) as Arc<dyn Event>;
        let [inner, task_done, after] = [(); 3].map(|()| event());
        let enqueue_timed = |queue: &dyn Queue, event: &Arc<dyn Event>, wait: WaitList<'_>| {
            // SAFETY: the command uses no memory.
            unsafe { queue.enqueue(&Arc::new(Command::Empty), wait, Signal::new(event).timed(true)) }
        };
        let task = {
            let (queue, inner, core) = (Arc::clone(&queue), Arc::clone(&inner), device.context.core);
            let gate = open_gate.0.expose_provenance();
            let run = move |stream: &NativeStream<'_>| {
                enqueue_timed(&*queue, &inner, WaitList::NONE)?;
                let gate: *mut c_void = std::ptr::with_exposed_provenance_mut(gate);
                let wait = core.clEnqueueBarrierWithWaitList.unwrap();
                // SAFETY: the queue and the event are alive.
                let code = unsafe { wait(stream.stream(), 1, &raw const gate, std::ptr::null_mut()) };
                assert_eq!(code, 0);
                Ok(())
            };
            // SAFETY: it touches no memory; the events stay until the end of the test.
            unsafe { NativeCommand::new("task", Vec::new(), run) }
        };
        // SAFETY: it touches no memory.
        unsafe {
            queue.enqueue(&Arc::new(Command::StreamTask(task)), WaitList::NONE, Signal::new(&task_done))
        }
        .unwrap();
        assert!(matches!(task_done.status(), EventStatus::Pending));
        enqueue_timed(&*queue, &after, WaitList::order(&[&*task_done])).unwrap();
        let status = after.wait(Some(A_MOMENT));
        assert!(matches!(status, EventStatus::Pending), "it overtook the task: {status:?}");
        end(&device, &open_gate, 0);
        for event in [&inner, &task_done, &after] {
            assert!(matches!(event.wait(None), EventStatus::Complete));
        }
        drop(gate);
    }
}

/// Intel's CPU runtime ends a barrier as soon as one of its events fails. PoCL ends the process
/// then.
#[test]
fn a_stream_task_waits_for_the_end_of_each_dependency() {
    for device in devices().into_iter().filter(|device| device.context.platform.name != POCL) {
        let (first, second) = (queue(&device), queue(&device));
        let ((fails, fail), (works, end_work)) = (pending(&device, &second), pending(&device, &second));
        let event = || Arc::new(OpenclEvent::new(&device.context)) as Arc<dyn Event>;
        let [task_done, behind] = [(); 2].map(|()| event());
        // SAFETY: it touches no memory.
        let task = unsafe { NativeCommand::new("task", Vec::new(), |_: &NativeStream<'_>| Ok(())) };
        let enqueue = |command, wait: WaitList<'_>, event| {
            // SAFETY: the commands touch no memory.
            unsafe { first.enqueue(&Arc::new(command), wait, Signal::new(event)) }.unwrap();
        };
        let needed: &[&dyn Event] = &[&*fails, &*works];
        enqueue(Command::StreamTask(task), WaitList::dependencies(needed), &task_done);
        enqueue(Command::Empty, WaitList::NONE, &behind);
        end(&device, &fail, CODE);
        let status = behind.wait(Some(A_MOMENT));
        assert!(matches!(status, EventStatus::Pending), "it overtook what the task waits for: {status:?}");
        end(&device, &end_work, 0);
        assert!(matches!(behind.wait(None), EventStatus::Complete));
        assert!(matches!(task_done.wait(None), EventStatus::Failed(_)));
    }
}
