//! What awaiting a graph on a GPU costs, beside the loop of driver calls that one would write by hand.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `chain_N_policy_runtime` | `submit().await` of N kernels in a chain | `cuGraphLaunch` + `cuStreamSynchronize` | 1.0 with `Latency`, 1.3 with `Balanced` |
//! | `busy_chain_1_runtime`, `busy_hop_runtime` | `chain_1` and `host_hop`, while another program keeps every core busy | as above | 1.2 |
//! | `chain_1_without_context` | `submit().await` of one kernel on a thread without a context | the same where our context is current | 1.1 |
//! | `side_by_side_64` | 64 kernels of 200 us, each awaited by a task | launch all, spin on each | 1.5 |
//! | `throughput_N_policy_runtime` | N tasks, each awaiting a graph of one kernel; a second | launches of one thread in a row, an event behind each | at least 0.95, on four workers 0.85 |
//! | `throughput_N_policy_runtime_by_hand` | the same | one thread that asks N graphs in turn and launches those that are complete | |
//! | `throughput_N_policy_runtime_cores` | cores busy meanwhile | of the base | 2, on four workers 2.5 |
//! | `overlap_N_of_ELEMENTS` | `submit().await` of N kernels of the C dialect in a chain, each over so many elements | `cuGraphLaunch` + `cuStreamSynchronize` of kernels in PTX | 0.8 to 1.05 |
//! | `overlap_updatable_N_of_ELEMENTS` | the same, updatable, after an update of all arguments | the same | the same |
//! | `overlap_ptx_N_of_ELEMENTS` | the same of kernels in PTX that are declared to wait | the same | the same |
//! | `overlap_grown_N_of_ELEMENTS` | the same, updatable, after an update of small ranges to so many elements | the same | 1.05 |
//! | `host_hop_runtime` | kernel, async host task, kernel | two launches, two synchronizes | 1.0 |
//! | `stream_task_policy_runtime` | kernel of 20 us, a stream task that allocates, fills, copies and frees, kernel | the same calls on one stream, synchronize | 1.1 |
//! | `stream_task_short_policy_runtime` | the same with the shortest kernels | the same | |
//! | `wait_10ms_policy` | one kernel of 10 ms, awaited | launch, spin on an event | 30 us more |
//! | `wait_..._by_hand` | the same | the time of the same by hand in tokio, with a timer | |
//! | `wait_10ms_policy_core` | percent of a core meanwhile | the same by hand in tokio, with a timer | 3, `Efficient` 1 |
//! | `wait_64_policy`, `..._core` | 64 of them on 64 queues | the same by hand, spinning; in tokio, with a timer | 10.6 ms, 5 % |
//! | `wait_..._task`, `..._core` | the same, with the reactor on the runtime | the same | the same |
//! | `update` | change an argument, enqueue, see it complete (contract) | set parameters, launch, synchronize | 1.1 |
//! | `update_100` | the same of 100 kernels in a chain, by one update | set the parameters of each, launch, synchronize | 1.1 |
//! | `update_100_executable` | the same of an executable: update and `submit().await` | the same | 1.1 |
//! | `copy_to_SIZE`, `copy_from_SIZE` | `Buffer::write` and `read` of memory that is not pinned | `cuMemcpyAsync` of pinned memory, synchronize | 1.11 for 1 GiB |
//! | `copy_other_host_SIZE` | a graph of one copy from host memory of another device | `cuMemcpyAsync` of pinned memory, synchronize | 1.05 |
//! | `copy_by_one_core_SIZE` | a copy of as much by one core, to memory in its cache | the same | |
//! | `copy_device_SIZE`, `copy_peer_SIZE` | a graph of one copy on the device, and from another one | `cuMemcpyAsync`, synchronize | 1.05 |
//! | `round_trip_SIZE` | a graph of a copy from pinned memory, a kernel, and a copy back | `cuMemcpyAsync`, `cuGraphLaunch`, `cuMemcpyAsync`, synchronize | 1.05 |
//! | `buffer_SIZE` | `Device::buffer` and the drop of the buffer, which nothing waits for | `cuMemAllocAsync`, `cuMemsetD8Async`, `cuMemFreeAsync` | 1.2 |
//! | `buffer_uninit_SIZE` | the same of `Device::buffer_uninit` | the same without the fill | |
//! | `finalize_N` | `finalize` of N kernels in a chain and the drop of the executable, per node | `cuGraphAddKernelNode` N times, instantiate, upload, destroy | 2.0 |
//! | `two_devices_policy_runtime` | 10 kernels in a chain, on two GPUs in turn | launches on two streams that wait for each other's events, a synchronize of the last | 1.15 |
//! | `two_devices_copies_policy_runtime` | the same, each after a copy from the other GPU | the same | 1.15 |
//! | `two_slots` | a request of upload, kernel and download in a pool of two slots | the longest of these legs alone | 1.05 |
//! | `share_beside_long_work` | `submit().await` of 4 kernels in a chain on 16 multiprocessors, with kernels of 4 ms on the others | both on the whole device | 0.1 |
//! | `share_beside_long_work_of_high_priority` | the same | the same, the chain of high priority | |
//! | `share_alone` | the chain on the share, with nothing beside it | on the whole device | 1.2 |
//! | `share_long_work` | kernels of 4 ms on the others, a second | on the whole device | |
//! | `allocations` | heap allocations of a submission in the steady state | | 0 |
//! | `executable_host`, `executable_device` | heap and device bytes of an executable of one kernel that has run | none | |
//! | `cache_500_device` | device bytes of 500 such executables, in a process of its own, as the driver keeps what instances leave | as many instances on one stream | 10 MB |
//! | `million_host`, `million_device` | bytes more after 1,000,000 submissions | before | 64 KiB |
#![expect(unsafe_code, reason = "declares device code")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its results")]

