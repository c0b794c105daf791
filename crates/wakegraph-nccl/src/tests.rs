//! The order of ranks, on fake devices and with fake functions of NCCL and the driver.
#![expect(unsafe_code, reason = "makes a stream that nothing looks at")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Arc;

use tokio::runtime::Runtime;
use wakegraph::graph::CommandKind;
use wakegraph::interop::NativeStream;
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions};
use wakegraph::{Buffer, Device, Error, ErrorKind, Graph, NodeId, Result};

use crate::clique::{Clique, destroy};
use crate::collective::{Collective, Operation};
use crate::sys::{Functions, Handle};
use crate::{Communicator, Reduction};

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static FAILS: Cell<&'static str> = const { Cell::new("") };
}

/// Answers a call of a fake function.
pub(crate) fn called(name: &str) -> c_int {
    CALLS.with_borrow_mut(|calls| calls.push(name.to_owned()));
    c_int::from(FAILS.get() == name)
}

fn take_calls() -> Vec<String> {
    CALLS.take()
}

/// Gives handles that are not null.
unsafe extern "C" fn init_all(places: *mut Handle, count: c_int, _: *const c_int) -> c_int {
    for rank in 0..count as usize {
        // SAFETY: the caller has a place for each rank.
        let place = unsafe { places.add(rank) };
        // SAFETY: as above.
        unsafe { place.write(without_provenance_mut(rank + 1)) };
    }
    called("ncclCommInitAll")
}

/// Devices whose work a test completes.
fn devices<const N: usize>() -> ([Device; N], [FakeControl; N]) {
    let opened: [_; N] = std::array::from_fn(|index| {
        let options = FakeOptions::new().manual(true).peers(true).memory_of_peers(true);
        FakeDevice::open(options.name(format!("fake:{index}")))
    });
    let controls = opened.each_ref().map(|(_, control)| control.clone());
    (opened.map(|(device, _)| Device::from_hal(device)), controls)
}

fn communicator(devices: &[Device]) -> Communicator {
    let functions = Box::leak(Box::new(Functions { ncclCommInitAll: init_all, ..Functions::fake() }));
    let indices: Vec<c_int> = (0..).take(devices.len()).collect();
    Communicator(Arc::new(Clique::of(functions, devices, &indices).unwrap()))
}

fn buffers(devices: &[Device], len: usize) -> Vec<Buffer<f32>> {
    devices.iter().map(|device| device.buffer(len).unwrap()).collect()
}

/// A graph of one all-reduce on new buffers.
fn reduce(nccl: &Communicator) -> Graph {
    let x = buffers(nccl.devices(), 4);
    let mut graph = Graph::new(&nccl.devices()[0]);
    nccl.all_reduce(&mut graph, Reduction::Sum, &x, &x);
    graph
}

/// Records one call a rank, and gives the calls.
fn record(nccl: &Communicator, call: impl Fn(usize) -> Result<()>) -> (Result<()>, Vec<String>) {
    // SAFETY: no function looks at the handles.
    let lent = unsafe { NativeStream::new("cuda", null_mut(), null_mut()) };
    take_calls();
    let recorded = nccl.0.record(&lent, |rank, _, _| {
        CALLS.with_borrow_mut(|calls| calls.push(format!("rank {rank}")));
        call(rank)
    });
    (recorded, take_calls())
}

