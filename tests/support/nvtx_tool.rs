//! A tool that reads NVTX, as a library that a test has `rustc` build: it writes a line for each call to the
//! file that the variable `NVTX_TOOL_LOG` names.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
pub struct EventAttributes {
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
}

#[repr(C)]
struct Callbacks {
    size: usize,
    module_function_table: extern "C" fn(c_int, *mut *const *mut *const c_void, *mut c_uint) -> c_int,
}

fn log(line: String) {
    let path = std::env::var_os("NVTX_TOOL_LOG").unwrap();
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn text(attributes: *const EventAttributes) -> String {
    let attributes = unsafe { &*attributes };
    assert_eq!((attributes.version, attributes.size), (3, 48));
    assert_eq!((attributes.payload_type, attributes.message_type), (1, 1));
    let name = unsafe { CStr::from_ptr(attributes.message) };
    format!("{} {}", attributes.payload, name.to_str().unwrap())
}

extern "C" fn create(name: *const c_char) -> *mut c_void {
    log(format!("domain {}", unsafe { CStr::from_ptr(name) }.to_str().unwrap()));
    7 as *mut c_void
}

extern "C" fn start(domain: *mut c_void, attributes: *const EventAttributes) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    assert_eq!(domain as usize, 7);
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    log(format!("start {id} {}", text(attributes)));
    id
}

extern "C" fn end(domain: *mut c_void, id: u64) {
    assert_eq!(domain as usize, 7);
    log(format!("end {id}"));
}

extern "C" fn push(domain: *mut c_void, attributes: *const EventAttributes) -> c_int {
    assert_eq!(domain as usize, 7);
    log(format!("push {:?} {}", std::thread::current().id(), text(attributes)));
    0
}

extern "C" fn pop(domain: *mut c_void) -> c_int {
    assert_eq!(domain as usize, 7);
    log(format!("pop {:?}", std::thread::current().id()));
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(export_table: extern "C" fn(u32) -> *const c_void) -> c_int {
    assert!(export_table(2).is_null());
    let callbacks = export_table(1).cast::<Callbacks>();
    let callbacks = unsafe { &*callbacks };
    assert_eq!(callbacks.size, size_of::<Callbacks>());
    let table = |module| {
        let (mut table, mut size) = (std::ptr::null(), 0);
        let known = (callbacks.module_function_table)(module, &mut table, &mut size);
        (known == 1).then_some((table, size))
    };
    let sizes: Vec<_> = (0..8).map(|module| table(module).map(|(_, size)| size)).collect();
    assert_eq!(sizes, [None, Some(16), Some(9), Some(15), Some(7), Some(16), Some(7), None]);
    let (places, size) = table(5).unwrap();
    let places = unsafe { std::slice::from_raw_parts(places, size as usize + 1) };
    assert!(places[0].is_null() && places[16].is_null());
    for (index, function) in [
        (2, start as *const c_void),
        (3, end as *const c_void),
        (4, push as *const c_void),
        (5, pop as *const c_void),
        (12, create as *const c_void),
    ] {
        unsafe { *places[index] = function };
    }
    1
}
