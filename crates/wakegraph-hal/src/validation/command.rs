//! Each command: whether the device takes it, and its operands, in the specification's order: the side
//! that they lie on, their bounds, and whether two of them share bytes.

use std::fmt::{self, Display};

use super::kernel;
use crate::{
    Body, Command, CommandKind, CommandKinds, Device, Error, ErrorKind, MemoryKind, MemoryView,
    NativeCommand, Pitch, Rect, ResourceId, Result, UsmPointer,
};

/// Whether the device can put the command, and all that it holds, into a command-buffer.
pub(super) fn check_supported(command: &Command, supported: CommandKinds) -> Result<()> {
    let kind = command.kind();
    // Whatever a device says, some commands are for queues only.
    let supported = supported & CommandKinds::RECORDABLE;
    if !supported.contains(kind.as_set()) {
        return Err(unsupported(format!("the device cannot put this command into a command-buffer: {kind}")));
    }
    let held = command.bodies().fold(CommandKinds::empty(), |kinds, body| kinds | body.kinds());
    match CommandKind::all().find(|inner| (held - supported).contains(inner.as_set())) {
        None => Ok(()),
        Some(inner) => Err(unsupported(format!(
            "{kind}: the device cannot put a command of its body into a command-buffer: {inner}"
        ))),
    }
}

/// Whether the command can run on `device` at all, whatever else runs there.
pub(super) fn check(command: &Command, device: &dyn Device) -> Result<()> {
    let of = Operands { kind: command.kind(), device };
    match command {
        Command::Kernel(launch) => {
            kernel::check(kernel::LaunchView::of(launch), device, kernel::Subject::launch(launch))
        }
        Command::UsmCopy { src, dst, len } => of.usm_copy(*src, *dst, *len),
        Command::UsmFill { dst, pattern } => {
            of.pointer("dst", *dst)?;
            of.pattern(dst.len(), pattern)
        }
        Command::BufferCopy { src, dst } => {
            let (src, dst) = (of.on_device("src", src)?, of.on_device("dst", dst)?);
            of.same_length(src, dst)?;
            of.apart(("src", Extent::of_view(src.view)), ("dst", Extent::of_view(dst.view)))
        }
        Command::BufferCopyRect { src, dst, rect, src_pitch, dst_pitch } => {
            let (src, dst) = (of.on_device("src", src)?, of.on_device("dst", dst)?);
            let from = of.rectangle(src, rect, src_pitch)?;
            let to = of.rectangle(dst, rect, dst_pitch)?;
            of.rectangles_apart((src, from), (dst, to))
        }
        Command::BufferRead { src, host } => {
            let (src, host) = (of.on_device("src", src)?, of.on_host("host", host)?);
            of.same_length(src, host)
        }
        Command::BufferReadRect { src, host, rect, src_pitch, host_pitch } => {
            let (src, host) = (of.on_device("src", src)?, of.on_host("host", host)?);
            of.rectangle(src, rect, src_pitch)?;
            of.rectangle(host, rect, host_pitch).map(drop)
        }
        Command::BufferWrite { host, dst } => {
            let (host, dst) = (of.on_host("host", host)?, of.on_device("dst", dst)?);
            of.same_length(host, dst)
        }
        Command::BufferWriteRect { host, dst, rect, host_pitch, dst_pitch } => {
            let (host, dst) = (of.on_host("host", host)?, of.on_device("dst", dst)?);
            of.rectangle(host, rect, host_pitch)?;
            of.rectangle(dst, rect, dst_pitch).map(drop)
        }
        Command::BufferFill { dst, pattern } => {
            let dst = of.on_device("dst", dst)?;
            of.pattern(dst.view.len(), pattern)
        }
        Command::UsmPrefetch { memory } | Command::UsmAdvise { memory, .. } => of.pointer("memory", *memory),
        Command::Empty => Ok(()),
        Command::If { condition, then, otherwise } => {
            check_condition(of.kind, condition, device)?;
            check_body(of.kind, then, device)?;
            otherwise.iter().try_for_each(|body| check_body(of.kind, body, device))
        }
        Command::While { condition, body } => {
            check_condition(of.kind, condition, device)?;
            check_body(of.kind, body, device)
        }
        Command::Native(native) | Command::StreamTask(native) => check_native(of.kind, native, device),
    }
}

