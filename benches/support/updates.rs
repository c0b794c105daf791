//! Updates of parameters, beside the same updates of a command-buffer of the contract.

use std::hint::black_box;
use std::sync::Arc;

use wakegraph::hal::{
    self, Command, CommandBufferDesc, CommandHandle, CommandUpdate, KernelArg, KernelDesc, KernelLaunch,
    KernelSources, MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, ValueBytes,
};
use wakegraph::memory::AccessMode;
use wakegraph::update::DynamicParam;
use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Graph, Range};

use crate::support::Contender;

/// As many nodes, each with a parameter of its own.
pub(crate) const PARAMS: usize = 100;
const ELEMENTS: usize = 16;

wakegraph::kernel! {
    fn add(n: u32, x: &mut [u32]) {
        host: |_range, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_add(n)),
    }
}

/// An executable and the parameters of its nodes, of which an update changes the first `count`.
pub(crate) struct Params {
    exec: ExecutableGraph,
    params: Vec<DynamicParam<u32>>,
    count: usize,
    value: u32,
}

impl Params {
    pub(crate) fn new(device: &Device, count: usize) -> Self {
        let x = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
        let mut graph = Graph::new(device);
        let params: Vec<_> = (0..PARAMS).map(|_| graph.param(0u32)).collect();
        for param in &params {
            graph.launch(add(0, &x), Range::linear(ELEMENTS)).param("n", param);
        }
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).expect("a valid graph");
        Self { exec, params, count, value: 0 }
    }
}

impl Contender for Params {
    async fn once(&mut self) {
        self.value = self.value.wrapping_add(1);
        let params = self.params.iter().take(self.count);
        let update = params.fold(self.exec.update(), |update, param| update.param(param, self.value));
        update.apply().await.expect("a valid update");
    }
}

/// A command-buffer of the contract with the same launches.
pub(crate) struct Commands {
    buffer: hal::ValidatedCommandBuffer,
    handles: Vec<CommandHandle>,
    count: usize,
    value: u32,
}

impl Commands {
    pub(crate) fn new(device: &Device, count: usize) -> Self {
        let device = device.hal();
        let words = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let params = [
            Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
            Param { name: "x".into(), kind: words },
        ];
        let sources = KernelSources::new().host(|_, args| {
            let n = args.value::<u32>()?;
            args.write::<u32>()?.iter_mut().for_each(|x| *x = x.wrapping_add(n));
            Ok(())
        });
        let kernel = device.create_kernel(&KernelDesc::new("add", &params, &sources)).expect("a kernel");
        let desc = MemoryDesc::new(ELEMENTS * size_of::<u32>(), MemoryKind::Device);
        let memory = device.allocate(&desc).expect("small memory");
        let desc = CommandBufferDesc::new().updatable(true).in_order(true);
        let mut buffer = device.create_command_buffer(&desc).expect("a command-buffer");
        let append = |_| {
            let args = vec![value(0), KernelArg::Memory(MemoryView::whole(memory.clone()))];
            let launch = KernelLaunch::new(Arc::clone(&kernel), args, Range::linear(ELEMENTS));
            let appended = buffer.append(&Command::Kernel(Arc::new(launch)), &[]);
            appended.expect("a valid command").handle.expect("an updatable command")
        };
        let handles = (0..PARAMS).map(append).collect();
        buffer.finalize().expect("a valid command-buffer");
        Self { buffer, handles, count, value: 0 }
    }
}

fn value(n: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&n.to_ne_bytes()))
}

impl Contender for Commands {
    async fn once(&mut self) {
        self.value = self.value.wrapping_add(1);
        let update = |&handle| CommandUpdate::new(handle).args([(0, value(self.value))]);
        let updates: Vec<_> = self.handles.iter().take(self.count).map(update).collect();
        self.buffer.update(black_box(&updates)).expect("a valid update");
    }
}
