//! Commands become operations of the driver: one each as far as it can, several where it cannot.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::device::Shared;
use super::hint::Prefetch;
use super::kernel::{self, OpenclKernel};
use super::memory::OpenclMemory;
use super::op::{Buffer, KernelOp, LONGEST_PATTERN, Op, Pattern};
use super::rect::{self, Piece};
use crate::hal::{
    Command, Kernel as _, KernelArg, KernelLaunch, Memory as _, MemoryDesc, MemoryKind, MemoryView,
    ParamKind, UsmPointer,
};
use crate::types::{Error, ErrorKind, Pitch, Range, Rect, Result};

/// What a command becomes: at least one operation, in order, and memory of ours that they read.
#[derive(Debug, Default)]
pub(super) struct Lowered {
    pub(super) ops: SmallVec<[Op; 1]>,
    pub(super) staged: SmallVec<[Arc<OpenclMemory>; 1]>,
}

impl From<Op> for Lowered {
    fn from(op: Op) -> Self {
        Self { ops: smallvec![op], staged: SmallVec::new() }
    }
}

/// The operations for `command`, which [`checked`](crate::hal::checked) has let pass.
pub(super) fn lower(shared: &Arc<Shared>, command: &Command) -> Result<Lowered> {
    let to = Lowering { shared };
    match command {
        Command::Kernel(launch) => to.launch(launch),
        Command::UsmCopy { src, dst, len } => {
            Ok(Op::PointerCopy { src: src.address(), dst: dst.address(), len: *len }.into())
        }
        Command::UsmFill { dst, pattern } => to.pointer_fill(*dst, pattern),
        Command::BufferCopy { src, dst } => to.copy(src, dst),
        Command::BufferRead { src, host } => to.copy(src, host),
        Command::BufferWrite { host, dst } => to.copy(host, dst),
        Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch } => {
            to.copy_rect((src, *src_pitch), (dst, *dst_pitch), *rect)
        }
        Command::BufferReadRect { src, host, rect, src_pitch, host_pitch } => {
            to.copy_rect((src, *src_pitch), (host, *host_pitch), *rect)
        }
        Command::BufferWriteRect { host, dst, rect, host_pitch, dst_pitch } => {
            to.copy_rect((host, *host_pitch), (dst, *dst_pitch), *rect)
        }
        Command::BufferFill { dst, pattern } => to.fill(dst, pattern),
        Command::UsmPrefetch { memory } => {
            Ok(Prefetch::new(shared, *memory).map_or(Op::Marker, Op::Prefetch).into())
        }
        // Advice has no words in OpenCL, and only keeps its place in the order.
        Command::UsmAdvise { .. } | Command::Empty => Ok(Op::Marker.into()),
        // The commands of a child graph are lowered one by one (`flatten.rs`).
        Command::Child(_) | Command::If { .. } | Command::While { .. } | Command::Native(_) => {
            let why = format!("OpenCL has nothing that a {} could become", command.kind());
            Err(Error::new(ErrorKind::FeatureNotSupported, why))
        }
    }
}

/// The work-group size: what the launch says, else what the source demands, else the driver's choice.
fn local_size(kernel: &OpenclKernel, range: &Range) -> Result<Option<[usize; 3]>> {
    let Some(required) = kernel.required_work_group() else { return Ok(range.local_size()) };
    let local = range.local_size().unwrap_or(required);
    let divides = range.global_size().iter().zip(required).all(|(global, local)| global % local == 0);
    if local != required || !divides {
        let why = format!("the kernel's source demands work-groups of {required:?}, not those of {range}");
        return Err(Error::new(ErrorKind::InvalidSize, why)
            .help("leave the work-group size to the device, and make the global size a multiple of it"));
    }
    Ok(Some(local))
}

/// One side of a copy.
enum Side {
    Buffer(Buffer),
    /// Host memory that is no buffer object here: its address.
    Host(usize),
}

#[derive(Clone, Copy)]
struct Lowering<'a> {
    shared: &'a Arc<Shared>,
}

