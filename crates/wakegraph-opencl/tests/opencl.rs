//! What is OpenCL's own: errors of drivers, the two lowerings, what fails half-way. Each test runs
//! on each runtime that is installed; without any it is ignored by name.
#![expect(unsafe_code, reason = "enqueues by the backend contract; every test orders what it enqueues")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/spirv/mod.rs"]
mod spirv;

use std::num::NonZeroUsize;
use std::process::{Command as Process, ExitCode};
use std::sync::Arc;

use common::{assert_complete, buffer, event, failure, memory, queue, read, write};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::backend::opencl::{self, Lowering, OpenclBackend, OpenclOptions};
use wakegraph::hal::{
    AccessMode, Backend as _, Command, CommandBuffer, CommandBufferDesc, CommandKinds, CommandUpdate, Device,
    Event, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView,
    Param, ParamKind, Queue, QueueDesc, QueueOrder, Signal, UsmPointer, ValidatedDevice, ValueBytes,
    WaitList,
};
use wakegraph::{Error, ErrorKind, Range, Result};

/// Set for a process that this test starts: with `open` it opens a device and tells how that went,
/// with `list` it tells which devices there are, with `handlers` whether they take signals over.
const CHILD: &str = "WAKEGRAPH_TEST_OPEN";

fn main() -> ExitCode {
    match std::env::var(CHILD).as_deref() {
        Ok("open") => return open_and_tell(),
        Ok("list") => return list(),
        Ok("handlers") => return signal_handlers::tell(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit_code()
}

type Test = fn(&Arc<dyn Device>);

/// The tests that are ignored on a device whose memory has no addresses.
const NEED_POINTERS: [&str; 1] = ["raw_pointers_and_views_name_the_same_memory"];

fn trials() -> Vec<Trial> {
    let tests: &[(&str, Test)] = &[
        ("build_errors_show_the_log", build_errors_show_the_log),
        ("declarations_must_match_the_source", declarations_must_match_the_source),
        ("arguments_must_have_the_size_in_the_source", arguments_must_have_the_size_in_the_source),
        ("empty_sources_do_not_reach_the_driver", empty_sources_do_not_reach_the_driver),
        ("work_groups_must_fit", work_groups_must_fit),
        ("a_kernels_own_local_memory_must_fit", a_kernels_own_local_memory_must_fit),
        ("opencl_c_is_of_the_devices_version", opencl_c_is_of_the_devices_version),
        ("too_much_memory_is_refused", too_much_memory_is_refused),
        ("a_first_command_that_fails_enqueues_nothing", a_first_command_that_fails_enqueues_nothing),
        ("a_later_command_that_fails_is_named", a_later_command_that_fails_is_named),
        ("failures_reach_dependents_only", failures_reach_dependents_only),
        ("failures_that_are_over_count", failures_that_are_over_count),
        ("lowerings_are_reported", lowerings_are_reported),
        ("names_select_devices", names_select_devices),
        ("devices_that_share_buffers_order_their_parts", devices_that_share_buffers_order_their_parts),
        ("updates_reach_later_enqueues", updates_reach_later_enqueues),
        ("wrong_updates_can_be_set_right", wrong_updates_can_be_set_right),
        ("updates_of_copied_arguments", updates_of_copied_arguments),
        ("raw_pointers_and_views_name_the_same_memory", raw_pointers_and_views_name_the_same_memory),
        ("programs_are_built_once", programs_are_built_once),
        ("refused_prefetches_keep_the_order", refused_prefetches_keep_the_order),
        ("spirv_runs_or_is_refused_by_name", spirv_runs_or_is_refused_by_name),
        ("broken_spirv_is_refused", broken_spirv_is_refused),
        ("single_fills_keep_their_pattern", single_fills_keep_their_pattern),
        ("queues_may_be_dropped_right_after_use", queues_may_be_dropped_right_after_use),
    ];
    let mut trials = vec![
        Trial::test("a_missing_library_is_unavailable", a_missing_library_is_unavailable),
        Trial::test("a_vanished_runtime_is_unavailable", a_vanished_runtime_is_unavailable),
        Trial::ignorable_test("indices_do_not_follow_the_loader", indices_do_not_follow_the_loader),
        Trial::ignorable_test(
            "drivers_leave_signals_to_the_application",
            drivers_leave_signals_to_the_application,
        ),
    ];
    let required = std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == "opencl");
    match OpenclBackend.device_count() {
        Ok(count) => {
            for (index, &(name, test)) in
                (0..count).flat_map(|index| tests.iter().map(move |test| (index, test)))
            {
                trials.push(Trial::ignorable_test(format!("{index}/{name}"), move || {
                    let device = opencl::open(index, OpenclOptions::new())?;
                    if NEED_POINTERS.contains(&name) && zeros(&*device, 1).memory().usm().is_none() {
                        return Ok(Completion::ignored_with("needs pointers to memory"));
                    }
                    test(&device);
                    // The process, and the device, go on.
                    works(&device);
                    Ok(Completion::Completed)
                }));
            }
        }
        Err(error) => trials.extend(tests.iter().map(|&(name, _)| {
            let error = error.clone();
            Trial::ignorable_test(name, move || match required {
                true => Err(Failed::from(format!("WAKEGRAPH_REQUIRE asks for this backend: {error}"))),
                false => Ok(Completion::ignored_with(error)),
            })
        })),
    }
    trials
}

fn value(name: &'static str, size: usize) -> Param {
    Param { name: name.into(), kind: ParamKind::Value { size } }
}

fn numbers(name: &'static str) -> Param {
    let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
    Param { name: name.into(), kind }
}

fn number(n: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&n.to_ne_bytes()))
}

