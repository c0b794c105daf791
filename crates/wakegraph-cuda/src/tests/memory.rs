//! Memory in the order of streams, from the driver's pools and on devices without them.

use super::*;

fn queue_of(device: &CudaDevice) -> Arc<dyn Queue> {
    device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap()
}

/// Enqueues nothing, and sees its end. Gives the number of the driver's waits that the enqueue takes.
fn waits_of(queue: &dyn Queue, event: &Arc<dyn Event>) -> usize {
    let waits = waits_in_flight(queue, event);
    assert!(matches!(event.wait(None), EventStatus::Complete));
    waits
}

fn waits_in_flight(queue: &dyn Queue, event: &Arc<dyn Event>) -> usize {
    let before = fake::calls("cuStreamWaitEvent");
    // SAFETY: the fake driver runs nothing.
    unsafe { queue.enqueue(&Arc::new(Command::Empty), WaitList::NONE, Signal::new(event)) }.unwrap();
    fake::calls("cuStreamWaitEvent") - before
}

fn synchronisations() -> usize {
    fake::calls("cuStreamSynchronize")
}

#[test]
fn the_first_work_of_a_stream_waits_for_what_has_been_allocated() {
    let bench = Bench::new();
    let (other, events) = (queue_of(&bench.device), [bench.event(), bench.event()]);
    let before = synchronisations();
    // Queues that are in flight together have streams of their own.
    let waits = || {
        fake::hold(true);
        let waits = [(&bench.queue, &events[0]), (&other, &events[1])];
        let waits = waits.map(|(queue, event)| waits_in_flight(&**queue, event));
        fake::hold(false);
        assert!(events.iter().all(|event| matches!(event.wait(None), EventStatus::Complete)));
        waits
    };
    assert_eq!(waits(), [0, 0], "there is no memory");
    drop([bench.memory(), bench.memory()]);
    let records = fake::calls("cuEventRecord");
    assert_eq!(waits(), [1, 1]);
    assert_eq!(fake::calls("cuEventRecord") - records, 3, "one is for both; each enqueue has its own");
    assert_eq!(waits(), [0, 0]);
    let (memory, event) = (bench.memory(), &events[1]);
    assert_eq!(waits_of(&*other, event), 1);
    assert_eq!(synchronisations(), before, "no thread waits");

    // Another library's streams do not.
    for waits in [1, 0] {
        let before = synchronisations();
        memory.wait_until_ready().unwrap();
        assert_eq!(synchronisations() - before, waits);
    }
}

#[test]
fn a_peer_waits_for_the_memory_of_the_owner() {
    let bench = Bench::new();
    let peer = open_device(fake::driver(), 1).unwrap();
    let (queue, event) = (queue_of(&peer), peer.create_event(&EventDesc::default()).unwrap());
    let memory = bench.memory();
    assert_eq!(waits_of(&*queue, &event), 0, "the peer does not know of it");
    for expected in [1, 0] {
        let before = fake::calls("cuStreamWaitEvent");
        assert!(peer.can_access(&*memory));
        assert_eq!(fake::calls("cuStreamWaitEvent") - before, expected, "its memory stream waits");
        assert_eq!(waits_of(&*queue, &event), expected);
    }
    let later = bench.memory();
    assert!(peer.can_access(&*later));
    assert_eq!(waits_of(&*queue, &event), 1);
    assert_eq!(synchronisations(), 0);

    fake::fail("cuStreamWaitEvent", 1, UNKNOWN);
    let latest = bench.memory();
    assert!(!peer.can_access(&*latest), "what is not in order cannot be used");
    assert!(peer.can_access(&*latest));
}