impl Lowering<'_> {
    fn side(self, view: &MemoryView) -> Result<Side> {
        let memory = view.memory();
        let own = memory.as_any().downcast_ref::<OpenclMemory>();
        if let Some(buffer) = own.and_then(|own| own.buffer_in(self.shared)) {
            return Ok(Side::Buffer(buffer.clone()));
        }
        // Device memory of another device may have an address too; the copy through the host is the
        // runtime's to make.
        match memory.host_ptr().filter(|_| memory.kind() == MemoryKind::Host) {
            Some(start) => Ok(Side::Host(start.as_ptr().expose_provenance())),
            None => Err(super::foreign("memory")),
        }
    }

    /// A launch; arguments that the driver does not take as they are go in and out as copies.
    fn launch(self, launch: &KernelLaunch) -> Result<Lowered> {
        let shared = self.shared;
        for kernel in &launch.alternatives {
            OpenclKernel::of(&**kernel, shared)?;
        }
        let kernel = OpenclKernel::of(&*launch.kernel, shared)?;
        let (mut before, mut after, mut staged) =
            (SmallVec::new(), SmallVec::<[Op; 1]>::new(), SmallVec::new());
        let mut args = Cow::Borrowed(&launch.args[..]);
        for (index, (arg, param)) in launch.args.iter().zip(kernel.params()).enumerate() {
            let (KernelArg::Memory(view), ParamKind::Buffer { access, .. }) = (arg, &param.kind) else {
                continue;
            };
            if kernel::memory(view)?.is_argument(shared, view.offset()) {
                continue;
            }
            let desc = MemoryDesc { len: view.len(), kind: MemoryKind::Device };
            let copy = Arc::new(OpenclMemory::allocate(shared, &desc)?);
            let whole = MemoryView::whole(copy.clone());
            // Also what is only written: a kernel need not write all of it.
            before.extend(self.copy(view, &whole)?.ops);
            if access.writes() {
                after.extend(self.copy(&whole, view)?.ops);
            }
            args.to_mut()[index] = KernelArg::Memory(whole);
            staged.push(copy);
        }
        before.push(Op::Kernel(KernelOp {
            local: local_size(kernel, &launch.range)?,
            instance: kernel.instance(&args)?,
            dimensions: launch.range.dimensions() as u32,
            offset: launch.range.global_offset(),
            global: launch.range.global_size(),
        }));
        before.extend(after);
        Ok(Lowered { ops: before, staged })
    }

    fn copy(self, src: &MemoryView, dst: &MemoryView) -> Result<Lowered> {
        Ok(row(&self.side(src)?, src.offset(), &self.side(dst)?, dst.offset(), src.len()).into())
    }

    fn copy_rect(self, src: (&MemoryView, Pitch), dst: (&MemoryView, Pitch), rect: Rect) -> Result<Lowered> {
        let (from, to) = (self.side(src.0)?, self.side(dst.0)?);
        let placed =
            |(view, pitch): (&MemoryView, Pitch)| Pitch { offset: pitch.offset + view.offset(), ..pitch };
        let same_buffer = src.0.memory().resource() == dst.0.memory().resource();
        let pieces = rect::pieces(rect, placed(src), placed(dst), same_buffer);
        let ops = pieces.into_iter().map(|piece| match piece {
            Piece::Row { from: offset, to: dst_offset, len } => row(&from, offset, &to, dst_offset, len),
            Piece::Rect { from: source, to: target, region } => match (&from, &to) {
                (Side::Buffer(src), Side::Buffer(dst)) => {
                    Op::CopyRect { src: src.clone(), from: source, dst: dst.clone(), to: target, region }
                }
                (Side::Buffer(src), Side::Host(host)) => {
                    Op::ReadRect { src: src.clone(), from: source, host: *host, to: target, region }
                }
                (Side::Host(host), Side::Buffer(dst)) => {
                    Op::WriteRect { host: *host, from: source, dst: dst.clone(), to: target, region }
                }
                // One side of every command is device memory.
                (Side::Host(_), Side::Host(_)) => Op::Marker,
            },
        });
        Ok(Lowered { ops: ops.collect(), staged: SmallVec::new() })
    }

    fn fill(self, dst: &MemoryView, pattern: &[u8]) -> Result<Lowered> {
        let Side::Buffer(buffer) = self.side(dst)? else { return Err(super::foreign("memory")) };
        let (offset, len) = (dst.offset(), dst.len());
        if let Some(pattern) = native_pattern(pattern, offset, len) {
            return Ok(Op::Fill { dst: buffer, offset, len, pattern }.into());
        }
        let staged = self.stage(pattern, len)?;
        let first = staged.len().min(len);
        let source = staged.buffer_in(self.shared).ok_or_else(|| super::foreign("memory"))?;
        let copy = |src: &Buffer, src_offset, dst_offset, len| Op::Copy {
            src: src.clone(),
            src_offset,
            dst: buffer.clone(),
            dst_offset,
            len,
        };
        let mut ops = smallvec![copy(source, 0, offset, first)];
        ops.extend(doublings(first, len).map(|(at, more)| copy(&buffer, offset, offset + at, more)));
        Ok(Lowered { ops, staged: smallvec![Arc::new(staged)] })
    }

    fn pointer_fill(self, dst: UsmPointer, pattern: &[u8]) -> Result<Lowered> {
        let (address, len) = (dst.address(), dst.len());
        if let Some(pattern) = native_pattern(pattern, address, len) {
            return Ok(Op::PointerFill { dst: address, len, pattern }.into());
        }
        let staged = self.stage(pattern, len)?;
        let first = staged.len().min(len);
        let source = staged.shared_address().ok_or_else(|| super::foreign("memory"))?;
        let src = source.as_ptr().expose_provenance();
        let mut ops = smallvec![Op::PointerCopy { src, dst: address, len: first }];
        ops.extend(doublings(first, len).map(|(at, more)| Op::PointerCopy {
            src: address,
            dst: address + at,
            len: more,
        }));
        Ok(Lowered { ops, staged: smallvec![Arc::new(staged)] })
    }

    /// Memory of ours that starts with whole patterns.
    fn stage(self, pattern: &[u8], len: usize) -> Result<OpenclMemory> {
        /// So that a long fill is a few large copies.
        const BYTES: usize = 4096;
        let bytes = pattern.repeat((BYTES.min(len) / pattern.len()).max(1));
        let desc = MemoryDesc { len: bytes.len(), kind: MemoryKind::Device };
        let staged = OpenclMemory::allocate(self.shared, &desc)?;
        write_staged(&staged, &bytes)?;
        Ok(staged)
    }
}

