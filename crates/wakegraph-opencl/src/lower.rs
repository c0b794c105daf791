//! Commands become operations of the driver: one each where possible, several where not.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::support::command_list::{DriverOperation, LoweredCommand, Operations, StagedMemory};
use wakegraph_hal::support::errors::foreign;
use wakegraph_hal::support::memory::DriverAllocation as _;
use wakegraph_hal::support::memory::rect_pieces;
use wakegraph_hal::{
    Command, Error, ErrorKind, Kernel as _, KernelArg, KernelLaunch, Memory as _, MemoryDesc, MemoryKind,
    MemoryView, ParamKind, Pitch, QueueOrder, Range, Rect, Result, UsmPointer,
};

use super::context::{DriverQueue, OpenclContext, when_ended};
use super::kernel::{OpenclKernel, OpenclKernelInstance};
use super::memory::{Buffer, OpenclMemory};
use super::sys::{self, DriverResult, Event, OpenclFailure, Owned, adopt_event, call};

/// The operations for a command that has passed [validation](wakegraph_hal::ValidatedDevice).
pub(super) fn lower(
    context: &Arc<OpenclContext>,
    command: &Command,
) -> Result<LoweredCommand<OpenclOperation>> {
    let mut lowering = OpenclLowering { context, staged: StagedMemory::default() };
    let operations = lowering.operations(command).map_err(|error| context.error(error))?;
    Ok(LoweredCommand { operations, staged: lowering.staged })
}

/// The work of lowering one command.
struct OpenclLowering<'a> {
    context: &'a Arc<OpenclContext>,
    staged: StagedMemory,
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
            Command::If { .. }
            | Command::While { .. }
            | Command::Switch { .. }
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

    /// The source of a copy instead of `view`: memory of the driver's, to which another operation copies
    /// first, where a write would read the host's memory too early.
    fn source(
        &mut self,
        view: &MemoryView,
        operations: &mut Operations<OpenclOperation>,
    ) -> Result<MemoryView> {
        let context = self.context;
        let own = view.memory().downcast_ref::<OpenclMemory>();
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
        let own = memory.downcast_ref::<OpenclMemory>();
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

/// One call of the driver.
#[derive(Debug)]
pub(super) enum OpenclOperation {
    Kernel(KernelOperation),
    /// Bytes from an offset in one place to an offset in the other.
    Copy {
        route: Route,
        from: usize,
        to: usize,
        len: usize,
    },
    CopyRect {
        route: Route,
        from: Corner,
        to: Corner,
        region: [usize; 3],
    },
    Fill {
        dst: Buffer,
        offset: usize,
        len: usize,
        pattern: Pattern,
    },
    /// Between addresses.
    PointerCopy {
        src: usize,
        dst: usize,
        len: usize,
    },
    PointerFill {
        dst: usize,
        len: usize,
        pattern: Pattern,
    },
    HostCopy(HostCopy),
    /// A hint, which never fails.
    Prefetch(Prefetch),
    /// Does nothing, in its place in the order.
    Marker,
}

impl DriverOperation for OpenclOperation {
    const NOTHING: &'static Self = &Self::Marker;
}

/// A launch.
#[derive(Debug)]
pub(super) struct KernelOperation {
    /// An update of a launch keeps it, and changes its arguments.
    pub(super) instance: OpenclKernelInstance,
    pub(super) range: Range,
    /// The work-group size; `None` leaves it to the driver.
    pub(super) local: Option<[usize; 3]>,
}

/// The two places of a copy. Memory of the host is given by its address.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Copy { src: Buffer, dst: Buffer },
    Read { src: Buffer, host: usize },
    Write { host: usize, dst: Buffer },
}

/// The place of a rectangle in a buffer object or in host memory, in bytes, rows and slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Corner {
    pub(super) origin: [usize; 3],
    row: usize,
    pub(super) slice: usize,
}

impl Corner {
    /// Place where the last of `depth` slices ends, with all its rows whole.
    pub(super) fn end(&self, depth: usize) -> usize {
        self.slice.saturating_mul(self.origin[2].saturating_add(depth))
    }
}

/// The bytes that a fill repeats: 1, 2, 4 ... 128 of them.
type Pattern = SmallVec<[u8; 16]>;

