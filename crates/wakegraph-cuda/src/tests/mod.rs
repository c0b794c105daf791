//! Failures of the driver, with a fake one that needs no GPU; and probes of a real one's faults.
#![expect(unsafe_code, reason = "enqueues what the tests order")]

mod counting;
pub(crate) mod fake;
mod finalize;
mod foreign;
mod loops;
mod memory;
mod overlap;
mod parts;
mod probes;
mod shares;
mod single_commands;
mod stream_tasks;
mod streams;
mod updates;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use wakegraph_hal::{
    AccessMode, Body, Command, CommandBuffer, CommandBufferDesc, CommandHandle, CommandUpdate, DeviceId,
    Error, ErrorKind, Event, EventDesc, EventStatus, Kernel, KernelArg, KernelDesc, KernelLaunch,
    KernelSources, Memory, MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, PlainMemory, Priority,
    Queue, QueueDesc, QueueOrder, Range, Signal, SyncPoint, UserMemory, ValueBytes, WaitList,
};

use super::sys::{CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_ERROR_DEINITIALIZED};
use super::*;

#[test]
fn a_missing_driver_is_unavailable_with_a_remedy() {
    let backend = CudaBackend;
    let Err(error) = backend.device_count() else {
        let error = backend.open(10_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        return;
    };
    for error in [error, backend.open(0).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("libcuda"), "{error}");
        assert!(error.to_string().contains("; "), "a remedy: {error}");
    }
}

/// Some of the driver's codes.
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;
const UNKNOWN: u32 = 999;

const UPDATABLE: CommandBufferDesc =
    CommandBufferDesc { updatable: true, in_order: false, profiling: false, low_latency: false };
const PLAIN: CommandBufferDesc = CommandBufferDesc { updatable: false, ..UPDATABLE };
const LOW_LATENCY: CommandBufferDesc = CommandBufferDesc { low_latency: true, ..PLAIN };
const UPDATABLE_LOW_LATENCY: CommandBufferDesc = CommandBufferDesc { low_latency: true, ..UPDATABLE };

/// A device of the fake driver, a queue and a kernel.
struct Bench {
    device: CudaDevice,
    queue: Arc<dyn Queue>,
    kernel: Arc<dyn Kernel>,
}

fn number(n: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&n.to_ne_bytes()))
}

impl Bench {
    fn new() -> Self {
        Self::on(open_device(fake::driver(), 0).unwrap())
    }

    fn on(device: CudaDevice) -> Self {
        let queue = device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap();
        let words = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let params = [
            Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
            Param { name: "x".into(), kind: words },
        ];
        let sources = KernelSources::new().ptx("the fake driver does not read this");
        let kernel = device.create_kernel(&KernelDesc { name: "add", params: &params, sources: &sources });
        Self { queue, kernel: kernel.unwrap(), device }
    }

    fn queue(&self) -> Arc<dyn Queue> {
        self.device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap()
    }

    fn memory(&self) -> Arc<dyn Memory> {
        self.device.allocate(&MemoryDesc::new(64, MemoryKind::Device)).unwrap()
    }

    fn event(&self) -> Arc<dyn Event> {
        self.device.create_event(&EventDesc::default()).unwrap()
    }

    fn launch(&self, n: u32, memory: &Arc<dyn Memory>) -> Command {
        Command::Kernel(Arc::new(KernelLaunch {
            kernel: self.kernel.clone(),
            args: vec![number(n), KernelArg::Memory(MemoryView::whole(memory.clone()))],
            range: Range::linear(16),
            alternatives: Vec::new(),
        }))
    }

    /// A finalized command-buffer in which each command follows the one before, and their handles.
    fn chain(
        &self,
        desc: CommandBufferDesc,
        commands: &[Command],
    ) -> (Box<dyn CommandBuffer>, Vec<CommandHandle>) {
        let mut buffer = self.device.create_command_buffer(&desc).unwrap();
        let (mut handles, mut last): (_, Option<SyncPoint>) = (Vec::new(), None);
        for command in commands {
            let appended = buffer.append(command, last.as_slice()).unwrap();
            handles.extend(appended.handle);
            last = Some(appended.sync_point);
        }
        buffer.finalize().unwrap();
        self.order_after_allocations(&*self.queue).status();
        (buffer, handles)
    }