#[test]
fn all_ranks_are_in_one_group_between_the_fork_and_the_join() {
    let ([a, b, c], _) = devices();
    let (recorded, calls) = record(&communicator(&[a, b, c]), |_| Ok(()));
    recorded.unwrap();
    let branch = ["cuCtxSetCurrent", "cuStreamCreate", "cuStreamWaitEvent"];
    let join = ["cuCtxSetCurrent", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"];
    let expected = [
        &["cuCtxGetCurrent", "cuEventCreate", "cuEventRecord"][..],
        &branch,
        &branch,
        &["cuEventDestroy", "ncclGroupStart", "rank 0", "rank 1", "rank 2", "ncclGroupEnd"],
        &join,
        &join,
        &["cuCtxSetCurrent"],
    ];
    assert_eq!(calls, expected.concat());
}

#[test]
fn one_rank_needs_no_other_stream() {
    let ([a], _) = devices();
    let (recorded, calls) = record(&communicator(&[a]), |_| Ok(()));
    recorded.unwrap();
    assert_eq!(calls, ["cuCtxGetCurrent", "ncclGroupStart", "rank 0", "ncclGroupEnd", "cuCtxSetCurrent"]);
}

#[test]
fn a_stream_is_used_again_when_no_capture_has_it() {
    let ([a, b], _) = devices();
    let nccl = communicator(&[a, b]);
    record(&nccl, |_| Ok(())).0.unwrap();
    let (recorded, calls) = record(&nccl, |_| Ok(()));
    recorded.unwrap();
    assert!(calls.iter().any(|call| call == "cuStreamIsCapturing"), "{calls:?}");
    assert!(!calls.iter().any(|call| call == "cuStreamCreate"), "{calls:?}");
}

#[test]
fn a_group_is_ended_and_the_context_restored_whatever_fails() {
    let ([a, b], _) = devices();
    let nccl = communicator(&[a, b]);
    let (recorded, calls) = record(&nccl, |rank| match rank {
        0 => Err(Error::new(ErrorKind::Driver, "no more")),
        _ => Ok(()),
    });
    assert!(recorded.unwrap_err().message().contains("no more"));
    assert_eq!(calls.iter().filter(|call| call.starts_with("rank")).count(), 1);
    assert_eq!(calls[calls.len() - 2..], ["ncclGroupEnd", "cuCtxSetCurrent"]);
    for call in ["cuEventCreate", "cuStreamWaitEvent", "ncclGroupStart", "ncclGroupEnd"] {
        FAILS.set(call);
        let (recorded, calls) = record(&nccl, |_| Ok(()));
        FAILS.set("");
        let error = recorded.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.message().starts_with(call), "{error}");
        assert_eq!(calls.last().unwrap(), "cuCtxSetCurrent", "{call}");
    }
    record(&nccl, |_| Ok(())).0.unwrap();
}

#[test]
fn memory_that_overlaps_on_any_rank_is_refused_before_a_group_begins() {
    let ([a, b], _) = devices();
    let nccl = communicator(&[a.clone(), b.clone()]);
    let x = buffers(&[a, b], 4);
    let x = [&x[0], &x[1]];
    let sum = Collective::AllReduce(Reduction::Sum);
    let operation = Operation::new(sum, &["fake:0", "fake:1"], &x, &x).unwrap();
    // SAFETY: no function looks at the handles.
    let lent = unsafe { NativeStream::new("cuda", null_mut(), null_mut()) };
    take_calls();
    let error = operation.record(&nccl.0, &lent, &[64, 128, 64, 132]).unwrap_err();
    assert!(error.message().contains("rank 1 overlaps"), "{error}");
    assert_eq!(take_calls(), [""; 0]);
    operation.record(&nccl.0, &lent, &[64, 128, 64, 128]).unwrap();
    let all: Vec<_> = take_calls().into_iter().filter(|call| call.starts_with("nccl")).collect();
    assert_eq!(all, ["ncclGroupStart", "ncclAllReduce", "ncclAllReduce", "ncclGroupEnd"]);
}

#[test]
fn making_a_communicator_keeps_the_current_context() {
    let ([a, b], _) = devices();
    take_calls();
    communicator(&[a, b]);
    let calls = take_calls();
    assert_eq!(calls[calls.len() - 3..], ["cuCtxGetCurrent", "ncclCommInitAll", "cuCtxSetCurrent"]);
}

#[test]
fn communicators_are_destroyed_before_what_they_stand_on() {
    let ([a, b], _) = devices();
    let nccl = communicator(&[a, b]);
    record(&nccl, |_| Ok(())).0.unwrap();
    let ranks = std::mem::take(&mut *nccl.0.ranks.lock());
    destroy(nccl.0.functions, ranks);
    let expected = [
        &["ncclCommDestroy"; 2][..],
        &["cuCtxSetCurrent", "cuDevicePrimaryCtxRelease"],
        &["cuCtxSetCurrent", "cuStreamDestroy", "cuDevicePrimaryCtxRelease"],
    ];
    assert_eq!(take_calls(), expected.concat());
}

#[test]
fn inside_a_conditional_a_collective_is_driven_by_the_runtime() {
    let ([a, b], _) = devices();
    let nccl = communicator(&[a.clone(), b]);
    let flag = a.buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(&a);
    graph.if_nonzero(&flag, &reduce(&nccl));
    let plan = graph.finalize().unwrap().plan_text();
    assert!(plan.starts_with("host task 0 runs conditional #0") && plan.contains("all-reduce"), "{plan}");
}

/// Whether one of the nodes comes after the other.
fn are_ordered(graph: &Graph, a: NodeId, b: NodeId) -> bool {
    let comes_after = |from, to| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            open.extend(graph.predecessors(node).unwrap().into_iter().filter(|&before| found.insert(before)));
        }
        found.contains(&to)
    };
    comes_after(a, b) || comes_after(b, a)
}