/// The longest pattern that drivers take.
const LONGEST_PATTERN: usize = 128;

/// A prefetch of memory to the device.
#[derive(Debug)]
pub(super) struct Prefetch {
    address: usize,
    len: usize,
    /// Whether it is Intel's unified shared memory, or else shared virtual memory.
    unified: bool,
}

impl Prefetch {
    /// The prefetch, if the driver has a function for it.
    pub(super) fn new(context: &OpenclContext, memory: UsmPointer) -> Option<Self> {
        let (address, len) = (memory.address(), memory.len());
        let unified = context.features.unified_memory && is_unified(context, address);
        let possible = len > 0 && (unified || context.features.migrates_shared_memory);
        possible.then_some(Self { address, len, unified })
    }
}

/// Whether the driver knows the address as one in unified shared memory of this context.
fn is_unified(context: &OpenclContext, address: usize) -> bool {
    let mut kind: sys::cl_uint = sys::CL_MEM_TYPE_UNKNOWN_INTEL;
    let (what, size, place) = (sys::CL_MEM_ALLOC_TYPE_INTEL, size_of_val(&kind), (&raw mut kind).cast());
    let (raw, start) = (context.raw.raw(), ptr::with_exposed_provenance(address));
    let (extensions, needed) = (&context.platform.extensions, ptr::null_mut());
    // SAFETY: any address may be asked for; `place` has room for `size` bytes.
    let asked = unsafe { call!(extensions, clGetMemAllocInfoINTEL(raw, start, what, size, place, needed)) };
    asked.is_ok() && kind != sys::CL_MEM_TYPE_UNKNOWN_INTEL
}

/// Place where an operation goes.
#[derive(Clone, Copy, Debug)]
enum OperationTarget {
    /// Onto a queue, behind the events of a wait list; `event` is null or a place for its own.
    Queue {
        queue: sys::cl_command_queue,
        waits: sys::cl_uint,
        wait: *const sys::cl_event,
        event: *mut sys::cl_event,
    },
    /// Into a recording for in-order queues.
    Recording {
        buffer: sys::cl_command_buffer_khr,
        properties: *const sys::cl_properties,
        handle: *mut sys::cl_mutable_command_khr,
    },
}

/// Calls the function that passes an operation to its target: the first for a queue, the second for a
/// recording. Both take the arguments; the first also takes those in brackets, before the others.
macro_rules! emit {
    ($table:expr, $to:expr, $enqueue:ident $([$first:expr])?: $($argument:expr),*) => {
        match $to {
            // SAFETY: the caller of `emit` vouches for the queue, the events and the memory. Arrays have
            // three elements, and the driver copies patterns.
            OperationTarget::Queue { queue, waits, wait, event } => unsafe {
                call!($table, $enqueue(queue, $($first,)? $($argument,)* waits, wait, event))
            },
            OperationTarget::Recording { .. } => Err(sys::missing("clCommand*KHR")),
        }
    };
    ($context:expr, $to:expr, $enqueue:ident $([$first:expr])?, $record:ident: $($argument:expr),*) => {
        match $to {
            // SAFETY: the caller of `emit` vouches for the recording and the memory. A null queue means
            // the recording's own.
            OperationTarget::Recording { buffer, properties, handle } => unsafe {
                let (queue, none, point) = (ptr::null_mut(), ptr::null(), ptr::null_mut());
                let extensions = &$context.platform.extensions;
                call!(extensions, $record(buffer, queue, properties, $($argument,)* 0, none, point, handle))
            },
            to => emit!($context.core, to, $enqueue $([$first])?: $($argument),*),
        }
    };
}

impl OpenclOperation {
    /// Enqueues it behind the events in `wait`. Gives its event if one is wanted.
    ///
    /// # Safety
    /// The memory that the operation names stays valid, and nothing else touches it in a
    /// conflicting way, until the operation has ended. The queue is one of the objects' context; the
    /// events in `wait` are alive.
    pub(super) unsafe fn enqueue(
        &self,
        context: &OpenclContext,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
        wants_event: bool,
    ) -> DriverResult<Option<Owned<Event>>> {
        match self {
            Self::Marker if wants_event => return queue.marker(wait),
            // SAFETY: passed on to the caller.
            Self::HostCopy(copy) => return unsafe { copy.enqueue(context, queue, wait) },
            _ => {}
        }
        let (mut event, (waits, wait)) = (ptr::null_mut(), sys::list(wait));
        let place = if wants_event { &raw mut event } else { ptr::null_mut() };
        // SAFETY: passed on to the caller.
        unsafe {
            self.emit(context, OperationTarget::Queue { queue: queue.raw(), waits, wait, event: place })
        }?;
        if wants_event { adopt_event(context.core, event).map(Some) } else { Ok(None) }
    }

