//! One allocation as the runtime shares it: the memory, and who uses it.

use std::fmt::{self, Debug};
use std::sync::Arc;

use wakegraph_hal as hal;
use wakegraph_hal::{Access, AccessMode, Error, ErrorKind, Result};

use crate::runtime::resource::device::Device;
use crate::runtime::resource::preparation::measure;
use crate::util::attachment::Attached;
use crate::util::metrics::Tally;
use crate::util::preparation_step::PreparationStep;

/// State of an allocation in the order between submissions, which `execution::conflicts` defines.
pub(crate) enum AllocationRegister {}

/// Where loans of an allocation wait for other libraries, and transfers run, which `queue::loan` defines.
pub(crate) enum AllocationLoans {}

/// One allocation, shared by the buffers that are views of it and by the executables that use it.
pub(crate) struct Allocation {
    memory: Arc<dyn hal::Memory>,
    /// Bytes in use. Drivers have no memory of 0 bytes, so an allocation of none has one that nothing uses.
    len: usize,
    device: Device,
    /// Whether nothing may write it, because the application shares it.
    is_read_only: bool,
    pub(crate) register: Attached<AllocationRegister>,
    pub(crate) loans: Attached<AllocationLoans>,
    /// Counts it among the memory of the device.
    _tally: Tally,
}

impl Allocation {
    /// Memory of the device, zeroed or with anything in it.
    pub(crate) fn on_device(device: &Device, len: usize, zeroed: bool) -> Result<Arc<Self>> {
        let desc = hal::MemoryDesc::new(len.max(1), hal::MemoryKind::Device).zeroed(zeroed);
        let memory = allocate(device, &desc).map_err(|error| error.on_device(device.selector()))?;
        Ok(Self::with(device, memory, len, device.metrics().allocated(false, len)))
    }

    /// Memory of the host, zeroed or with anything in it.
    pub(crate) fn on_host(device: &Device, len: usize, zeroed: bool) -> Result<Arc<Self>> {
        // A lost device refuses.
        let largest = device.loss().map_or(device.capabilities().max_allocation, |_| 0);
        let memory = device.host_pool().allocate(len.max(1), largest, zeroed, |len| {
            let desc = hal::MemoryDesc::new(len, hal::MemoryKind::Host).zeroed(zeroed);
            allocate(device, &desc).map_err(|error| error.on_device(device.selector()))
        })?;
        Ok(Self::with(device, memory, len, device.metrics().allocated(true, len)))
    }

    /// Of memory that is not a device's own.
    pub(crate) fn of(device: &Device, memory: Arc<dyn hal::Memory>) -> Arc<Self> {
        let len = memory.len();
        Self::with(device, memory, len, Tally::none())
    }

    /// Of memory of the application's that commands only read.
    pub(crate) fn read_only(device: &Device, memory: Arc<dyn hal::Memory>) -> Arc<Self> {
        let len = memory.len();
        Arc::new(Self { is_read_only: true, ..Self::new(device, memory, len, Tally::none()) })
    }

    fn with(device: &Device, memory: Arc<dyn hal::Memory>, len: usize, tally: Tally) -> Arc<Self> {
        Arc::new(Self::new(device, memory, len, tally))
    }

    fn new(device: &Device, memory: Arc<dyn hal::Memory>, len: usize, tally: Tally) -> Self {
        let (register, loans) = Default::default();
        Self { memory, len, device: device.clone(), is_read_only: false, register, loans, _tally: tally }
    }

    /// Fills memory that has just been allocated.
    #[expect(unsafe_code, reason = "fills memory that nothing else has seen yet")]
    pub(crate) fn initialise(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller has just allocated the memory, so no command and no reference can touch it.
        unsafe { self.memory.write(0, bytes) }
    }

    pub(crate) fn memory(&self) -> &Arc<dyn hal::Memory> {
        &self.memory
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

fn allocate(device: &Device, desc: &hal::MemoryDesc) -> Result<Arc<dyn hal::Memory>> {
    let of = || format!("{} bytes", desc.len);
    device.observe(measure(device, PreparationStep::Allocate, of, || device.hal().allocate(desc)))
}

impl Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes on {})", self.memory.resource(), self.len, self.device.selector())
    }
}

/// A range of bytes of an allocation.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) allocation: Arc<Allocation>,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl View {
    pub(crate) fn whole(allocation: Arc<Allocation>) -> Self {
        Self { offset: 0, len: allocation.len, allocation }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The access that decides about orders: to all of the allocation, where devices cannot use
    /// parts of it at once.
    pub(crate) fn access(&self, mode: AccessMode) -> Access {
        let (memory, device) = (self.allocation.memory(), self.allocation.device());
        let is_on_host = memory.kind() == hal::MemoryKind::Host;
        match self.is_empty() || is_on_host || device.capabilities().concurrent_parts {
            true => self.touched(mode),
            false => Access { resource: memory.resource(), start: 0, end: memory.len(), mode },
        }
    }

    /// The access to the bytes of the view alone.
    pub(crate) fn touched(&self, mode: AccessMode) -> Access {
        let (start, end) = (self.offset, self.offset + self.len);
        Access { resource: self.allocation.memory.resource(), start, end, mode }
    }

    /// Whether commands may use the memory in this mode. The types that users see ensure it, but for what is
    /// public for macros only.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a write to memory that is a source of copies.
    pub(crate) fn check_mode(&self, mode: AccessMode) -> Result<()> {
        if !mode.writes() || !self.allocation.is_read_only {
            return Ok(());
        }
        let why = "memory that was registered as a source of copies cannot be written";
        Err(Error::new(ErrorKind::InvalidArgument, why)
            .help("register it with `register_owned` or `register`, or write to a buffer"))
    }

    pub(crate) fn to_hal(&self) -> Result<hal::MemoryView> {
        hal::MemoryView::new(self.allocation.memory.clone(), self.offset, self.len)
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    pub(crate) fn kind(&self) -> hal::MemoryKind {
        self.allocation.memory.kind()
    }

    /// The elements `range` of this view of elements of `size` bytes.
    pub(crate) fn slice(&self, range: impl std::ops::RangeBounds<usize>, size: usize) -> Result<Self> {
        use std::ops::Bound;
        // A null buffer may have elements of no size.
        let len = self.len.checked_div(size).unwrap_or(0);
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => len,
        };
        if start > end || end > len {
            let why = format!("{start}..{end} is not a range of elements of a buffer of {len}");
            return Err(Error::new(ErrorKind::InvalidSize, why).help("pass a range within the buffer"));
        }
        Ok(Self {
            allocation: self.allocation.clone(),
            offset: self.offset + start * size,
            len: (end - start) * size,
        })
    }
}

/// Alignment that `hal::Memory::host_ptr` promises.
const ALIGNMENT: usize = 64;

/// The bytes of `len` elements of `T`.
pub(crate) fn byte_len<T>(len: usize) -> Result<usize> {
    if align_of::<T>() > ALIGNMENT {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{} is aligned to more than the {ALIGNMENT} bytes of allocations",
                std::any::type_name::<T>()
            ),
        ));
    }
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if size_of::<T>() > 0 => Ok(bytes),
        _ => Err(Error::new(
            ErrorKind::InvalidSize,
            format!("a buffer of {len} elements of {} bytes cannot be allocated", size_of::<T>()),
        )),
    }
}