    /// Has the stream of the queue come behind all allocations now, and not when the next enqueue is counted.
    /// Gives the event of that; the queue keeps its stream at least until its end has been seen.
    fn order_after_allocations(&self, queue: &dyn Queue) -> Arc<dyn Event> {
        // Memory of the host has no place in that order.
        let memory = self.device.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap();
        let (launch, event) = (Arc::new(self.launch(0, &memory)), self.event());
        // SAFETY: the fake driver runs nothing.
        unsafe { queue.enqueue(&launch, WaitList::NONE, Signal::new(&event)) }.unwrap();
        event
    }

    fn enqueue(
        &self,
        buffer: &dyn CommandBuffer,
        after: &[&dyn Event],
        event: &Arc<dyn Event>,
    ) -> crate::Result<()> {
        let signal = Signal::new(event);
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&*self.queue, WaitList::dependencies(after), signal) }
    }

    /// Enqueues it as a batch.
    fn enqueue_batch(&self, buffer: &dyn CommandBuffer, event: &Arc<dyn Event>) {
        let signal = Signal::new(event);
        // SAFETY: the fake driver runs nothing.
        let enqueued = unsafe { self.queue.enqueue_batch(&[buffer], signal) };
        assert!(enqueued.count == 1 && enqueued.failure.is_none(), "{enqueued:?}");
    }

    /// Enqueues it once, and waits.
    fn run(&self, buffer: &dyn CommandBuffer) -> crate::Result<()> {
        let event = self.event();
        self.enqueue(buffer, &[], &event)?;
        assert!(matches!(event.wait(None), EventStatus::Complete));
        Ok(())
    }
}

#[track_caller]
fn failed(status: EventStatus) -> Error {
    match status {
        EventStatus::Failed(error) => error,
        status => panic!("{status:?}"),
    }
}

/// Each event is pending when the next one is enqueued behind it, so that each holds the one
/// before.
fn long_chain(bench: &Bench) -> Vec<Arc<dyn Event>> {
    const LENGTH: usize = 100_000;
    let memory = bench.memory();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    fake::hold(true);
    let mut events = vec![bench.event()];
    bench.enqueue(&*buffer, &[], &events[0]).unwrap();
    for _ in 1..LENGTH {
        let (event, before) = (bench.event(), events.last().unwrap());
        bench.enqueue(&*buffer, &[&**before], &event).unwrap();
        events.push(event);
    }
    events
}

#[test]
fn long_chains_are_settled_without_recursion() {
    let bench = Bench::new();
    let events = long_chain(&bench);
    assert!(matches!(events.last().unwrap().status(), EventStatus::Pending));
    fake::hold(false);
    assert!(matches!(events.last().unwrap().status(), EventStatus::Complete));
    assert!(matches!(events[0].status(), EventStatus::Complete));
}

#[test]
fn long_chains_fail_without_recursion() {
    let bench = Bench::new();
    let events = long_chain(&bench);
    fake::fail("cuEventQuery", 1, ILLEGAL_ADDRESS);
    for event in events.iter().rev() {
        assert_eq!(failed(event.status()).kind(), ErrorKind::DeviceLost);
    }
}

#[test]
fn long_chains_are_dropped_without_recursion() {
    let bench = Bench::new();
    let mut events = long_chain(&bench);
    let last = events.pop().unwrap();
    events.clear();
    assert_eq!(fake::calls("cuEventDestroy_v2"), 0);
    drop(last);
}

