//! Loops about which the device decides, and how they are stopped.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A loop in a loop, about the same flag.
fn loops(bench: &Bench) -> Command {
    let flag = MemoryView::whole(bench.memory());
    let mut body = Body::new();
    body.push(Command::While { condition: flag.clone(), body: Arc::new(Body::new()) }, &[]).unwrap();
    Command::While { condition: flag, body: Arc::new(body) }
}

/// What the kernels that decide about the loops of a graph share.
struct Words {
    run: u64,
    stop: u64,
}

impl Words {
    /// Those of the graph that has been recorded last.
    fn of_last() -> Self {
        let [.., run, stop] = *fake::decisions().last().unwrap();
        Self { run, stop }
    }

    fn host(&self, index: usize) -> &AtomicU32 {
        let words: *const AtomicU32 = std::ptr::with_exposed_provenance(self.stop as usize);
        // SAFETY: the fake driver never frees memory of the host.
        unsafe { &*words.wrapping_add(index) }
    }

    /// The number of the run that is to stop.
    fn asked(&self) -> u32 {
        self.host(0).load(Ordering::Acquire)
    }

    /// The device has stopped the run that was asked to.
    fn answer(&self) {
        self.host(1).store(self.asked(), Ordering::Release);
    }
}

#[test]
fn all_loops_of_a_graph_read_the_same_words() {
    let bench = Bench::new();
    let other = bench.memory();
    let either = Command::If {
        condition: MemoryView::whole(other.clone()),
        then: Arc::new(Body::new()),
        otherwise: None,
    };
    bench.chain(PLAIN, &[loops(&bench), either]);
    let words: Vec<_> = fake::decisions().iter().map(|[.., run, stop]| [*run, *stop]).collect();
    let [run, stop] = words[0];
    assert!(run != 0 && stop != 0);
    // Before and in each loop; a conditional ends by itself.
    assert_eq!(words, [[run, stop], [run, stop], [run, stop], [run, stop], [0, 0]]);
}

#[test]
fn a_stop_ends_the_loops_of_its_run_alone() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[loops(&bench)]);
    let words = Words::of_last();
    let events = [(); 4].map(|()| bench.event());
    fake::hold(true);
    for event in &events {
        bench.enqueue(&*buffer, &[], event).unwrap();
    }
    assert_eq!((fake::set_at(words.run), words.asked()), (vec![1, 2, 3, 4], 0));
    events[2].stop();
    assert_eq!(words.asked(), 3);
    events[0].stop();
    events[0].stop();
    assert_eq!(words.asked(), 1, "the device is not yet at the third");
    words.answer();
    fake::hold(false);
    let error = failed(events[0].status());
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(error.to_string().contains("cuda:0"), "{error}");
    assert_eq!(words.asked(), 3, "now it is the turn of the third");
    assert!(matches!(events[1].status(), EventStatus::Complete));
    events[1].stop();
    assert_eq!(words.asked(), 3, "what is over is not stopped");
    assert!(matches!(events[2].status(), EventStatus::Complete), "its flag became 0 before");
    assert_eq!(words.asked(), 0);
    assert!(matches!(events[3].status(), EventStatus::Complete));
}

#[test]
fn a_stop_does_nothing_to_later_runs_of_the_event() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[loops(&bench)]);
    let (words, event) = (Words::of_last(), bench.event());
    event.stop();
    for run in 1..=3 {
        bench.enqueue(&*buffer, &[], &event).unwrap();
        assert_eq!((fake::set_at(words.run).last(), words.asked()), (Some(&run), 0));
        event.stop();
        words.answer();
        assert_eq!(failed(event.status()).kind(), ErrorKind::Cancelled);
    }
    // Without loops there is nothing to stop.
    let (plain, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
    bench.enqueue(&*plain, &[], &event).unwrap();
    event.stop();
    assert!(matches!(event.status(), EventStatus::Complete));
}

/// Otherwise it would change the number while the loops of the run before compare theirs with it.
#[test]
fn a_run_on_another_stream_gets_its_number_after_the_one_before() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[loops(&bench)]);
    let other = bench.queue();
    fake::hold(true);
    let ordered = [&bench.queue, &other].map(|queue| bench.order_after_allocations(&**queue));
    // One stream is in order.
    let runs = [(&bench.queue, 0), (&other, 1), (&bench.queue, 1), (&bench.queue, 0)];
    let events = runs.map(|(queue, waits)| {
        let (event, before) = (bench.event(), fake::calls("cuStreamWaitEvent"));
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&**queue, WaitList::NONE, Signal::new(&event)) }.unwrap();
        assert_eq!(fake::calls("cuStreamWaitEvent") - before, waits);
        event
    });
    fake::hold(false);
    assert!(ordered.iter().chain(&events).all(|event| matches!(event.wait(None), EventStatus::Complete)));
    let before = fake::calls("cuStreamWaitEvent");
    // SAFETY: as above.
    unsafe { buffer.enqueue(&*other, WaitList::NONE, Signal::new(&events[0])) }.unwrap();
    assert_eq!(fake::calls("cuStreamWaitEvent"), before, "the last run has ended");
}

/// Recorded again, a graph has other words.
#[test]
fn a_graph_that_is_updated_stops_its_own_runs() {
    let bench = Bench::new();
    let memory = bench.memory();
    let commands = [loops(&bench), bench.launch(1, &memory)];
    let (mut buffer, _) = bench.chain(UPDATABLE, &commands);
    let before = Words::of_last();
    let events = [bench.event(), bench.event()];
    fake::hold(true);
    bench.enqueue(&*buffer, &[], &events[0]).unwrap();
    let (other, _) = bench.chain(UPDATABLE, &commands);
    buffer.update_from(&*other).unwrap();
    let after = Words::of_last();
    bench.enqueue(&*buffer, &[], &events[1]).unwrap();
    events[1].stop();
    assert_eq!((before.asked(), after.asked()), (0, 1));
    events[0].stop();
    assert_eq!((before.asked(), after.asked()), (1, 1));
    before.answer();
    fake::hold(false);
    assert_eq!(failed(events[0].status()).kind(), ErrorKind::Cancelled);
    assert!(matches!(events[1].status(), EventStatus::Complete));
}
