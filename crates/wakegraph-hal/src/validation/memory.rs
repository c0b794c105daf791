//! Where operands lie: who can reach them, and whether two of them share bytes.

use std::fmt::{self, Display};

use crate::{Device, Error, ErrorKind, MemoryView, ResourceId, Result, UsmPointer};

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