#[test]
fn a_failed_enqueue_leaves_the_event_as_it_was() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let [first, second] = [(); 2].map(|()| bench.event());
    for is_idle in [true, false] {
        fake::fail("cuGraphLaunch", 1, INVALID_VALUE);
        assert_eq!(bench.enqueue(&*buffer, &[], &first).unwrap_err().kind(), ErrorKind::Driver);
        assert_eq!(first.is_idle(), is_idle);
        let waiting = bench.enqueue(&*buffer, &[&*first], &second);
        if is_idle {
            assert!(matches!(first.status(), EventStatus::Idle));
            assert_eq!(waiting.unwrap_err().kind(), ErrorKind::InvalidWaitList);
        } else {
            assert!(matches!(first.status(), EventStatus::Complete));
            assert!(matches!(second.wait(None), EventStatus::Complete));
        }
        bench.enqueue(&*buffer, &[], &first).unwrap();
        assert!(matches!(first.wait(None), EventStatus::Complete));
    }
    fake::hold(true);
    bench.enqueue(&*buffer, &[], &first).unwrap();
    let error = bench.enqueue(&*buffer, &[], &first).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    fake::hold(false);
    // It waits for its own last signal.
    bench.enqueue(&*buffer, &[&*first], &first).unwrap();
    assert!(matches!(first.wait(None), EventStatus::Complete));
}

/// The event could not be recorded behind the first enqueue. Whoever polls the second one first, it
/// fails as the first one does.
#[test]
fn a_failure_reaches_dependents_on_every_thread() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    for _ in 0..3000 {
        let [first, second] = [(); 2].map(|()| bench.event());
        fake::hold(true);
        fake::fail("cuEventRecord", 1, INVALID_VALUE);
        bench.enqueue(&*buffer, &[], &first).unwrap();
        bench.enqueue(&*buffer, &[&*first], &second).unwrap();
        assert!(matches!(second.status(), EventStatus::Pending));
        // Other threads have a fake driver of their own, where nothing is held.
        let start = Barrier::new(2);
        let poll = || {
            start.wait();
            second.wait(None)
        };
        std::thread::scope(|scope| {
            for poll in [scope.spawn(poll), scope.spawn(poll)] {
                assert_eq!(failed(poll.join().unwrap()).kind(), ErrorKind::Driver);
            }
        });
        fake::hold(false);
        assert_eq!(failed(first.status()).kind(), ErrorKind::Driver);
    }
}

/// No call of the backend invalidates the other thread's capture or changes an event.
#[test]
fn captures_of_other_threads_stay_valid() {
    fake::begin_capture();
    let before = fake::mode();
    let bench = Bench::new();
    let memory = bench.memory();
    let commands = [
        Command::BufferFill { dst: MemoryView::whole(memory.clone()), pattern: [1, 2, 3].as_slice().into() },
        bench.launch(1, &memory),
    ];
    for desc in [PLAIN, UPDATABLE, LOW_LATENCY, UPDATABLE_LOW_LATENCY] {
        let (mut buffer, handles) = bench.chain(desc, &commands);
        let event = bench.event();
        for _ in 0..7 {
            bench.enqueue(&*buffer, &[], &event).unwrap();
            assert!(matches!(event.wait(None), EventStatus::Complete));
        }
        if let Some(&handle) = handles.last() {
            buffer
                .update(&[CommandUpdate { args: vec![(0, number(5))].into(), ..CommandUpdate::new(handle) }])
                .unwrap();
            buffer.update_from(&*bench.chain(desc, &commands).0).unwrap();
        }
        bench.run(&*buffer).unwrap();
    }
    let host = bench.device.allocate(&MemoryDesc::new(8, MemoryKind::Host)).unwrap();
    // SAFETY: nothing is in flight.
    unsafe { memory.read(0, &mut [0; 4]) }.unwrap();
    bench.device.trim().unwrap();
    bench.queue.finish().unwrap();
    drop((host, memory, bench));
    assert_eq!(fake::end_capture(), [""; 0]);
    assert_eq!(fake::mode(), before, "the thread has its own mode back");
}

#[test]
fn a_failed_query_says_nothing_about_the_work() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let (first, second) = (bench.event(), bench.event());
    bench.enqueue(&*buffer, &[], &first).unwrap();
    bench.enqueue(&*buffer, &[&*first], &second).unwrap();
    for code in [900, INVALID_VALUE, UNKNOWN] {
        fake::fail("cuEventQuery", 2, code);
        assert!(matches!(second.status(), EventStatus::Pending));
        assert!(matches!(first.status(), EventStatus::Pending));
    }
    assert!(matches!(second.status(), EventStatus::Complete));
}