fn load(device: &dyn Device, name: &str, params: &[Param], source: &'static str) -> Result<Arc<dyn Kernel>> {
    let sources = KernelSources::new().c(source);
    device.create_kernel(&KernelDesc::new(name, params, &sources))
}

/// x += n
const ADD: &str = "KERNEL(add, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += n; }";

fn add(device: &dyn Device) -> Arc<dyn Kernel> {
    load(device, "add", &[value("n", 4), numbers("x")], ADD).unwrap()
}

fn launch(kernel: &Arc<dyn Kernel>, args: Vec<KernelArg>, range: Range) -> Command {
    Command::Kernel(Arc::new(KernelLaunch::new(kernel.clone(), args, range)))
}

fn add_to(device: &dyn Device, n: u32, x: &MemoryView) -> Command {
    launch(&add(device), vec![number(n), KernelArg::Memory(x.clone())], Range::linear(x.len() / 4))
}

/// A launch that no driver takes: work-groups larger than the device has.
fn too_large(device: &dyn Device, x: &MemoryView) -> Command {
    let items = 4 * device.capabilities().max_work_group_size;
    let range = Range::linear(items).local([items]);
    launch(&add(device), vec![number(100), KernelArg::Memory(x.clone())], range)
}

fn words(memory: &MemoryView) -> Vec<u32> {
    read(&**memory.memory())
        .chunks_exact(4)
        .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn zeros(device: &dyn Device, words: usize) -> MemoryView {
    MemoryView::whole(memory(device, 4 * words))
}

const IN_ORDER: CommandBufferDesc = CommandBufferDesc::new().in_order(true);

fn works(device: &Arc<dyn Device>) {
    let (x, queue, done) = (zeros(&**device, 8), queue(&**device, QueueOrder::InOrder), event(&**device));
    let recorded = buffer(&**device, IN_ORDER, &[add_to(&**device, 3, &x)], &[]);
    common::enqueue(&*recorded, &*queue, &[], &done, None).unwrap();
    assert_complete(&*done);
    assert_eq!(words(&x), [3; 8]);
    device.status().unwrap();
}

fn build_errors_show_the_log(device: &Arc<dyn Device>) {
    let source = "KERNEL(broken, (u32 n)) { undeclared_thing = n; }";
    let error = load(&**device, "broken", &[value("n", 4)], source).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    assert!(error.message().contains("kernel 'broken' does not compile"), "{error}");
    assert!(error.message().contains("undeclared_thing"), "{error}");
    let error = load(&**device, "missing", &[value("n", 4), numbers("x")], ADD).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("no kernel 'missing'"), "{error}");
}

fn declarations_must_match_the_source(device: &Arc<dyn Device>) {
    let refused = |params: &[Param], says: &str| {
        let error = load(&**device, "add", params, ADD).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(says), "{error}");
    };
    // A slice is two parameters, its length the second.
    refused(&[value("n", 4)], "declared with 1 parameters, its source has 3");
    refused(
        &[value("n", 4), value("x", 8), value("x", 4)],
        "parameter 1, 'x', is declared as a value, in the source it is a buffer",
    );
    refused(&[numbers("n"), numbers("x")], "is declared with 4 parameters, its source has 3");
    let local = Param { name: "x".into(), kind: ParamKind::Local { element_size: 4 } };
    refused(&[value("n", 4), local], "parameter 1, 'x', is declared as local memory");
    // Slices as they are in no kernel of the dialect: without their lengths.
    let source = "KERNEL(bare, (GLOBAL u32 *x, GLOBAL u32 *y)) { x[0] = y[0]; }";
    let error = load(&**device, "bare", &[numbers("x"), numbers("y")], source).unwrap_err();
    assert!(error.message().contains("is declared with 4 parameters, its source has 2"), "{error}");
    assert!(error.to_string().contains("`&mut [T]` is SLICE(T, x)"), "{error}");
    let error = load(&**device, "bare", &[numbers("x")], source).unwrap_err();
    assert!(error.message().contains("the length of 'x', is declared as a value"), "{error}");
}

fn arguments_must_have_the_size_in_the_source(device: &Arc<dyn Device>) {
    let error = load(&**device, "add", &[value("n", 8), numbers("x")], ADD).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("parameter 0, 'n', is declared as a value of 8 bytes"), "{error}");
}

/// Also on a device without the checks of the contract: for a text of no bytes drivers read until
/// they find a NUL.
fn empty_sources_do_not_reach_the_driver(device: &Arc<dyn Device>) {
    let empty = [KernelSources::new().opencl_c(""), KernelSources::new().c("")];
    for sources in empty {
        let desc = KernelDesc::new("k", &[], &sources);
        let error = device.create_kernel(&desc).unwrap_err();
        assert!([ErrorKind::InvalidArgument, ErrorKind::Driver].contains(&error.kind()), "{error}");
        let error = ValidatedDevice::new(device.clone()).create_kernel(&desc).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("is empty"), "{error}");
    }
}

fn a_kernels_own_local_memory_must_fit(device: &Arc<dyn Device>) {
    let validated = ValidatedDevice::new(device.clone());
    let (x, most) = (zeros(&**device, 8), device.capabilities().local_memory);
    let own = |bytes: usize| {
        let body = "a[LOCAL_ID(0)] = 5; BARRIER(); x[GLOBAL_ID(0)] = a[LOCAL_ID(0) ^ 1];";
        let source = format!("KERNEL(own, (SLICE(u32, x))) {{ LOCAL_ARRAY u32 a[{}]; {body} }}", bytes / 4);
        let sources = KernelSources::new().c(source);
        let kernel = device.create_kernel(&KernelDesc::new("own", &[numbers("x")], &sources)).unwrap();
        let mut buffer = validated.create_command_buffer(&IN_ORDER).unwrap();
        let args = vec![KernelArg::Memory(x.clone())];
        buffer.append(&launch(&kernel, args, Range::linear(8).local([2])), &[]).map(drop)
    };
    let error = own(4 * most).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    assert!(error.message().contains(&format!("the device has {most}")), "{error}");
    own(1024).unwrap();
}

