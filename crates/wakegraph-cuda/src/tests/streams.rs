//! The streams that queues borrow from their device.

use std::collections::HashMap;

use parking_lot::Mutex;
use wakegraph_hal::NativeCommand;
use wakegraph_hal::support::streams::MOST_STREAMS;

use super::*;

/// Queue, buffer of one launch, and event, as executables have them.
type Executable = (Arc<dyn Queue>, Box<dyn CommandBuffer>, Arc<dyn Event>);

struct Executables {
    bench: Bench,
    all: Vec<Executable>,
}

impl Executables {
    fn new(count: usize) -> Self {
        let bench = Bench::new();
        let memory = bench.memory();
        let executable = |_| {
            let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
            (bench.queue(), buffer, bench.event())
        };
        let all = (0..count).map(executable).collect();
        Self { bench, all }
    }

    /// Launches one, and returns the stream that it is on.
    fn launch(&self, index: usize) -> usize {
        let (queue, buffer, event) = &self.all[index];
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&**queue, WaitList::NONE, Signal::new(event)) }.unwrap();
        *fake::launches().last().unwrap()
    }

    /// Sees the ends of these.
    fn see_ends(&self, indices: impl IntoIterator<Item = usize>) {
        fake::hold(false);
        for index in indices {
            assert!(matches!(self.all[index].2.wait(None), EventStatus::Complete));
        }
        fake::hold(true);
    }
}

fn made() -> usize {
    fake::calls("cuStreamCreate")
}

fn distinct(streams: &[usize]) -> usize {
    let mut streams = streams.to_vec();
    streams.sort_unstable();
    streams.dedup();
    streams.len()
}

#[test]
fn executables_that_run_one_after_the_other_use_one_stream() {
    let executables = Executables::new(500);
    let before = made();
    fake::hold(true);
    let streams: Vec<usize> = (0..500)
        .map(|index| {
            let stream = executables.launch(index);
            executables.see_ends([index]);
            stream
        })
        .collect();
    assert_eq!((distinct(&streams), made()), (1, before));
}

#[test]
fn what_is_in_flight_together_has_streams_of_its_own() {
    let executables = Executables::new(MOST_STREAMS + 2);
    fake::hold(true);
    let streams: Vec<usize> = (0..MOST_STREAMS).map(|index| executables.launch(index)).collect();
    assert_eq!(distinct(&streams), MOST_STREAMS);
    let before = made();
    // With so many in use, there is one for all others.
    let common = [0, 1].map(|index| executables.launch(MOST_STREAMS + index));
    assert!(common[0] == common[1] && !streams.contains(&common[0]), "{common:?}");
    executables.see_ends([70, MOST_STREAMS]);
    assert_eq!((executables.launch(MOST_STREAMS), executables.launch(70)), (streams[70], common[0]));
    assert_eq!(made(), before);
}

#[test]
fn code_of_users_has_a_stream_of_its_own() {
    let executables = Executables::new(2);
    fake::hold(true);
    executables.launch(0);
    fake::fail("cuStreamCreate", 1, OUT_OF_MEMORY);
    let common = executables.launch(1);
    let found = Arc::new(Mutex::new(Vec::new()));
    let finds = found.clone();
    // SAFETY: it enqueues nothing.
    let task = unsafe {
        NativeCommand::new("mine", Vec::new(), move |stream| {
            finds.lock().push(stream.stream().addr());
            Ok(())
        })
    };
    let (task, event) = (Arc::new(Command::StreamTask(task)), executables.bench.event());
    let queue = &executables.all[1].0;
    // SAFETY: the fake driver runs nothing.
    unsafe { queue.enqueue(&task, WaitList::NONE, Signal::new(&event)) }.unwrap();
    assert_ne!(found.lock()[..], [common]);
    assert_eq!(fake::last_wait()[0], found.lock()[0], "it comes after what the queue has enqueued");
    executables.see_ends([1]);
    assert_eq!([executables.launch(1)], found.lock()[..], "the queue stays there");
    // Where there can be none, nothing is called.
    fake::fail("cuStreamCreate", 2, OUT_OF_MEMORY);
    let (queue, event) = (executables.bench.queue(), executables.bench.event());
    // SAFETY: as above.
    let refused = unsafe { queue.enqueue(&task, WaitList::NONE, Signal::new(&event)) }.unwrap_err();
    assert_eq!((refused.kind(), found.lock().len()), (ErrorKind::OutOfMemory, 1));
}

#[test]
fn a_queue_keeps_its_stream_until_everything_on_it_has_ended() {
    let executables = Executables::new(2);
    let [(queue, first, event), (.., second, _)] = &executables.all[..] else { panic!("there are two") };
    fake::hold(true);
    let stream = executables.launch(0);
    let last = executables.bench.event();
    // SAFETY: the fake driver runs nothing.
    unsafe { second.enqueue(&**queue, WaitList::NONE, Signal::new(&last)) }.unwrap();
    assert_eq!(fake::launches().last(), Some(&stream));
    executables.see_ends([0]);
    // SAFETY: as above.
    unsafe { first.enqueue(&**queue, WaitList::NONE, Signal::new(event)) }.unwrap();
    assert_eq!(fake::launches().last(), Some(&stream));
    assert_ne!(executables.launch(1), stream);
}

