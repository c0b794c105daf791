//! Lowering: from commands to the operations of graph nodes.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::builtin_kernels::{BuiltinKernel, address_arg, u32_arg, u64_arg};
use super::capture::capture;
use super::control_flow::ControlFlowOrder;
use super::device_inner::CudaDeviceInner;
use super::graph::CudaGraph;
use super::launch::{CudaLaunch, address};
use super::memory::CudaMemory;
use super::transfer::{CopyAddress, CopyBox, FillRow};
use crate::hal::support::transfer::shortest_element;
use crate::hal::{Body, Command, KernelArg, MemoryDesc, MemoryKind, MemoryView};
use crate::types::Result;

/// What a node does.
#[derive(Debug)]
pub(super) enum GraphOp {
    Kernel(CudaLaunch),
    Copy(CopyBox),
    Fill(FillRow),
    Empty,
    /// The commands of a body, in the place of one node.
    Child(Vec<BodyCommand>),
    /// With the address of the word that decides.
    If(u64, Vec<BodyCommand>, Option<Vec<BodyCommand>>),
    While(u64, Vec<BodyCommand>),
    /// Work that a stream has captured.
    Captured(CudaGraph),
}

/// A command of a body: operations that need no order among themselves, behind earlier commands.
#[derive(Debug)]
pub(super) struct BodyCommand {
    pub(super) ops: SmallVec<[GraphOp; 1]>,
    pub(super) after: SmallVec<[u32; 2]>,
}

/// A command as operations that need no order among themselves.
pub(super) struct LoweredCommand {
    pub(super) ops: SmallVec<[GraphOp; 1]>,
    /// Patterns of fills. Kernels read them, so they live as long as the operations.
    pub(super) patterns: Vec<Arc<CudaMemory>>,
}

impl From<GraphOp> for LoweredCommand {
    fn from(op: GraphOp) -> Self {
        Self { ops: smallvec![op], patterns: Vec::new() }
    }
}

impl From<Vec<CopyBox>> for LoweredCommand {
    fn from(boxes: Vec<CopyBox>) -> Self {
        Self { ops: boxes.into_iter().map(GraphOp::Copy).collect(), patterns: Vec::new() }
    }
}

/// Where one side of a copy begins. Copies also take the host memory of other backends, which the
/// driver has to stage.
fn copy_address(view: &MemoryView) -> Result<CopyAddress> {
    let memory = view.memory();
    match memory.host_ptr() {
        Some(start) if memory.kind() == MemoryKind::Host && !memory.as_any().is::<CudaMemory>() => {
            let address = start.as_ptr().expose_provenance() as u64 + view.offset() as u64;
            Ok(CopyAddress { address, is_foreign: true })
        }
        _ => Ok(CopyAddress { address: address(view)?, is_foreign: false }),
    }
}