fn opencl_c_is_of_the_devices_version(device: &Arc<dyn Device>) {
    let source = "#if __OPENCL_C_VERSION__ < 300\n#error old\n#endif\n\
                  __kernel void own(__global uint *x) { x[0] = 1; }";
    // Both runtimes have OpenCL 3.0.
    let sources = KernelSources::new().opencl_c(source);
    device.create_kernel(&KernelDesc::new("own", &[numbers("x")], &sources)).unwrap();
}

fn work_groups_must_fit(device: &Arc<dyn Device>) {
    let validated = ValidatedDevice::new(device.clone());
    let x = zeros(&**device, 8);
    let mut buffer = validated.create_command_buffer(&IN_ORDER).unwrap();
    let error = buffer.append(&too_large(&**device, &x), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    let fixed = "__kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fixed(__global uint *x) { x[get_global_id(0)] = 1; }";
    let sources = KernelSources::new().opencl_c(fixed);
    let params = [numbers("x")];
    let desc = KernelDesc::new("fixed", &params, &sources);
    let kernel = device.create_kernel(&desc).unwrap();
    for range in [Range::linear(8).local([2]), Range::linear(6)] {
        let error =
            buffer.append(&launch(&kernel, vec![KernelArg::Memory(x.clone())], range), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
        assert!(error.message().contains("[4, 1, 1]"), "{error}");
    }
    // Left to the device, it is what the source demands.
    buffer.append(&launch(&kernel, vec![KernelArg::Memory(x.clone())], Range::linear(8)), &[]).unwrap();
    buffer.finalize().unwrap();
    let queue = validated.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap();
    let done = event(&**device);
    let signal = Signal::new(&done);
    // SAFETY: nothing else touches the memory meanwhile.
    unsafe { buffer.enqueue(&queue, WaitList::NONE, signal) }.unwrap();
    assert_complete(&*done);
    assert_eq!(words(&x), [1; 8]);
}

fn too_much_memory_is_refused(device: &Arc<dyn Device>) {
    let most = device.capabilities().max_allocation;
    for len in [most.saturating_add(1), 1 << 50, usize::MAX] {
        for kind in [MemoryKind::Device, MemoryKind::Host] {
            let error = device.allocate(&MemoryDesc::new(len, kind)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        }
    }
}

fn a_first_command_that_fails_enqueues_nothing(device: &Arc<dyn Device>) {
    let device = replaying(device);
    let x = zeros(&*device, 8);
    let recorded = buffer(&*device, IN_ORDER, &[too_large(&*device, &x), add_to(&*device, 1, &x)], &[]);
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let (queue, done) = (queue(&*device, order), event(&*device));
        let error = common::enqueue(&*recorded, &*queue, &[], &done, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
        queue.finish().unwrap();
        assert!(!done.status().is_final(), "it was never enqueued");
        assert_eq!(words(&x), [0; 8]);
    }
}

fn a_later_command_that_fails_is_named(device: &Arc<dyn Device>) {
    let device = replaying(device);
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let x = zeros(&*device, 8);
        let commands = [add_to(&*device, 1, &x), too_large(&*device, &x), add_to(&*device, 10, &x)];
        let recorded = buffer(&*device, IN_ORDER, &commands, &[]);
        let (queue, done) = (queue(&*device, order), event(&*device));
        // Again and again: a failure is no state.
        for runs in 1..4 {
            common::enqueue(&*recorded, &*queue, &[], &done, None).unwrap();
            let error = failure(&*done);
            assert_eq!((error.kind(), error.command()), (ErrorKind::InvalidSize, Some(1)), "{error}");
            assert_eq!(words(&x), [runs; 8], "what came before it is done, what came after is not");
        }
    }
}

// broken -> b -> c by need; broken -> d by order only
fn failures_reach_dependents_only(device: &Arc<dyn Device>) {
    let device = replaying(device);
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let (x, y) = (zeros(&*device, 8), zeros(&*device, 8));
        let broken = buffer(&*device, IN_ORDER, &[add_to(&*device, 1, &x), too_large(&*device, &x)], &[]);
        let needs = buffer(&*device, IN_ORDER, &[add_to(&*device, 5, &x)], &[]);
        let follows = buffer(&*device, IN_ORDER, &[add_to(&*device, 7, &y)], &[]);
        let events: [Arc<dyn Event>; 4] = std::array::from_fn(|_| event(&*device));
        let (one, other) = (queue(&*device, order), queue(&*device, order));
        common::enqueue(&*broken, &*one, &[], &events[0], None).unwrap();
        common::enqueue(&*needs, &*other, &[&*events[0]], &events[1], None).unwrap();
        enqueue_command(&*one, &Command::Empty, WaitList::dependencies(&[&*events[1]]), &events[2]);
        let order: [&dyn Event; 2] = [&*events[0], &*events[2]];
        let wait = WaitList::order(&order);
        // SAFETY: nothing else uses `y`.
        unsafe { follows.enqueue(&*other, wait, Signal::new(&events[3])) }.unwrap();
        assert_complete(&*events[3]);
        for event in &events[..3] {
            assert_eq!(failure(&**event).command(), Some(1));
        }
        assert_eq!((words(&x), words(&y)), (vec![1; 8], vec![7; 8]));
    }
}

/// What needs a failure that is known fails like it, what only follows it runs, and so does what
/// comes later in the queue.
fn failures_that_are_over_count(device: &Arc<dyn Device>) {
    let replay = replaying(device);
    let record = with_options(device, OpenclOptions::new().lowering(Lowering::CommandBuffer));
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let (x, y) = (zeros(&*replay, 8), zeros(&*record, 8));
        let broken = buffer(&*replay, IN_ORDER, &[add_to(&*replay, 1, &x), too_large(&*replay, &x)], &[]);
        let adds = buffer(&*record, IN_ORDER, &[add_to(&*record, 10, &y)], &[]);
        let first = event(&*replay);
        let queues = (queue(&*replay, order), queue(&*record, order));
        common::enqueue(&*broken, &*queues.0, &[], &first, None).unwrap();
        assert_eq!(failure(&*first).command(), Some(1));
        let [needs, needs_too, follows, later]: [Arc<dyn Event>; 4] =
            std::array::from_fn(|_| event(&*record));
        common::enqueue(&*adds, &*queues.1, &[&*first], &needs, None).unwrap();
        common::enqueue(&*adds, &*queues.1, &[&*needs, &*first], &needs_too, None).unwrap();
        for event in [&needs, &needs_too] {
            let error = failure(&**event);
            assert_eq!((error.kind(), error.command()), (ErrorKind::InvalidSize, Some(1)), "{error}");
        }
        assert_eq!(words(&y), [0; 8], "neither of them ran");
        let order: [&dyn Event; 2] = [&*first, &*needs_too];
        let wait = WaitList::order(&order);
        // SAFETY: nothing else uses `y`.
        unsafe { adds.enqueue(&*queues.1, wait, Signal::new(&follows)) }.unwrap();
        common::enqueue(&*adds, &*queues.1, &[], &later, None).unwrap();
        assert_complete(&*later);
        assert_complete(&*follows);
        assert_eq!((words(&x), words(&y)), (vec![1; 8], vec![20; 8]));
    }
}

