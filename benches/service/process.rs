//! Figures of processes from the system, and the cores that they run on.

use std::fs::read_to_string;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Seconds of CPU time that a process has used, on all threads.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    // The name may hold spaces; what follows its parenthesis are fields from the third on.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0.0)).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// A number of `/proc/PID/status`: KiB of memory, or threads.
pub(crate) fn status(pid: u32, name: &str) -> u64 {
    let status = read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Has the peak of a process's memory begin anew, where the system allows it.
pub(crate) fn reset_peak(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Cores for the server and for the clients, if there are enough to keep them apart.
pub(crate) fn halves() -> Option<[Vec<usize>; 2]> {
    let set = sched_getaffinity(None).expect("a set of cores");
    let mut cores: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    let clients = cores.split_off(cores.len() / 2);
    (cores.len() >= 2).then_some([cores, clients])
}

/// Keeps the threads that this one starts from now on to these cores.
pub(crate) fn keep_to(cores: &[usize]) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).expect("cores of this machine");
}

/// Lets the process have as many connections as the system allows.
pub(crate) fn allow_connections() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
