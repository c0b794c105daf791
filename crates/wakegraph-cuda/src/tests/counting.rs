//! Runs that count themselves in a word of the host's memory.

use super::*;

/// Enqueues it, and gives whether a completion counter takes the place of the event's record.
fn enqueue_counted(bench: &Bench, buffer: &dyn CommandBuffer, event: &Arc<dyn Event>) -> bool {
    let records = fake::calls("cuEventRecord");
    bench.enqueue(buffer, &[], event).unwrap();
    fake::calls("cuEventRecord") == records
}

#[test]
fn runs_are_counted_where_the_creator_asked_for_it() {
    let bench = Bench::new();
    let memory = bench.memory();
    let host = bench.device.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap();
    let other = bench.memory();
    let copy = |from: &Arc<dyn Memory>| {
        let [src, dst] = [from, &memory].map(|memory| MemoryView::whole(memory.clone()));
        Command::BufferCopy { src, dst }
    };
    let launches = |count| vec![bench.launch(1, &memory); count];
    let with_times = CommandBufferDesc { profiling: true, ..LOW_LATENCY };
    for (desc, commands, counted) in [
        (LOW_LATENCY, launches(2), true),
        (UPDATABLE_LOW_LATENCY, launches(128), true),
        (PLAIN, launches(2), false),
        (UPDATABLE, launches(2), false),
        (with_times, launches(2), false),
        (LOW_LATENCY, launches(129), false),
        (LOW_LATENCY, vec![bench.launch(1, &memory), bench.launch(2, &host)], false),
        (LOW_LATENCY, vec![copy(&other), bench.launch(1, &memory)], true),
        (LOW_LATENCY, vec![copy(&host), bench.launch(1, &memory)], false),
    ] {
        let (kernels, instances) =
            (fake::calls("cuGraphAddKernelNode"), fake::calls("cuGraphInstantiateWithFlags"));
        let (buffer, _) = bench.chain(desc, &commands);
        let added = fake::calls("cuGraphAddKernelNode") - kernels;
        let launched = commands.iter().filter(|command| matches!(command, Command::Kernel(_))).count();
        assert_eq!(added, launched + usize::from(counted), "{desc:?}");
        let event = bench.device.create_event(&EventDesc { profiling: desc.profiling }).unwrap();
        for _ in 0..100 {
            assert_eq!(enqueue_counted(&bench, &*buffer, &event), counted, "{desc:?}");
            assert!(matches!(event.wait(None), EventStatus::Complete));
        }
        assert_eq!(fake::calls("cuGraphInstantiateWithFlags"), instances + 1, "made once");
    }
}

#[test]
fn a_timed_signal_is_recorded_in_the_place_of_a_counter() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (buffer, _) = bench.chain(LOW_LATENCY, &[bench.launch(1, &memory)]);
    let event = bench.device.create_event(&EventDesc { profiling: true }).unwrap();
    for timed in [false, true, true, false] {
        let records = fake::calls("cuEventRecord");
        let signal = Signal::new(&event).timed(timed);
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&*bench.queue, WaitList::NONE, signal) }.unwrap();
        assert!(matches!(event.wait(None), EventStatus::Complete));
        assert_eq!(event.profile().is_ok(), timed, "{:?}", event.profile());
        // Its begin and its end, and once the base of all times.
        assert_eq!(fake::calls("cuEventRecord") - records >= 2, timed);
    }
    let (plain, records) = (bench.event(), fake::calls("cuEventRecord"));
    // SAFETY: as above.
    unsafe { buffer.enqueue(&*bench.queue, WaitList::NONE, Signal::new(&plain).timed(true)) }.unwrap();
    assert!(matches!(plain.wait(None), EventStatus::Complete) && plain.profile().is_err());
    assert_eq!(fake::calls("cuEventRecord"), records, "an event without times costs nothing");
}

#[test]
fn the_nodes_that_record_times_have_events_that_live() {
    let bench = Bench::new();
    let memory = bench.memory();
    let desc = CommandBufferDesc { profiling: true, ..PLAIN };
    let (buffer, _) = bench.chain(desc, &[bench.launch(1, &memory), bench.launch(2, &memory)]);
    let set = || fake::calls("cuGraphExecEventRecordNodeSetEvent");
    let timed = bench.device.create_event(&EventDesc { profiling: true }).unwrap();
    for event in [timed, bench.event()] {
        let before = set();
        bench.enqueue(&*buffer, &[], &event).unwrap();
        assert!(matches!(event.wait(None), EventStatus::Complete));
        assert_eq!(set() - before, 4, "one before and one behind each command");
    }
}

#[test]
fn batches_are_not_counted() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (buffer, _) = bench.chain(LOW_LATENCY, &[bench.launch(1, &memory)]);
    let event = bench.event();
    let switches = || fake::calls("cuGraphNodeSetEnabled");
    // The first launch on its own that is counted.
    let counts_again = || {
        (1..).find(|_| {
            let counted = enqueue_counted(&bench, &*buffer, &event);
            assert!(matches!(event.wait(None), EventStatus::Complete));
            counted
        })
    };
    assert_eq!(counts_again(), Some(1));
    for round in 1..=3 {
        let before = switches();
        for _ in 0..10 {
            bench.enqueue_batch(&*buffer, &event);
            assert!(matches!(event.wait(None), EventStatus::Complete));
        }
        assert_eq!(counts_again(), Some(17), "a few may be followed by a batch");
        assert_eq!(switches() - before, 2, "in round {round}");
    }
    // Where the driver refuses to count again, an event tells of the end.
    bench.enqueue_batch(&*buffer, &event);
    assert!(matches!(event.wait(None), EventStatus::Complete));
    fake::fail("cuGraphNodeSetEnabled", 1, INVALID_VALUE);
    assert_eq!(counts_again(), Some(18));
}

