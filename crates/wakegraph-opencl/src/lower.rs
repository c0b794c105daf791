//! Commands become operations of the driver: one each where possible, several where not.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::smallvec;
use wakegraph_hal::support::driver_memory::DriverAllocation as _;
use wakegraph_hal::support::lowering::{LoweredCommand, Operations, StagedMemory};
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::support::transfer::rect_pieces;
use wakegraph_hal::{
    Command, Error, ErrorKind, Kernel as _, KernelArg, KernelLaunch, Memory as _, MemoryDesc, MemoryKind,
    MemoryView, ParamKind, Pitch, Rect, Result, UsmPointer,
};

use super::context::OpenclContext;
use super::host_copy::HostCopy;
use super::kernel::OpenclKernel;
use super::memory::{Buffer, OpenclMemory};
use super::operation::{Corner, KernelOperation, LONGEST_PATTERN, OpenclOperation, Prefetch, Route};

/// The operations for a command that has passed [validation](wakegraph_hal::ValidatedDevice).
pub(super) fn lower(
    context: &Arc<OpenclContext>,
    command: &Command,
) -> Result<LoweredCommand<OpenclOperation>> {
    let lower = |command: &Command, staged: &mut _| OpenclLowering { context, staged }.operations(command);
    LoweredCommand::of(command, lower).map_err(|error| context.error(error))
}

/// The work of lowering one command without a body.
struct OpenclLowering<'a> {
    context: &'a Arc<OpenclContext>,
    staged: &'a mut StagedMemory,
}