#[test]
fn collectives_that_share_a_device_are_ordered_in_every_graph() {
    let (all, _) = devices::<4>();
    let of = |indices: &[usize]| {
        let devices: Vec<_> = indices.iter().map(|&index| all[index].clone()).collect();
        (communicator(&devices), indices.to_vec())
    };
    let communicators = [of(&[0, 1]), of(&[1, 0]), of(&[3, 2, 1]), of(&[0, 2]), of(&[3])];
    let mut state = 1_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % below
    };
    for _ in 0..100 {
        let memory: Vec<_> = (0..3).map(|_| buffers(&all, 4)).collect();
        let mut graph = Graph::new(&all[0]);
        let mut added: Vec<(NodeId, &[usize])> = Vec::new();
        for _ in 0..12 {
            let (nccl, ranks) = &communicators[random(communicators.len())];
            let (from, to) = (random(3), random(3));
            let pick = |of: usize| ranks.iter().map(|&rank| &memory[of][rank]).collect::<Vec<_>>();
            match random(4) {
                0 => drop(graph.fill(&memory[to][random(4)], 1.0)),
                1 => drop(graph.host_task((), async |()| ())),
                2 => {
                    let (root, to) = (random(ranks.len()), pick(to));
                    let from = pick(from);
                    added.push((nccl.broadcast(&mut graph, root, from[root], &to).id(), ranks));
                }
                _ => {
                    let node = nccl.all_reduce(&mut graph, Reduction::Max, &pick(from), &pick(to));
                    added.push((node.id(), ranks));
                }
            }
        }
        for (index, &(a, of_a)) in added.iter().enumerate() {
            for &(b, of_b) in &added[..index] {
                let shares = of_a.iter().any(|rank| of_b.contains(rank));
                assert!(!shares || are_ordered(&graph, a, b), "{}", graph.dot(true));
            }
        }
    }
}

#[test]
fn a_collective_comes_after_what_each_rank_needs_and_before_what_needs_it() {
    let ([a, b], [first, second]) = devices();
    let nccl = communicator(&[a.clone(), b.clone()]);
    let x = buffers(&[a.clone(), b.clone()], 4);
    let mut graph = Graph::new(&a);
    let before = [graph.fill(&x[0], 1.0).id(), graph.fill(&x[1], 2.0).id()];
    let node = nccl.all_reduce(&mut graph, Reduction::Sum, &x, &x).id();
    let after = [graph.fill(&x[0], 3.0).id(), graph.fill(&x[1], 4.0).id()];
    assert_eq!(graph.predecessors(node).unwrap(), before);
    assert_eq!(graph.successors(node).unwrap(), after);
    let submission = graph.finalize().unwrap().submit();
    // The collective waits for the fill on the other device, too.
    while first.complete_next(None) {}
    assert!(first.pending() > 0 && second.pending() > 0);
    assert!(second.complete_next(None) && !second.complete_next(None));
    while first.complete_next(None) {}
    while second.complete_next(None) {}
    Runtime::new().unwrap().block_on(submission).unwrap();
}

#[test]
fn submissions_of_several_communicators_run_one_after_the_other() {
    let ([a, b], [first, second]) = devices();
    let (forth, back) = (communicator(&[a.clone(), b.clone()]), communicator(&[b, a]));
    let [on_a, on_b] = [reduce(&forth), reduce(&back)].map(|graph| graph.finalize().unwrap());
    let submissions: Vec<_> = (0..3).flat_map(|_| [on_a.submit(), on_b.submit()]).collect();
    for _ in 0..3 {
        assert!(!second.complete_next(None), "an earlier collective is still running");
        assert!(first.complete_next(None));
        assert!(!first.complete_next(None), "an earlier collective is still running");
        assert!(second.complete_next(None));
    }
    Runtime::new().unwrap().block_on(futures::future::try_join_all(submissions)).unwrap();
}

