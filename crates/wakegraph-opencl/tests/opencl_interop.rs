//! Graphs in an application that uses OpenCL through `opencl3`: its context, buffers, events and queues. Each
//! test runs on each device of each platform that is installed; without any it is ignored by name.
#![expect(unsafe_code, reason = "hands objects of opencl3 to graphs; every test orders what it enqueues")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::c_void;
use std::process::ExitCode;
use std::ptr;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device as ClDevice};
use opencl3::event::{CL_COMPLETE, Event as ClEvent, create_user_event, set_user_event_status};
use opencl3::memory::{
    Buffer as ClBuffer, CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY,
    CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, ClMem,
};
use opencl3::platform::get_platforms;
use opencl3::types::{CL_FALSE, cl_uint};
use tokio::runtime::{Builder, Runtime};
use wakegraph::backend::opencl::{OpenclOptions, open_in_context};
use wakegraph::hal::AccessMode;
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, HostRef, Range, read, write};

wakegraph::kernel! {
    /// x := 3 x + 1
    fn step(x: &mut [u32]) {
        range: |x| x.len(),
        item: |i, x| x[i] = x[i].wrapping_mul(3).wrapping_add(1),
        // SAFETY: a work-item uses the element with its index, which the range bounds.
        c: unsafe { "KERNEL(step, (SLICE(u32, x))) { x[GLOBAL_ID(0)] = x[GLOBAL_ID(0)] * 3 + 1; }" },
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

/// The tests in which an event fails that commands wait for.
const FAILED_EVENTS: [&str; 4] = [
    "a_failed_event_fails_the_submission",
    "a_loan_comes_after_all_that_is_in_flight",
    "a_join_comes_after_all_that_is_in_flight",
    "a_run_that_fails_early_ends_in_its_turn",
];

/// Time in which a command that wrongly starts ends. A correct result does not depend on it.
const A_MOMENT: Duration = Duration::from_millis(200);

type Test = (&'static str, fn(&Application));

const TESTS: &[Test] = &[
    ("buffers_and_events_go_in_and_out_without_the_host", buffers_and_events_go_in_and_out_without_the_host),
    ("submissions_wait_for_events_of_the_user", submissions_wait_for_events_of_the_user),
    (FAILED_EVENTS[0], a_failed_event_fails_the_submission),
    (FAILED_EVENTS[1], a_loan_comes_after_all_that_is_in_flight),
    (FAILED_EVENTS[2], a_join_comes_after_all_that_is_in_flight),
    (FAILED_EVENTS[3], a_run_that_fails_early_ends_in_its_turn),
    ("host_tasks_wait_for_native_events_too", host_tasks_wait_for_native_events_too),
    ("objects_may_be_released_in_any_order", objects_may_be_released_in_any_order),
    ("objects_of_another_context_are_refused", objects_of_another_context_are_refused),
    ("buffers_that_do_not_fit_are_refused", buffers_that_do_not_fit_are_refused),
    ("buffers_that_are_closed_to_the_host_are_refused", buffers_that_are_closed_to_the_host_are_refused),
    ("slices_of_a_part_of_a_buffer_are_used_in_place", slices_of_a_part_of_a_buffer_are_used_in_place),
    ("what_is_over_can_be_joined", what_is_over_can_be_joined),
    ("a_loan_lasts_until_the_events_that_it_is_held_for", a_loan_lasts_until_the_events_that_it_is_held_for),
    ("loans_follow_submissions_without_the_host", loans_follow_submissions_without_the_host),
];

fn trials() -> Vec<Trial> {
    let platforms = get_platforms().unwrap_or_default();
    let ids =
        platforms.iter().flat_map(|platform| platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default());
    let devices: Vec<_> = ids.map(|id| id.addr()).collect();
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == "opencl");
    let mut trials = Vec::new();
    for &(name, test) in TESTS {
        for (index, &id) in devices.iter().enumerate() {
            trials.push(Trial::ignorable_test(format!("{index}/{name}"), move || {
                let app = Application::new(ptr::with_exposed_provenance_mut(id));
                if FAILED_EVENTS.contains(&name) && app.device.info().driver.starts_with("Portable") {
                    return Ok(Completion::ignored_with("PoCL 3.1 ends the process when an event fails"));
                }
                test(&app);
                Ok(Completion::Completed)
            }));
        }
        if devices.is_empty() {
            trials.push(Trial::ignorable_test(name, move || match required {
                true => Err(Failed::from("WAKEGRAPH_REQUIRE asks for OpenCL, and there is no device")),
                false => Ok(Completion::ignored_with("there is no OpenCL device")),
            }));
        }
    }
    trials
}

/// What an application has that uses OpenCL without this crate, and a device opened in its context.
struct Application {
    runtime: Runtime,
    context: Context,
    queue: CommandQueue,
    device: Device,
}

const LEN: usize = 1000;

impl Application {
    fn new(id: *mut c_void) -> Self {
        let context = Context::from_device(&ClDevice::new(id)).unwrap();
        // SAFETY: the context is the application's, and of this device.
        let queue = unsafe { CommandQueue::create(&context, id, 0) }.unwrap();
        // SAFETY: the context is alive.
        let device = unsafe { open_in_context(context.get(), id, OpenclOptions::new()) }.unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, context, queue, device: Device::from_hal(device) }
    }

    fn buffer(&self) -> ClBuffer<cl_uint> {
        // SAFETY: there is no host memory behind it.
        unsafe { ClBuffer::create(&self.context, CL_MEM_READ_WRITE, LEN, ptr::null_mut()) }.unwrap()
    }

    /// Starts to fill the buffer.
    fn fill(&self, buffer: &mut ClBuffer<cl_uint>, value: u32) -> ClEvent {
        // SAFETY: the queue is in order, and what else uses the buffer is behind this or over.
        unsafe { self.queue.enqueue_fill_buffer(buffer, &[value], 0, 4 * LEN, &[]) }.unwrap()
    }

    /// Reads what is in the buffer after everything on the application's queue.
    fn read(&self, buffer: &ClBuffer<cl_uint>) -> Vec<u32> {
        let mut values = vec![0; LEN];
        // SAFETY: the queue is finished before the values are used.
        unsafe { self.queue.enqueue_read_buffer(buffer, CL_FALSE, 0, &mut values, &[]) }.unwrap();
        self.queue.finish().unwrap();
        values
    }

    fn import(&self, buffer: &ClBuffer<cl_uint>) -> Buffer<u32> {
        // SAFETY: the tests order what uses the memory.
        unsafe { self.device.import_memory(buffer.get(), LEN) }.unwrap()
    }

    /// Two steps on the buffer.
    fn steps(&self, x: &Buffer<u32>) -> ExecutableGraph {
        let mut graph = Graph::new(&self.device);
        graph.launch(step(x), Range::linear(LEN));
        graph.launch(step(x), Range::linear(LEN));
        graph.finalize().unwrap()
    }

    /// A copy of the buffer to another one, which it gives, too.
    fn copy(&self, x: &Buffer<u32>) -> (ExecutableGraph, Buffer<u32>) {
        let y = self.device.buffer::<u32>(LEN).unwrap();
        let mut graph = Graph::new(&self.device);
        graph.copy(x, &y);
        (graph.finalize().unwrap(), y)
    }

    fn user_event(&self) -> ClEvent {
        ClEvent::new(create_user_event(self.context.get()).unwrap())
    }

    fn wait(&self, event: &ClEvent) -> wakegraph::interop::NativeEvent {
        // SAFETY: the event is alive.
        unsafe { self.device.import_event(event.get()) }.unwrap()
    }
}

/// Whether the command has ended after a moment.
fn has_ended(event: &ClEvent) -> bool {
    let start = Instant::now();
    while start.elapsed() < A_MOMENT {
        if event.command_execution_status().unwrap().0 <= CL_COMPLETE {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

fn one_step(x: u32) -> u32 {
    x.wrapping_mul(3).wrapping_add(1)
}

fn two_steps(x: u32) -> u32 {
    one_step(one_step(x))
}

fn buffers_and_events_go_in_and_out_without_the_host(app: &Application) {
    let _inside = app.runtime.enter();
    let mut theirs = app.buffer();
    let exec = app.steps(&app.import(&theirs));
    for round in 0..200 {
        let written = app.fill(&mut theirs, round);
        let submission = exec.prepare().after_native(&app.wait(&written)).submit();
        // SAFETY: the queue is alive.
        unsafe { submission.join(app.queue.get()) }.unwrap();
        assert_eq!(app.read(&theirs), [two_steps(round); LEN]);
        app.runtime.block_on(submission).unwrap();
    }
}

fn submissions_wait_for_events_of_the_user(app: &Application) {
    let x = app.device.buffer::<u32>(LEN).unwrap();
    let (exec, gate) = (app.steps(&x), app.user_event());
    app.runtime.block_on(async {
        let submission = exec.prepare().after_native(&app.wait(&gate)).submit();
        for _ in 0..10 {
            tokio::task::yield_now().await;
            assert!(!submission.is_finished());
        }
        set_user_event_status(gate.get(), CL_COMPLETE).unwrap();
        submission.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [4; LEN]);
    });
}

fn a_failed_event_fails_the_submission(app: &Application) {
    let x = app.device.buffer::<u32>(LEN).unwrap();
    let (exec, gate) = (app.steps(&x), app.user_event());
    app.runtime.block_on(async {
        let submission = exec.prepare().after_native(&app.wait(&gate)).submit();
        set_user_event_status(gate.get(), -1).unwrap();
        submission.await.unwrap_err();
        // The executable works afterwards.
        x.write(&[1; LEN]).await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [two_steps(1); LEN]);
    });
}

/// One of two submissions that read the buffer fails while the other still waits.
fn a_loan_comes_after_all_that_is_in_flight(app: &Application) {
    let _inside = app.runtime.enter();
    let mut theirs = app.buffer();
    app.fill(&mut theirs, 1).wait().unwrap();
    let x = app.import(&theirs);
    let ((fails, _), (works, copy)) = (app.copy(&x), app.copy(&x));
    let (first, second) = (app.user_event(), app.user_event());
    let failing = fails.prepare().after_native(&app.wait(&first)).submit();
    let working = works.prepare().after_native(&app.wait(&second)).submit();
    // SAFETY: the queue is alive.
    let loan = unsafe { x.lend_to(AccessMode::ReadWrite, app.queue.get()) }.unwrap();
    let filled = app.fill(&mut theirs, 99);
    app.queue.flush().unwrap();
    set_user_event_status(first.get(), -5).unwrap();
    assert!(!has_ended(&filled), "the application writes what a submission is going to read");
    set_user_event_status(second.get(), CL_COMPLETE).unwrap();
    app.runtime.block_on(async {
        failing.await.unwrap_err();
        working.await.unwrap();
        assert_eq!(copy.to_vec().await.unwrap(), [1; LEN]);
        filled.wait().unwrap();
        drop(loan);
        assert_eq!(x.to_vec().await.unwrap(), [99; LEN]);
    });
}

/// A submission fails while the one that it was ordered after still waits.
fn a_join_comes_after_all_that_is_in_flight(app: &Application) {
    let _inside = app.runtime.enter();
    let mut theirs = app.buffer();
    app.fill(&mut theirs, 1).wait().unwrap();
    let x = app.import(&theirs);
    let (works, (fails, _)) = (app.steps(&x), app.copy(&x));
    let (first, second) = (app.user_event(), app.user_event());
    let working = works.prepare().after_native(&app.wait(&first)).submit();
    let failing = fails.prepare().after_native(&app.wait(&second)).submit();
    // SAFETY: the queue is alive.
    unsafe { failing.join(app.queue.get()) }.unwrap();
    let filled = app.fill(&mut theirs, 99);
    app.queue.flush().unwrap();
    set_user_event_status(second.get(), -5).unwrap();
    assert!(!has_ended(&filled), "the application overtakes the submission before the one that failed");
    set_user_event_status(first.get(), CL_COMPLETE).unwrap();
    filled.wait().unwrap();
    app.runtime.block_on(async {
        working.await.unwrap();
        failing.await.unwrap_err();
    });
    assert_eq!(app.read(&theirs), [99; LEN]);
}

fn a_run_that_fails_early_ends_in_its_turn(app: &Application) {
    let (x, host) = (app.device.buffer::<u32>(LEN).unwrap(), app.device.host_buffer::<u32>(LEN).unwrap());
    let mut graph = Graph::new(&app.device);
    graph.launch(step(&x), Range::linear(LEN));
    graph.copy(&x, &host);
    let exec = graph.finalize().unwrap();
    let (queue, mut expected) = (app.device.queue().unwrap(), 0u32);
    app.runtime.block_on(async {
        for round in 0..500 {
            let (held, fails) = (app.user_event(), app.user_event());
            let first = exec.prepare().after_native(&app.wait(&held)).submit();
            let second = exec.prepare().after_native(&app.wait(&fails)).submit();
            let first_result = one_step(expected);
            let sees = async move |(view,): (HostRef<u32>,)| assert_eq!(view[0], first_result);
            let task = queue.host_task((read(&host),), sees);
            if round % 2 == 0 {
                set_user_event_status(fails.get(), -1).unwrap();
            }
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            assert!(!first.is_finished() && !second.is_finished() && !task.is_finished());
            assert!(host.try_write().is_err(), "the first run is going to write");
            // It is ordered behind both, by devices or by the host.
            let third = exec.submit();
            set_user_event_status(held.get(), CL_COMPLETE).unwrap();
            if round % 2 == 1 {
                set_user_event_status(fails.get(), -1).unwrap();
            }
            second.await.unwrap_err();
            assert!(first.is_finished());
            first.await.unwrap();
            third.await.unwrap();
            task.wait().await.unwrap();
            expected = two_steps(expected);
            assert_eq!(host.read().await[..], [expected; LEN]);
        }
    });
}

fn host_tasks_wait_for_native_events_too(app: &Application) {
    let mut theirs = app.buffer();
    let (x, words) = (app.import(&theirs), app.device.host_buffer::<u32>(1).unwrap());
    let mut graph = Graph::new(&app.device);
    graph.host_task((write(&words),), async |(mut words,)| words[0] = 5);
    graph.copy(&words, x.slice(..1).unwrap());
    let exec = graph.finalize().unwrap();
    app.runtime.block_on(async {
        let gate = app.user_event();
        let submission = exec.prepare().after_native(&app.wait(&gate)).submit();
        assert!(!submission.is_finished());
        // SAFETY: the queue is alive.
        let early = unsafe { submission.join(app.queue.get()) };
        assert_eq!(early.unwrap_err().kind(), ErrorKind::InvalidOperation);
        app.fill(&mut theirs, 9).wait().unwrap();
        set_user_event_status(gate.get(), CL_COMPLETE).unwrap();
        submission.await.unwrap();
        assert_eq!(app.read(&theirs)[..2], [5, 9]);
    });
}

fn objects_may_be_released_in_any_order(app: &Application) {
    let _inside = app.runtime.enter();
    for round in 0..6 {
        let mut theirs = app.buffer();
        let result = app.device.host_buffer::<u32>(LEN).unwrap();
        let x = app.import(&theirs);
        let mut graph = Graph::new(&app.device);
        graph.launch(step(&x), Range::linear(LEN));
        graph.copy(&x, &result);
        let exec = graph.finalize().unwrap();
        let written = app.fill(&mut theirs, round);
        let native = app.wait(&written);
        if round % 2 == 0 {
            drop((theirs, written));
            drop(x);
        } else {
            drop((x, written));
            drop(theirs);
        }
        let submission = exec.prepare().after_native(&native).submit();
        drop((native, exec));
        app.runtime.block_on(async {
            submission.await.unwrap();
            assert_eq!(*result.read().await, [3 * round + 1; LEN]);
        });
    }
}

fn objects_of_another_context_are_refused(app: &Application) {
    let other = Application::new(app.context.devices()[0]);
    let (theirs, gate) = (other.buffer(), other.user_event());
    let host = Device::open("host").unwrap();
    let invalid = ErrorKind::InvalidArgument;
    for (device, handle, kind) in [
        (&app.device, theirs.get(), invalid),
        (&app.device, ptr::null_mut(), invalid),
        (&host, theirs.get(), ErrorKind::FeatureNotSupported),
    ] {
        // SAFETY: the handle is null or that of a live buffer.
        let error = unsafe { device.import_memory::<u32>(handle, LEN) }.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    for (device, handle, kind) in [
        (&app.device, gate.get(), invalid),
        (&app.device, ptr::null_mut(), invalid),
        (&host, gate.get(), ErrorKind::FeatureNotSupported),
    ] {
        // SAFETY: the handle is null or that of a live event.
        let error = unsafe { device.import_event(handle) }.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let x = app.device.buffer::<u32>(LEN).unwrap();
    let exec = app.steps(&x);
    app.runtime.block_on(async {
        // Held back, so that it is not over.
        let closed = app.user_event();
        let submission = exec.prepare().after_native(&app.wait(&closed)).submit();
        for queue in [other.queue.get(), ptr::null_mut()] {
            // SAFETY: the handle is null or that of a live queue.
            let error = unsafe { submission.join(queue) }.unwrap_err();
            assert_eq!(error.kind(), invalid, "{error}");
        }
        set_user_event_status(closed.get(), CL_COMPLETE).unwrap();
        submission.await.unwrap();
    });
    let id = app.context.devices()[0];
    for (context, device) in [
        (ptr::null_mut(), id),
        (app.context.get(), ptr::null_mut()),
        (app.context.get(), ptr::dangling_mut()),
    ] {
        // SAFETY: the context is null or alive.
        let error = unsafe { open_in_context(context, device, OpenclOptions::new()) }.unwrap_err();
        assert_eq!(error.kind(), invalid, "{error}");
    }
}

fn buffers_that_do_not_fit_are_refused(app: &Application) {
    let theirs = app.buffer();
    for len in [LEN + 1, usize::MAX] {
        // SAFETY: the handle is that of a live buffer.
        let error = unsafe { app.device.import_memory::<u32>(theirs.get(), len) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    }
    // SAFETY: as above.
    let empty = unsafe { app.device.import_memory::<u32>(theirs.get(), 0) }.unwrap();
    assert!(empty.is_empty());
    // SAFETY: there is no host memory behind it.
    let constant: ClBuffer<cl_uint> =
        unsafe { ClBuffer::create(&app.context, CL_MEM_READ_ONLY, LEN, ptr::null_mut()) }.unwrap();
    // SAFETY: the handle is that of a live buffer.
    let error = unsafe { app.device.import_memory::<u32>(constant.get(), LEN) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

fn buffers_that_are_closed_to_the_host_are_refused(app: &Application) {
    for closed in [CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_NO_ACCESS] {
        let flags = CL_MEM_READ_WRITE | closed;
        // SAFETY: there is no host memory behind it.
        let whole: ClBuffer<cl_uint> =
            unsafe { ClBuffer::create(&app.context, flags, LEN, ptr::null_mut()) }.unwrap();
        // SAFETY: the part is within the buffer, whose flags it inherits.
        let part = unsafe { whole.create_sub_buffer(CL_MEM_READ_WRITE, 0, LEN / 2) }.unwrap();
        for (handle, len) in [(whole.get(), LEN), (part.get(), LEN / 2)] {
            // SAFETY: the handle is that of a live buffer.
            let error = unsafe { app.device.import_memory::<u32>(handle, len) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("without CL_MEM_HOST_READ_ONLY"), "{error}");
        }
    }
}

/// Of a part of a buffer OpenCL makes no further parts.
fn slices_of_a_part_of_a_buffer_are_used_in_place(app: &Application) {
    // In bytes a multiple of the alignment that any device asks for.
    const UNIT: usize = 2048;
    // SAFETY: there is no host memory behind it.
    let mut theirs: ClBuffer<cl_uint> =
        unsafe { ClBuffer::create(&app.context, CL_MEM_READ_WRITE, 4 * UNIT, ptr::null_mut()) }.unwrap();
    // SAFETY: the buffer is not used otherwise.
    unsafe { app.queue.enqueue_fill_buffer(&mut theirs, &[1_u32], 0, 16 * UNIT, &[]) }.unwrap();
    app.queue.finish().unwrap();
    // SAFETY: the part is within the buffer.
    let part = unsafe { theirs.create_sub_buffer(CL_MEM_READ_WRITE, UNIT, 2 * UNIT) }.unwrap();
    // SAFETY: the handle is that of a live buffer; the test orders what uses it.
    let x = unsafe { app.device.import_memory::<u32>(part.get(), 2 * UNIT) }.unwrap();
    drop(part);
    let mut expected = vec![1; 4 * UNIT];
    for range in [0..2 * UNIT, 0..UNIT, UNIT..2 * UNIT, 1..UNIT, UNIT - 3..2 * UNIT - 5] {
        let slice = x.slice(range.clone()).unwrap();
        let mut graph = Graph::new(&app.device);
        graph.launch(step(&slice), Range::linear(slice.len()));
        let exec = graph.finalize().unwrap();
        app.runtime.block_on(exec.submit()).unwrap();
        expected[UNIT..][range].iter_mut().for_each(|x| *x = 3 * *x + 1);
    }
    let mut values = vec![0; 4 * UNIT];
    // SAFETY: the queue is finished before the values are used.
    unsafe { app.queue.enqueue_read_buffer(&theirs, CL_FALSE, 0, &mut values, &[]) }.unwrap();
    app.queue.finish().unwrap();
    assert_eq!(values, expected);
}

fn what_is_over_can_be_joined(app: &Application) {
    let theirs = app.buffer();
    let exec = app.steps(&app.import(&theirs));
    app.runtime.block_on(async {
        let submission = exec.submit();
        submission.event().await.unwrap();
        // SAFETY: the queue is alive.
        unsafe { submission.join(app.queue.get()) }.unwrap();
    });
}

fn a_loan_lasts_until_the_events_that_it_is_held_for(app: &Application) {
    let x = app.device.buffer_from(&[1; LEN]).unwrap();
    let (early, late) = (app.steps(&x), app.steps(&x));
    app.runtime.block_on(async {
        for mode in [AccessMode::Read, AccessMode::ReadWrite] {
            let gates = [app.user_event(), app.user_event()];
            let mut loan = x.lend(mode).await.unwrap();
            // Waits for the loan on the host, and starts when all of it is over.
            let before = early.submit();
            for gate in &gates {
                loan.hold_until(&app.wait(gate)).unwrap();
            }
            drop(loan);
            // Waits for the events on the device.
            let theirs = late.submit();
            for gate in &gates {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                    assert!(!before.is_finished() && !theirs.is_finished());
                }
                set_user_event_status(gate.get(), CL_COMPLETE).unwrap();
            }
            before.await.unwrap();
            theirs.await.unwrap();
        }
    });
}

fn loans_follow_submissions_without_the_host(app: &Application) {
    let _inside = app.runtime.enter();
    let x = app.device.buffer_from(&[1; LEN]).unwrap();
    let exec = app.steps(&x);
    let gate = app.user_event();
    let submission = exec.prepare().after_native(&app.wait(&gate)).submit();
    // SAFETY: the queue is alive.
    let mut loan = unsafe { x.lend_to(AccessMode::ReadWrite, app.queue.get()) }.unwrap();
    // SAFETY: nothing is in the list.
    let theirs = unsafe { app.queue.enqueue_marker_with_wait_list(&[]) }.unwrap();
    loan.hold_until(&app.wait(&theirs)).unwrap();
    drop((loan, x));
    let later = exec.submit();
    // SAFETY: the queue is alive. It can only wait for what is all on devices.
    unsafe { later.join(app.queue.get()) }.unwrap();
    assert!(!submission.is_finished() && !later.is_finished());
    set_user_event_status(gate.get(), CL_COMPLETE).unwrap();
    theirs.wait().unwrap();
    assert!(submission.is_finished());
    app.runtime.block_on(later).unwrap();
}
