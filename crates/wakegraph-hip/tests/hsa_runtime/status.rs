//! Results of calls.

use std::ffi::c_char;

use crate::raw;

/// `hsa_status_t`.
pub(crate) type Status = u32;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const ERROR: Status = 0x1000;
pub(crate) const INVALID_ARGUMENT: Status = 0x1001;
pub(crate) const INVALID_ALLOCATION: Status = 0x1003;
pub(crate) const OUT_OF_RESOURCES: Status = 0x1008;
pub(crate) const INVALID_CODE_OBJECT: Status = 0x1010;
pub(crate) const INVALID_SYMBOL_NAME: Status = 0x1013;
/// What a queue reports when a kernel has touched an address that is not mapped.
pub(crate) const MEMORY_APERTURE_VIOLATION: Status = 0x29;

crate::calls::hsa! {
    fn hsa_status_string(status: Status, text: *mut *const c_char) {
        let name = match status {
            SUCCESS => c"success",
            INVALID_ARGUMENT => c"invalid argument",
            INVALID_ALLOCATION => c"invalid allocation",
            OUT_OF_RESOURCES => c"out of resources",
            INVALID_CODE_OBJECT => c"invalid code object",
            INVALID_SYMBOL_NAME => c"invalid symbol name",
            MEMORY_APERTURE_VIOLATION => c"memory aperture violation",
            _ => c"error",
        };
        raw::write(text, name.as_ptr());
        Ok(())
    }
}