/// The same device, without checks and with plain enqueues: what a driver refuses, it refuses at the enqueue.
fn replaying(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    with_options(device, OpenclOptions::new().lowering(Lowering::Replay))
}

fn with_options(device: &Arc<dyn Device>, options: OpenclOptions) -> Arc<dyn Device> {
    let (_, index) = device.info().selector.split_once(':').unwrap();
    opencl::open(index.parse().unwrap(), options).unwrap()
}

fn enqueue_command(queue: &dyn Queue, command: &Command, wait: WaitList<'_>, event: &Arc<dyn Event>) {
    // SAFETY: the command touches no memory.
    unsafe { queue.enqueue(&Arc::new(command.clone()), wait, Signal::new(event)) }.unwrap();
}

/// By the name of the device, and by a short name of each runtime that is installed here.
fn names_select_devices(device: &Arc<dyn Device>) {
    let info = device.info();
    let index = |selector: &str| wakegraph::backend::resolve(selector).map(|(_, index)| index);
    let same_name = |index| opencl::open(index, OpenclOptions::new()).unwrap().info().name == info.name;
    assert!(same_name(index(&format!("opencl:{}", info.name)).unwrap()));
    for (platform, short) in [("Intel(R) OpenCL", "intel"), ("Portable Computing Language", "pocl")] {
        if info.driver.starts_with(platform) {
            let found = wakegraph::Device::open(&format!("opencl:{short}")).unwrap();
            assert!(found.info().driver.starts_with(platform), "{found:?}");
            assert_eq!(found, wakegraph::Device::open(found.selector()).unwrap());
        }
    }
    let error = index("opencl:abacus").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains(&format!("'{}' is {}", info.selector, info.name)), "{error}");
}

fn lowerings_are_reported(device: &Arc<dyn Device>) {
    let index = device.info().selector.trim_start_matches("opencl:").parse().unwrap();
    let of = |options| {
        let device = opencl::open(index, options).unwrap();
        let x = zeros(&*device, 8);
        buffer(&*device, IN_ORDER, &[add_to(&*device, 1, &x)], &[]).info().lowering
    };
    let (replayed, recorded) = ("replayed enqueues", "cl_khr_command_buffer");
    assert_eq!(of(OpenclOptions::new().lowering(Lowering::Replay)), replayed);
    // CPUs replay, other devices record where they have the extension.
    let chosen = of(OpenclOptions::new());
    match device.info().driver.starts_with("Intel(R) OpenCL") {
        true => assert_eq!(chosen, replayed),
        false => assert!([replayed, recorded].contains(&chosen)),
    }
    // A buffer with a command that cannot be recorded is replayed: the host side is memory of another device.
    let device = opencl::open(index, OpenclOptions::new().lowering(Lowering::CommandBuffer)).unwrap();
    let host = wakegraph::backend::open("host:0").unwrap();
    let host = MemoryView::whole(host.allocate(&MemoryDesc::new(32, MemoryKind::Host)).unwrap());
    let x = zeros(&*device, 8);
    let commands = [add_to(&*device, 1, &x), Command::BufferRead { src: x.clone(), host: host.clone() }];
    let both = buffer(&*device, IN_ORDER, &commands, &[]);
    assert_eq!(both.info().lowering, replayed);
    // The plan's print-out tells it, too.
    let whole = wakegraph::Device::from_hal(device.clone());
    let mut graph = wakegraph::Graph::new(&whole);
    graph.fill(&whole.buffer::<u32>(4).unwrap(), 1);
    let text = graph.finalize().unwrap().plan_text();
    assert!(
        text.contains("finalize 0: cl_khr_command_buffer") || text.contains("finalize 0: replayed"),
        "{text}"
    );
    let (queue, done) = (queue(&*device, QueueOrder::InOrder), event(&*device));
    common::enqueue(&*both, &*queue, &[], &done, None).unwrap();
    assert_complete(&*done);
    assert_eq!(words(&host), [1; 8]);
}

