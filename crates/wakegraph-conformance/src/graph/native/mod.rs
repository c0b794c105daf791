//! Native commands: the user's own work on the device's stream.
#![expect(unsafe_code, reason = "every native command vouches for what it does")]

mod allocations;
mod blas;
mod cuda;
pub(super) mod raw;

use wakegraph::graph::CommandKind;
use wakegraph::interop::NativeAccess;
use wakegraph::{ErrorKind, Graph};

use crate::suite::{Setup, Test, tests};

tests!("graph/native": &[] => [accesses_make_edges, accesses_may_be_a_vector, devices_without_refuse_by_name,
    null_is_no_event]);

pub(crate) fn tests() -> impl Iterator<Item = Test> {
    TESTS.iter().chain(cuda::TESTS).chain(allocations::TESTS).chain(blas::TESTS).copied()
}

fn accesses_make_edges(setup: &Setup) {
    let device = setup.device();
    let [x, y, z] = [(); 3].map(|()| device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(device);
    let [a, b, c] = [&x, &y, &z].map(|buffer| graph.fill(buffer, 1).id());
    let accesses =
        [NativeAccess::read(&x), NativeAccess::write(y.slice(..2).unwrap()), NativeAccess::read(&y)];
    // SAFETY: it does nothing.
    let native = unsafe { graph.native("mine", accesses, |_, [_, _, _]| Ok(())) }.id();
    assert_eq!(graph.predecessors(native).unwrap(), [a, b]);
    let [d, e] = [&x, &y].map(|buffer| graph.fill(buffer, 2).id());
    assert_eq!(
        (graph.predecessors(d).unwrap(), graph.predecessors(e).unwrap()),
        (vec![native], vec![native])
    );
    assert!(graph.successors(c).unwrap().is_empty());
    assert_eq!(graph.kind(native).unwrap(), CommandKind::Native);
    assert_eq!(graph.name(native).unwrap(), Some("mine"));
    assert!(graph.dot(true).contains("native command 'mine' (#3)\\l3 accesses"));
}

fn accesses_may_be_a_vector(setup: &Setup) {
    let device = setup.device();
    let buffers: Vec<_> = (1..6).map(|len| device.buffer::<u32>(len).unwrap()).collect();
    let mut graph = Graph::new(device);
    let fills: Vec<_> = buffers.iter().map(|buffer| graph.fill(buffer, 1).id()).collect();
    let accesses: Vec<_> = buffers.iter().map(NativeAccess::write).collect();
    // SAFETY: it does nothing.
    let native = unsafe {
        graph.native("mine", accesses, |_, pointers| {
            let lens: Vec<_> = pointers.iter().map(|pointer| pointer.len()).collect();
            assert_eq!(lens, [4, 8, 12, 16, 20]);
            Ok(())
        })
    };
    let native = native.id();
    assert_eq!(graph.predecessors(native).unwrap(), fills);
    if device.capabilities().commands.contains(CommandKind::Native.as_set()) {
        graph.finalize().unwrap();
    }
}

fn null_is_no_event(setup: &Setup) {
    // SAFETY: the handle is null.
    let error = unsafe { setup.device().import_event(std::ptr::null_mut()) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

fn devices_without_refuse_by_name(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    // SAFETY: it does nothing.
    unsafe { graph.native("mine", [NativeAccess::write(&x)], |_, [_]| Ok(())) };
    if device.capabilities().commands.contains(CommandKind::Native.as_set()) {
        graph.finalize().unwrap();
        return;
    }
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
    assert!(error.message().contains("native command"), "{error}");
    assert!(
        error.node().unwrap().contains("'mine'") && error.to_string().contains("native/mod.rs"),
        "{error}"
    );
}