/// Checks every command of a body. Bodies lie [`Body::MAX_DEPTH`] deep at most, so this may take
/// the stack.
fn check_body(kind: CommandKind, body: &Body, device: &dyn Device) -> Result<()> {
    for (index, (inner, _)) in body.commands().enumerate() {
        check(inner, device).map_err(|error| {
            let why = format!("{kind}: command {index} of its body: {}", error.message());
            Error::new(error.kind(), why)
        })?;
    }
    Ok(())
}

/// The word that a conditional or a loop reads.
fn check_condition(kind: CommandKind, view: &MemoryView, device: &dyn Device) -> Result<()> {
    const WORD: usize = size_of::<u32>();
    let condition = ViewOperand { name: "condition", view };
    if view.len() != WORD {
        let why = format!("{kind}: {condition} is not a u32, which has {WORD} bytes");
        return Err(Error::new(ErrorKind::InvalidSize, why).help("pass a view of one u32"));
    }
    condition.check_access(&kind, device)?;
    if !address(view).unwrap_or(view.offset()).is_multiple_of(WORD) {
        let why = format!("{kind}: {condition} does not start at a multiple of {WORD}");
        return Err(Error::new(ErrorKind::InvalidArgument, why).help("pass an element of a buffer of u32"));
    }
    Ok(())
}

/// Checks the memory that a native command or a stream task declares.
fn check_native(kind: CommandKind, native: &NativeCommand, device: &dyn Device) -> Result<()> {
    native
        .memory()
        .iter()
        .try_for_each(|view| ViewOperand { name: native.name(), view }.check_access(&kind, device))
}

/// The checks that commands share; every message starts with the command's kind.
struct Operands<'a> {
    kind: CommandKind,
    device: &'a dyn Device,
}