/// Both lowerings, with an update while the enqueue before it may still run.
fn updates_reach_later_enqueues(device: &Arc<dyn Device>) {
    const SET: &str = "KERNEL(set, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += n; }\n\
                       KERNEL(other, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += 1000 * n; }";
    let lowerings = [Lowering::Replay, Lowering::CommandBuffer];
    for (lowering, waits) in lowerings.into_iter().flat_map(|lowering| [(lowering, false), (lowering, true)])
    {
        let device = with_options(device, OpenclOptions::new().lowering(lowering));
        let params = [value("n", 4), numbers("x")];
        let set = load(&*device, "set", &params, SET).unwrap();
        let other = load(&*device, "other", &params, SET).unwrap();
        let (x, y) = (zeros(&*device, 8), zeros(&*device, 8));
        let desc = IN_ORDER.updatable(true);
        let mut buffer = device.create_command_buffer(&desc).unwrap();
        buffer.append(&add_to(&*device, 0, &x), &[]).unwrap();
        let args = vec![number(1), KernelArg::Memory(x.clone())];
        let range = Range::linear(4);
        let launch = KernelLaunch::new(set, args, range).alternatives(vec![other.clone()]);
        let handle = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        let queue = queue(&*device, QueueOrder::InOrder);
        let events: [Arc<dyn Event>; 3] = std::array::from_fn(|_| event(&*device));
        let mut update = CommandUpdate::new(handle);
        let enqueue = |buffer: &dyn CommandBuffer, event: &Arc<dyn Event>| {
            common::enqueue(buffer, &*queue, &[], event, None).unwrap();
            if waits {
                assert_complete(&**event);
            }
        };
        enqueue(&*buffer, &events[0]);
        update.args = vec![(0, number(20))].into();
        update.global_offset = Some([2, 0, 0]);
        buffer.update(&[update.clone()]).unwrap();
        enqueue(&*buffer, &events[1]);
        update.kernel = Some(other);
        update.args = vec![(1, KernelArg::Memory(y.clone()))].into();
        update.global_size = Some([2, 1, 1]);
        update.local_size = Some(Some([1, 1, 1]));
        update.global_offset = Some([0; 3]);
        buffer.update(&[update]).unwrap();
        enqueue(&*buffer, &events[2]);
        assert_complete(&*events[2]);
        assert_eq!(words(&x), [1, 1, 21, 21, 20, 20, 0, 0], "{lowering:?}");
        assert_eq!(words(&y), [20_000, 20_000, 0, 0, 0, 0, 0, 0], "{lowering:?}");
    }
}

/// An update to what the driver does not take is refused as a whole, or the enqueues after it fail.
/// Set right again, the buffer runs.
fn wrong_updates_can_be_set_right(device: &Arc<dyn Device>) {
    let mut lowerings = vec![Lowering::Replay];
    // PoCL 3.1 does not survive refusing to record a work-group: it is the checks that keep such from it.
    if !device.info().driver.starts_with("Portable Computing Language") {
        lowerings.push(Lowering::CommandBuffer);
    }
    for lowering in lowerings {
        let device = with_options(device, OpenclOptions::new().lowering(lowering));
        let items = 4 * device.capabilities().max_work_group_size;
        let x = zeros(&*device, items);
        let mut buffer = device.create_command_buffer(&IN_ORDER.updatable(true)).unwrap();
        let first = buffer.append(&add_to(&*device, 1, &x), &[]).unwrap().handle.unwrap();
        let second = buffer.append(&add_to(&*device, 10, &x), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        let (queue, done) = (queue(&*device, QueueOrder::InOrder), event(&*device));
        let [mut good, mut bad] = [first, second].map(CommandUpdate::new);
        good.args = vec![(0, number(2))].into();
        (bad.global_size, bad.local_size) = (Some([items, 1, 1]), Some(Some([items, 1, 1])));
        let mut expected = 0;
        for _ in 0..3 {
            match buffer.update(&[good.clone(), bad.clone()]) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
                    common::enqueue(&*buffer, &*queue, &[], &done, None).unwrap();
                    assert_complete(&*done);
                    expected += 11;
                }
                Ok(()) => {
                    // Replayed, the first command is done and the second is named; of a recording
                    // nothing is known.
                    common::enqueue(&*buffer, &*queue, &[], &done, None).unwrap();
                    let error = failure(&*done);
                    match lowering {
                        Lowering::Replay => {
                            assert_eq!(error.command(), Some(1), "{error}");
                            expected += 2;
                        }
                        Lowering::CommandBuffer => expected = words(&x)[0],
                    }
                    let [mut old, mut whole] = [first, second].map(CommandUpdate::new);
                    old.args = vec![(0, number(1))].into();
                    (whole.global_size, whole.local_size) = (Some([items, 1, 1]), Some(None));
                    buffer.update(&[old, whole]).unwrap();
                    common::enqueue(&*buffer, &*queue, &[], &done, None).unwrap();
                    assert_complete(&*done);
                    expected += 11;
                }
            }
            assert!(
                words(&x).iter().all(|&x| x == expected),
                "{lowering:?}: {expected}, {:?}",
                &words(&x)[..8]
            );
        }
    }
}