/// As after an unknown error (999).
#[test]
fn a_device_whose_queries_all_fail_is_given_up() {
    for (desc, query) in [(UPDATABLE, "cuEventQuery"), (UPDATABLE_LOW_LATENCY, "cuStreamQuery")] {
        is_given_up_if_all_fail(desc, query);
    }
}

fn is_given_up_if_all_fail(desc: CommandBufferDesc, query: &'static str) {
    let bench = Bench::new();
    let [memory, other] = [(); 2].map(|()| bench.memory());
    let (mut buffer, handles) = bench.chain(desc, &[bench.launch(1, &memory)]);
    let events = [bench.event(), bench.event(), bench.event()];
    for event in &events[..2] {
        let queue = bench.device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap();
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&*queue, WaitList::NONE, Signal::new(event)) }.unwrap();
    }
    fake::hold(true);
    fake::fail(query, usize::MAX, UNKNOWN);
    assert!(matches!(events[0].status(), EventStatus::Pending) && !bench.device.may_still_run());
    // Without pauses: some of these polls ask nothing.
    let end = Instant::now() + Duration::from_secs(60);
    while matches!(events[0].status(), EventStatus::Pending) {
        assert!(Instant::now() < end, "it stays pending");
    }
    let error = failed(events[0].status());
    assert_eq!(error.kind(), ErrorKind::DeviceLost);
    assert!(error.message().contains("(999)"), "{error}");
    fake::succeed(query);
    assert_eq!(failed(events[1].status()).kind(), ErrorKind::DeviceLost);
    assert!(bench.device.may_still_run());
    let refused = bench.enqueue(&*buffer, &[], &events[2]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DeviceLost);
    let used = Arc::downgrade(&memory);
    drop(memory);
    let other = KernelArg::Memory(MemoryView::whole(other));
    buffer.update(&[CommandUpdate::new(handles[0]).args([(1, other)])]).unwrap();
    assert!(used.strong_count() > 0, "a launch that may still run may use it");
    fake::hold(false);
}

/// A query of a complete event takes a microsecond and a half.
#[test]
fn the_end_of_the_last_of_a_chain_tells_of_all_before_it() {
    let bench = Bench::new();
    let memory = bench.memory();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let mut events = vec![bench.event()];
    bench.enqueue(&*buffer, &[], &events[0]).unwrap();
    for _ in 0..8 {
        let queue = bench.device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap();
        let (event, before) = (bench.event(), [&*events[events.len() - 1]]);
        let wait = WaitList::dependencies(&before);
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&*queue, wait, Signal::new(&event)) }.unwrap();
        events.push(event);
    }
    let queries = fake::calls("cuEventQuery");
    assert!(matches!(events.last().unwrap().wait(None), EventStatus::Complete));
    assert!(events.iter().all(|event| matches!(event.status(), EventStatus::Complete)));
    let polls = fake::calls("cuEventQuery") - queries;
    let alone = {
        bench.enqueue(&*buffer, &[], &events[0]).unwrap();
        let queries = fake::calls("cuEventQuery");
        assert!(matches!(events[0].wait(None), EventStatus::Complete));
        fake::calls("cuEventQuery") - queries
    };
    assert_eq!(polls, alone, "the last one alone is polled");
}

