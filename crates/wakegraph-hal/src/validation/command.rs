//! Each command: whether the device takes it, and its operands, in the specification's order: the side
//! that they lie on, their bounds, and whether two of them share bytes.

use std::fmt::Display;

use super::kernel;
use super::operand::{Extent, Region, ViewOperand, address};
use crate::{
    Body, Command, CommandKind, CommandKinds, Device, Error, ErrorKind, MemoryKind, MemoryView,
    NativeCommand, Pitch, Rect, Result, UsmPointer,
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
    let lacking = held - supported;
    if lacking.is_empty() {
        return Ok(());
    }
    match CommandKind::all().find(|inner| lacking.contains(inner.as_set())) {
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
            check_condition(of.kind, "condition", condition, device)?;
            check_body(of.kind, then, device)?;
            otherwise.iter().try_for_each(|body| check_body(of.kind, body, device))
        }
        Command::While { condition, body } => {
            check_condition(of.kind, "condition", condition, device)?;
            check_body(of.kind, body, device)
        }
        Command::Switch { index, bodies } => {
            check_condition(of.kind, "index", index, device)?;
            bodies.iter().try_for_each(|body| check_body(of.kind, body, device))
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

/// The word that a conditional, a switch or a loop reads.
fn check_condition(
    kind: CommandKind,
    name: &'static str,
    view: &MemoryView,
    device: &dyn Device,
) -> Result<()> {
    const WORD: usize = size_of::<u32>();
    let condition = ViewOperand { name, view };
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
        if operand.view.is_empty() {
            let error = self.error(ErrorKind::InvalidSize, format_args!("{operand} has 0 bytes"));
            return Err(error.help("put an empty command in its place"));
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
