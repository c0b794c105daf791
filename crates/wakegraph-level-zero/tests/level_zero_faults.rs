//! What the Level Zero backend does when a call of the driver fails: each call in turn, once, in a
//! process of its own, on the test driver (`tests/level_zero_driver`). What failed works when it is done
//! again, and nothing is left in the end. Beside that, the errors of what the backend refuses. Without
//! the test driver, or without an OpenCL runtime for it to compute on, the tests are ignored by name.
#![expect(unsafe_code, reason = "reads memory that nothing else uses")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/spirv/mod.rs"]
mod spirv;
#[path = "../src/sys/types.rs"]
mod types;

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode, Output};
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock, Mutex};

use common::IN_ORDER;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::hal::{
    AccessMode, Body, Command, CommandBuffer, CommandBufferDesc, CommandUpdate, Event, EventDesc,
    EventStatus, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView,
    NativeCommand, NativeStream, Param, ParamKind, Pitch, Queue, QueueDesc, QueueOrder, Rect, Signal,
    WaitList,
};
use wakegraph::{Error, ErrorKind, Range, Result, backend};

/// Set for a process that this test starts.
const CHILD: &str = "WAKEGRAPH_TEST_CHILD";

/// A code of no particular meaning.
const UNKNOWN: &str = "7ffffffe";

/// The code of a device that is lost.
const LOST: &str = "70000001";

/// Calls that every device needs for memory, kernels and runs, in about the order in which they are made.
const CALLS: &[&str] = &[
    "zeDriverGetApiVersion",
    "zeDriverGetProperties",
    "zeDriverGetExtensionProperties",
    "zeDeviceGet",
    "zeDeviceGetProperties",
    "zeDeviceGetMemoryProperties",
    "zeDeviceGetCommandQueueGroupProperties",
    "zeDeviceGetComputeProperties",
    "zeContextCreate",
    "zeMemAllocDevice",
    "zeMemAllocHost",
    "zeCommandQueueCreate",
    "zeCommandListCreate",
    "zeCommandListAppendMemoryFill",
    "zeCommandListAppendMemoryCopy",
    "zeCommandListClose",
    "zeCommandQueueExecuteCommandLists",
    "zeCommandQueueSynchronize",
    "zeModuleCreate",
    "zeModuleGetKernelNames",
    "zeKernelCreate",
    "zeKernelGetProperties",
    "zeKernelSetArgumentValue",
    "zeKernelSetGroupSize",
];

/// Calls for order, updates and times, on the newest device in either lowering.
const ORDER_CALLS: &[&str] = &[
    "zeEventPoolCreate",
    "zeEventCreate",
    "zeEventHostReset",
    "zeEventQueryKernelTimestamp",
    "zeCommandListAppendBarrier",
    "zeCommandListAppendEventReset",
    "zeCommandListAppendLaunchKernel",
    "zeCommandListAppendMemoryCopyRegion",
    "zeCommandListAppendQueryKernelTimestamps",
    "zeKernelSetGlobalOffsetExp",
    "zeCommandListGetNextCommandIdExp",
    "zeCommandListGetNextCommandIdWithKernelsExp",
];

/// Calls that only one of the lowerings makes.
const APPEND_CALLS: &[&str] = &[
    "zeCommandListCreateImmediate",
    "zeCommandListImmediateAppendCommandListsWithParameters",
    "zeCommandListHostSynchronize",
    "zeEventCounterBasedCreate",
];
const EXECUTE_CALLS: &[&str] = &["zeEventHostSignal", "zeCommandListReset", "zeCommandQueueSynchronize"];

/// Calls that the backend makes up for: a list that cannot be updated is recorded anew, hints may be refused,
/// and a poll that has failed is made again.
const OPTIONAL_CALLS: &[&str] = &[
    "zeEventHostSynchronize",
    "zeCommandListUpdateMutableCommandsExp",
    "zeCommandListUpdateMutableCommandKernelsExp",
    "zeCommandListAppendMemoryPrefetch",
];

/// What a process runs, and where.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    preset: &'static str,
    lowering: &'static str,
}

