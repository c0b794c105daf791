//! The way in which a tool gets between NVTX and the program, as NVIDIA's header `nvtxDetail/nvtxInit.h` does
//! it.
//!
//! The tool's library has a function `InitializeInjectionNvtx2`. It is called with a function that gives
//! it tables, one of which has a function that gives it, for each module of NVTX, a table of places. The tool
//! writes the addresses of its functions to those that it wants to hear of.
#![expect(unsafe_code, reason = "calls the tool's functions, at addresses that the tool has written")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

/// Place where a tool writes the address of a function.
type Slot = AtomicPtr<c_void>;

/// Number of functions of each module, the first of which stands for none: none, core, CUDA, OpenCL, CUDA's
/// runtime, core 2, synchronisation.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];

static SLOTS: [[Slot; 16]; 7] = [const { [const { AtomicPtr::new(ptr::null_mut()) }; 16] }; 7];

/// Functions of domains, by their places in the module core 2.
const CORE_2: usize = 5;
const DOMAIN_RANGE_START_EX: usize = 2;
const DOMAIN_RANGE_END: usize = 3;
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE_A: usize = 12;

type DomainCreate = unsafe extern "system" fn(*const c_char) -> *mut c_void;
type DomainRangeStart = unsafe extern "system" fn(*mut c_void, *const EventAttributes<'_>) -> u64;
type DomainRangeEnd = unsafe extern "system" fn(*mut c_void, u64);
type DomainRangePush = unsafe extern "system" fn(*mut c_void, *const EventAttributes<'_>) -> c_int;
type DomainRangePop = unsafe extern "system" fn(*mut c_void) -> c_int;

/// `nvtxEventAttributes_t`.
#[repr(C)]
pub(super) struct EventAttributes<'n> {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
    name: PhantomData<&'n CStr>,
}

impl<'n> EventAttributes<'n> {
    /// With a name and a number.
    pub(super) fn new(name: &'n CStr, payload: u64) -> Self {
        const VERSION: u16 = 3;
        const UNSIGNED_INT_64: i32 = 1;
        const ASCII: i32 = 1;
        Self {
            version: VERSION,
            size: size_of::<Self>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: UNSIGNED_INT_64,
            reserved: 0,
            payload,
            message_type: ASCII,
            message: name.as_ptr(),
            name: PhantomData,
        }
    }
}

/// The tool that listens.
#[derive(Debug)]
pub(super) struct Tool {
    /// The tool's handle of the domain that holds this crate's ranges.
    domain: AtomicPtr<c_void>,
}

/// The tool that listens, if there is one. The first call loads it.
pub(super) fn tool() -> Option<&'static Tool> {
    static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
    TOOL.get_or_init(|| library::initialize(export_table).then(Tool::new).flatten()).as_ref()
}

impl Tool {
    fn new() -> Option<Self> {
        function(DOMAIN_RANGE_START_EX).or(function(DOMAIN_RANGE_PUSH_EX))?;
        let create = function(DOMAIN_CREATE_A)?;
        // SAFETY: the tool has written the address of a function of this type there.
        let create: DomainCreate = unsafe { mem::transmute(create) };
        // SAFETY: the name is a string that ends with a NUL.
        let domain = unsafe { create(c"wakegraph".as_ptr()) };
        Some(Self { domain: AtomicPtr::new(domain) })
    }

    fn domain(&self) -> *mut c_void {
        self.domain.load(Ordering::Relaxed)
    }

    /// Begins a range of the process; `None` where the tool does not hear of these.
    pub(super) fn range_start(&self, attributes: &EventAttributes<'_>) -> Option<u64> {
        let start = function(DOMAIN_RANGE_START_EX)?;
        // SAFETY: the tool has written the address of a function of this type there.
        let start: DomainRangeStart = unsafe { mem::transmute(start) };
        // SAFETY: the attributes have the layout and the size that they state, and their name is a C string.
        Some(unsafe { start(self.domain(), attributes) })
    }

    /// Ends a range of the process.
    pub(super) fn range_end(&self, id: u64) {
        let Some(end) = function(DOMAIN_RANGE_END) else { return };
        // SAFETY: the tool has written the address of a function of this type there.
        let end: DomainRangeEnd = unsafe { mem::transmute(end) };
        // SAFETY: `id` is of a range of this domain.
        unsafe { end(self.domain(), id) };
    }

