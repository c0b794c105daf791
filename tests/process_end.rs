//! Ends of processes with work in flight: each case is the main function of a process that this one starts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, ExitCode, exit};
use std::sync::OnceLock;
use std::time::Duration;

use futures::FutureExt as _;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;
use wakegraph::service::ExecutablePool;
use wakegraph::{Device, ExecutableGraph, Graph, Range};

#[path = "../crates/wakegraph-conformance/src/support/mod.rs"]
mod support;

use support::{block_on, must_end};

wakegraph::kernel! {
    fn never_ends(x: &mut [u32]) {
        item: |i, x| loop {
            x[i] += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    fn quits(x: &mut [u32]) {
        item: |i, x| {
            x[i] = 1;
            exit(3)
        }
    }
    fn add_one(x: &mut [u32]) { item: |i, x| x[i] += 1 }
}

/// A process, and the exit code that it must have.
struct Case {
    name: &'static str,
    main: fn(),
    code: i32,
}

const CASES: [Case; 8] = [
    Case { name: "main_returns_while_a_kernel_hangs", main: || drop(hang()), code: 0 },
    Case { name: "a_runtime_is_dropped_while_a_kernel_hangs", main: runtime_is_dropped, code: 0 },
    Case { name: "a_pool_in_a_static_has_a_run_in_flight", main: pool_in_a_static, code: 0 },
    Case { name: "main_panics_while_a_kernel_hangs", main: panics, code: 101 },
    Case { name: "a_task_exits", main: task_exits, code: 3 },
    Case { name: "a_host_task_exits", main: host_task_exits, code: 3 },
    Case { name: "a_kernel_exits", main: kernel_exits, code: 3 },
    Case { name: "work_goes_on_while_processes_start", main: starts_a_process, code: 0 },
];

/// Variable that names the case which a process is.
const CASE: &str = "WAKEGRAPH_TEST_CASE";

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        CASES.iter().filter(|case| case.name == name).for_each(|case| (case.main)());
        return ExitCode::SUCCESS;
    }
    let trial = |case: &'static Case| {
        Trial::test(case.name, || {
            must_end(|| {
                let process = start(case.name).output().unwrap();
                let stderr = String::from_utf8_lossy(&process.stderr);
                assert_eq!(process.status.code(), Some(case.code), "{stderr}");
            });
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), CASES.iter().map(trial).collect()).exit_code()
}

fn start(case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CASE, case);
    command
}

fn launch(kernel: impl FnOnce(&wakegraph::Buffer<u32>) -> wakegraph::kernel::KernelCall) -> ExecutableGraph {
    let device = Device::open("host").unwrap();
    let mut graph = Graph::new(&device);
    graph.launch(kernel(&device.buffer::<u32>(1).unwrap()), Range::linear(1));
    graph.finalize().unwrap()
}

/// An executable that runs for ever.
fn hang() -> ExecutableGraph {
    let exec = launch(|x| never_ends(x));
    drop(exec.submit());
    exec
}

fn runtime_is_dropped() {
    let exec = hang();
    Runtime::new().unwrap().block_on(async { assert!(exec.submit().now_or_never().is_none()) });
}

fn pool_in_a_static() {
    static POOL: OnceLock<ExecutablePool<()>> = OnceLock::new();
    let pool = POOL.get_or_init(|| ExecutablePool::new(1, |_| Ok((launch(|x| never_ends(x)), ()))));
    drop(block_on(pool.acquire()).unwrap().submit());
}

fn panics() {
    let _exec = hang();
    panic!("on purpose");
}

fn task_exits() {
    let exec = hang();
    Runtime::new().unwrap().block_on(async {
        let _run = exec.submit();
        tokio::spawn(async { exit(3) }).await.unwrap()
    })
}

fn host_task_exits() {
    let mut graph = Graph::new(&Device::open("host").unwrap());
    graph.host_task((), async |()| {
        if true {
            exit(3)
        }
    });
    let exec = graph.finalize().unwrap();
    Runtime::new().unwrap().block_on(async { exec.submit().await.unwrap() });
}

fn kernel_exits() {
    block_on(launch(|x| quits(x)).submit()).unwrap();
}

fn starts_a_process() {
    let exec = launch(|x| add_one(x));
    let run = exec.submit();
    assert_eq!(start("a_kernel_exits").status().unwrap().code(), Some(3));
    block_on(run).unwrap();
    block_on(exec.submit()).unwrap();
}