impl Operands<'_> {
    fn on_device<'a>(&self, name: &'static str, view: &'a MemoryView) -> Result<ViewOperand<'a>> {
        self.placed(ViewOperand { name, view }, MemoryKind::Device)
    }

    fn on_host<'a>(&self, name: &'static str, view: &'a MemoryView) -> Result<ViewOperand<'a>> {
        self.placed(ViewOperand { name, view }, MemoryKind::Host)
    }

    fn placed<'a>(&self, operand: ViewOperand<'a>, kind: MemoryKind) -> Result<ViewOperand<'a>> {
        if operand.view.memory().kind() != kind {
            let (must, is) = match kind {
                MemoryKind::Device => ("device", "host"),
                MemoryKind::Host => ("host", "device"),
            };
            let error = self.error(
                ErrorKind::InvalidArgument,
                format_args!("{operand} is {is} memory, not {must} memory"),
            );
            return Err(error.help("use the buffer copy, read or write that fits where the memory lives"));
        }
        // A copy's host side is plain memory to every device, whichever device pinned it, so that
        // copies between devices can be staged.
        if kind == MemoryKind::Device || operand.view.memory().host_ptr().is_none() {
            operand.check_access(&self.kind, self.device)?;
        }
        Ok(operand)
    }

    fn same_length(&self, a: ViewOperand<'_>, b: ViewOperand<'_>) -> Result<()> {
        if a.view.len() != b.view.len() {
            let (a_len, b_len) = (a.view.len(), b.view.len());
            let why = format!("'{}' has {a_len} bytes, '{}' has {b_len}", a.name, b.name);
            return Err(self.error(ErrorKind::InvalidSize, why).help("give both views the same length"));
        }
        Ok(())
    }

    fn usm_copy(&self, src: UsmPointer, dst: UsmPointer, len: usize) -> Result<()> {
        self.pointer("src", src)?;
        self.pointer("dst", dst)?;
        if len == 0 {
            return Err(self.error(ErrorKind::InvalidSize, "0 bytes to copy"));
        }
        for (name, pointer) in [("src", src), ("dst", dst)] {
            if len > pointer.len() {
                let why = format!("{len} bytes to copy, '{name}' has {}", pointer.len());
                return Err(self.error(ErrorKind::InvalidSize, why));
            }
        }
        self.apart(("src", Extent::of_pointer(src, len)), ("dst", Extent::of_pointer(dst, len)))
    }

    fn pointer(&self, name: &str, pointer: UsmPointer) -> Result<()> {
        let (address, len) = (pointer.address(), pointer.len());
        if address == 0 {
            return Err(self.error(ErrorKind::InvalidArgument, format_args!("'{name}' is a null pointer")));
        }
        if pointer.is_empty() {
            return Err(self.error(ErrorKind::InvalidSize, format_args!("'{name}' has 0 bytes")));
        }
        if address.checked_add(len).is_none() {
            let why = format!("'{name}': {len} bytes at {address:#x} end beyond the address space");
            return Err(self.error(ErrorKind::InvalidSize, why));
        }
        Ok(())
    }

    fn pattern(&self, len: usize, pattern: &[u8]) -> Result<()> {
        let size = pattern.len();
        if size == 0 {
            return Err(self.error(ErrorKind::InvalidSize, "'pattern' has 0 bytes"));
        }
        if !len.is_multiple_of(size) {
            let why = format!("'pattern' of {size} bytes does not divide 'dst' of {len} bytes");
            return Err(self.error(ErrorKind::InvalidSize, why));
        }
        Ok(())
    }

    fn apart(&self, (a_name, a): (&str, Extent), (b_name, b): (&str, Extent)) -> Result<()> {
        if a.overlaps(&b) {
            let why = format!("'{a_name}' and '{b_name}' overlap: {a} and {b}");
            return Err(self.error(ErrorKind::InvalidArgument, why).help("copy between disjoint ranges"));
        }
        Ok(())
    }

    fn rectangle(&self, operand: ViewOperand<'_>, rect: &Rect, pitch: &Pitch) -> Result<Region> {
        Region::new(operand.view, rect, pitch).map_err(|error| {
            self.error(error.kind(), format_args!("'{}': {}", operand.name, error.message()))
        })
    }

    fn rectangles_apart(
        &self,
        (src, from): (ViewOperand<'_>, Region),
        (dst, to): (ViewOperand<'_>, Region),
    ) -> Result<()> {
        let same = src.view.memory().resource() == dst.view.memory().resource();
        if same && !from.apart_from(&to) {
            let why = format!(
                "the rectangles of '{}' and '{}' overlap: {from} and {to} of the same memory",
                src.name, dst.name
            );
            return Err(self.error(ErrorKind::InvalidArgument, why).help("copy between disjoint rectangles"));
        }
        Ok(())
    }

    #[cold]
    fn error(&self, kind: ErrorKind, why: impl Display) -> Error {
        Error::new(kind, format!("{}: {why}", self.kind))
    }
}

#[cold]
fn unsupported(why: String) -> Error {
    Error::new(ErrorKind::FeatureNotSupported, why)
}

/// A view under the name it has in its command.
#[derive(Clone, Copy)]
pub(super) struct ViewOperand<'a> {
    pub(super) name: &'a str,
    pub(super) view: &'a MemoryView,
}

impl ViewOperand<'_> {
    /// Whether commands on `device` can use the memory; `subject` opens the message.
    pub(super) fn check_access(&self, subject: &dyn Display, device: &dyn Device) -> Result<()> {
        let memory = &**self.view.memory();
        if device.can_access(memory) {
            return Ok(());
        }
        let this = &device.info().selector;
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{subject}: {self} is memory of another device, and cannot be accessed from {this}"),
        )
        .help("allocate it on this device, or copy it there through host memory"))
    }
}

impl Display for ViewOperand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end, total) = (self.view.offset(), self.view.end(), self.view.memory().len());
        write!(f, "'{}' (bytes {start}..{end} of {total})", self.name)
    }
}

/// A range of bytes, known by its allocation, its address, or both.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    resource: Option<ResourceId>,
    address: Option<usize>,
    /// Inside the allocation; the address of a raw pointer, which has none.
    start: usize,
    len: usize,
}