#[path = "../support/mod.rs"]
mod support;

mod buffers;
mod by_hand;
mod copies;
mod finalize;
mod latency;
mod memory;
mod overlap;
mod raw;
mod share;
mod stream_task;
mod throughput;
mod two_devices;
mod two_slots;
mod update;
mod waiting;

use std::process::ExitCode;

use support::counting::Counting;
use support::{Contender, Report};
use tokio::runtime::{Builder, Runtime};
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range, WakePolicy};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

wakegraph::kernel! {
    fn bump(n: u32, x: &mut [u32]) {
        range: |_, x| x.len().min(1),
        // SAFETY: the bound is one work-item, which changes the first element.
        ptx: unsafe { include_str!("kernels.ptx") },
    }
    fn busy(nanoseconds: u64, x: &mut [u32]) {
        range: |_, x| x.len().min(1),
        // SAFETY: the bound is one work-item, which writes the first element.
        ptx: unsafe { include_str!("kernels.ptx") },
    }
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let device = match Device::open("cuda:0") {
        Ok(device) => device,
        Err(error) => {
            eprintln!("nothing to measure: {error}");
            return ExitCode::SUCCESS;
        }
    };
    println!("{device:?}");
    let raw = raw::Raw::open(&device);
    latency::rows(&mut report, &device, &raw);
    overlap::rows(&mut report, &device, &raw);
    update::rows(&mut report, &device, &raw);
    copies::rows(&mut report, &device, &raw);
    buffers::rows(&mut report, &device, &raw);
    finalize::rows(&mut report, &device, &raw);
    stream_task::rows(&mut report, &device, &raw);
    waiting::side_by_side(&mut report, &device, &raw);
    waiting::rows(&mut report, &device, &raw);
    throughput::rows(&mut report, &device, &raw);
    two_devices::rows(&mut report, &device, &raw);
    two_slots::rows(&mut report, &device);
    share::rows(&mut report, &device);
    memory::rows(&mut report, &device, &raw);
    report.finish()
}

const POLICIES: [(&str, WakePolicy); 2] =
    [("latency", WakePolicy::Latency), ("balanced", WakePolicy::Balanced)];

fn four_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a tokio runtime")
}

fn runtimes() -> [(&'static str, Runtime); 2] {
    [("current", support::current_thread()), ("multi", four_workers())]
}

fn memory_of(device: &Device) -> Buffer<u32> {
    device.buffer(16).expect("a small buffer")
}

/// An executable of kernels in a chain, on memory of its own.
fn chain(device: &Device, len: usize) -> ExecutableGraph {
    chain_on(device, len, &memory_of(device))
}

/// The same on this memory.
fn chain_on(device: &Device, len: usize, x: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    for _ in 0..len {
        graph.launch(bump(1, x), Range::linear(1));
    }
    graph.finalize().expect("a valid graph")
}

/// One submission, awaited.
struct One(ExecutableGraph);

impl Contender for One {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}
