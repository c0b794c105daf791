//! Stream tasks on the fake driver.

use std::sync::atomic::{AtomicUsize, Ordering};

use wakegraph_hal::NativeCommand;

use super::*;

/// A stream task that calls `run`.
fn stream_task(run: impl Fn() -> crate::Result<()> + Send + Sync + 'static) -> Arc<Command> {
    // SAFETY: it enqueues nothing.
    let task = unsafe { NativeCommand::new("mine", Vec::new(), move |_| run()) };
    Arc::new(Command::StreamTask(task))
}

impl Bench {
    fn enqueue_task(
        &self,
        task: &Arc<Command>,
        after: &[&dyn Event],
        event: &Arc<dyn Event>,
    ) -> crate::Result<()> {
        // SAFETY: the fake driver runs nothing.
        unsafe { self.queue.enqueue(task, WaitList::dependencies(after), Signal::new(event)) }
    }
}

#[test]
fn a_stream_task_is_called_once_for_each_enqueue() {
    let (bench, calls) = (Bench::new(), Arc::new(AtomicUsize::new(0)));
    let (event, counted) = (bench.event(), calls.clone());
    let task = stream_task(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    for call in 1..4 {
        bench.enqueue_task(&task, &[], &event).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), call);
        assert!(matches!(event.wait(None), EventStatus::Complete));
    }
    assert_eq!(fake::calls("cuGraphLaunch"), 0);
}

// What it has enqueued before it failed is still on the stream.
#[test]
fn the_event_of_a_failed_stream_task_fails_when_the_stream_is_done() {
    let (bench, [event, after, last]) = (Bench::new(), [(); 3]);
    let [event, after, last] = [event, after, last].map(|()| bench.event());
    let memory = bench.memory();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    fake::hold(true);
    let failing = stream_task(|| Err(Error::new(ErrorKind::OutOfMemory, "no workspace")));
    bench.enqueue_task(&failing, &[], &event).unwrap();
    let launches = fake::calls("cuGraphLaunch");
    bench.enqueue(&*buffer, &[&*event], &after).unwrap();
    bench.enqueue_task(&stream_task(|| panic!("not called")), &[&*after], &last).unwrap();
    assert_eq!(fake::calls("cuGraphLaunch"), launches, "it needs the result");
    assert!([&event, &after, &last].iter().all(|event| matches!(event.status(), EventStatus::Pending)));
    fake::hold(false);
    for event in [last, after, event] {
        let error = failed(event.status());
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.message().contains("'mine'"), "{error}");
    }
}

// Others may wait for it in order to come after everything that it comes after.
#[test]
fn what_needs_a_failed_stream_task_keeps_its_place_in_the_order() {
    let bench = Bench::new();
    let memory = bench.memory();
    let [failed_event, running, after, task] = [(); 4].map(|()| bench.event());
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let failing = stream_task(|| Err(Error::new(ErrorKind::Driver, "as it should")));
    bench.enqueue_task(&failing, &[], &failed_event).unwrap();
    failed(failed_event.status());
    fake::hold(true);
    bench.enqueue(&*buffer, &[], &running).unwrap();
    bench.enqueue(&*buffer, &[&*failed_event, &*running], &after).unwrap();
    bench.enqueue_task(&stream_task(|| panic!("not called")), &[&*failed_event], &task).unwrap();
    assert!([&running, &after, &task].iter().all(|event| matches!(event.status(), EventStatus::Pending)));
    fake::hold(false);
    for event in [task, after] {
        assert_eq!(failed(event.status()).kind(), ErrorKind::Driver);
    }
    assert!(matches!(running.status(), EventStatus::Complete));
}

#[test]
fn what_only_follows_a_failed_stream_task_runs() {
    let bench = Bench::new();
    let (event, after, memory) = (bench.event(), bench.event(), bench.memory());
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let failing = stream_task(|| Err(Error::new(ErrorKind::Driver, "as it should")));
    fake::hold(true);
    bench.enqueue_task(&failing, &[], &event).unwrap();
    let order: &[&dyn Event] = &[&*event];
    // SAFETY: the fake driver runs nothing.
    unsafe { buffer.enqueue(&*bench.queue, WaitList::order(order), Signal::new(&after)) }.unwrap();
    fake::hold(false);
    assert!(matches!(after.status(), EventStatus::Complete));
    failed(event.status());
}

#[test]
fn panics_of_stream_tasks_are_failures() {
    let (bench, task) = (Bench::new(), stream_task(|| panic!("on purpose")));
    let event = bench.event();
    bench.enqueue_task(&task, &[], &event).unwrap();
    assert_eq!(failed(event.status()).kind(), ErrorKind::NativePanicked);
    assert!(bench.device.status().is_ok());
}

// An error of the driver that the closure passes on says nothing about the device.
#[test]
fn a_stream_task_cannot_lose_the_device() {
    let bench = Bench::new();
    let (event, task) = (bench.event(), stream_task(|| Err(Error::new(ErrorKind::DeviceLost, "is it?"))));
    bench.enqueue_task(&task, &[], &event).unwrap();
    assert_eq!(failed(event.status()).kind(), ErrorKind::Driver);
    assert!(bench.device.status().is_ok());
}

#[test]
fn a_stream_task_whose_wait_is_refused_is_not_called() {
    let (bench, other) = (Bench::new(), Bench::new());
    let (before, event) = (other.event(), bench.event());
    let task = stream_task(|| panic!("not called"));
    other.enqueue_task(&stream_task(|| Ok(())), &[], &before).unwrap();
    fake::fail("cuStreamWaitEvent", 1, UNKNOWN);
    bench.enqueue_task(&task, &[&*before], &event).unwrap_err();
    assert!(event.is_idle());
}

#[test]
fn an_event_that_is_not_recorded_behind_a_stream_task_fails() {
    let (bench, task) = (Bench::new(), stream_task(|| Ok(())));
    let event = bench.event();
    fake::fail("cuEventRecord", 1, UNKNOWN);
    bench.enqueue_task(&task, &[], &event).unwrap();
    assert_eq!(failed(event.status()).kind(), ErrorKind::Driver);
}

#[test]
fn a_stream_task_may_make_another_context_current() {
    let bench = Bench::new();
    let event = bench.event();
    let context = bench.device.inner().context.raw;
    let task = stream_task(|| {
        // SAFETY: the fake driver only remembers it.
        assert_eq!(unsafe { (fake::driver().cuCtxSetCurrent)(std::ptr::null_mut()) }, 0);
        Ok(())
    });
    bench.enqueue_task(&task, &[], &event).unwrap();
    assert_eq!(fake::current_at("cuEventRecord"), context.addr());
    assert_eq!(fake::current(), 0, "the thread had none before");
}

#[test]
fn a_capture_that_a_stream_task_leaves_open_is_ended() {
    let (bench, task) = (Bench::new(), stream_task(|| Ok(())));
    let event = bench.event();
    fake::leave_captures_open(true);
    bench.enqueue_task(&task, &[], &event).unwrap();
    fake::leave_captures_open(false);
    let error = failed(event.status());
    assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}");
    assert!(error.message().contains("'mine'") && error.message().contains("capture"), "{error}");
    assert_eq!(fake::calls("cuStreamEndCapture"), 1);
    bench.enqueue_task(&task, &[], &event).unwrap();
    assert!(matches!(event.status(), EventStatus::Complete));
}
