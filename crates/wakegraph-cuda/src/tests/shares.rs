//! Devices with a share of the multiprocessors.

use wakegraph_hal::support::streams::GpuBackend as _;

use super::*;

/// The share and the rest, as benches.
fn shared(device: &CudaDevice, units: usize) -> [Bench; 2] {
    device.inner().share(units).unwrap().map(|part| Bench::on(CudaDevice::new(part)))
}

#[test]
fn the_driver_rounds_up_and_the_rest_can_be_divided_again() {
    let device = open_device(fake::driver(), 0).unwrap();
    let [share, rest] = device.share(10).unwrap();
    let text = |device: &Arc<dyn Device>| (device.info().selector.clone(), device.info().compute_units);
    assert_eq!(text(&share), ("cuda:0 (share of 16)".into(), 16));
    assert_eq!(text(&rest), ("cuda:0 (rest of 116)".into(), 116));
    let [share, rest] = rest.share(100).unwrap();
    assert_eq!(text(&share), ("cuda:0 (rest of 116) (share of 104)".into(), 104));
    assert_eq!(rest.info().compute_units, 12);
    let error = rest.share(9).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert!(error.to_string().contains("does not divide 12 multiprocessors at 9"), "{error}");
}

#[test]
fn a_green_context_is_current_while_kernels_are_loaded_and_recorded() {
    let whole = Bench::new();
    let loaded_at = || [fake::current_at("cuModuleLoadDataEx"), fake::current_at("cuModuleGetFunction")];
    let primary = fake::current_at("cuStreamCreate");
    assert_eq!(loaded_at(), [primary; 2]);
    let parts = whole.device.inner().share(16).unwrap().map(CudaDevice::new);
    let green = fake::green();
    for (device, current) in parts.into_iter().zip(&green) {
        let bench = Bench::on(device);
        assert_eq!(loaded_at(), [*current; 2]);
        let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
        bench.run(&*buffer).unwrap();
        for call in ["cuGraphAddKernelNode", "cuGraphInstantiateWithFlags"] {
            assert_eq!(fake::current_at(call), *current, "{call}");
        }
        for call in ["cuGraphLaunch", "cuEventCreate", "cuMemAllocFromPoolAsync"] {
            assert!(!green.contains(&fake::current_at(call)), "{call}");
        }
    }
    assert_eq!(fake::current(), 0);
}

#[test]
fn streams_of_a_share_are_those_of_its_green_context() {
    let device = open_device(fake::driver(), 0).unwrap();
    let plain = || fake::calls("cuStreamCreate") + fake::calls("cuStreamCreateWithPriority");
    let before = plain();
    let [share, _rest] = shared(&device, 16);
    let created = fake::calls("cuGreenCtxStreamCreate");
    let high = QueueDesc::new(QueueOrder::InOrder).priority(Priority::High);
    share.device.create_queue(&high).unwrap();
    assert!(fake::calls("cuGreenCtxStreamCreate") > created);
    assert_eq!(plain(), before);
}

/// NVIDIA's documentation has the caller keep calls that use a green context apart.
#[test]
fn a_call_that_names_a_green_context_is_made_under_its_lock() {
    let device = open_device(fake::driver(), 0).unwrap();
    let [share, _rest] = shared(&device, 16);
    let (memory, green) = (share.memory(), fake::green()[0]);
    let view = || MemoryView::whole(memory.clone());
    let half = |start| MemoryView::new(memory.clone(), start, 32).unwrap();
    let copy = || Command::BufferCopy { src: half(0), dst: half(32) };
    let fill = Command::BufferFill { dst: view(), pattern: [0u8; 4][..].into() };
    let either = Command::If { condition: view(), then: Arc::new(Body::new()), otherwise: None };
    share.chain(PLAIN, &[copy(), fill, either]);
    let (mut buffer, handles) = share.chain(UPDATABLE, &[copy()]);
    buffer.update_from(&*share.chain(UPDATABLE, &[copy()]).0).unwrap();
    for enabled in [false, true] {
        buffer.update(&[CommandUpdate { enabled: Some(enabled), ..CommandUpdate::new(handles[0]) }]).unwrap();
    }
    for call in [
        "cuGraphAddMemcpyNode",
        "cuGraphAddMemsetNode",
        "cuGraphConditionalHandleCreate",
        "cuGraphAddNode",
        "cuGraphExecMemcpyNodeSetParams",
    ] {
        // It is current only under the lock.
        assert_eq!(fake::current_at(call), green, "{call}");
    }
}