impl OpenclLowering<'_> {
    fn operations(&mut self, command: &Command) -> Result<Operations<OpenclOperation>> {
        Ok(match command {
            Command::Kernel(launch) => self.launch(launch)?,
            Command::UsmCopy { src, dst, len } => {
                smallvec![OpenclOperation::PointerCopy { src: src.address(), dst: dst.address(), len: *len }]
            }
            Command::UsmFill { dst, pattern } => self.pointer_fill(*dst, pattern)?,
            Command::BufferCopy { src, dst }
            | Command::BufferRead { src, host: dst }
            | Command::BufferWrite { host: src, dst } => {
                let mut operations = Operations::new();
                let src = self.source(src, &mut operations)?;
                operations.push(self.copy(&src, dst)?);
                operations
            }
            Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch }
            | Command::BufferReadRect { src, host: dst, rect, src_pitch, host_pitch: dst_pitch }
            | Command::BufferWriteRect { host: src, dst, rect, host_pitch: src_pitch, dst_pitch } => {
                let mut operations = Operations::new();
                let src = self.source(src, &mut operations)?;
                operations.extend(self.copy_rect((&src, *src_pitch), (dst, *dst_pitch), *rect)?);
                operations
            }
            Command::BufferFill { dst, pattern } => self.fill(dst, pattern)?,
            Command::UsmPrefetch { memory } => {
                let prefetch = Prefetch::new(self.context, *memory);
                smallvec![prefetch.map_or(OpenclOperation::Marker, OpenclOperation::Prefetch)]
            }
            // OpenCL has no advice; the command only keeps its place in the order.
            Command::UsmAdvise { .. } | Command::Empty => smallvec![OpenclOperation::Marker],
            Command::Child(_)
            | Command::If { .. }
            | Command::While { .. }
            | Command::Native(_)
            | Command::StreamTask(_) => {
                let why = format!("OpenCL cannot run a {}", command.kind());
                return Err(Error::new(ErrorKind::FeatureNotSupported, why));
            }
        })
    }

    /// A launch. Arguments that the driver does not take are copied before and after it.
    fn launch(&mut self, launch: &KernelLaunch) -> Result<Operations<OpenclOperation>> {
        let context = self.context;
        for kernel in &launch.alternatives {
            OpenclKernel::of(&**kernel, context)?;
        }
        let kernel = OpenclKernel::of(&*launch.kernel, context)?;
        let (mut operations, mut copies_back) =
            (Operations::<OpenclOperation>::new(), Operations::<OpenclOperation>::new());
        let mut args = Cow::Borrowed(&launch.args[..]);
        for (index, (arg, param)) in launch.args.iter().zip(kernel.params()).enumerate() {
            let (KernelArg::Memory(view), ParamKind::Buffer { access, .. }) = (arg, &param.kind) else {
                continue;
            };
            if OpenclMemory::of(view)?.is_argument(context, view.offset()) {
                continue;
            }
            let whole = MemoryView::whole(
                self.staged.allocate(view.len(), |desc| OpenclMemory::allocate(context, desc))?,
            );
            // Memory that is only written is copied, too: a kernel need not write all of it.
            let source = self.source(view, &mut operations)?;
            operations.push(self.copy(&source, &whole)?);
            if access.writes() {
                copies_back.push(self.copy(&whole, view)?);
            }
            args.to_mut()[index] = KernelArg::Memory(whole);
        }
        let (instance, local) = (kernel.instance(&args)?, kernel.local_size(&launch.range)?);
        let launch = KernelOperation { instance, range: launch.range, local };
        operations.push(OpenclOperation::Kernel(launch));
        operations.extend(copies_back);
        Ok(operations)
    }

    /// What a copy reads instead of `view`: memory of the driver's, to which another operation copies
    /// first, where a write would read the host's memory too early.
    fn source(
        &mut self,
        view: &MemoryView,
        operations: &mut Operations<OpenclOperation>,
    ) -> Result<MemoryView> {
        let context = self.context;
        let own = view.memory().as_any().downcast_ref::<OpenclMemory>();
        let is_plain = !own.is_some_and(|own| own.is_in(context));
        let (false, true, CopySide::Host(start)) =
            (context.features.defers_writes, is_plain, self.side(view)?)
        else {
            return Ok(view.clone());
        };
        let host = |desc: &MemoryDesc| MemoryDesc { kind: MemoryKind::Host, ..*desc };
        let staged = self.staged.allocate(view.len(), |desc| OpenclMemory::allocate(context, &host(desc)))?;
        let to = staged.host_ptr().ok_or_else(|| foreign("memory"))?.as_ptr().expose_provenance();
        let (from, len) = (start + view.offset(), view.len());
        operations.push(OpenclOperation::HostCopy(HostCopy { from, to, len }));
        Ok(MemoryView::whole(staged))
    }

    fn copy(&self, src: &MemoryView, dst: &MemoryView) -> Result<OpenclOperation> {
        let route = self.route(src, dst)?;
        Ok(OpenclOperation::Copy { route, from: src.offset(), to: dst.offset(), len: src.len() })
    }

    fn copy_rect(
        &self,
        src: (&MemoryView, Pitch),
        dst: (&MemoryView, Pitch),
        rect: Rect,
    ) -> Result<Operations<OpenclOperation>> {
        let route = self.route(src.0, dst.0)?;
        let at =
            |(view, pitch): (&MemoryView, Pitch)| Pitch { offset: pitch.offset + view.offset(), ..pitch };
        let same_buffer = src.0.memory().resource() == dst.0.memory().resource();
        let accepted = |corner: &Corner, depth: usize, view: &MemoryView| {
            let is_object = !matches!(self.side(view), Ok(CopySide::Host(_)));
            !self.context.features.whole_slices || !is_object || corner.end(depth) <= view.memory().len()
        };
        let whole = |rect: Rect, from, to| {
            // Inside one buffer object the driver wants the same pitch on both sides.
            let corners = corner(rect, from).zip(corner(rect, to)).filter(|(from, to)| {
                !same_buffer && accepted(from, rect.depth, src.0) && accepted(to, rect.depth, dst.0)
            });
            let region = [rect.width, rect.height, rect.depth];
            corners.map(|(from, to)| OpenclOperation::CopyRect { route: route.clone(), from, to, region })
        };
        let row = |from, to, len| OpenclOperation::Copy { route: route.clone(), from, to, len };
        Ok(rect_pieces(rect, at(src), at(dst), &whole, &row).into())
    }

    fn route(&self, src: &MemoryView, dst: &MemoryView) -> Result<Route> {
        match (self.side(src)?, self.side(dst)?) {
            (CopySide::Buffer(src), CopySide::Buffer(dst)) => Ok(Route::Copy { src, dst }),
            (CopySide::Buffer(src), CopySide::Host(host)) => Ok(Route::Read { src, host }),
            (CopySide::Host(host), CopySide::Buffer(dst)) => Ok(Route::Write { host, dst }),
            (CopySide::Host(_), CopySide::Host(_)) => Err(foreign("memory")),
        }
    }

    fn side(&self, view: &MemoryView) -> Result<CopySide> {
        let memory = view.memory();
        let own = memory.as_any().downcast_ref::<OpenclMemory>();
        if let Some(buffer) = own.and_then(|own| own.buffer_in(self.context)) {
            return Ok(CopySide::Buffer(buffer.clone()));
        }
        // The device memory of another device may have an address too, but the runtime copies that
        // through the host.
        match memory.host_ptr().filter(|_| memory.kind() == MemoryKind::Host) {
            Some(start) => Ok(CopySide::Host(start.as_ptr().expose_provenance())),
            None => Err(foreign("memory")),
        }
    }

    fn fill(&mut self, dst: &MemoryView, pattern: &[u8]) -> Result<Operations<OpenclOperation>> {
        let CopySide::Buffer(buffer) = self.side(dst)? else { return Err(foreign("memory")) };
        let (context, offset, len) = (self.context, dst.offset(), dst.len());
        self.staged.fill(
            (pattern, offset as u64, len),
            LONGEST_PATTERN,
            |desc| OpenclMemory::allocate(context, desc),
            |element| OpenclOperation::Fill { dst: buffer.clone(), offset, len, pattern: element.into() },
            |source, at, len| {
                let (src, from) = match source.map(|source| source.buffer_in(context)) {
                    Some(source) => (source.ok_or_else(|| foreign("memory"))?, 0),
                    None => (&buffer, offset),
                };
                let route = Route::Copy { src: src.clone(), dst: buffer.clone() };
                Ok(OpenclOperation::Copy { route, from, to: offset + at, len })
            },
        )
    }

    fn pointer_fill(&mut self, dst: UsmPointer, pattern: &[u8]) -> Result<Operations<OpenclOperation>> {
        let (address, len) = (dst.address(), dst.len());
        self.staged.fill(
            (pattern, address as u64, len),
            LONGEST_PATTERN,
            |desc| OpenclMemory::allocate(self.context, desc),
            |element| OpenclOperation::PointerFill { dst: address, len, pattern: element.into() },
            |source, at, len| {
                let src = source.and_then(|source| source.usm_address()).unwrap_or(address);
                Ok(OpenclOperation::PointerCopy { src, dst: address + at, len })
            },
        )
    }
}