    /// Appends it to a recording for in-order queues. Gives the handle by which it can be changed:
    /// null unless it is a launch and the recording can be changed in these `mutable` fields.
    ///
    /// # Safety
    /// The recording is alive, not finalized, and of the context. It is enqueued as
    /// [`enqueue`](Self::enqueue) asks.
    pub(super) unsafe fn record(
        &self,
        context: &OpenclContext,
        buffer: sys::cl_command_buffer_khr,
        mutable: sys::cl_bitfield,
    ) -> DriverResult<sys::cl_mutable_command_khr> {
        let mut handle = ptr::null_mut();
        let list = [sys::CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR, mutable, 0];
        let (properties, place) = match self {
            Self::Kernel(_) if mutable != 0 => (list.as_ptr(), &raw mut handle),
            _ => (ptr::null(), ptr::null_mut()),
        };
        // SAFETY: passed on to the caller.
        unsafe { self.emit(context, OperationTarget::Recording { buffer, properties, handle: place }) }?;
        Ok(handle)
    }

    /// Whether a recording can hold it: not if it copies from or to host memory without a buffer object.
    pub(super) fn can_be_recorded(&self) -> bool {
        !matches!(
            self,
            Self::Copy { route: Route::Read { .. } | Route::Write { .. }, .. }
                | Self::CopyRect { route: Route::Read { .. } | Route::Write { .. }, .. }
                | Self::HostCopy(_)
        )
    }

    /// # Safety
    /// As for [`enqueue`](Self::enqueue) or [`record`](Self::record).
    unsafe fn emit(&self, context: &OpenclContext, to: OperationTarget) -> DriverResult {
        let (core, wait) = (context.core, sys::CL_FALSE);
        match self {
            Self::Kernel(KernelOperation { instance, range, local }) => {
                let (kernel, dimensions) = (instance.kernel.raw(), range.dimensions() as sys::cl_uint);
                let (offset, global) = (range.offset(), range.global_size());
                let local = local.as_ref().map_or(ptr::null(), |local| local.as_ptr());
                emit!(context, to, clEnqueueNDRangeKernel, clCommandNDRangeKernelKHR:
                    kernel, dimensions, offset.as_ptr(), global.as_ptr(), local)
            }
            Self::Copy { route, from, to: offset, len } => match route {
                Route::Copy { src, dst } => {
                    emit!(context, to, clEnqueueCopyBuffer, clCommandCopyBufferKHR:
                        src.raw(), dst.raw(), *from, *offset, *len)
                }
                Route::Read { src, host } => {
                    emit!(core, to, clEnqueueReadBuffer: src.raw(), wait, *from, *len, place(host + offset))
                }
                Route::Write { host, dst } => {
                    emit!(core, to, clEnqueueWriteBuffer: dst.raw(), wait, *offset, *len, place(host + from))
                }
            },
            Self::CopyRect { route, from: a, to: b, region } => {
                let (start, end, region) = (a.origin.as_ptr(), b.origin.as_ptr(), region.as_ptr());
                match route {
                    Route::Copy { src, dst } => {
                        emit!(context, to, clEnqueueCopyBufferRect, clCommandCopyBufferRectKHR:
                            src.raw(), dst.raw(), start, end, region, a.row, a.slice, b.row, b.slice)
                    }
                    Route::Read { src, host } => {
                        emit!(core, to, clEnqueueReadBufferRect: src.raw(), wait,
                            start, end, region, a.row, a.slice, b.row, b.slice, place(*host))
                    }
                    Route::Write { host, dst } => {
                        emit!(core, to, clEnqueueWriteBufferRect: dst.raw(), wait,
                            end, start, region, b.row, b.slice, a.row, a.slice, place(*host))
                    }
                }
            }
            Self::Fill { dst, offset, len, pattern } => {
                emit!(context, to, clEnqueueFillBuffer, clCommandFillBufferKHR:
                    dst.raw(), pattern.as_ptr().cast(), pattern.len(), *offset, *len)
            }
            Self::PointerCopy { src, dst, len } => {
                emit!(context, to, clEnqueueSVMMemcpy[wait], clCommandSVMMemcpyKHR:
                    place(*dst), place(*src), *len)
            }
            Self::PointerFill { dst, len, pattern } => {
                emit!(context, to, clEnqueueSVMMemFill, clCommandSVMMemFillKHR:
                    place(*dst), pattern.as_ptr().cast(), pattern.len(), *len)
            }
            Self::Prefetch(Prefetch { address, len, unified })
                if matches!(to, OperationTarget::Queue { .. }) =>
            {
                // Without a flag: to the queue's device, with the contents.
                let (mut start, flags) = (place(*address).cast_const(), 0);
                let extensions = &context.platform.extensions;
                let migrated = match unified {
                    true => emit!(extensions, to, clEnqueueMigrateMemINTEL: start, *len, flags),
                    false => emit!(core, to, clEnqueueSVMMigrateMem: 1, &raw mut start, len, flags),
                };
                let Err(OpenclFailure { call, code }) = migrated else { return Ok(()) };
                tracing::debug!(target: "wakegraph::opencl", call, code, "a prefetch was refused");
                // SAFETY: passed on to the caller.
                unsafe { Self::Marker.emit(context, to) }
            }
            Self::HostCopy(_) => Err(sys::missing("clCommand*KHR")),
            Self::Prefetch(_) | Self::Marker => {
                emit!(context, to, clEnqueueMarkerWithWaitList, clCommandBarrierWithWaitListKHR:)
            }
        }
    }
}