#[test]
fn a_queue_gets_the_stream_back_that_it_had() {
    let executables = Executables::new(3);
    fake::hold(true);
    let [first, second] = [0, 1].map(|index| executables.launch(index));
    executables.see_ends([0, 1]);
    assert_eq!([1, 0].map(|index| executables.launch(index)), [second, first]);
    executables.see_ends([0]);
    assert_eq!(executables.launch(2), first);
    let other = executables.launch(0);
    assert!(other != first && other != second, "both are in use");
}

/// Otherwise what comes next on the queue might run beside it.
#[test]
fn a_queue_keeps_the_stream_of_an_event_that_nobody_has_seen_end() {
    let mut executables = Executables::new(3);
    fake::hold(true);
    let stream = executables.launch(0);
    executables.all[0].2 = executables.bench.event();
    fake::hold(false);
    assert_ne!(executables.launch(1), stream);
    assert_eq!(executables.launch(0), stream);
    executables.see_ends([0, 1]);
    assert_ne!(executables.launch(2), stream);
    // Without the queue there is no order to keep.
    executables.see_ends([1, 2]);
    drop(executables.all.remove(0));
    assert!([0, 1].map(|index| executables.launch(index)).contains(&stream));
}

#[test]
fn a_launch_that_fails_gives_its_stream_back() {
    let executables = Executables::new(2);
    let (queue, buffer, event) = &executables.all[0];
    fake::fail("cuGraphLaunch", 1, OUT_OF_MEMORY);
    // SAFETY: the fake driver runs nothing.
    unsafe { buffer.enqueue(&**queue, WaitList::NONE, Signal::new(event)) }.unwrap_err();
    fake::hold(true);
    let (first, before) = (executables.launch(1), made());
    executables.see_ends([1]);
    assert_eq!((executables.launch(0), made()), (first, before));
}

/// Waits and a part of the work may be on it.
#[test]
fn an_enqueue_that_fails_keeps_a_stream_with_something_on_it() {
    for failing in ["cuGraphLaunch", "cuStreamWaitEvent"] {
        fake::hold(false);
        let executables = Executables::new(3);
        fake::hold(true);
        let [stream, _] = [0, 1].map(|index| executables.launch(index));
        executables.see_ends([0]);
        let (queue, buffer, event) = &executables.all[0];
        let (before, signal) = ([&*executables.all[1].2], Signal::new(event));
        fake::fail(failing, 1, OUT_OF_MEMORY);
        let enqueued = match failing {
            // SAFETY: the fake driver runs nothing.
            "cuGraphLaunch" => unsafe { buffer.enqueue(&**queue, WaitList::NONE, signal) },
            _ => {
                // SAFETY: it enqueues nothing.
                let task = unsafe { NativeCommand::new("mine", Vec::new(), |_| Ok(())) };
                let task = Arc::new(Command::StreamTask(task));
                // SAFETY: as above.
                unsafe { queue.enqueue(&task, WaitList::dependencies(&before), signal) }
            }
        };
        assert_eq!(enqueued.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_ne!(executables.launch(2), stream);
        assert_eq!(executables.launch(0), stream, "the queue stays there");
    }
}

#[test]
fn a_queue_needs_no_stream_but_the_common_one() {
    let bench = Bench::new();
    fake::fail_later("cuStreamCreate", 1, 1, OUT_OF_MEMORY);
    let desc = QueueDesc::new(QueueOrder::InOrder).priority(Priority::Low);
    let (queue, event) = (bench.device.create_queue(&desc).unwrap(), bench.event());
    // SAFETY: it enqueues nothing.
    unsafe { queue.enqueue(&Arc::new(Command::Empty), WaitList::NONE, Signal::new(&event)) }.unwrap();
    assert!(matches!(event.wait(None), EventStatus::Complete));
}

#[test]
fn queues_share_a_stream_where_the_driver_makes_no_more() {
    let executables = Executables::new(4);
    fake::hold(true);
    let streams = [executables.launch(0), executables.launch(1)];
    fake::fail("cuStreamCreate", 2, OUT_OF_MEMORY);
    let common = [2, 3].map(|index| executables.launch(index));
    assert!(common[0] == common[1] && !streams.contains(&common[0]), "{common:?}");
}

/// Each queue finds itself alone on its stream, whichever thread sees the ends.
#[test]
fn no_two_queues_have_a_stream_at_a_time() {
    const THREADS: usize = 4;
    let bench = Bench::new();
    let streams = Mutex::new(HashMap::new());
    let memory = bench.memory();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let executables: Vec<Executable> = (0..8)
                    .map(|_| {
                        let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
                        (bench.queue(), buffer, bench.event())
                    })
                    .collect();
                for round in 0..2_000 {
                    let (queue, buffer, event) = &executables[round * 5 % 8];
                    // SAFETY: the fake driver runs nothing.
                    unsafe { buffer.enqueue(&**queue, WaitList::NONE, Signal::new(event)) }.unwrap();
                    let stream = *fake::launches().last().unwrap();
                    *streams.lock().entry(stream).or_insert(0) += 1;
                    assert_eq!(streams.lock()[&stream], 1);
                    *streams.lock().get_mut(&stream).unwrap() -= 1;
                    assert!(matches!(event.wait(None), EventStatus::Complete));
                }
            });
        }
    });
    assert!(streams.lock().len() <= THREADS, "{streams:?}");
}