    /// Begins a range of the thread; false where the tool does not hear of these.
    pub(super) fn range_push(&self, attributes: &EventAttributes<'_>) -> bool {
        let Some(push) = function(DOMAIN_RANGE_PUSH_EX) else { return false };
        // SAFETY: the tool has written the address of a function of this type there.
        let push: DomainRangePush = unsafe { mem::transmute(push) };
        // SAFETY: the attributes have the layout and the size that they state, and their name is a C string.
        unsafe { push(self.domain(), attributes) };
        true
    }

    /// Ends the range that the thread has begun last.
    pub(super) fn range_pop(&self) {
        let Some(pop) = function(DOMAIN_RANGE_POP) else { return };
        // SAFETY: the tool has written the address of a function of this type there.
        let pop: DomainRangePop = unsafe { mem::transmute(pop) };
        // SAFETY: the thread has begun a range of this domain.
        unsafe { pop(self.domain()) };
    }
}

/// The tool's function of domains, if it has one there.
fn function(index: usize) -> Option<ptr::NonNull<c_void>> {
    ptr::NonNull::new(SLOTS[CORE_2][index].load(Ordering::Acquire))
}

/// `nvtxGetExportTable`.
extern "system" fn export_table(id: u32) -> *const c_void {
    static CALLBACKS: Callbacks =
        Callbacks { size: size_of::<Callbacks>(), module_function_table: function_table };
    static VERSION: VersionInfo =
        VersionInfo { size: size_of::<VersionInfo>(), version: 3, reserved: 0, set_tool_version };
    match id {
        1 => ptr::from_ref(&CALLBACKS).cast(),
        3 => ptr::from_ref(&VERSION).cast(),
        _ => ptr::null(),
    }
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    module_function_table: unsafe extern "system" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "system" fn(u32),
}

extern "system" fn set_tool_version(_version: u32) {}

/// Gives a tool the places of a module's functions.
///
/// # Safety
/// `table` and `size` are null or can be written to.
unsafe extern "system" fn function_table(
    module: c_int,
    table: *mut *const *const Slot,
    size: *mut c_uint,
) -> c_int {
    let module = usize::try_from(module).unwrap_or(0);
    let Some(&functions @ 1..) = SIZES.get(module) else { return 0 };
    let places = SLOTS[module].iter().take(functions).enumerate();
    let places = places.map(|(index, slot)| if index == 0 { ptr::null() } else { ptr::from_ref(slot) });
    // The tool keeps it.
    let places: &'static [*const Slot] = Vec::leak(places.chain([ptr::null()]).collect());
    if !size.is_null() {
        // SAFETY: the caller's contract.
        unsafe { size.write(functions as c_uint) };
    }
    if !table.is_null() {
        // SAFETY: the caller's contract.
        unsafe { table.write(places.as_ptr()) };
    }
    1
}

/// `NvtxGetExportTableFunc_t`.
type ExportTable = extern "system" fn(u32) -> *const c_void;

#[cfg(feature = "cuda")]
mod library {
    use libloading::Library;

    use super::*;

    const VARIABLE: &str =
        if cfg!(target_pointer_width = "32") { "NVTX_INJECTION32_PATH" } else { "NVTX_INJECTION64_PATH" };

    type Initialize = unsafe extern "system" fn(ExportTable) -> c_int;

    /// Loads the tool's library, if the environment names one, and has it write its functions.
    pub(super) fn initialize(export_table: ExportTable) -> bool {
        let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else { return false };
        // SAFETY: the user who started the process has named the library for this purpose.
        let library = match unsafe { Library::new(&path) } {
            Ok(library) => library,
            Err(error) => {
                tracing::warn!(target: "wakegraph", %error, "could not load the library of {VARIABLE}");
                return false;
            }
        };
        // SAFETY: every library for this purpose has a function of this name and type.
        let Ok(initialize) = (unsafe { library.get::<Initialize>(c"InitializeInjectionNvtx2") }) else {
            tracing::warn!(target: "wakegraph", "the library of {VARIABLE} has no InitializeInjectionNvtx2");
            return false;
        };
        // SAFETY: the function gives it what NVTX's documentation has it ask for.
        let accepted = unsafe { initialize(export_table) } != 0;
        // Its functions are called until the process ends.
        mem::forget(library);
        accepted
    }
}

#[cfg(not(feature = "cuda"))]
mod library {
    use super::ExportTable;

    /// Loads nothing without the feature `cuda`.
    pub(super) fn initialize(_export_table: ExportTable) -> bool {
        false
    }
}