/// One side of a copy.
enum CopySide {
    Buffer(Buffer),
    /// The address of host memory that has no buffer object here.
    Host(usize),
}

/// The place of a rectangle as the driver counts it, if it can be expressed: rows fit their pitch, and
/// slices are whole rows apart.
fn corner(rect: Rect, pitch: Pitch) -> Option<Corner> {
    let row = pitch.row;
    if row < rect.width {
        return None;
    }
    let (x, rows) = (pitch.offset % row, pitch.offset / row);
    // The pitch of an only slice is free to choose: it has all rows up to the rectangle's last.
    let slice = if rect.depth == 1 { row.checked_mul(rows + rect.height)? } else { pitch.slice };
    let rows_in_slice = slice / row;
    let (y, z) = (rows % rows_in_slice.max(1), rows / rows_in_slice.max(1));
    let fits = slice.is_multiple_of(row) && x + rect.width <= row && y + rect.height <= rows_in_slice;
    fits.then_some(Corner { origin: [x, y, z], row, slice })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a rectangle in rows, slices and columns, by the offsets of both sides.
    fn bytes([width, height, depth]: [usize; 3], place: Corner) -> Vec<usize> {
        let start = place.origin[0] + place.origin[1] * place.row + place.origin[2] * place.slice;
        let rows = (0..depth).flat_map(|z| (0..height).map(move |y| start + y * place.row + z * place.slice));
        rows.flat_map(|row| row..row + width).collect()
    }

    #[test]
    fn corners_name_the_bytes_of_the_rectangle() {
        let pitches = [
            Pitch { offset: 0, row: 3, slice: 6 },
            Pitch { offset: 5, row: 4, slice: 16 },
            Pitch { offset: 7, row: 4, slice: 9 },
            Pitch { offset: 2, row: 5, slice: 8 },
            Pitch { offset: 2 + 16, row: 5, slice: 15 },
            Pitch { offset: 100, row: 10, slice: 23 },
        ];
        let mut expressed = 0;
        for (width, height, depth) in [(3, 2, 2), (3, 2, 1), (1, 2, 3)] {
            let rect = Rect { width, height, depth };
            for pitch in pitches {
                let Some(corner) = corner(rect, pitch) else { continue };
                let expected: Vec<_> = rect.rows(pitch).flat_map(|row| row..row + width).collect();
                assert_eq!(bytes([width, height, depth], corner), expected, "{rect:?} {pitch:?}");
                expressed += 1;
            }
        }
        assert!(expressed > 6, "{expressed}");
    }

    #[test]
    fn rectangles_that_the_driver_cannot_express_have_no_corner() {
        let rect = Rect { width: 3, height: 2, depth: 2 };
        let pitch = Pitch { offset: 15, row: 5, slice: 15 };
        assert!(corner(rect, pitch).is_some());
        assert!(corner(rect, Pitch { slice: 9, ..pitch }).is_none(), "slices are not whole rows apart");
        assert!(corner(rect, Pitch { offset: 3, ..pitch }).is_none(), "rows wrap around");
        assert!(corner(rect, Pitch { row: 2, ..pitch }).is_none(), "rows overlap");
    }
}