#[test]
fn only_what_nobody_overwrites_is_cleared() {
    let device = wakegraph::Device::from_hal(Arc::new(open_device(fake::driver(), 0).unwrap()));
    let clears = || fake::calls("cuMemsetD8Async");
    let zeroed = device.buffer::<u32>(64).unwrap();
    assert_eq!(clears(), 1);
    // Its completion counter is the first, and so clears a block of them.
    let mut graph = wakegraph::Graph::new(&device);
    graph.fill(&zeroed, 1);
    let _exec = graph.finalize().unwrap();
    let before = clears();
    drop(device.buffer_from(&[1u32; 64]).unwrap());
    // SAFETY: nothing is read.
    drop(unsafe { device.buffer_uninit::<u32>(64) }.unwrap());
    let mut graph = wakegraph::Graph::new(&device);
    let scratch = graph.scratch::<u32>(64).unwrap();
    graph.fill(&scratch, 1);
    graph.copy(&scratch, &zeroed);
    graph.finalize().unwrap();
    assert_eq!(clears(), before);
    let before = synchronisations();
    assert_eq!([zeroed.address(), zeroed.slice(1..).unwrap().address()].map(|at| at.unwrap() % 4096), [0, 4]);
    assert_eq!(synchronisations() - before, 1, "another library gets memory that is cleared");
}

#[test]
fn a_clear_that_fails_frees_its_memory() {
    let bench = Bench::new();
    fake::fail("cuMemsetD8Async", 1, UNKNOWN);
    bench.device.allocate(&MemoryDesc::new(64, MemoryKind::Device)).unwrap_err();
    assert_eq!((fake::calls("cuMemAllocFromPoolAsync"), fake::calls("cuMemFreeAsync")), (1, 1));
}

/// The functions that a device without memory pools does not have.
const OF_POOLS: [&str; 7] = [
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAttribute",
    "cuMemPoolSetAccess",
    "cuMemPoolTrimTo",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
];

#[test]
fn a_device_without_pools_keeps_blocks() {
    fake::without_pools();
    let bench = Bench::new();
    let made = || (fake::calls("cuMemAlloc"), fake::calls("cuMemFree"));
    let address = |memory: &Arc<dyn Memory>| memory.usm().unwrap().address();
    let (first, second) = (bench.memory(), bench.memory());
    let known = address(&first);
    drop(first);
    let again = bench.device.allocate(&MemoryDesc::new(500, MemoryKind::Device)).unwrap();
    assert_eq!(address(&again), known, "of about the same size");
    let larger = bench.device.allocate(&MemoryDesc::new(5000, MemoryKind::Device)).unwrap();
    assert_eq!(made(), (3, 0));
    assert_eq!(fake::calls("cuMemsetD8Async"), 4, "what is used again is cleared, too");
    let (buffer, _) = bench.chain(LOW_LATENCY, &[bench.launch(1, &second)]);
    bench.run(&*buffer).unwrap();
    let peer = open_device(fake::driver(), 1).unwrap();
    assert!(peer.can_access(&*second));

    drop((again, larger));
    bench.device.trim().unwrap();
    assert_eq!(made().1, 2);
    fake::fail("cuMemAlloc", 1, OUT_OF_MEMORY);
    drop(bench.memory());
    fake::fail("cuMemAlloc", 2, OUT_OF_MEMORY);
    let large = MemoryDesc::new(1 << 20, MemoryKind::Device);
    assert_eq!(bench.device.allocate(&large).unwrap_err().kind(), ErrorKind::OutOfMemory);

    // A quarter of the device's memory is too much, and another thread frees some.
    let freed = made().1;
    let large = MemoryDesc::new(100 << 20, MemoryKind::Device);
    let users = || Arc::strong_count(&bench.device.inner().context);
    let before = users();
    drop([(); 3].map(|()| bench.device.allocate(&large).unwrap()));
    assert_eq!(made().1, freed, "no drop waits for the device");
    // That thread has the context until it has freed all.
    bench.device.trim().unwrap();
    assert_eq!(users(), before, "the memory that is being freed is free as well");

    drop((second, buffer, peer, bench));
    let (made, freed) = made();
    assert_eq!(made - 3, freed + 2, "three were refused, and the other thread freed two");
    assert_eq!(OF_POOLS.map(fake::calls), [0; 7]);
}