/// Without the fallback, the thread would wait for itself.
#[test]
fn enqueues_do_not_wait_for_code_that_is_loaded() {
    let device = open_device(fake::driver(), 0).unwrap();
    let [share, _rest] = shared(&device, 16);
    let memory = share.memory();
    let (buffer, _) = share.chain(PLAIN, &[share.launch(1, &memory)]);
    let enqueue = |queue: &Arc<dyn Queue>| {
        let event = share.event();
        // SAFETY: the fake driver runs nothing.
        unsafe { buffer.enqueue(&**queue, WaitList::NONE, Signal::new(&event)) }.unwrap();
        *fake::launches().last().unwrap()
    };
    fake::hold(true);
    let queues = [(); 3].map(|()| share.queue());
    let first = enqueue(&queues[0]);
    let created = || fake::calls("cuGreenCtxStreamCreate");
    let before = created();
    let context = &share.device.inner().context;
    let common = context.confined(|| Ok(enqueue(&queues[1]))).unwrap();
    assert!(common != first && created() == before);
    let third = enqueue(&queues[2]);
    assert!(third != common && third != first && created() == before + 1);
}

/// The driver does not give back the memory of a green context.
#[test]
fn a_green_context_is_used_again_after_what_was_made_in_it() {
    let device = open_device(fake::driver(), 0).unwrap();
    let [share, rest] = shared(&device, 16);
    drop(rest);
    let Bench { device: of_share, queue, kernel } = share;
    drop((of_share, queue));
    drop(shared(&device, 16));
    assert_eq!(fake::green().len(), 3, "a kernel is of the first one");
    drop(kernel);
    for _ in 0..3 {
        let _parts = (shared(&device, 16), shared(&device, 16));
    }
    assert_eq!(fake::green().len(), 4);
    assert_eq!(fake::calls("cuGreenCtxDestroy"), 0);
    drop(shared(&device, 24));
    assert_eq!(fake::green().len(), 6, "of other multiprocessors");
}

#[test]
fn memory_of_a_share_is_the_devices() {
    let whole = Bench::new();
    let [share, rest] = shared(&whole.device, 16);
    for (user, owner) in [(&whole, &share), (&share, &whole), (&share, &rest)] {
        assert!(user.device.can_access(&*owner.memory()));
        assert!(user.device.can_wait_for(&owner.device));
    }
    assert_eq!(fake::calls("cuCtxEnablePeerAccess"), 0);
}

#[test]
fn memory_of_the_device_is_no_other_gpus_for_a_share() {
    let whole = Bench::new();
    let [share, _rest] = shared(&whole.device, 16);
    let of = |bench: &Bench| bench.device.allocate(&MemoryDesc::new(1 << 30, MemoryKind::Device)).unwrap();
    let (ours, theirs) = (of(&share), of(&whole));
    // A kernel counts the runs only where no other GPU's memory is used.
    let kernels = fake::calls("cuGraphAddKernelNode");
    share.chain(LOW_LATENCY, &[share.launch(1, &ours), share.launch(2, &theirs)]);
    assert_eq!(fake::calls("cuGraphAddKernelNode") - kernels, 3);
    // Copies are cut only within a GPU's memory.
    let [src, dst] = [ours, theirs].map(MemoryView::whole);
    let copies = fake::calls("cuGraphAddMemcpyNode");
    share.chain(PLAIN, &[Command::BufferCopy { src, dst }]);
    assert_eq!(fake::calls("cuGraphAddMemcpyNode") - copies, 4);
}

#[test]
fn a_driver_before_12_4_has_no_shares() {
    let device = open_device(fake::without_green_contexts(), 0).unwrap();
    let error = device.share(16).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert!(error.message().contains("cuDeviceGetDevResource"), "{error}");
}

#[test]
fn a_failure_on_the_way_loses_no_green_context() {
    for function in
        ["cuDevSmResourceSplitByCount", "cuGreenCtxCreate", "cuCtxFromGreenCtx", "cuMemPoolCreate"]
    {
        let device = open_device(fake::driver(), 0).unwrap();
        fake::fail(function, 1, OUT_OF_MEMORY);
        assert_eq!(device.share(16).unwrap_err().kind(), ErrorKind::OutOfMemory, "{function}");
    }
    let device = open_device(fake::driver(), 0).unwrap();
    device.share(16).unwrap();
    assert_eq!(fake::green().len(), 2);
}