#[expect(unsafe_code, reason = "writes memory that nobody else knows")]
fn write_staged(staged: &OpenclMemory, bytes: &[u8]) -> Result<()> {
    // SAFETY: nobody else knows the memory yet.
    unsafe { staged.write(0, bytes) }
}

fn row(from: &Side, src_offset: usize, to: &Side, dst_offset: usize, len: usize) -> Op {
    match (from, to) {
        (Side::Buffer(src), Side::Buffer(dst)) => {
            Op::Copy { src: src.clone(), src_offset, dst: dst.clone(), dst_offset, len }
        }
        (Side::Buffer(src), Side::Host(host)) => {
            Op::Read { src: src.clone(), offset: src_offset, host: host + dst_offset, len }
        }
        (Side::Host(host), Side::Buffer(dst)) => {
            Op::Write { host: host + src_offset, dst: dst.clone(), offset: dst_offset, len }
        }
        // One side of every command is device memory.
        (Side::Host(_), Side::Host(_)) => Op::Marker,
    }
}

/// A pattern with which the driver's own fill writes the same bytes: of a length that it takes, and
/// that start and length are multiples of.
fn native_pattern(pattern: &[u8], start: usize, len: usize) -> Option<Pattern> {
    let (&first, rest) = pattern.split_first()?;
    if rest.iter().all(|&byte| byte == first) {
        return Some(smallvec![first]);
    }
    let size = pattern.len();
    let fits = size.is_power_of_two()
        && size <= LONGEST_PATTERN
        && start.is_multiple_of(size)
        && len.is_multiple_of(size);
    fits.then(|| pattern.into())
}

/// Where copies of what is filled go, and how long they are, when the first `filled` bytes are.
fn doublings(mut filled: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let more = filled.min(len - filled);
        let at = filled;
        filled += more;
        (more > 0).then_some((at, more))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_the_driver_takes() {
        assert_eq!(native_pattern(&[7, 7, 7], 1, 9).as_deref(), Some(&[7][..]));
        assert_eq!(native_pattern(&[1, 2], 4, 8).as_deref(), Some(&[1, 2][..]));
        assert_eq!(native_pattern(&[1, 2], 1, 8), None, "starts between");
        assert_eq!(native_pattern(&[1, 2, 3], 0, 9), None);
        assert_eq!(native_pattern(&[[1, 2]; 128].concat(), 0, 512), None, "too long");
    }

    #[test]
    fn doublings_cover_everything_once() {
        assert_eq!(doublings(3, 20).collect::<Vec<_>>(), [(3, 3), (6, 6), (12, 8)]);
        assert_eq!(doublings(5, 5).count(), 0);
    }
}