impl Extent {
    pub(super) fn of_view(view: &MemoryView) -> Self {
        let memory = view.memory();
        Self {
            resource: Some(memory.resource()),
            address: address(view),
            start: view.offset(),
            len: view.len(),
        }
    }

    /// The first `len` bytes behind `pointer`.
    pub(super) fn of_pointer(pointer: UsmPointer, len: usize) -> Self {
        Self { resource: None, address: Some(pointer.address()), start: pointer.address(), len }
    }

    /// Whether the two share a byte. Memory without an address and a raw pointer are taken to be
    /// apart.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self.resource, other.resource, self.address, other.address) {
            (Some(a), Some(b), ..) => {
                a == b && share_a_byte((self.start, self.len), (other.start, other.len))
            }
            (_, _, Some(a), Some(b)) => share_a_byte((a, self.len), (b, other.len)),
            _ => false,
        }
    }
}

impl Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.start.saturating_add(self.len);
        match self.resource {
            Some(_) => write!(f, "bytes {}..{end} of an allocation", self.start),
            None => write!(f, "addresses {:#x}..{end:#x}", self.start),
        }
    }
}

/// The address of the view's first byte, where the memory has one.
pub(super) fn address(view: &MemoryView) -> Option<usize> {
    let memory = view.memory();
    let base = match memory.usm() {
        Some(pointer) => Some(pointer.address()),
        None => memory.host_ptr().map(|pointer| pointer.as_ptr() as usize),
    };
    base.map(|base| base.saturating_add(view.offset()))
}

fn share_a_byte((a, a_len): (usize, usize), (b, b_len): (usize, usize)) -> bool {
    a_len > 0 && b_len > 0 && a < b.saturating_add(b_len) && b < a.saturating_add(a_len)
}

/// The bytes of an allocation that a rectangle touches.
///
/// A region is `width` bytes, repeated `height` times every `row` bytes, and that `depth` times
/// every `slice` bytes.
#[derive(Clone, Copy)]
struct Region {
    rect: Rect,
    row: usize,
    slice: usize,
    /// First byte.
    start: usize,
    /// One past the last byte, gaps included.
    end: usize,
}

impl Region {
    /// The region of `view`'s memory that `rect` covers under `pitch`.
    ///
    /// # Errors
    /// `InvalidSize` when the rectangle is empty, its rows or slices overlap, it does not fit the
    /// view, or the slice pitch is not a multiple of the row pitch, which no vendor's rectangular
    /// copy can express.
    fn new(view: &MemoryView, rect: &Rect, pitch: &Pitch) -> Result<Self> {
        let end = rect.end_within(pitch, view.len())?;
        if rect.height > 1 && rect.depth > 1 && !pitch.slice.is_multiple_of(pitch.row) {
            let (slice, row) = (pitch.slice, pitch.row);
            return Err(Error::new(
                ErrorKind::InvalidSize,
                format!(
                    "the slice pitch of {slice} bytes is not a multiple of the row pitch of {row}: {rect}, \
                     {pitch}"
                ),
            ));
        }
        let (start, end) = (view.offset() + pitch.offset, view.offset() + end);
        Ok(Self { rect: *rect, row: pitch.row, slice: pitch.slice, start, end })
    }

    /// Whether the two regions of one allocation provably share no byte.
    ///
    /// They do not when one ends before the other starts, or when all rows (or all slices) of both
    /// fall into disjoint intervals modulo one of the pitches, so that they interleave. For boxes
    /// of one pitched image this is exact; of regions with different pitches it may call apart ones
    /// overlapping, never the other way round. It visits no single row, so it costs the same for
    /// any size.
    fn apart_from(&self, other: &Self) -> bool {
        if self.end <= other.start || other.end <= self.start {
            return true;
        }
        self.strides().chain(other.strides()).any(|modulus| {
            let (a, b) = (self.start % modulus, other.start % modulus);
            let a_to_b = if b >= a { b - a } else { modulus - (a - b) };
            let b_to_a = if a_to_b == 0 { 0 } else { modulus - a_to_b };
            a_to_b >= self.extent_modulo(modulus) && b_to_a >= other.extent_modulo(modulus)
        })
    }