#[test]
fn queues_of_high_priority_have_such_streams() {
    let bench = Bench::new();
    let desc = QueueDesc::new(QueueOrder::InOrder);
    for (priority, with_priority) in
        [(Priority::Normal, false), (Priority::Low, false), (Priority::High, true)]
    {
        let before = fake::calls("cuStreamCreateWithPriority");
        bench.device.create_queue(&desc.priority(priority)).unwrap();
        assert_eq!(fake::calls("cuStreamCreateWithPriority") > before, with_priority, "{priority}");
    }
    for function in ["cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"] {
        let bench = Bench::new();
        fake::fail(function, 1, 2);
        let error = bench.device.create_queue(&desc.priority(Priority::High)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    }
}

#[test]
fn running_out_of_memory_trims_the_pool_and_tries_again() {
    let bench = Bench::new();
    let memory = bench.memory();
    let allocate = |kind| move |bench: &Bench| bench.device.allocate(&MemoryDesc::new(8, kind)).map(drop);
    let (device_memory, host_memory) = (allocate(MemoryKind::Device), allocate(MemoryKind::Host));
    let finalize = |bench: &Bench| {
        let mut buffer = bench.device.create_command_buffer(&PLAIN)?;
        buffer.append(&bench.launch(1, &memory), &[])?;
        buffer.finalize()
    };
    type Work<'a> = &'a dyn Fn(&Bench) -> crate::Result<()>;
    let cases: [(_, Work<'_>); 3] = [
        ("cuMemAllocFromPoolAsync", &device_memory),
        ("cuMemHostAlloc", &host_memory),
        ("cuGraphInstantiateWithFlags", &finalize),
    ];
    for (function, work) in cases {
        let trims = fake::calls("cuMemPoolTrimTo");
        fake::fail(function, 1, OUT_OF_MEMORY);
        work(&bench).unwrap();
        assert_eq!(fake::calls("cuMemPoolTrimTo"), trims + 1, "{function}");
        fake::fail(function, 2, OUT_OF_MEMORY);
        assert_eq!(work(&bench).unwrap_err().kind(), ErrorKind::OutOfMemory, "{function}");
    }
    let trims = fake::calls("cuMemPoolTrimTo");
    bench.device.trim().unwrap();
    assert_eq!(fake::calls("cuMemPoolTrimTo"), trims + 1);
}

#[test]
fn a_failure_of_peer_access_is_not_remembered() {
    let bench = Bench::new();
    let peer = open_device(fake::driver(), 1).unwrap();
    let memory = bench.memory();
    for function in ["cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuMemPoolSetAccess"] {
        fake::fail(function, 1, UNKNOWN);
        assert!(!peer.can_access(&*memory), "{function}");
    }
    assert!(peer.can_access(&*memory));
    let asked = fake::calls("cuDeviceCanAccessPeer");
    assert!(peer.can_access(&*memory));
    assert_eq!(fake::calls("cuDeviceCanAccessPeer"), asked, "an answer is");
}

#[test]
fn two_objects_of_one_device_use_each_others_memory() {
    let bench = Bench::new();
    let other = open_device(fake::driver(), 0).unwrap();
    assert!(other.can_access(&*bench.memory()));
    assert_eq!(fake::calls("cuCtxEnablePeerAccess"), 0);
}

#[test]
fn what_was_current_on_a_thread_is_so_again() {
    for before in [0, 77] {
        fake::make_current(before);
        let is_as_before = |what| assert_eq!(fake::current(), before, "{what}");
        let bench = Bench::new();
        is_as_before("open");
        let (memory, event) = (bench.memory(), bench.event());
        let host = bench.device.allocate(&MemoryDesc::new(64, MemoryKind::Host)).unwrap();
        is_as_before("allocate");
        // SAFETY: nothing is in flight.
        unsafe { memory.write(0, &[1; 4]) }.unwrap();
        // SAFETY: as above.
        unsafe { memory.read(0, &mut [0; 4]) }.unwrap();
        is_as_before("write, read");
        let (mut buffer, handles) = bench.chain(UPDATABLE_LOW_LATENCY, &[bench.launch(1, &memory)]);
        is_as_before("finalize");
        bench.enqueue(&*buffer, &[], &event).unwrap();
        is_as_before("enqueue");
        assert!(matches!(event.wait(None), EventStatus::Complete));
        is_as_before("wait");
        buffer.update(&[update_of(handles[0], 2, None)]).unwrap();
        is_as_before("update");
        // SAFETY: the fake driver runs nothing.
        unsafe {
            bench.queue.enqueue(&Arc::new(bench.launch(2, &memory)), WaitList::NONE, Signal::new(&event))
        }
        .unwrap();
        bench.queue.finish().unwrap();
        bench.device.trim().unwrap();
        // SAFETY: the fake driver takes any handle.
        let imported = unsafe { bench.device.import_event(std::ptr::without_provenance_mut(7)) }.unwrap();
        // SAFETY: as above.
        unsafe { bench.device.order_after(std::ptr::null_mut(), &[&*imported]) }.unwrap();
        is_as_before("events and streams of others");
        assert_eq!(fake::current_at("cuGraphLaunch"), bench.device.inner().context.raw.addr());
        drop((buffer, event, imported, memory, host, bench));
        is_as_before("drop");
    }
    fake::make_current(0);
}

#[test]
fn a_launch_with_less_local_memory_keeps_the_limit() {
    let bench = Bench::new();
    let params = [
        Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
        Param { name: "tile".into(), kind: ParamKind::Local { element_size: 4 } },
    ];
    let sources = KernelSources::new().ptx("the fake driver does not read this");
    let desc = KernelDesc { name: "tiled", params: &params, sources: &sources };
    let kernel = bench.device.create_kernel(&desc).unwrap();
    let launch = |n, local: usize| {
        let args = vec![number(n), KernelArg::Local(local << 10)];
        Command::Kernel(Arc::new(KernelLaunch::new(kernel.clone(), args, Range::linear(16))))
    };
    let (mut buffer, handles) = bench.chain(UPDATABLE, &[launch(1, 100), launch(2, 60)]);
    buffer.update(&[CommandUpdate::new(handles[0]).args([(0, number(7))])]).unwrap();
    for local in [100, 60, 100, 4, 120, 100] {
        let event = bench.event();
        // SAFETY: the fake driver runs nothing.
        unsafe { bench.queue.enqueue(&Arc::new(launch(3, local)), WaitList::NONE, Signal::new(&event)) }
            .unwrap();
    }
    buffer.update(&[CommandUpdate::new(handles[0]).args([(0, number(8))])]).unwrap();
}

#[test]
fn a_process_that_exits_has_lost_no_device() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
    let events = [bench.event(), bench.event()];
    bench.enqueue(&*buffer, &[], &events[0]).unwrap();
    bench.enqueue(&*buffer, &[&*events[0]], &events[1]).unwrap();
    // The driver is unloaded.
    fake::fail("cuEventQuery", usize::MAX, CUDA_ERROR_DEINITIALIZED);
    for event in [&events[1], &events[0]] {
        let error = failed(event.status());
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("the process exits"), "{error}");
    }
    fake::succeed("cuEventQuery");
    bench.device.status().unwrap();
}