/// Without shared memory, several devices of a context must not use parts of one buffer at once,
/// nor one device a buffer and a part of it.
fn devices_that_share_buffers_order_their_parts(device: &Arc<dyn Device>) {
    for shared_memory in [true, false] {
        let whole = with_options(device, OpenclOptions::new().shared_memory(shared_memory));
        let mut devices = whole.sub_devices(NonZeroUsize::MIN.saturating_add(1)).unwrap_or_default();
        if !device.info().driver.starts_with("NVIDIA") {
            // There a part is never a buffer object of its own.
            devices.push(whole);
        }
        for part in devices {
            let has_shared_memory = part.capabilities().commands.contains(CommandKinds::USM_COPY);
            assert!(!has_shared_memory || shared_memory);
            assert_eq!(part.capabilities().concurrent_parts, has_shared_memory);
        }
    }
}

/// Without shared memory, a part that starts anywhere is passed as a copy: an update may turn one
/// operation into three.
fn updates_of_copied_arguments(device: &Arc<dyn Device>) {
    for lowering in [Lowering::Replay, Lowering::CommandBuffer] {
        let device = with_options(device, OpenclOptions::new().shared_memory(false).lowering(lowering));
        let x = zeros(&*device, 8);
        let part = MemoryView::new(x.memory().clone(), 12, 8).unwrap();
        let mut buffer = device.create_command_buffer(&IN_ORDER.updatable(true)).unwrap();
        let handle = buffer.append(&add_to(&*device, 1, &x), &[]).unwrap().handle.unwrap();
        buffer.append(&add_to(&*device, 100, &part), &[]).unwrap();
        buffer.finalize().unwrap();
        let (queue, done) = (queue(&*device, QueueOrder::InOrder), event(&*device));
        let run = |buffer: &dyn CommandBuffer| {
            common::enqueue(buffer, &*queue, &[], &done, None).unwrap();
            assert_complete(&*done);
        };
        run(&*buffer);
        assert_eq!(words(&x), [1, 1, 1, 101, 101, 1, 1, 1]);
        for (arg, items) in [(&part, 2), (&x, 8)] {
            let mut update = CommandUpdate::new(handle);
            update.args = vec![(1, KernelArg::Memory(arg.clone()))].into();
            update.global_size = Some([items, 1, 1]);
            buffer.update(&[update]).unwrap();
            run(&*buffer);
        }
        assert_eq!(words(&x), [2, 2, 2, 304 - 1, 304 - 1, 2, 2, 2]);
    }
}

/// A pointer into shared memory as an argument, in copies and in fills, between commands that use
/// the buffer object.
fn raw_pointers_and_views_name_the_same_memory(device: &Arc<dyn Device>) {
    for lowering in [Lowering::Replay, Lowering::CommandBuffer] {
        let device = with_options(device, OpenclOptions::new().lowering(lowering));
        let (x, y) = (zeros(&*device, 8), zeros(&*device, 8));
        let [start, target] = [&x, &y].map(|view| view.memory().usm().unwrap());
        // SAFETY: inside the allocations, which live until the end of this test.
        let pointer = |whole: UsmPointer, word: usize, words: usize| unsafe {
            UsmPointer::new(whole.address() + 4 * word, 4 * words)
        };
        let fill = |pattern: &[u8]| Command::BufferFill { dst: x.clone(), pattern: pattern.into() };
        let args = vec![number(5), KernelArg::Usm(pointer(start, 2, 4))];
        let commands = [
            fill(&[1, 0, 0, 0]),
            launch(&add(&*device), args, Range::linear(4)),
            Command::UsmFill { dst: pointer(start, 7, 1), pattern: [9, 0, 0, 0].as_slice().into() },
            Command::UsmPrefetch { memory: start },
            add_to(&*device, 10, &x),
            Command::UsmCopy { src: pointer(start, 1, 7), dst: pointer(target, 0, 7), len: 28 },
            add_to(&*device, 100, &y),
        ];
        let recorded = buffer(&*device, IN_ORDER, &commands, &[]);
        let (queue, done) = (queue(&*device, QueueOrder::InOrder), event(&*device));
        for _ in 0..50 {
            write(&**y.memory(), &[0; 32]);
            common::enqueue(&*recorded, &*queue, &[], &done, None).unwrap();
            assert_complete(&*done);
            assert_eq!(words(&x), [11, 11, 16, 16, 16, 16, 11, 19]);
            assert_eq!(words(&y), [111, 116, 116, 116, 116, 111, 119, 100]);
        }
    }
}

/// Of memory that is no device's, so that drivers say no: first, between, last, and on its own
/// behind a wait list.
fn refused_prefetches_keep_the_order(device: &Arc<dyn Device>) {
    let plain = [0u8; 64];
    let (start, len) = (plain.as_ptr().expose_provenance(), plain.len());
    // SAFETY: the bytes live until the end of this test.
    let memory = unsafe { UsmPointer::new(start, len) };
    let refused = || Command::UsmPrefetch { memory };
    for lowering in [Lowering::Replay, Lowering::CommandBuffer] {
        let device = with_options(device, OpenclOptions::new().lowering(lowering));
        for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            let x = zeros(&*device, 8);
            let own = x.memory().usm().map_or_else(refused, |memory| Command::UsmPrefetch { memory });
            let add = |n| add_to(&*device, n, &x);
            let commands = [refused(), add(1), own, refused(), add(10), refused()];
            let recorded = buffer(&*device, IN_ORDER, &commands, &[]);
            let (queue, done, after) = (queue(&*device, order), event(&*device), event(&*device));
            for runs in 1..=3 {
                common::enqueue(&*recorded, &*queue, &[], &done, None).unwrap();
                enqueue_command(&*queue, &refused(), WaitList::dependencies(&[&*done]), &after);
                assert_complete(&*after);
                assert_complete(&*done);
                assert_eq!(words(&x), [11 * runs; 8], "{lowering:?}, {order:?}");
            }
        }
    }
}

