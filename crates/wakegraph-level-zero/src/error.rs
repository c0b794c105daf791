//! The meaning of the driver's result codes.

use wakegraph_hal::{Error, ErrorKind};

use super::sys::{self, LevelZeroFailure, NoLibrary, ze_result_t};

/// The kind of error that a code stands for.
fn kind(code: ze_result_t) -> ErrorKind {
    match code {
        sys::ZE_RESULT_ERROR_DEVICE_LOST | sys::ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET => {
            ErrorKind::DeviceLost
        }
        sys::ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
        | sys::ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
        | sys::ZE_RESULT_ERROR_UNSUPPORTED_SIZE => ErrorKind::OutOfMemory,
        sys::ZE_RESULT_ERROR_UNINITIALIZED
        | sys::ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS
        | sys::ZE_RESULT_ERROR_NOT_AVAILABLE
        | sys::ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE => ErrorKind::Unavailable,
        sys::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE | sys::ZE_RESULT_ERROR_UNSUPPORTED_VERSION => {
            ErrorKind::FeatureNotSupported
        }
        sys::ZE_RESULT_ERROR_INVALID_KERNEL_NAME
        | sys::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX
        | sys::ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE => ErrorKind::InvalidArgument,
        sys::ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION
        | sys::ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION => ErrorKind::InvalidSize,
        _ => ErrorKind::Driver,
    }
}

impl From<LevelZeroFailure> for Error {
    fn from(LevelZeroFailure { call, code }: LevelZeroFailure) -> Self {
        let error = Self::new(kind(code), format!("{call} returned {}", describe(code)));
        match error.kind() {
            ErrorKind::OutOfMemory => error.help("free memory, or work in smaller pieces"),
            ErrorKind::DeviceLost => error.help(
                "find the kernel that goes beyond its arguments or does not end; the system's kernel log \
                 names a GPU that hangs",
            ),
            _ => error,
        }
    }
}

impl From<&NoLibrary> for Error {
    fn from(reason: &NoLibrary) -> Self {
        let unavailable = |why: &str| Self::new(ErrorKind::Unavailable, why);
        match reason {
            NoLibrary::NotLoaded(reasons) => {
                unavailable("the Level Zero loader libze_loader cannot be loaded")
                    .help(
                        "install the loader (package libze1 or level-zero) and Intel's driver \
                         (libze-intel-gpu1), or name the library in WAKEGRAPH_LEVEL_ZERO_LIBRARY",
                    )
                    .caused_by(reasons.clone())
            }
            NoLibrary::Lacks(function) => {
                unavailable(&format!("the Level Zero loader is too old: it has no {function}"))
                    .help("install a loader for Level Zero 1.0 or newer (package libze1 or level-zero)")
            }
        }
    }
}

/// A loader is there, and it did not start.
pub(super) fn no_driver(failure: LevelZeroFailure) -> Error {
    let LevelZeroFailure { call, code } = failure;
    let why =
        format!("the Level Zero loader is there, and found no driver: {call} returned {}", describe(code));
    Error::new(ErrorKind::Unavailable, why).help(
        "install Intel's driver (package libze-intel-gpu1 or intel-level-zero-gpu), and see whether this \
         user may open /dev/dri/renderD*",
    )
}

macro_rules! names {
    ($($name:ident)+) => {
        fn name(code: ze_result_t) -> Option<&'static str> {
            match code {
                $(sys::$name => Some(stringify!($name)),)+
                _ => None,
            }
        }
    };
}

names! {
    ZE_RESULT_NOT_READY ZE_RESULT_ERROR_DEVICE_LOST ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
    ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ZE_RESULT_ERROR_MODULE_BUILD_FAILURE
    ZE_RESULT_ERROR_MODULE_LINK_FAILURE ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET
    ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS
    ZE_RESULT_ERROR_NOT_AVAILABLE ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE ZE_RESULT_WARNING_DROPPED_DATA
    ZE_RESULT_ERROR_UNINITIALIZED ZE_RESULT_ERROR_UNSUPPORTED_VERSION ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
    ZE_RESULT_ERROR_INVALID_ARGUMENT ZE_RESULT_ERROR_INVALID_NULL_HANDLE
    ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE ZE_RESULT_ERROR_INVALID_NULL_POINTER ZE_RESULT_ERROR_INVALID_SIZE
    ZE_RESULT_ERROR_UNSUPPORTED_SIZE ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT
    ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT ZE_RESULT_ERROR_INVALID_ENUMERATION
    ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT
    ZE_RESULT_ERROR_INVALID_NATIVE_BINARY ZE_RESULT_ERROR_INVALID_GLOBAL_NAME
    ZE_RESULT_ERROR_INVALID_KERNEL_NAME ZE_RESULT_ERROR_INVALID_FUNCTION_NAME
    ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION
    ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE
    ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED
    ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE ZE_RESULT_ERROR_OVERLAPPING_REGIONS
    ZE_RESULT_WARNING_ACTION_REQUIRED ZE_RESULT_ERROR_INVALID_KERNEL_HANDLE ZE_RESULT_ERROR_UNKNOWN
}

/// The code's name and number.
pub(super) fn describe(code: ze_result_t) -> String {
    match name(code) {
        Some(name) => format!("{name} ({code:#x})"),
        None => format!("{code:#x}, a code of the driver's own"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_errors_with_the_call_and_the_code() {
        for (code, expected) in [
            (0x7000_0001, ErrorKind::DeviceLost),
            (0x7000_0003, ErrorKind::OutOfMemory),
            (0x7800_0009, ErrorKind::OutOfMemory),
            (0x7800_0003, ErrorKind::FeatureNotSupported),
            (0x7800_0013, ErrorKind::InvalidSize),
            (0x7800_0004, ErrorKind::Driver),
            (0x1234, ErrorKind::Driver),
        ] {
            let error = Error::from(LevelZeroFailure { call: "zeMemAllocDevice", code });
            assert_eq!(error.kind(), expected, "{code:#x}");
            let has = |text: &str| assert!(error.message().contains(text), "{error}");
            has("zeMemAllocDevice");
            has(&format!("{code:#x}"));
        }
    }

    #[test]
    fn a_missing_loader_or_driver_is_an_error_with_a_remedy() {
        let error = Error::from(&NoLibrary::NotLoaded("libze_loader.so.1: cannot open".into()));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("libze1"), "{error}");
        let error = no_driver(LevelZeroFailure { call: "zeInit", code: 0x7800_0001 });
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(
            text.contains("zeInit") && text.contains("0x78000001") && text.contains("/dev/dri"),
            "{text}"
        );
    }
}
