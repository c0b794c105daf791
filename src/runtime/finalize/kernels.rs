//! The kernels of a graph, loaded in parallel before its nodes are recorded one by one.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::ptr;

use rustc_hash::FxHashSet;
use wakegraph_hal::{DeviceId, Result};

use crate::graph::{self, Content};
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::{Command, Control};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelRef;

/// The kernels that a graph's nodes may launch, those of sub-graphs and bodies too, each once for each
/// device. `nodes` are the graph's own with the present values of parameters. With `alternatives`, the
/// kernels that updates may put in their place are among them.
pub(super) fn of(
    graph: &Graph,
    nodes: &graph::Graph<Command>,
    alternatives: bool,
) -> Vec<(KernelRef, Device)> {
    let mut found = FoundKernels { alternatives, known: FxHashSet::default(), kernels: Vec::new() };
    for_each_command(vec![(graph, nodes)], |_, _, command, device| {
        found.add(command, device);
        ControlFlow::<()>::Continue(())
    });
    found.kernels
}

/// Loads the kernels that an update may put into the bodies, so that the update need not.
///
/// # Errors
/// The first of a kernel that cannot be loaded, with its node.
pub(super) fn load_alternatives(control: &Control) -> Result<()> {
    let bodies = control.bodies.iter().map(|body| (&**body, body.inner())).collect();
    let failed = for_each_command(bodies, |nodes, index, command, device| {
        let Command::Kernel { alternatives, .. } = command else { return ControlFlow::Continue(()) };
        let failed = alternatives.iter().find_map(|kernel| kernel.on(device).err());
        match failed {
            Some(error) => {
                ControlFlow::Break(error.in_node(nodes.label_at(index)).at(nodes.location_at(index)))
            }
            None => ControlFlow::Continue(()),
        }
    });
    failed.map_or(Ok(()), Err)
}

/// Calls `visit` for each command of the graphs, of their sub-graphs and of the bodies in them: with the
/// graph that has it, its index there, and its device. Visits each graph once, however often it occurs.
fn for_each_command<'g, B>(
    mut open: Vec<(&'g Graph, &'g graph::Graph<Command>)>,
    mut visit: impl FnMut(&'g graph::Graph<Command>, usize, &'g Command, &'g Device) -> ControlFlow<B>,
) -> Option<B> {
    let mut seen = HashSet::new();
    while let Some((owner, nodes)) = open.pop() {
        if !seen.insert(ptr::from_ref(nodes)) {
            continue;
        }
        for index in 0..nodes.len() {
            match nodes.content_at(index) {
                Content::SubGraph(inner) => open.push((owner, inner)),
                Content::Command(Command::Control(control)) => {
                    open.extend(control.bodies.iter().map(|body| (&**body, body.inner())));
                }
                Content::Command(command) => {
                    let Some(device) = owner.find_device(nodes.devices()[index]) else { continue };
                    if let ControlFlow::Break(end) = visit(nodes, index, command.while_enabled(), device) {
                        return Some(end);
                    }
                }
                Content::Empty => {}
            }
        }
    }
    None
}

struct FoundKernels {
    alternatives: bool,
    /// The kernels' addresses.
    known: FxHashSet<(usize, DeviceId)>,
    kernels: Vec<(KernelRef, Device)>,
}

impl FoundKernels {
    fn add(&mut self, command: &Command, device: &Device) {
        let Command::Kernel { call, alternatives, .. } = command else { return };
        let alternatives = if self.alternatives { &**alternatives } else { &[] };
        for kernel in std::iter::once(&call.kernel).chain(alternatives) {
            if self.known.insert((kernel.address(), device.id())) {
                self.kernels.push((kernel.clone(), device.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wakegraph_hal::ErrorKind;
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;
    use crate::kernel::RawKernel;
    use crate::{FinalizeOptions, Range};

    fn kernel(name: &str) -> Arc<RawKernel> {
        RawKernel::new(name).writes::<u32>("x").host(|_, _| Ok(()))
    }

    #[test]
    fn threads_that_finalize_at_once_load_each_kernel_once() {
        let (device, control) = FakeDevice::open(FakeOptions::new().logs_calls(true));
        let device = Device::from_hal(device);
        let (x, flag) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(1).unwrap());
        let kernels = ["own", "inner", "body", "other"].map(kernel);
        let [own, inner, body, other] = kernels.each_ref().map(|kernel| kernel.call().memory::<u32>(&x));
        let launch = |call| {
            let mut graph = Graph::new(&device);
            graph.launch(call, Range::linear(4));
            graph
        };
        let mut graph = launch(own.clone());
        graph.launch(own, Range::linear(4)).alternative(other);
        graph.sub_graph(&launch(inner));
        graph.if_nonzero(&flag, &launch(body));
        let names = |alternatives| {
            let found = of(&graph, graph.inner(), alternatives);
            let mut names: Vec<_> = found.iter().map(|(kernel, _)| kernel.name().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(false), ["body", "inner", "own"]);
        assert_eq!(names(true), ["body", "inner", "other", "own"]);
        control.take_calls();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let options = FinalizeOptions::new().updatable(true);
                scope.spawn(|| graph.finalize_with(options).unwrap());
            }
        });
        let calls = control.take_calls();
        let mut loaded: Vec<_> =
            calls.iter().filter_map(|call| call.strip_prefix("create kernel ")).collect();
        loaded.sort_unstable();
        assert_eq!(loaded, ["body", "inner", "other", "own"]);
    }

    #[test]
    fn of_kernels_that_cannot_be_loaded_the_first_is_named() {
        let device = Device::open("host:862").unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        let without_code = |name| RawKernel::new(name).writes::<u32>("x").build();
        let mut graph = Graph::new(&device);
        for kernel in [kernel("good"), without_code("bad"), without_code("worse")] {
            graph.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
        }
        for _ in 0..3 {
            let error = graph.finalize().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
            assert!(error.to_string().contains("kernel 'bad' (#1)"), "{error}");
        }
    }
}
