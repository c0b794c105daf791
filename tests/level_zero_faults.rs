//! What the Level Zero backend does when a call of the driver fails: each call in turn, once, in a
//! process of its own, on the test driver (`tests/level_zero_driver`). Without the test driver, or
//! without an OpenCL runtime for it to compute on, the tests are ignored by name.
#![expect(unsafe_code, reason = "reads memory that nothing else uses")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
mod spirv;

use std::path::PathBuf;
use std::process::{Command as Process, ExitCode, Output};

use common::IN_ORDER;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use wakegraph::hal::{
    Command, EventDesc, EventStatus, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc,
    MemoryKind, MemoryView, Param, ParamKind, QueueDesc, QueueOrder,
};
use wakegraph::{AccessMode, Error, Range, Result, backend};

/// Set for a process that this test starts.
const CHILD: &str = "WAKEGRAPH_TEST_CHILD";

/// A code of no particular meaning.
const UNKNOWN: &str = "7ffffffe";

/// The code of a device that is lost.
const LOST: &str = "70000001";

/// Calls that every device needs, in about the order in which they are made.
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

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let mut trials = Vec::new();
    let can_run = child("append", "").and_then(|output| right(&output).map(|_| ()));
    for preset in ["append", "old"] {
        for call in CALLS {
            let can_run = can_run.clone();
            trials.push(Trial::ignorable_test(format!("{preset}/{call}_fails_once"), move || {
                if let Err(why) = can_run {
                    return Ok(Completion::ignored_with(why));
                }
                fails_once(preset, call)?;
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
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The call fails with an error that names it and its code, and succeeds when it is made again.
fn fails_once(preset: &str, call: &str) -> std::result::Result<(), Failed> {
    let output = child(preset, &format!("{call}:1:{UNKNOWN}"))?;
    let said = right(&output)?;
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors[..] else { return Err(format!("not one error: {said}").into()) };
    if !error.contains(&format!("{call} returned ZE_RESULT_ERROR_UNKNOWN (0x{UNKNOWN})")) {
        return Err(format!("the error does not name {call} and its code: {error}").into());
    }
    Ok(())
}

/// Every later step fails with the reason of the first, and the process goes on.
fn loses_the_device(call: &str) -> std::result::Result<(), Failed> {
    let output = child("append", &format!("{call}:1:{LOST}"))?;
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
fn child(preset: &str, plan: &str) -> std::result::Result<Output, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let name = if cfg!(windows) { "level_zero_driver.dll" } else { "liblevel_zero_driver.so" };
    let driver = own.ancestors().nth(2).map(|target| target.join("examples").join(name));
    let driver: PathBuf = driver
        .filter(|driver| driver.is_file())
        .ok_or_else(|| format!("examples/{name} is not built: plain `cargo test` builds it"))?;
    Process::new(own)
        .env(CHILD, "1")
        .env("WAKEGRAPH_LEVEL_ZERO_LIBRARY", driver)
        .env("WAKEGRAPH_LZ_DEVICES", preset)
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

fn run() -> ExitCode {
    match scenario() {
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

/// Every object once: memory, a kernel, a command-buffer that runs three times, a read.
fn scenario() -> Result<()> {
    let device = again(|| backend::open("level_zero:0"))?;
    let allocate = |kind| again(|| device.allocate(&MemoryDesc::new(32, kind)));
    let (x, host) = (allocate(MemoryKind::Device)?, allocate(MemoryKind::Host)?);
    let param = |name: &'static str, kind| Param { name: name.into(), kind };
    let params = [
        param("n", ParamKind::Value { size: 4 }),
        param("x", ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 }),
    ];
    let sources = KernelSources::new().spirv(spirv::add());
    let kernel = again(|| device.create_kernel(&KernelDesc::new("add", &params, &sources)))?;
    let queue = again(|| device.create_queue(&QueueDesc::new(QueueOrder::InOrder)))?;
    let done = again(|| device.create_event(&EventDesc::new()))?;
    let all = MemoryView::whole;
    let buffer = again(|| {
        let mut buffer = device.create_command_buffer(&IN_ORDER)?;
        let args = vec![KernelArg::Value(5u32.to_ne_bytes()[..].into()), KernelArg::Memory(all(x.clone()))];
        let launch = KernelLaunch::new(kernel.clone(), args, Range::linear(8));
        buffer.append(&Command::Kernel(Box::new(launch)), &[])?;
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
            return Err(Error::new(wakegraph::ErrorKind::Driver, format!("wrong numbers: {bytes:?}")));
        }
    }
    Ok(())
}