/// A program with several kernels, asked for several times, is one program: the text is in none of
/// the build errors twice.
fn programs_are_built_once(device: &Arc<dyn Device>) {
    const TWO: &str = "KERNEL(one, (SLICE(u32, x))) { x[GLOBAL_ID(0)] = 1; }\n\
                       KERNEL(two, (SLICE(u32, x))) { x[GLOBAL_ID(0)] = 2; }";
    let x = zeros(&**device, 8);
    let commands: Vec<Command> = ["one", "two", "one", "two"]
        .map(|name| {
            let kernel = load(&**device, name, &[numbers("x")], TWO).unwrap();
            launch(&kernel, vec![KernelArg::Memory(x.clone())], Range::linear(8))
        })
        .into();
    let (queue, done) = (queue(&**device, QueueOrder::InOrder), event(&**device));
    common::enqueue(&*buffer(&**device, IN_ORDER, &commands, &[]), &*queue, &[], &done, None).unwrap();
    assert_complete(&*done);
    assert_eq!(words(&x), [2; 8]);
}

/// Of both variants, a device takes SPIR-V if it can, else C; here C adds twice as much. Of SPIR-V
/// alone, it runs it or says that it does not take it.
fn spirv_runs_or_is_refused_by_name(device: &Arc<dyn Device>) {
    const TWICE: &str = "KERNEL(add, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += 2 * n; }";
    let params = [value("n", 4), numbers("x")];
    let load = |sources: KernelSources| device.create_kernel(&KernelDesc::new("add", &params, &sources));
    let alone = load(KernelSources::new().spirv(spirv::add()));
    let takes = alone.is_ok();
    let mut kernels = vec![load(KernelSources::new().spirv(spirv::add()).c(TWICE)).unwrap()];
    match alone {
        Ok(kernel) => kernels.push(kernel),
        Err(error) => {
            assert!(!device.info().driver.starts_with("Intel"), "Intel's runtime takes SPIR-V: {error}");
            assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
            assert!(error.message().contains("kernel 'add'"), "{error}");
            assert!(error.message().contains("spirv"), "{error}");
        }
    }
    for lowering in [Lowering::Replay, Lowering::CommandBuffer] {
        let device = with_options(device, OpenclOptions::new().lowering(lowering));
        for kernel in &kernels {
            let x = zeros(&*device, 8);
            let command = launch(kernel, vec![number(5), KernelArg::Memory(x.clone())], Range::linear(8));
            let recorded = buffer(&*device, IN_ORDER, &[command], &[]);
            let (queue, done) = (queue(&*device, QueueOrder::InOrder), event(&*device));
            for runs in 1..=3 {
                common::enqueue(&*recorded, &*queue, &[], &done, None).unwrap();
                assert_complete(&*done);
                assert_eq!(words(&x), [runs * if takes { 5 } else { 10 }; 8]);
            }
        }
    }
    // Its parameters are checked as those of C.
    if takes {
        let sources = KernelSources::new().spirv(spirv::add());
        let desc = KernelDesc::new("add", &params[..1], &sources);
        let error = device.create_kernel(&desc).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("declared with 1 parameters, its source has 2"), "{error}");
        let desc = KernelDesc::new("other", &params, &sources);
        let error = device.create_kernel(&desc).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("no kernel 'other'"), "{error}");
    }
}

fn broken_spirv_is_refused(device: &Arc<dyn Device>) {
    let whole = spirv::add();
    let mut wrong_magic = whole.clone();
    wrong_magic[0] ^= 0xff;
    let mut modules = vec![vec![3, 2], wrong_magic, b"KERNEL(add, (u32 n, SLICE(u32, x))) {}".to_vec()];
    // Cut off anywhere. Intel's runtime would end the process.
    modules.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
    for module in modules {
        let (len, sources) = (module.len(), KernelSources::new().spirv(module));
        let params = [value("n", 4), numbers("x")];
        let desc = KernelDesc::new("add", &params, &sources);
        let error = device.create_kernel(&desc).unwrap_err();
        assert!(error.message().contains("kernel 'add'"), "{len} bytes: {error}");
        if error.kind() != ErrorKind::FeatureNotSupported {
            assert_eq!(error.kind(), ErrorKind::Driver, "{len} bytes: {error}");
            assert!(error.message().contains("SPIR-V"), "{len} bytes: {error}");
        }
    }
}

/// A fill outside a command-buffer whose pattern is of ours: the memory that it is copied from
/// lives until it is done.
fn single_fills_keep_their_pattern(device: &Arc<dyn Device>) {
    let memory = memory(&**device, 3 * 7000);
    write(&*memory, &vec![9; 3 * 7000]);
    let (queue, done) = (queue(&**device, QueueOrder::InOrder), event(&**device));
    let fill =
        Command::BufferFill { dst: MemoryView::whole(memory.clone()), pattern: [1, 2, 3].as_slice().into() };
    enqueue_command(&*queue, &fill, WaitList::NONE, &done);
    assert_complete(&*done);
    assert!(read(&*memory).chunks(3).all(|chunk| chunk == [1, 2, 3]));
}