    /// The pitches that matter: a single row or slice has none.
    fn strides(&self) -> impl Iterator<Item = usize> {
        let row = (self.rect.height > 1).then_some(self.row);
        let slice = (self.rect.depth > 1).then_some(self.slice);
        row.into_iter().chain(slice)
    }

    /// Bytes from `start` on which the region stays, seen modulo `modulus`.
    fn extent_modulo(&self, modulus: usize) -> usize {
        let Rect { width, height, depth } = self.rect;
        if depth > 1 && !self.slice.is_multiple_of(modulus) {
            return self.end - self.start;
        }
        if height > 1 && !self.row.is_multiple_of(modulus) {
            return (height - 1) * self.row + width;
        }
        width
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}..{}", self.start, self.end)?;
        if self.rect.height > 1 {
            write!(f, ", a row every {}", self.row)?;
        }
        if self.rect.depth > 1 {
            write!(f, ", a slice every {}", self.slice)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn region(rect: Rect, pitch: Pitch) -> Region {
        let end = rect.end(&pitch).unwrap();
        Region { rect, row: pitch.row, slice: pitch.slice, start: pitch.offset, end }
    }

    fn share_bytes(rect: Rect, a: Pitch, b: Pitch) -> bool {
        let bytes = |pitch| rect.rows(pitch).flat_map(move |row| row..row + rect.width);
        let of_a: HashSet<usize> = bytes(a).collect();
        bytes(b).any(|byte| of_a.contains(&byte))
    }

    // Columns 0 and 1 to the left, 2 and 3 to the right, of an image four bytes wide:
    //
    //     a a b b
    //     a a b b
    #[test]
    fn two_halves_of_an_image_interleave() {
        let half = Rect { width: 2, height: 2, depth: 1 };
        let left = region(half, Pitch { offset: 0, row: 4, slice: 0 });
        let right = region(half, Pitch { offset: 2, row: 4, slice: 0 });
        let middle = region(half, Pitch { offset: 1, row: 4, slice: 0 });
        assert!(left.apart_from(&right) && right.apart_from(&left));
        assert!(!left.apart_from(&middle) && !middle.apart_from(&right));
    }

    fn pitch(rect: Rect) -> impl Strategy<Value = Pitch> {
        (0..60usize, 0..4usize, 0..3usize).prop_map(move |(offset, row, slice)| {
            let row = rect.width + row;
            Pitch { offset, row, slice: row * (rect.height + slice) }
        })
    }

    fn rect() -> impl Strategy<Value = Rect> {
        (1..5usize, 1..4usize, 1..4usize).prop_map(|(width, height, depth)| Rect { width, height, depth })
    }

    fn two_places() -> impl Strategy<Value = (Rect, Pitch, Pitch)> {
        rect().prop_flat_map(|rect| (Just(rect), pitch(rect), pitch(rect)))
    }

    /// Two boxes of one size in an image of 6 columns, 5 rows and 4 slices.
    fn two_boxes() -> impl Strategy<Value = (Rect, Pitch, Pitch)> {
        rect().prop_flat_map(|rect| {
            let corner = (0..=6 - rect.width, 0..=5 - rect.height, 0..=4 - rect.depth)
                .prop_map(|(x, y, z)| Pitch { offset: z * 30 + y * 6 + x, row: 6, slice: 30 });
            (Just(rect), corner.clone(), corner)
        })
    }

    proptest! {
        #[test]
        fn what_shares_bytes_is_never_called_apart((rect, a, b) in two_places()) {
            if share_bytes(rect, a, b) {
                prop_assert!(!region(rect, a).apart_from(&region(rect, b)));
            }
        }

        #[test]
        fn boxes_of_one_image_are_judged_exactly((rect, a, b) in two_boxes()) {
            prop_assert_eq!(region(rect, a).apart_from(&region(rect, b)), !share_bytes(rect, a, b));
        }
    }
}
