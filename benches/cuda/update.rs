//! One argument changed before every launch, through the backend contract.
#![expect(unsafe_code, reason = "enqueues by hand")]

use std::sync::Arc;

use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, Event, EventDesc, KernelArg, KernelDesc,
    KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, QueueDesc, QueueOrder,
    Signal, ValidatedCommandBuffer, ValidatedQueue, ValueBytes, WaitList,
};
use wakegraph::{AccessMode, Device, Range, Result};

use crate::raw::{Raw, RawGraph};
use crate::support::{self, Contender, Report, Row};

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let ours = Updated::new(device).expect("a command-buffer");
    let base = UpdatedByHand { graph: raw.chain(1), number: 0 };
    report.race(Row::new("update").limit(1.1), &support::current_thread(), ours, base);
}

struct Updated {
    buffer: ValidatedCommandBuffer,
    handle: CommandHandle,
    queue: Arc<ValidatedQueue>,
    event: Arc<dyn Event>,
    number: u32,
}

impl Updated {
    fn new(device: &Device) -> Result<Self> {
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
        let appended = buffer.append(&Command::Kernel(Box::new(launch)), &[])?;
        buffer.finalize()?;
        Ok(Self {
            buffer,
            handle: appended.handle.expect("updatable"),
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
        let mut update = CommandUpdate::new(self.handle);
        update.args.push((0, argument(self.number)));
        self.buffer.update(&[update]).expect("an update");
        let signal = Signal::new(&self.event);
        // SAFETY: nothing else uses the memory, and everything lives until the event is final.
        unsafe { self.buffer.enqueue(&self.queue, WaitList::NONE, signal) }.expect("an enqueue");
        while !self.event.status().is_final() {
            std::hint::spin_loop();
        }
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