/// The address as the driver takes it.
fn place(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// A copy that the driver's callback thread makes. Its event is that of a marker behind it, so that times of
/// an enqueue which begins with one begin behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostCopy {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) len: usize,
}

impl HostCopy {
    /// Enqueues it behind the events in `wait`. Gives its event.
    ///
    /// # Safety
    /// Both sides are valid for `len` bytes, do not overlap, and nothing else touches them in a
    /// conflicting way, until the copy has ended. The events are alive.
    pub(super) unsafe fn enqueue(
        self,
        context: &OpenclContext,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
    ) -> DriverResult<Option<Owned<Event>>> {
        if wait.is_empty() && queue.order == QueueOrder::OutOfOrder {
            // Its turn is now. A marker without a wait list would wait for everything in the queue.
            // SAFETY: passed on to the caller.
            unsafe { self.run() };
            return context.completed_event().map(Some);
        }
        let core = context.core;
        let Some(turn) = queue.marker(wait)? else {
            // The driver has taken no marker, so everything before has ended.
            // SAFETY: passed on to the caller.
            unsafe { self.run() };
            return Ok(None);
        };
        let done = context.user_event()?;
        // Before the callback is set: from then on the copy is made, whatever happens here. Until then
        // nothing signals `done`, so this must not wait for it.
        let behind = queue.marker_behind(&done)?;
        when_ended(core, turn.raw(), move |status| {
            // It lives until the driver has called back.
            drop(turn);
            if status == sys::CL_SUCCESS {
                // SAFETY: what the copy waits for has ended, and nothing behind it has begun.
                unsafe { self.run() };
            }
            // SAFETY: the event is a user event whose status has not been set before.
            let set = unsafe { call!(core, clSetUserEventStatus(done.raw(), status)) };
            sys::report(set, "a copy could not be completed");
        });
        // Without a flush the driver need not come to the marker.
        queue.flush_enqueued();
        Ok(Some(behind))
    }

    /// # Safety
    /// As for [`enqueue`](Self::enqueue), now.
    unsafe fn run(self) {
        let from = ptr::with_exposed_provenance::<u8>(self.from);
        let to = ptr::with_exposed_provenance_mut::<u8>(self.to);
        // SAFETY: the caller promises it.
        unsafe { ptr::copy_nonoverlapping(from, to, self.len) };
    }
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
