//! From commands to the operations of graph nodes.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::alone::Alone;
use super::device::Shared;
use super::graph::{Op, Part};
use super::kernel::CudaKernel;
use super::launch::{Launch, address};
use super::memory::CudaMemory;
use super::native;
use super::shape::{self, CopyShape, SetShape, period};
use crate::hal::{
    Body, Command, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView,
    Param, ParamKind, UsmPointer, ValueBytes,
};
use crate::types::{AccessMode, Range, Result};

/// A command as operations that need no order among themselves.
pub(super) struct Lowered {
    pub(super) ops: SmallVec<[Op; 1]>,
    /// Patterns of fills, which kernels read.
    pub(super) patterns: Vec<Arc<CudaMemory>>,
}

impl From<Op> for Lowered {
    fn from(op: Op) -> Self {
        Self { ops: smallvec![op], patterns: Vec::new() }
    }
}

/// One side of a copy: where it begins, and whether it is host memory of somebody else's.
type Place = (u64, bool);

fn copy(
    (from, foreign_from): Place,
    (to, foreign_to): Place,
    boxes: impl FnOnce(u64, u64) -> Vec<CopyShape>,
) -> Lowered {
    let boxes = boxes(from, to).into_iter().map(|shape| Op::Copy(shape, [foreign_from, foreign_to]));
    Lowered { ops: boxes.collect(), patterns: Vec::new() }
}

/// Where a view begins; copies take the host memory of other backends as well, which the driver
/// then has to stage.
fn place(view: &MemoryView) -> Result<Place> {
    let memory = view.memory();
    match memory.host_ptr() {
        Some(start) if memory.kind() == MemoryKind::Host && !memory.as_any().is::<CudaMemory>() => {
            Ok((start.as_ptr().expose_provenance() as u64 + view.offset() as u64, true))
        }
        _ => Ok((address(view)?, false)),
    }
}

/// The operations of a command. With `switchable` they are such as can be switched off in an instance.
pub(super) fn lower(shared: &Arc<Shared>, command: &Command, switchable: bool) -> Result<Lowered> {
    Ok(match command {
        Command::Kernel(launch) => Op::Kernel(lower_kernel(shared, launch)?).into(),
        Command::UsmCopy { src, dst, len } => {
            let (from, to) = (src.address() as u64, dst.address() as u64);
            copy((from, false), (to, false), |from, to| vec![shape::linear(from, to, *len)])
        }
        Command::UsmFill { dst, pattern } => {
            fill(shared, dst.address() as u64, dst.len(), pattern, switchable)?
        }
        Command::BufferCopy { src, dst }
        | Command::BufferRead { src, host: dst }
        | Command::BufferWrite { host: src, dst } => {
            copy(place(src)?, place(dst)?, |from, to| vec![shape::linear(from, to, src.len())])
        }
        Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
        | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
        | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
            copy(place(src)?, place(dst)?, |from, to| {
                shape::boxes(*rect, (from, *src_pitch), (to, *dst_pitch))
            })
        }
        Command::BufferFill { dst, pattern } => fill(shared, address(dst)?, dst.len(), pattern, switchable)?,
        // There are no nodes for hints: their order is kept.
        Command::UsmPrefetch { .. } | Command::UsmAdvise { .. } | Command::Empty => Op::Empty.into(),
        Command::Child(_) | Command::If { .. } | Command::While { .. } => {
            let mut patterns = Vec::new();
            let op = lower_control(shared, command, &mut patterns)?;
            Lowered { ops: smallvec![op], patterns }
        }
        Command::Native(native) => Op::Captured(native::capture(shared, native)?).into(),
    })
}

/// A command that holds bodies.
fn lower_control(shared: &Arc<Shared>, command: &Command, patterns: &mut Vec<Arc<CudaMemory>>) -> Result<Op> {
    Ok(match command {
        Command::If { condition, then, otherwise } => {
            let otherwise = otherwise.as_ref().map(|body| lower_body(shared, body, patterns)).transpose()?;
            Op::If(address(condition)?, lower_body(shared, then, patterns)?, otherwise)
        }
        Command::While { condition, body } => {
            Op::While(address(condition)?, lower_body(shared, body, patterns)?)
        }
        Command::Child(body) => Op::Child(lower_body(shared, body, patterns)?),
        _ => Op::Empty,
    })
}

fn lower_body(shared: &Arc<Shared>, body: &Body, patterns: &mut Vec<Arc<CudaMemory>>) -> Result<Vec<Part>> {
    let mut alone = Alone::default();
    let parts = (0..).zip(body.commands()).map(|(index, (command, after))| {
        let lowered = lower(shared, command, false)?;
        patterns.extend(lowered.patterns);
        let after = after.iter().copied().chain(alone.before(index, command)).collect();
        alone.add(index, command);
        Ok(Part { ops: lowered.ops, after })
    });
    parts.collect()
}