/// The operations of a command. With `can_be_disabled` its nodes can be disabled in an instantiated
/// graph. The caller has bound the context.
pub(super) fn lower(
    device: &Arc<CudaDeviceInner>,
    command: &Command,
    can_be_disabled: bool,
) -> Result<LoweredCommand> {
    Ok(match command {
        Command::Kernel(launch) => GraphOp::Kernel(CudaLaunch::of(device, launch)?).into(),
        Command::UsmCopy { src, dst, len } => {
            let [from, to] =
                [src, dst].map(|side| CopyAddress { address: side.address() as u64, is_foreign: false });
            GraphOp::Copy(CopyBox::row(from, to, *len)).into()
        }
        Command::BufferCopy { src, dst }
        | Command::BufferRead { src, host: dst }
        | Command::BufferWrite { host: src, dst } => {
            GraphOp::Copy(CopyBox::row(copy_address(src)?, copy_address(dst)?, src.len())).into()
        }
        Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
        | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
        | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
            let (from, to) = ((copy_address(src)?, *src_pitch), (copy_address(dst)?, *dst_pitch));
            CopyBox::of_rect(*rect, from, to).into()
        }
        Command::UsmFill { dst, pattern } => {
            fill(device, dst.address() as u64, dst.len(), pattern, can_be_disabled)?
        }
        Command::BufferFill { dst, pattern } => {
            fill(device, address(dst)?, dst.len(), pattern, can_be_disabled)?
        }
        // There are no nodes for hints, which only keep their place in the order.
        Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } | Command::Empty => GraphOp::Empty.into(),
        Command::Native(native) => GraphOp::Captured(capture(device, native)?).into(),
        Command::Child(body) => {
            let mut patterns = Vec::new();
            let op = GraphOp::Child(lower_body(device, body, &mut patterns)?);
            LoweredCommand { ops: smallvec![op], patterns }
        }
        Command::If { condition, then, otherwise } => {
            let mut patterns = Vec::new();
            let otherwise = otherwise.as_ref().map(|body| lower_body(device, body, &mut patterns));
            let otherwise = otherwise.transpose()?;
            let then = lower_body(device, then, &mut patterns)?;
            let op = GraphOp::If(address(condition)?, then, otherwise);
            LoweredCommand { ops: smallvec![op], patterns }
        }
        Command::While { condition, body } => {
            let mut patterns = Vec::new();
            let op = GraphOp::While(address(condition)?, lower_body(device, body, &mut patterns)?);
            LoweredCommand { ops: smallvec![op], patterns }
        }
    })
}

fn lower_body(
    device: &Arc<CudaDeviceInner>,
    body: &Body,
    patterns: &mut Vec<Arc<CudaMemory>>,
) -> Result<Vec<BodyCommand>> {
    let mut order = ControlFlowOrder::default();
    let commands = (0..).zip(body.commands()).map(|(index, (command, after))| {
        let lowered = lower(device, command, false)?;
        patterns.extend(lowered.patterns);
        let after = after.iter().copied().chain(order.predecessors(index, command)).collect();
        order.append(index, command);
        Ok(BodyCommand { ops: lowered.ops, after })
    });
    commands.collect()
}

/// A fill by a memset node where the driver can do it, else by a kernel that reads the pattern from
/// memory. One that can be disabled is always a kernel: behind a disabled memset node the driver
/// loses the order.
fn fill(
    device: &Arc<CudaDeviceInner>,
    start: u64,
    len: usize,
    pattern: &[u8],
    can_be_disabled: bool,
) -> Result<LoweredCommand> {
    match FillRow::of(start, len, pattern) {
        Some(row) if can_be_disabled => {
            let args = [address_arg(row.address, row.len()), u64_arg(row.len() as u64), u32_arg(row.word())];
            // Each work-item sets 16 bytes at a time, and some set the bytes at either end.
            let items = len.div_ceil(16).clamp(16, MOST_FILL_ITEMS);
            return Ok(GraphOp::Kernel(BuiltinKernel::Set.launch(device, args, items)?).into());
        }
        Some(row) => return Ok(GraphOp::Fill(row).into()),
        None => {}
    }
    let pattern = shortest_element(pattern);
    let memory = CudaMemory::allocate(device, &MemoryDesc { len: pattern.len(), kind: MemoryKind::Device })?;
    write_new(&memory, pattern)?;
    let memory = Arc::new(memory);
    let args = [
        address_arg(start, len),
        u64_arg(len as u64),
        KernelArg::Memory(MemoryView::whole(Arc::clone(&memory) as _)),
        u64_arg(pattern.len() as u64),
    ];
    let op = GraphOp::Kernel(BuiltinKernel::Fill.launch(device, args, len.min(MOST_FILL_ITEMS))?);
    Ok(LoweredCommand { ops: smallvec![op], patterns: vec![memory] })
}

/// Work-items of a fill: enough for every multiprocessor there is.
const MOST_FILL_ITEMS: usize = 1 << 19;

#[expect(unsafe_code, reason = "nothing else uses the memory yet")]
fn write_new(memory: &CudaMemory, bytes: &[u8]) -> Result<()> {
    // SAFETY: the memory has just been allocated.
    unsafe { crate::hal::Memory::write(memory, 0, bytes) }
}
