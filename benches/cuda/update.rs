//! Arguments changed before every launch: through the backend contract, and of an executable.
#![expect(unsafe_code, reason = "enqueues by hand")]

use std::sync::Arc;

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, Event, EventDesc, KernelArg, KernelDesc,
    KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, QueueDesc, QueueOrder,
    Signal, ValidatedCommandBuffer, ValidatedQueue, ValueBytes, WaitList,
};

use wakegraph::memory::AccessMode;
use wakegraph::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph, NodeId, Range, Result, WakePolicy};

use crate::raw::{Raw, RawGraph};
use crate::support::{self, Contender, Report, Row};
use crate::{bump, memory_of};

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    let by_hand = |nodes| UpdatedByHand { graph: raw.chain(nodes), number: 0 };
    let ours = Updated::new(device, 1).expect("a command-buffer");
    report.race(Row::new("update").limit(1.1), &runtime, ours, by_hand(1));
    let row = |name| Row::new(name).limit(1.1).rounds(60, 50);
    let ours = Updated::new(device, MANY).expect("a command-buffer");
    report.race(row("update_100"), &runtime, ours, by_hand(MANY));
    device.set_wake_policy(WakePolicy::Latency);
    report.race(row("update_100_executable"), &runtime, UpdatedExecutable::new(device), by_hand(MANY));
    device.set_wake_policy(WakePolicy::default());
}

/// Nodes in the rows of large updates.
const MANY: usize = 100;

/// A chain of kernels as a command-buffer.
struct Updated {
    buffer: ValidatedCommandBuffer,
    handles: Vec<CommandHandle>,
    queue: Arc<ValidatedQueue>,
    event: Arc<dyn Event>,
    number: u32,
}

impl Updated {
    fn new(device: &Device, nodes: usize) -> Result<Self> {
        let hal = device.hal();
        let access = AccessMode::ReadWrite;
        let params = [
            Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
            Param { name: "x".into(), kind: ParamKind::Buffer { access, element_size: 4, element_align: 4 } },
        ];
        let sources = KernelSources::new().ptx(include_str!("kernels.ptx"));
        let kernel = hal.create_kernel(&KernelDesc::new("bump", &params, &sources))?;
        let memory = hal.allocate(&MemoryDesc::new(64, MemoryKind::Device))?;
        let mut buffer = hal.create_command_buffer(
            &CommandBufferDesc::new().updatable(true).in_order(true).low_latency(true),
        )?;
        let launch = KernelLaunch::new(
            kernel,
            vec![argument(1), KernelArg::Memory(MemoryView::whole(memory))],
            Range::linear(1),
        );
        let command = Command::Kernel(Arc::new(launch));
        let append = |_| Ok(buffer.append(&command, &[])?.handle.expect("updatable"));
        let handles = (0..nodes).map(append).collect::<Result<_>>()?;
        buffer.finalize()?;
        Ok(Self {
            buffer,
            handles,
            queue: hal.create_queue(&QueueDesc::new(QueueOrder::InOrder))?,
            event: hal.create_event(&EventDesc::new())?,
            number: 0,
        })
    }
}

fn argument(number: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&number.to_ne_bytes()))
}

impl Contender for Updated {
    async fn once(&mut self) {
        self.number += 1;
        let update = |&handle| CommandUpdate::new(handle).args([(0, argument(self.number))]);
        let updates: Vec<_> = self.handles.iter().map(update).collect();
        self.buffer.update(&updates).expect("an update");
        let signal = Signal::new(&self.event);
        // SAFETY: nothing else uses the memory, and everything lives until the event is final.
        unsafe { self.buffer.enqueue(&self.queue, WaitList::NONE, signal) }.expect("an enqueue");
        while !self.event.status().is_final() {
            std::hint::spin_loop();
        }
    }
}

/// A chain of kernels as an executable.
struct UpdatedExecutable {
    exec: ExecutableGraph,
    nodes: Vec<NodeId>,
    memory: Buffer<u32>,
    number: u32,
}

impl UpdatedExecutable {
    fn new(device: &Device) -> Self {
        let (mut graph, memory) = (Graph::new(device), memory_of(device));
        let nodes = (0..MANY).map(|_| graph.launch(bump(1, &memory), Range::linear(1)).id()).collect();
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).expect("a valid graph");
        Self { exec, nodes, memory, number: 0 }
    }
}

impl Contender for UpdatedExecutable {
    async fn once(&mut self) {
        self.number += 1;
        let mut update = self.exec.update();
        for &node in &self.nodes {
            update = update.launch(node, bump(self.number, &self.memory));
        }
        update.apply().await.expect("an update");
        self.exec.submit().await.expect("a run");
    }
}

struct UpdatedByHand {
    graph: RawGraph,
    number: u32,
}

impl Contender for UpdatedByHand {
    async fn once(&mut self) {
        self.number += 1;
        self.graph.bind();
        self.graph.update(self.number);
        self.graph.launch();
        self.graph.synchronize();
    }
}