// Intel's runtime for CPUs stands still now and then when an out-of-order queue of its own is
// released: once in 6,000 to 100,000 times.
fn queues_may_be_dropped_right_after_use(device: &Arc<dyn Device>) {
    let times = if device.info().driver.starts_with("Intel") { 30_000 } else { 1_000 };
    std::thread::scope(|scope| {
        for order in [QueueOrder::OutOfOrder; 2] {
            scope.spawn(move || {
                let (x, done) = (zeros(&**device, 8), event(&**device));
                let add = add_to(&**device, 1, &x);
                for _ in 0..times {
                    let queue = queue(&**device, order);
                    enqueue_command(&*queue, &add, WaitList::default(), &done);
                    assert_complete(&*done);
                }
                assert_eq!(words(&x), [times; 8]);
            });
        }
    });
}

fn a_missing_library_is_unavailable() -> Result<(), Failed> {
    let report = child("open", "WAKEGRAPH_OPENCL_LIBRARY", "/nowhere/libOpenCL.so")?;
    assert!(report.contains("unavailable: the OpenCL library cannot be loaded"), "{report}");
    assert!(report.contains("install an OpenCL loader"), "{report}");
    Ok(())
}

/// The loader has an entry for a runtime whose library is gone. (Without a loader, the error says that.)
fn a_vanished_runtime_is_unavailable() -> Result<(), Failed> {
    let report = with_runtimes("gone", &["/nowhere/libgone.so".into()], "open")?;
    assert!(report.contains("unavailable: "), "{report}");
    assert!(report.contains("; install"), "{report}");
    Ok(())
}

/// The loader finds the runtimes in the order of a directory.
fn indices_do_not_follow_the_loader() -> Result<Completion, Failed> {
    let folder = std::env::var("OCL_ICD_VENDORS").unwrap_or_default();
    let folder = if folder.is_empty() { "/etc/OpenCL/vendors" } else { &folder };
    let mut runtimes = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        runtimes.push(std::fs::read_to_string(entry?.path())?);
    }
    if runtimes.len() < 2 {
        return Ok(Completion::ignored_with("needs two runtimes"));
    }
    let listed = with_runtimes("forwards", &runtimes, "list")?;
    runtimes.reverse();
    assert_eq!(with_runtimes("backwards", &runtimes, "list")?, listed);
    Ok(Completion::Completed)
}

/// What a process tells for which these runtimes are installed, in this order.
fn with_runtimes(folder: &str, runtimes: &[String], what: &str) -> Result<String, Failed> {
    let folder = std::env::temp_dir().join(format!("wakegraph-icd-{}-{folder}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for (number, runtime) in runtimes.iter().enumerate() {
        std::fs::write(folder.join(format!("{number}.icd")), runtime)?;
    }
    let report = child(what, "OCL_ICD_VENDORS", &folder.display().to_string());
    std::fs::remove_dir_all(&folder)?;
    report
}

/// In a process of its own, as drivers take signals over once in a process.
fn drivers_leave_signals_to_the_application() -> Result<Completion, Failed> {
    if !cfg!(unix) {
        return Ok(Completion::ignored_with("needs the signals of Unix"));
    }
    if OpenclBackend.device_count().is_err() {
        return Ok(Completion::ignored_with("there is no OpenCL device"));
    }
    let report = child("handlers", "WAKEGRAPH_OPENCL_LOWERING", "")?;
    assert_eq!(report.lines().last(), Some("taken over: [], received: 1"), "{report}");
    Ok(Completion::Completed)
}

#[cfg(unix)]
mod signal_handlers {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Signals by which others ask a process for something, and those of faults.
    const SIGNALS: [i32; 8] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTERM,
        libc::SIGABRT,
        libc::SIGSEGV,
    ];

    static RECEIVED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn receive(_: i32) {
        RECEIVED.fetch_add(1, Ordering::Relaxed);
    }

    /// Uses each device, and tells which signals the drivers have taken over, and whether a handler
    /// that is put in afterwards gets its signal.
    pub(super) fn tell() -> ExitCode {
        let before = SIGNALS.map(handler);
        for index in 0..OpenclBackend.device_count().unwrap() {
            works(&opencl::open(index, OpenclOptions::new()).unwrap());
        }
        let taken = SIGNALS.into_iter().zip(before).filter(|&(signal, before)| handler(signal) != before);
        let taken: Vec<_> = taken.map(|(signal, _)| signal).collect();
        let own = receive as extern "C" fn(i32);
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGTERM, own as usize) };
        // SAFETY: the handler only counts.
        unsafe { libc::raise(libc::SIGTERM) };
        println!("taken over: {taken:?}, received: {}", RECEIVED.load(Ordering::Relaxed));
        ExitCode::SUCCESS
    }

    fn handler(signal: i32) -> usize {
        let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: changes nothing; the place has room.
        unsafe { libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) };
        // SAFETY: zeros, or what the function has written.
        unsafe { now.assume_init() }.sa_sigaction
    }
}

#[cfg(not(unix))]
mod signal_handlers {
    pub(super) fn tell() -> super::ExitCode {
        super::ExitCode::FAILURE
    }
}

/// What a process with this variable tells.
fn child(what: &str, variable: &str, value: &str) -> Result<String, Failed> {
    let output = Process::new(std::env::current_exe()?).env(CHILD, what).env(variable, value).output()?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(report),
        false => Err(Failed::from(format!("the process did not go on: {output:?}"))),
    }
}

fn list() -> ExitCode {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        match opencl::open(index, OpenclOptions::new()) {
            Ok(device) => println!("{index}: {} ({})", device.info().name, device.info().driver),
            Err(error) => println!("{index}: {error}"),
        }
    }
    ExitCode::SUCCESS
}

fn open_and_tell() -> ExitCode {
    let report: Result<(), Error> = wakegraph::backend::open("opencl:0").map(drop);
    println!("{}", report.map_or_else(|error| error.to_string(), |()| "opened".into()));
    // The process goes on.
    match wakegraph::backend::open("host:0") {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