/// Host memory of another backend.
fn plain_memory() -> Arc<dyn Memory> {
    // A vector may move with what it owns borrowed by address, a box may not.
    let mut bytes = vec![0u8; 64];
    let start = std::ptr::NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: the bytes belong to the memory.
    let bytes = unsafe { UserMemory::new(start, bytes.len(), false, Box::new(bytes)) };
    Arc::new(PlainMemory::new(DeviceId::unique(), bytes, false))
}

/// The driver stages other memory, in the call that launches the copy.
#[test]
fn host_memory_of_others_is_registered_while_copies_use_it() {
    const KNOWN: u32 = CU_MEMORYTYPE_UNIFIED;
    let bench = Bench::new();
    let (memory, plain) = (bench.memory(), plain_memory());
    let copy = |src: &Arc<dyn Memory>, dst: &Arc<dyn Memory>| {
        let [src, dst] = [src, dst].map(|memory| MemoryView::whole(memory.clone()));
        Command::BufferCopy { src, dst }
    };
    let registrations = || [fake::calls("cuMemHostRegister"), fake::calls("cuMemHostUnregister")];
    let up = bench.chain(PLAIN, &[copy(&plain, &memory)]).0;
    assert_eq!(fake::last_copy(), [KNOWN; 2]);
    let down = bench.chain(PLAIN, &[copy(&memory, &plain)]).0;
    assert_eq!((fake::last_copy(), registrations()), ([KNOWN; 2], [1, 0]));
    bench.run(&*up).unwrap();
    drop(up);
    assert_eq!(registrations(), [1, 0], "the other one uses it");
    drop(down);
    assert_eq!(registrations(), [1, 1]);
    // Outside command-buffers, until the copy is over.
    let event = bench.event();
    fake::hold(true);
    // SAFETY: the fake driver runs nothing.
    unsafe { bench.queue.enqueue(&Arc::new(copy(&plain, &memory)), WaitList::NONE, Signal::new(&event)) }
        .unwrap();
    assert!(matches!(event.status(), EventStatus::Pending));
    assert_eq!(registrations(), [2, 1]);
    fake::hold(false);
    assert!(matches!(event.status(), EventStatus::Complete));
    assert_eq!((fake::last_copy(), registrations()), ([KNOWN; 2], [2, 2]));
    // What the driver refuses, it stages.
    fake::fail("cuMemHostRegister", 1, UNKNOWN);
    let staged = bench.chain(PLAIN, &[copy(&plain, &memory)]).0;
    assert_eq!(fake::last_copy(), [CU_MEMORYTYPE_HOST, KNOWN]);
    drop(staged);
    assert_eq!(registrations(), [3, 2]);
}