#[test]
fn a_lost_device_is_noticed_while_a_counter_is_polled() {
    let bench = Bench::new();
    let memory = bench.memory();
    for desc in [LOW_LATENCY, UPDATABLE_LOW_LATENCY] {
        let (buffer, _) = bench.chain(desc, &[bench.launch(1, &memory)]);
        let event = bench.event();
        assert!(enqueue_counted(&bench, &*buffer, &event));
        // The fake device never counts. For now its stream is busy.
        fake::hold(true);
        assert!(matches!(event.status(), EventStatus::Pending));
        fake::hold(false);
        if desc.updatable {
            fake::fail("cuStreamQuery", 1, ILLEGAL_ADDRESS);
        }
        let polls = (1..).find(|_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            event.status().is_final()
        });
        assert!(polls.unwrap() < 3, "{polls:?}");
        if desc.updatable {
            assert_eq!(failed(event.status()).kind(), ErrorKind::DeviceLost);
            assert_eq!(bench.device.status().unwrap_err().kind(), ErrorKind::DeviceLost);
        }
    }
}

#[test]
fn a_low_latency_form_that_cannot_be_made_is_not_needed() {
    // The function that fails, and how often it succeeds before.
    let ways = [
        ("cuMemHostAlloc", 0),
        ("cuModuleLoadDataEx", 0),
        ("cuGraphAddKernelNode", 1),
        ("cuGraphInstantiateWithFlags", 0),
        ("cuGraphUpload", 0),
    ];
    for (function, skip) in ways {
        for desc in [LOW_LATENCY, UPDATABLE_LOW_LATENCY] {
            let bench = Bench::new();
            let memory = bench.memory();
            fake::fail_later(function, skip, 1, INVALID_VALUE);
            let (buffer, _) = bench.chain(desc, &[bench.launch(1, &memory)]);
            let event = bench.event();
            let calls = fake::calls(function);
            for _ in 0..100 {
                assert!(!enqueue_counted(&bench, &*buffer, &event), "{function}");
                assert!(matches!(event.wait(None), EventStatus::Complete));
            }
            assert_eq!(fake::calls(function), calls, "{function}: not tried again");
            fake::succeed(function);
        }
    }
}

#[test]
fn a_counting_launch_that_fails_is_repeated_without_counting() {
    let bench = Bench::new();
    let memory = bench.memory();
    for desc in [LOW_LATENCY, UPDATABLE_LOW_LATENCY] {
        let (buffer, _) = bench.chain(desc, &[bench.launch(1, &memory)]);
        let event = bench.event();
        assert!(enqueue_counted(&bench, &*buffer, &event));
        assert!(matches!(event.wait(None), EventStatus::Complete), "its stream is idle");
        fake::fail("cuGraphLaunch", 1, INVALID_VALUE);
        assert!(!enqueue_counted(&bench, &*buffer, &event));
        assert!(matches!(event.wait(None), EventStatus::Complete));
        // There is no other form to try now.
        fake::fail("cuGraphLaunch", 1, INVALID_VALUE);
        let error = bench.enqueue(&*buffer, &[], &event).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        assert!(!enqueue_counted(&bench, &*buffer, &event));
    }
}

#[test]
fn a_counter_serves_updated_graphs() {
    let bench = Bench::new();
    let memory = bench.memory();
    let host = bench.device.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap();
    let commands = [bench.launch(1, &memory), bench.launch(2, &memory)];
    let (mut buffer, handles) = bench.chain(UPDATABLE_LOW_LATENCY, &commands);
    let event = bench.event();
    let run = |buffer: &dyn CommandBuffer| {
        let counted = enqueue_counted(&bench, buffer, &event);
        assert!(matches!(event.wait(None), EventStatus::Complete));
        counted
    };
    let instances = || fake::calls("cuGraphInstantiateWithFlags");
    let made = instances();
    buffer.update(&[update_of(handles[1], 7, Some(false))]).unwrap();
    assert!(run(&*buffer));
    // An operand on the host: the host may not read it when the counter says so.
    for (operand, counted) in [(&host, false), (&memory, true)] {
        let args = vec![(1, KernelArg::Memory(MemoryView::whole(operand.clone())))];
        buffer.update(&[CommandUpdate::new(handles[0]).args(args)]).unwrap();
        assert_eq!(run(&*buffer), counted);
    }
    assert_eq!(instances(), made);
    // The graph has a kernel of its own, so the driver cannot take the other's in its place.
    let (mut other, _) = bench.chain(UPDATABLE, &commands);
    buffer.update_from(&*other).unwrap();
    assert_eq!((instances(), fake::calls("cuGraphExecUpdate")), (made + 2, 0));
    assert!(run(&*buffer));
    other.update_from(&*buffer).unwrap();
    assert_eq!((instances(), fake::calls("cuGraphExecUpdate")), (made + 3, 0));
    assert!(!run(&*other));
}