/// The launch; its kernel may have the shared memory that it needs from then on. The caller has
/// bound the context.
pub(super) fn lower_kernel(shared: &Shared, launch: &KernelLaunch) -> Result<Launch> {
    let lowered = Launch::new(launch, &shared.limits)?;
    let kernel = super::launch::kernel(launch)?;
    if !Arc::ptr_eq(kernel.context(), &shared.context) {
        return Err(super::error::foreign("kernel"));
    }
    kernel.allow_shared(lowered.shared())?;
    Ok(lowered)
}

/// A fill by the driver where it can, else by a kernel that reads the pattern from memory. One that
/// can be switched off is always a kernel: behind a set node that is off the driver loses the
/// order.
fn fill(shared: &Arc<Shared>, start: u64, len: usize, pattern: &[u8], switchable: bool) -> Result<Lowered> {
    match shape::set(start, len, pattern) {
        Some(set) if switchable => return Ok(Op::Kernel(lower_set(shared, &set)?).into()),
        Some(set) => return Ok(Op::Set(set).into()),
        None => {}
    }
    let pattern = &pattern[..period(pattern)];
    let memory = CudaMemory::allocate(shared, &MemoryDesc { len: pattern.len(), kind: MemoryKind::Device })?;
    write(&memory, pattern)?;
    let memory = Arc::new(memory);
    let launch = KernelLaunch {
        kernel: shared.fill_kernel()?,
        args: vec![
            KernelArg::Usm(target(start, len)),
            value(len),
            KernelArg::Memory(MemoryView::whole(Arc::clone(&memory) as _)),
            value(pattern.len()),
        ],
        range: Range::linear(len.min(MOST_FILLERS)),
        alternatives: Vec::new(),
    };
    Ok(Lowered { patterns: vec![memory], ..Op::Kernel(lower_kernel(shared, &launch)?).into() })
}

/// A launch that does what a set node would.
fn lower_set(shared: &Shared, set: &SetShape) -> Result<Launch> {
    let len = set.count * set.element as usize;
    let launch = KernelLaunch {
        kernel: shared.set_kernel()?,
        args: vec![
            KernelArg::Usm(target(set.address, len)),
            value(len),
            KernelArg::Value(ValueBytes::from_slice(&set.word().to_ne_bytes())),
        ],
        // Each work-item sets 16 bytes at a time, and fewer of them those at either end.
        range: Range::linear(len.div_ceil(16).clamp(16, MOST_FILLERS)),
        alternatives: Vec::new(),
    };
    lower_kernel(shared, &launch)
}

/// Work-items of a fill: enough for every multiprocessor there is.
const MOST_FILLERS: usize = 1 << 19;

fn value(number: usize) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&(number as u64).to_ne_bytes()))
}

#[expect(unsafe_code, reason = "nobody else knows the memory")]
fn write(memory: &CudaMemory, bytes: &[u8]) -> Result<()> {
    // SAFETY: it has just been allocated.
    unsafe { crate::hal::Memory::write(memory, 0, bytes) }
}

#[expect(unsafe_code, reason = "the address is the command's")]
pub(super) fn target(address: u64, len: usize) -> UsmPointer {
    // SAFETY: the memory that the command fills, valid as long as its operands are.
    unsafe { UsmPointer::new(address as usize, len) }
}

/// The kernel of `lower_set`.
pub(super) fn load_set_kernel(shared: &Shared) -> Result<CudaKernel> {
    let memory = ParamKind::Buffer { access: AccessMode::Write, element_size: 1, element_align: 1 };
    let params = [
        Param { name: "memory".into(), kind: memory },
        Param { name: "len".into(), kind: ParamKind::Value { size: 8 } },
        Param { name: "word".into(), kind: ParamKind::Value { size: 4 } },
    ];
    let sources = KernelSources::new().ptx(include_str!("set.ptx"));
    CudaKernel::load(shared, &KernelDesc { name: "wakegraph_set", params: &params, sources: &sources })
}

/// The kernel of `fill`.
pub(super) fn load_fill_kernel(shared: &Shared) -> Result<CudaKernel> {
    let buffer = |name: &'static str, access| Param {
        name: name.into(),
        kind: ParamKind::Buffer { access, element_size: 1, element_align: 1 },
    };
    let number = |name: &'static str| Param { name: name.into(), kind: ParamKind::Value { size: 8 } };
    let params = [
        buffer("memory", AccessMode::Write),
        number("len"),
        buffer("pattern", AccessMode::Read),
        number("pattern_len"),
    ];
    let sources = KernelSources::new().ptx(include_str!("fill.ptx"));
    CudaKernel::load(shared, &KernelDesc { name: "wakegraph_fill", params: &params, sources: &sources })
}