#[test]
fn what_fails_or_is_cancelled_before_a_collective_starts_no_rank() {
    let runtime = Runtime::new().unwrap();
    let ([a, b], [first, second]) = devices();
    let nccl = communicator(&[a.clone(), b.clone()]);
    let x = buffers(&[a.clone(), b], 4);
    let mut graph = Graph::new(&a);
    graph.fill(&x[1], 2.0);
    nccl.all_reduce(&mut graph, Reduction::Sum, &x, &x);
    graph.fill(&x[1], 3.0);
    let exec = graph.finalize().unwrap();
    second.fail_next(Error::new(ErrorKind::Driver, "a fault"));
    let submission = exec.submit();
    while second.complete_next(None) || first.complete_next(None) {}
    assert!(runtime.block_on(submission).unwrap_err().to_string().contains("a fault"));
    assert_eq!((first.pending(), second.pending()), (0, 0));

    // Behind a host task nothing has been enqueued that could wait for a peer.
    let mut graph = Graph::new(&a);
    let gate = Arc::new(tokio::sync::Notify::new());
    let passed = gate.clone();
    let task = graph.host_task((), async move |()| passed.notified().await).id();
    nccl.all_reduce(&mut graph, Reduction::Sum, &x, &x).after([task]);
    let exec = graph.finalize().unwrap();
    let submission = {
        let _entered = runtime.enter();
        exec.submit()
    };
    submission.cancel();
    gate.notify_one();
    assert_eq!(runtime.block_on(submission).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!((first.pending(), second.pending()), (0, 0));
}

#[test]
fn a_collective_of_no_elements_is_an_empty_node() {
    let ([a, b], _) = devices();
    let nccl = communicator(&[a.clone(), b]);
    let x = buffers(nccl.devices(), 0);
    let mut graph = Graph::new(&a);
    let node = nccl.all_gather(&mut graph, &x, &x).id();
    assert_eq!(graph.kind(node).unwrap(), CommandKind::Empty);
    let submission = graph.finalize().unwrap().submit();
    Runtime::new().unwrap().block_on(submission).unwrap();
}

#[test]
fn buffers_that_do_not_fit_are_refused_by_number_and_device() {
    let ([a, b], _) = devices();
    let x = buffers(&[a.clone(), b.clone()], 4);
    let longer = buffers(&[a.clone(), b.clone()], 8);
    let odd = [a.buffer(5).unwrap(), b.buffer(5).unwrap()];
    let [x, longer, odd] = [[&x[0], &x[1]], [&longer[0], &longer[1]], [&odd[0], &odd[1]]];
    let (sum, gather) = (Collective::AllReduce(Reduction::Sum), Collective::AllGather);
    let scatter = Collective::ReduceScatter(Reduction::Sum);
    let refused: [(_, &[_], &[_], _); 9] = [
        (sum, &x, &longer, "output 0 of all-reduce (fake:0) has 8 elements, and needs 4"),
        (sum, &[x[0], odd[1]], &x, "input 1 of all-reduce (fake:1) has 5 elements, and needs 4"),
        (sum, &x[..1], &x, "all-reduce has 1 inputs, and needs 2, one for each rank"),
        (sum, &[], &x, "all-reduce of no buffers"),
        (sum, &[x[1], x[0]], &x, "input 0 of all-reduce is on fake:1, and has to be on fake:0"),
        (gather, &x, &x, "output 0 of all-gather (fake:0) has 4 elements, and needs 8"),
        (scatter, &odd, &x, "reduce-scatter: 5 elements do not divide by 2 ranks"),
        (Collective::Broadcast(2), &x[..1], &x, "there is no rank 2 to broadcast from: there are 2"),
        (Collective::Broadcast(1), &x[..1], &x, "input 0 of broadcast is on fake:0, and has to be on fake:1"),
    ];
    for (collective, inputs, outputs, expected) in refused {
        let error = Operation::new(collective, &["fake:0", "fake:1"], inputs, outputs).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidArgument, expected));
    }
    for (collective, inputs, outputs) in
        [(sum, &x, &x), (gather, &x, &longer), (scatter, &longer, &x), (Collective::Broadcast(0), &x, &x)]
    {
        let inputs = if let Collective::Broadcast(_) = collective { &inputs[..1] } else { inputs };
        Operation::new(collective, &["fake:0", "fake:1"], inputs, outputs).unwrap();
    }
}

#[test]
fn devices_that_nccl_cannot_use_are_refused() {
    let host = Device::open("host").unwrap();
    let refused = |devices: &[Device]| Communicator::new(devices).unwrap_err();
    assert!(refused(&[]).message().contains("no devices"));
    assert!(refused(&[host.clone(), host.clone()]).message().contains("two ranks on one device"));
    // Where NCCL is missing, that is said first.
    let error = refused(&[host]);
    let expected = match Functions::load() {
        Ok(_) => "host:0 is none",
        Err(_) => "cannot be loaded",
    };
    assert!(error.message().contains(expected), "{error}");
    assert!(
        error.kind() != ErrorKind::Unavailable || error.to_string().contains("LD_LIBRARY_PATH"),
        "{error}"
    );
}
