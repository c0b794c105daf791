//! As much of CUPTI as it takes to read activity records.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::{Mutex, OnceLock};

use libloading::Library;

/// What a record is of, as CUPTI numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Kind {
    Copy = 1,
    Fill = 2,
    Kernel = 10,
    Range = 12,
}

/// Something that the device has done, or the begin or end of a range.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// In nanoseconds.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Of kernels and of the begins of ranges.
    pub(crate) name: String,
    /// Of ranges.
    pub(crate) domain: String,
}

/// The records that have been handed out.
pub(crate) static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The library.
pub(crate) struct Cupti {
    pub(crate) name: &'static str,
    enable: unsafe extern "C" fn(u32) -> u32,
    register: unsafe extern "C" fn(Request, Complete) -> u32,
    flush: unsafe extern "C" fn(u32) -> u32,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
    _library: Library,
}

static CUPTI: OnceLock<Result<Cupti, String>> = OnceLock::new();

/// Loads it once.
pub(crate) fn load() -> Result<&'static Cupti, &'static str> {
    CUPTI.get_or_init(open).as_ref().map_err(String::as_str)
}

fn open() -> Result<Cupti, String> {
    let mut reason = String::new();
    for name in ["libcupti.so.13", "libcupti.so.12", "libcupti.so"] {
        // SAFETY: a vendor's library, whose initialisers may run on any thread.
        match unsafe { Library::new(name) } {
            Ok(library) => return functions(name, library).map_err(|error| error.to_string()),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(format!("needs CUPTI: {reason}"))
}

fn functions(name: &'static str, library: Library) -> Result<Cupti, libloading::Error> {
    Ok(Cupti {
        name,
        // SAFETY: the function has this type.
        enable: *unsafe { library.get(c"cuptiActivityEnable") }?,
        // SAFETY: the function has this type.
        register: *unsafe { library.get(c"cuptiActivityRegisterCallbacks") }?,
        // SAFETY: the function has this type.
        flush: *unsafe { library.get(c"cuptiActivityFlushAll") }?,
        // SAFETY: the function has this type.
        next: *unsafe { library.get(c"cuptiActivityGetNextRecord") }?,
        _library: library,
    })
}

impl Cupti {
    /// Has it record these from now on.
    pub(crate) fn enable(&self, kinds: &[Kind]) {
        // SAFETY: the functions keep to CUPTI's contract.
        let code = unsafe { (self.register)(request, complete) };
        assert_eq!(code, 0, "CUPTI registers no callbacks");
        for &kind in kinds {
            // SAFETY: it is one of CUPTI's kinds.
            let code = unsafe { (self.enable)(kind as u32) };
            assert_eq!(code, 0, "CUPTI does not record {kind:?}");
        }
    }

    /// Has it hand out all records.
    pub(crate) fn flush(&self) {
        const FORCED: u32 = 1;
        // SAFETY: it may be called at any time.
        let code = unsafe { (self.flush)(FORCED) };
        assert_eq!(code, 0, "CUPTI flushes nothing");
    }
}

const BUFFER: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("it is a valid layout"),
};

extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: the layout's size is not zero.
    let new = unsafe { alloc(BUFFER) };
    // SAFETY: CUPTI's contract: it can be written to.
    unsafe { buffer.write(new) };
    // SAFETY: likewise.
    unsafe { size.write(if new.is_null() { 0 } else { BUFFER.size() }) };
    // SAFETY: likewise. Zero is as many as there is room for.
    unsafe { records.write(0) };
}

extern "C" fn complete(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    let Some(Ok(cupti)) = CUPTI.get() else { return };
    let mut record = ptr::null_mut();
    // SAFETY: the buffer is CUPTI's until this function returns.
    while unsafe { (cupti.next)(buffer, valid, &raw mut record) } == 0 {
        // SAFETY: it is a record.
        RECORDS.lock().unwrap().extend(unsafe { read(record) });
    }
    if !buffer.is_null() {
        // SAFETY: `request` has allocated it.
        unsafe { dealloc(buffer, BUFFER) };
    }
}

/// Reads a record, whose layout depends on its kind, and has not changed in what is read here since CUDA 11.
///
/// # Safety
/// It is one.
unsafe fn read(record: *const u8) -> Option<Record> {
    let word = |offset: usize| {
        // SAFETY: the record is that long.
        let word = unsafe { record.add(offset) };
        // SAFETY: it has eight bytes there.
        unsafe { word.cast::<u64>().read_unaligned() }
    };
    let text = |offset: usize| {
        let text = ptr::with_exposed_provenance::<c_char>(word(offset) as usize);
        if text.is_null() {
            return String::new();
        }
        // SAFETY: there is a pointer to a string there.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let kind = match word(0) as u32 {
        1 => Kind::Copy,
        2 => Kind::Fill,
        10 => Kind::Kernel,
        12 => Kind::Range,
        _ => return None,
    };
    let (name, domain) = match kind {
        Kind::Kernel => (text(104), String::new()),
        Kind::Range => (text(40), text(48)),
        Kind::Copy | Kind::Fill => Default::default(),
    };
    let (start, end) = if kind == Kind::Range { (word(8), word(8)) } else { (word(16), word(24)) };
    Some(Record { kind, start, end, name, domain })
}