const MEMORY_OF_APPEND: Scenario = Scenario { name: "memory", preset: "append", lowering: "append" };
const SCENARIOS: [(Scenario, &[&[&str]]); 4] = [
    (MEMORY_OF_APPEND, &[CALLS, &["zeCommandListImmediateAppendCommandListsExp"]]),
    (Scenario { name: "memory", preset: "old", lowering: "execute" }, &[CALLS]),
    (
        Scenario { name: "order", preset: "all", lowering: "append" },
        &[ORDER_CALLS, APPEND_CALLS, OPTIONAL_CALLS],
    ),
    (
        Scenario { name: "order", preset: "all", lowering: "execute" },
        &[ORDER_CALLS, EXECUTE_CALLS, OPTIONAL_CALLS],
    ),
];

fn main() -> ExitCode {
    if let Ok(scenario) = std::env::var(CHILD) {
        return run(&scenario);
    }
    let mut trials = Vec::new();
    let can_run = child(MEMORY_OF_APPEND, "").and_then(|output| right(&output).map(|_| ()));
    for (scenario, calls) in SCENARIOS {
        for call in calls.iter().copied().flatten() {
            let can_run = can_run.clone();
            let Scenario { preset, lowering, .. } = scenario;
            trials.push(Trial::ignorable_test(format!("{preset}/{lowering}/{call}_fails_once"), move || {
                if let Err(why) = can_run {
                    return Ok(Completion::ignored_with(why));
                }
                fails_once(scenario, call)?;
                Ok(Completion::Completed)
            }));
        }
    }
    for call in ["zeMemAllocDevice", "zeCommandQueueSynchronize", "zeModuleCreate"] {
        let can_run = can_run.clone();
        trials.push(Trial::ignorable_test(format!("append/{call}_loses_the_device"), move || {
            if let Err(why) = can_run {
                return Ok(Completion::ignored_with(why));
            }
            loses_the_device(call)?;
            Ok(Completion::Completed)
        }));
    }
    for preset in ["all", "old"] {
        let can_run = can_run.clone();
        trials.push(Trial::ignorable_test(format!("{preset}/errors_name_the_remedy"), move || {
            if let Err(why) = can_run {
                return Ok(Completion::ignored_with(why));
            }
            let lowering = if preset == "old" { "execute" } else { "append" };
            right(&child(Scenario { name: "errors", preset, lowering }, "")?)?;
            Ok(Completion::Completed)
        }));
    }
    for (scenario, name) in [
        ("partial", "a_partly_enqueued_run_keeps_its_events"),
        ("polls", "a_poll_that_fails_says_nothing_about_the_run"),
        ("silence", "a_driver_that_answers_no_poll_has_lost_the_device"),
    ] {
        let can_run = can_run.clone();
        trials.push(Trial::ignorable_test(format!("append/{name}"), move || {
            if let Err(why) = can_run {
                return Ok(Completion::ignored_with(why));
            }
            right(&child(Scenario { name: scenario, preset: "all", lowering: "append" }, "")?)?;
            Ok(Completion::Completed)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The call fails with an error that names it and its code, and succeeds when it is made again.
fn fails_once(scenario: Scenario, call: &str) -> std::result::Result<(), Failed> {
    let output = child(scenario, &format!("{call}:1:{UNKNOWN}"))?;
    let said = right(&output)?;
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    if OPTIONAL_CALLS.contains(&call) {
        return if errors.is_empty() { Ok(()) } else { Err(said.into()) };
    }
    let [error] = errors[..] else { return Err(format!("not one error: {said}").into()) };
    if !error.contains(&format!("{call} returned ZE_RESULT_ERROR_UNKNOWN (0x{UNKNOWN})")) {
        return Err(format!("the error does not name {call} and its code: {error}").into());
    }
    Ok(())
}

/// Every later step fails with the reason of the first, and the process goes on.
fn loses_the_device(call: &str) -> std::result::Result<(), Failed> {
    let output = child(MEMORY_OF_APPEND, &format!("{call}:1:{LOST}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = format!("{call} returned ZE_RESULT_ERROR_DEVICE_LOST (0x{LOST})");
    let reasons = said.lines().filter(|line| line.contains("device lost") && line.contains(&name));
    if output.status.code() != Some(1) || reasons.count() != 2 {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {said}{errors}", output.status).into());
    }
    Ok(())
}

/// Runs the scenario in a process in which calls fail as planned.
fn child(scenario: Scenario, plan: &str) -> std::result::Result<Output, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let name = if cfg!(windows) { "level_zero_driver.dll" } else { "liblevel_zero_driver.so" };
    let driver = own.ancestors().nth(2).map(|target| target.join("examples").join(name));
    let driver: PathBuf = driver
        .filter(|driver| driver.is_file())
        .ok_or_else(|| format!("examples/{name} is not built: plain `cargo test` builds it"))?;
    Process::new(own)
        .env(CHILD, scenario.name)
        .env("WAKEGRAPH_LEVEL_ZERO_LIBRARY", driver)
        .env("WAKEGRAPH_LZ_DEVICES", scenario.preset)
        .env("WAKEGRAPH_LEVEL_ZERO_LOWERING", scenario.lowering)
        .env("WAKEGRAPH_LZ_FAIL", plan)
        .output()
        .map_err(|error| error.to_string())
}

/// What a process said that ended well, with the right numbers.
fn right(output: &Output) -> std::result::Result<String, String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() && said.lines().any(|line| line == "right") {
        true => Ok(said),
        false => Err(format!("{}: {said}{errors}", output.status)),
    }
}

/// Makes a step again that failed, once.
fn again<T>(step: impl Fn() -> Result<T>) -> Result<T> {
    step().or_else(|error| {
        println!("error: {error}");
        step()
    })
}

fn run(scenario: &str) -> ExitCode {
    let run = match scenario {
        "order" => order_and_updates,
        "errors" => errors_name_the_remedy,
        "partial" => a_partly_enqueued_run_keeps_its_events,
        "polls" => a_poll_that_fails_says_nothing_about_the_run,
        "silence" => a_driver_that_answers_no_poll_has_lost_the_device,
        _ => memory_and_runs,
    };
    match run() {
        // Everything that was made is gone, but for the driver's context.
        Ok(()) if live_objects() > 1 => {
            println!("{} objects of the driver are left", live_objects());
            ExitCode::FAILURE
        }
        Ok(()) => {
            println!("right");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("failed again: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A function of the test driver, of a type that is its own.
fn function<F>(name: &str) -> libloading::Symbol<'static, F> {
    static DRIVER: LazyLock<libloading::Library> = LazyLock::new(|| {
        let path = std::env::var_os("WAKEGRAPH_LEVEL_ZERO_LIBRARY").unwrap();
        // SAFETY: the library is loaded already.
        unsafe { libloading::Library::new(path) }.unwrap()
    });
    // SAFETY: the callers name the function with its own type.
    unsafe { DRIVER.get(name) }.unwrap()
}

fn control(command: &CStr) -> u64 {
    type Control = unsafe extern "C" fn(*const c_char) -> u64;
    // SAFETY: the command is a string of C.
    unsafe { function::<Control>("level_zero_driver_control")(command.as_ptr()) }
}

/// Number of the driver's objects that the program has not destroyed.
fn live_objects() -> u64 {
    control(c"live")
}

const PARAMS: [Param; 2] = [
    Param { name: Cow::Borrowed("n"), kind: ParamKind::Value { size: 4 } },
    Param {
        name: Cow::Borrowed("x"),
        kind: ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 },
    },
];

fn value(n: u32) -> KernelArg {
    KernelArg::Value(n.to_ne_bytes()[..].into())
}

fn wrong(what: impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Driver, format!("wrong numbers: {what:?}"))
}

/// An out-of-order command-buffer that is updated, with a rectangle and a hint, and times. What it does
/// begins anew with each run, as one that has failed may have run.
fn order_and_updates() -> Result<()> {
    let device = again(|| backend::open("level_zero:0"))?;
    let memory = || again(|| device.allocate(&MemoryDesc::new(32, MemoryKind::Device)));
    let (x, y) = (memory()?, memory()?);
    let sources = KernelSources::new().spirv(spirv::add());
    let kernel = || again(|| device.create_kernel(&KernelDesc::new("add", &PARAMS, &sources)));
    let (kernel, other) = (kernel()?, kernel()?);
    let queue = |order| again(|| device.create_queue(&QueueDesc::new(order)));
    // The first run of a recording has nothing to wait for.
    let queues = [queue(QueueOrder::InOrder)?, queue(QueueOrder::OutOfOrder)?];
    let event = |profiling| again(|| device.create_event(&EventDesc::new().profiling(profiling)));
    let events = [event(false)?, event(true)?];
    let all = MemoryView::whole;
    let record = |desc: CommandBufferDesc, has_alternatives: bool| {
        again(|| {
            let mut buffer = device.create_command_buffer(&desc)?;
            let pattern = 7u32.to_ne_bytes()[..].into();
            let filled = buffer.append(&Command::BufferFill { dst: all(x.clone()), pattern }, &[])?;
            let args = vec![value(5), KernelArg::Memory(all(x.clone()))];
            let mut launch = KernelLaunch::new(kernel.clone(), args, Range::linear(4).starting_at([4]));
            launch.alternatives.extend(has_alternatives.then(|| other.clone()));
            let added = buffer.append(&Command::Kernel(Arc::new(launch)), &[filled.sync_point])?;
            let pitch = Pitch { offset: 0, row: 8, slice: 32 };
            let (rect, src, dst) = (Rect { width: 4, height: 4, depth: 1 }, all(x.clone()), all(y.clone()));
            let copy = Command::BufferCopyRect { src, dst, rect, src_pitch: pitch, dst_pitch: pitch };
            let copied = buffer.append(&copy, &[added.sync_point])?;
            let memory = x.usm().unwrap();
            buffer.append(&Command::UsmPrefetch { memory }, &[copied.sync_point])?;
            buffer.finalize()?;
            Ok((buffer, added.handle))
        })
    };
    let updatable = CommandBufferDesc::new().updatable(true);
    let (mut buffer, handle) = record(updatable, true)?;
    let (without_alternatives, _) = record(updatable, false)?;
    let (profiled, _) = record(CommandBufferDesc::new().profiling(true), false)?;
    let handle = handle.unwrap();
    let run = |buffer: &dyn CommandBuffer, n: u32| {
        for (queue, event) in queues.iter().zip(&events) {
            again(|| {
                let signal = Signal::new(event).timed(queue.desc().order == QueueOrder::OutOfOrder);
                // SAFETY: nothing else uses the memory.
                unsafe { buffer.enqueue(&**queue, WaitList::NONE, signal) }?;
                loop {
                    match event.status() {
                        EventStatus::Failed(error) => return Err(error),
                        EventStatus::Complete => return Ok(()),
                        _ => std::thread::yield_now(),
                    }
                }
            })?;
            if queue.desc().order == QueueOrder::OutOfOrder {
                again(|| event.profile())?;
            }
            again(|| queue.finish())?;
        }
        let mut numbers = [0u8; 32];
        // SAFETY: everything that was enqueued is over.
        again(|| unsafe { y.read(0, &mut [0; 32]) })?;
        // SAFETY: as above.
        unsafe { y.read(0, &mut numbers) }?;
        // Every second number is copied; the kernel has added to the upper half.
        let numbers: Vec<u32> =
            numbers.chunks_exact(8).map(|two| u32::from_ne_bytes([two[0], two[1], two[2], two[3]])).collect();
        if numbers == [7, 7, 7 + n, 7 + n] { Ok(()) } else { Err(wrong(numbers)) }
    };
    run(&*buffer, 5)?;
    run(&*without_alternatives, 5)?;
    run(&*profiled, 5)?;
    let mut update = CommandUpdate::new(handle);
    update.args.push((0, value(6)));
    buffer.update(&[update])?;
    run(&*buffer, 6)?;
    let mut update = CommandUpdate::new(handle);
    update.kernel = Some(other.clone());
    update.args.push((0, value(8)));
    buffer.update(&[update])?;
    run(&*buffer, 8)
}

/// What the backend refuses, and a device that is lost while a run waits on it. An error that is not as it
/// should be ends the process.
fn errors_name_the_remedy() -> Result<()> {
    let device = wakegraph::Device::open("level_zero:0")?;
    let device = device.hal();
    let memory = device.allocate(&MemoryDesc::new(4096, MemoryKind::Device))?;
    let sources = KernelSources::new().spirv(spirv::add());
    let kernel = device.create_kernel(&KernelDesc::new("add", &PARAMS, &sources))?;
    let append = |command: &Command| {
        let mut buffer = device.create_command_buffer(&IN_ORDER)?;
        buffer.append(command, &[])?;
        buffer.finalize()?;
        Ok::<_, Error>(buffer)
    };
    let refused = |command: Command, kind: ErrorKind, words: &[&str]| {
        let error = append(&command).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = format!("{error:#} {error:?}");
        words.iter().for_each(|word| assert!(text.contains(word), "no '{word}' in: {text}"));
    };
    let launch = |range| {
        let args = vec![value(1), KernelArg::Memory(MemoryView::whole(memory.clone()))];
        Command::Kernel(Arc::new(KernelLaunch::new(kernel.clone(), args, range)))
    };
    let largest = kernel.max_work_group_size();
    let range = Range::linear(2 * largest).local([2 * largest]);
    refused(launch(range), ErrorKind::InvalidSize, &[&largest.to_string(), &(2 * largest).to_string()]);
    let range = Range::linear(10).local([4]);
    refused(launch(range), ErrorKind::InvalidSize, &["does not divide"]);
    let condition = MemoryView::whole(memory.clone());
    let branch = Command::If { condition, then: Arc::new(Body::new()), otherwise: None };
    refused(branch, ErrorKind::FeatureNotSupported, &["conditional"]);
    let pessimist = |_: &NativeStream<'_>| Err(Error::new(ErrorKind::DeviceLost, "so it seems"));
    // SAFETY: the command touches no memory.
    let pessimist = unsafe { NativeCommand::new("pessimist", Vec::new(), pessimist) };
    refused(Command::Native(pessimist), ErrorKind::Driver, &["pessimist", "so it seems"]);
    device.status()?;

    // A run that waits for an event that nothing signals, when the device is lost.
    // SAFETY: the command touches no memory.
    let wait = Command::Native(unsafe { NativeCommand::new("wait", Vec::new(), wait_for_ever) });
    let buffer = append(&wait)?;
    let queue = device.create_queue(&QueueDesc::new(QueueOrder::InOrder))?;
    let done = device.create_event(&EventDesc::new())?;
    // SAFETY: the run touches no memory.
    unsafe { buffer.enqueue(&queue, WaitList::NONE, Signal::new(&done)) }?;
    assert!(matches!(done.status(), EventStatus::Pending));
    control(c"lose");
    let EventStatus::Failed(error) = done.wait(None) else { panic!("the run is over") };
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(format!("{error:?}").contains("kernel"), "{error:?}");
    assert!(device.status().is_err());
    // What is left of the run stays, as a lost device may still use it.
    println!("right");
    std::process::exit(0)
}

/// A run with times is two calls of the driver, of which the second fails. What the first has enqueued
/// still uses the events that it waits for and the one that it signals, so that neither may be reset: the
/// test driver ends the process then.
fn a_partly_enqueued_run_keeps_its_events() -> Result<()> {
    let device = backend::open("level_zero:0")?;
    let queue = || device.create_queue(&QueueDesc::new(QueueOrder::OutOfOrder));
    let (queues, timed_queues) = ([queue()?, queue()?], [queue()?, queue()?]);
    let events = [common::event(&*device), common::event(&*device)];
    let gates = [Gate::default(), Gate::default()];
    let buffers = gates.each_ref().map(|gate| common::buffer(&*device, IN_ORDER, &[gate.command()], &[]));
    for ((buffer, queue), event) in buffers.iter().zip(&queues).zip(&events) {
        common::enqueue(&**buffer, &**queue, &[], event, None)?;
    }
    let timed_buffer = common::buffer(&*device, IN_ORDER, &[], &[]);
    let timed_event = device.create_event(&EventDesc::new().profiling(true))?;
    let timed_run = |queue: &dyn Queue, wait: &[&dyn Event]| {
        let (wait, signal) = (WaitList::dependencies(wait), Signal::new(&timed_event).timed(true));
        // SAFETY: the run touches no memory.
        unsafe { timed_buffer.enqueue(queue, wait, signal) }
    };
    let call = "zeCommandListImmediateAppendCommandListsWithParameters";
    let plan = CString::new(format!("fail {call} 2 {UNKNOWN}")).unwrap();
    assert_eq!(control(&plan), 1);
    let error = timed_run(&*timed_queues[0], &[&*events[0], &*events[1]]).unwrap_err();
    assert!(error.to_string().contains(call), "{error}");

    // The first event is complete, and is reset for another run, while what was enqueued still waits
    // for the second.
    gates[0].open();
    common::assert_complete(&*events[0]);
    common::enqueue(&*buffers[0], &*queues[0], &[], &events[0], None)?;
    common::assert_complete(&*events[0]);
    // The same run again, which is not to take the event that the device is still going to signal. On
    // another queue, as a device may keep an order that nobody has asked for.
    timed_run(&*timed_queues[1], &[])?;
    common::assert_complete(&*timed_event);
    timed_event.profile()?;

    gates[1].open();
    common::assert_complete(&*events[1]);
    // What the device may have kept using is kept.
    println!("right");
    std::process::exit(0)
}

/// The driver is out of memory when it is asked whether a run is over. The run goes on, so its event is
/// pending.
fn a_poll_that_fails_says_nothing_about_the_run() -> Result<()> {
    let device = backend::open("level_zero:0")?;
    let queue = || device.create_queue(&QueueDesc::new(QueueOrder::InOrder));
    let (first, second) = (queue()?, queue()?);
    let (gate, events) = (Gate::default(), [common::event(&*device), common::event(&*device)]);
    let buffer = common::buffer(&*device, IN_ORDER, &[gate.command()], &[]);
    common::enqueue(&*buffer, &*first, &[], &events[0], None)?;
    let behind = common::buffer(&*device, IN_ORDER, &[], &[]);
    common::enqueue(&*behind, &*second, &[&*events[0]], &events[1], None)?;
    for event in &events {
        assert_eq!(control(c"fail zeEventHostSynchronize 1 70000002"), 1);
        assert!(matches!(event.status(), EventStatus::Pending), "{:?}", event.status());
    }
    gate.open();
    events.iter().for_each(|event| common::assert_complete(&**event));
    // The event of the gate is left.
    println!("right");
    std::process::exit(0)
}

/// All polls fail from some time on, as they do after some faults. Then nothing waits for ever, but the runs
/// may go on.
fn a_driver_that_answers_no_poll_has_lost_the_device() -> Result<()> {
    let device = backend::open("level_zero:0")?;
    let queue = || device.create_queue(&QueueDesc::new(QueueOrder::InOrder));
    let (queues, events) = ([queue()?, queue()?], [common::event(&*device), common::event(&*device)]);
    let gates = [Gate::default(), Gate::default()];
    let buffers = gates.each_ref().map(|gate| common::buffer(&*device, IN_ORDER, &[gate.command()], &[]));
    for ((buffer, queue), event) in buffers.iter().zip(&queues).zip(&events) {
        common::enqueue(&**buffer, &**queue, &[], event, None)?;
    }
    let plan = CString::new(format!("fail zeEventHostSynchronize 0 {UNKNOWN}")).unwrap();
    assert_eq!(control(&plan), 1);
    for event in &events {
        let EventStatus::Failed(error) = event.wait(None) else { panic!("it does not say that it is over") };
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
        assert!(error.to_string().contains(UNKNOWN), "{error}");
    }
    assert!(device.status().is_err() && device.may_still_run());
    // What the device may still use is kept.
    println!("right");
    std::process::exit(0)
}

/// An event for which a native command waits.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Option<usize>>>);

impl Gate {
    /// Waits for the event.
    fn command(&self) -> Command {
        let gate = self.clone();
        let record = move |stream: &NativeStream<'_>| {
            let event = append_wait(stream);
            gate.0.lock().unwrap().replace(event.expose_provenance());
            Ok(())
        };
        // SAFETY: the command touches no memory.
        Command::Native(unsafe { NativeCommand::new("gate", Vec::new(), record) })
    }

    /// Signals the event. The command has been recorded.
    fn open(&self) {
        type SignalEvent = unsafe extern "C" fn(types::ze_event_handle_t) -> types::ze_result_t;
        let event = std::ptr::with_exposed_provenance_mut(self.0.lock().unwrap().unwrap());
        let signal = function::<SignalEvent>("zeEventHostSignal");
        // SAFETY: the event is alive.
        assert_eq!(unsafe { signal(event) }, 0);
    }
}

/// Appends a wait for an event that nothing signals.
fn wait_for_ever(stream: &NativeStream<'_>) -> Result<()> {
    append_wait(stream);
    Ok(())
}

/// Appends a wait for an event of its own, and gives that.
fn append_wait(stream: &NativeStream<'_>) -> types::ze_event_handle_t {
    use types::*;
    type CreatePool = unsafe extern "C" fn(
        ze_context_handle_t,
        *const ze_event_pool_desc_t,
        u32,
        *mut ze_device_handle_t,
        *mut ze_event_pool_handle_t,
    ) -> ze_result_t;
    type CreateEvent = unsafe extern "C" fn(
        ze_event_pool_handle_t,
        *const ze_event_desc_t,
        *mut ze_event_handle_t,
    ) -> ze_result_t;
    type Wait = unsafe extern "C" fn(ze_command_list_handle_t, u32, *mut ze_event_handle_t) -> ze_result_t;
    let flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE;
    let desc = ze_event_pool_desc_t { flags, count: 1, ..ze_event_pool_desc_t::new() };
    let (context, mut pool) = (stream.context().cast(), null_mut());
    let create = function::<CreatePool>("zeEventPoolCreate");
    // SAFETY: the context is alive, and the structure is valid.
    assert_eq!(unsafe { create(context, &raw const desc, 0, null_mut(), &raw mut pool) }, 0);
    let (desc, mut event) = (ze_event_desc_t::new(), null_mut());
    let create = function::<CreateEvent>("zeEventCreate");
    // SAFETY: as above.
    assert_eq!(unsafe { create(pool, &raw const desc, &raw mut event) }, 0);
    let wait = function::<Wait>("zeCommandListAppendWaitOnEvents");
    // SAFETY: the list is open.
    assert_eq!(unsafe { wait(stream.stream().cast(), 1, &raw mut event) }, 0);
    event
}

/// Every object once: memory, a kernel, a command-buffer that runs three times, a read.
fn memory_and_runs() -> Result<()> {
    let device = again(|| backend::open("level_zero:0"))?;
    let allocate = |kind| again(|| device.allocate(&MemoryDesc::new(32, kind)));
    let (x, host) = (allocate(MemoryKind::Device)?, allocate(MemoryKind::Host)?);
    let sources = KernelSources::new().spirv(spirv::add());
    let kernel = again(|| device.create_kernel(&KernelDesc::new("add", &PARAMS, &sources)))?;
    let queue = again(|| device.create_queue(&QueueDesc::new(QueueOrder::InOrder)))?;
    let done = again(|| device.create_event(&EventDesc::new()))?;
    let all = MemoryView::whole;
    let buffer = again(|| {
        let mut buffer = device.create_command_buffer(&IN_ORDER)?;
        let args = vec![value(5), KernelArg::Memory(all(x.clone()))];
        let launch = KernelLaunch::new(kernel.clone(), args, Range::linear(8));
        buffer.append(&Command::Kernel(Arc::new(launch)), &[])?;
        buffer.append(&Command::BufferRead { src: all(x.clone()), host: all(host.clone()) }, &[])?;
        buffer.finalize()?;
        Ok(buffer)
    })?;
    for _ in 0..3 {
        again(|| common::enqueue(&*buffer, &*queue, &[], &done, None))?;
        if let EventStatus::Failed(error) = done.wait(None) {
            return Err(error);
        }
    }
    for memory in [&x, &host] {
        let bytes = again(|| {
            let mut bytes = [0; 32];
            // SAFETY: everything that was enqueued is over.
            unsafe { memory.read(0, &mut bytes) }.map(|()| bytes)
        })?;
        if bytes != [15, 0, 0, 0].repeat(8)[..] {
            return Err(wrong(bytes));
        }
    }
    Ok(())
}