fn update_of(handle: CommandHandle, n: u32, enabled: Option<bool>) -> CommandUpdate {
    CommandUpdate { args: vec![(0, number(n))].into(), enabled, ..CommandUpdate::new(handle) }
}

/// The driver's nodes are slower for more than that.
#[test]
fn a_large_copy_within_the_device_is_several_nodes() {
    let bench = Bench::new();
    let nodes = |len| {
        let desc = MemoryDesc::new(len, MemoryKind::Device);
        let [src, dst] = [(); 2].map(|()| MemoryView::whole(bench.device.allocate(&desc).unwrap()));
        let before = fake::calls("cuGraphAddMemcpyNode");
        bench.chain(PLAIN, &[Command::BufferCopy { src, dst }]);
        fake::calls("cuGraphAddMemcpyNode") - before
    };
    assert_eq!(nodes(256 << 20), 1);
    assert_eq!(nodes((256 << 20) + 1), 2);
    assert_eq!(nodes(1 << 30), 4);
}

#[test]
fn host_buffers_in_steady_state_make_no_driver_call() {
    let device = wakegraph::Device::from_hal(Arc::new(open_device(fake::driver(), 0).unwrap()));
    let round = || {
        drop(device.host_buffer::<f32>(2 << 20).unwrap());
        drop(device.host_buffer_from(&[1u8; 5000]).unwrap());
    };
    round();
    let (allocations, calls) = (fake::calls("cuMemHostAlloc"), fake::all_calls());
    (0..100).for_each(|_| round());
    assert_eq!(fake::calls("cuMemHostAlloc") - allocations, 0);
    assert_eq!(fake::all_calls() - calls, 0);
    device.trim().unwrap();
    assert_eq!(fake::calls("cuMemFreeHost"), 2);
}

#[test]
fn memory_of_the_application_is_registered_once() {
    let device = wakegraph::Device::from_hal(Arc::new(open_device(fake::driver(), 0).unwrap()));
    let input = device.register_owned(vec![1u32; 1000]).unwrap();
    let slice = input.slice(10..20).unwrap();
    drop(input);
    assert_eq!((fake::calls("cuMemHostRegister"), fake::calls("cuMemHostUnregister")), (1, 0));
    assert_eq!(slice.try_read().unwrap()[..], [1; 10]);
    drop(slice);
    assert_eq!(fake::calls("cuMemHostUnregister"), 1);
    assert_eq!((fake::calls("cuMemHostAlloc"), fake::calls("cuMemFreeHost")), (0, 0));

    // What the driver refuses is copied from all the same.
    fake::fail("cuMemHostRegister", 2, UNKNOWN);
    let source = device.register_source(vec![1u8; 1000]).unwrap();
    let x = device.buffer::<u8>(1000).unwrap();
    let mut graph = wakegraph::Graph::new(&device);
    graph.copy(&source, &x);
    graph.finalize().unwrap();
    drop((graph, source));
    assert_eq!(fake::calls("cuMemHostUnregister"), 1);
    fake::fail("cuMemHostRegister", 1, ILLEGAL_ADDRESS);
    assert_eq!(device.register_source(vec![1u8; 1000]).unwrap_err().kind(), ErrorKind::DeviceLost);
}
