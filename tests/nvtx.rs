//! NVTX ranges, as a tool's library gets them. Each case is a process of its own, since tools are named in
//! the environment.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use wakegraph::{Device, Graph};

/// What the processes that the tests start do.
#[test]
#[ignore = "run by the others"]
fn submissions() {
    let device = Device::open("host").unwrap();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    let clear = graph.fill(&x, 1).name("clear").id();
    let yields = graph.host_task((), async |()| tokio::task::yield_now().await).name("yields");
    let yields = yields.after([clear]).id();
    graph.fill(&x, 2).name("again").after([yields]);
    let exec = graph.finalize().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
        }
        device.queue().unwrap().fill(&x, 3).await.unwrap();
    });
}

fn run_with(tool: &Path, log: &Path) {
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["--exact", "submissions", "--ignored"]);
    let output = tests.env("NVTX_INJECTION64_PATH", tool).env("NVTX_TOOL_LOG", log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_tool_gets_ranges_that_end() {
    let folder = folder("nvtx");
    let (tool, log) = (folder.join("libnvtx_tool.so"), folder.join("log"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/nvtx_tool.rs");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition", "2024", "--crate-type", "cdylib", "-o"]).arg(&tool).arg(source);
    assert!(rustc.status().unwrap().success());
    run_with(&tool, &log);

    let log = std::fs::read_to_string(log).unwrap();
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("domain wakegraph"));
    let (mut open, mut pushed, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        let (what, rest) = line.split_once(' ').unwrap();
        let mut words = rest.splitn(3, ' ');
        let key = words.next().unwrap().to_owned();
        match what {
            "start" | "push" => {
                let run: u64 = words.next().unwrap().parse().unwrap();
                names.push((run, words.next().unwrap().to_owned()));
                if what == "start" { &mut open } else { &mut pushed }.push(key);
            }
            "end" | "pop" => {
                let among = if what == "end" { &mut open } else { &mut pushed };
                let at = among.iter().rposition(|known| *known == key);
                among.remove(at.unwrap_or_else(|| panic!("{line} ends nothing of {log}")));
            }
            _ => panic!("an unknown call: {line}"),
        }
    }
    assert!(open.is_empty() && pushed.is_empty(), "ranges that do not end: {log}");
    names.sort();
    for run in 1..=3 {
        let of_run: Vec<_> = names.iter().filter(|(of, _)| *of == run).map(|(_, name)| &**name).collect();
        let submission = format!("run {run}: submission {run}");
        let nodes = [
            "enqueue buffer fill 'again' (#2)",
            "enqueue buffer fill 'clear' (#0)",
            "host task 'yields' (#1)",
        ];
        assert_eq!(of_run, [nodes[0], nodes[1], nodes[2], &submission], "{log}");
    }
    let of_queue: Vec<_> = names.iter().filter(|(run, _)| *run == 4).collect();
    assert_eq!(of_queue.len(), 2, "{log}");
    assert!(of_queue.iter().all(|(_, name)| name.contains("fill")), "{log}");
}

#[test]
fn a_tool_that_cannot_be_loaded_is_no_failure() {
    let folder = folder("nvtx-none");
    run_with(&folder.join("libnone.so"), &folder.join("log"));
    assert!(!folder.join("log").exists());
}
