//! The functions of NCCL and of CUDA's driver that collectives need, and the vendor's types: the only place
//! that names them.
#![expect(unsafe_code, reason = "loads the libraries and calls them")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::sync::OnceLock;

use wakegraph::hal::support::library;
use wakegraph::{Error, ErrorKind, Result};

pub(crate) type Handle = *mut c_void;

/// The oldest version of NCCL that is taken, as it counts them: 2.20.
const OLDEST: c_int = 2_20_00;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
pub(crate) const NOT_CAPTURING: c_int = 0;

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),* $(,)?);)+) => {
        /// Functions of both libraries, which stay loaded. All return 0 for success.
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(crate) struct Functions {
            /// The text of an error of NCCL.
            pub(crate) text: unsafe extern "C" fn(c_int) -> *const c_char,
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_int,)+
        }

        impl Functions {
            /// The error is the name of a function that neither library has.
            fn fill(libraries: &[libloading::Library]) -> Result<Self, &'static str> {
                Ok(Self {
                    // SAFETY: this is how NCCL's header declares the function.
                    text: unsafe { find(libraries, "ncclGetErrorString") }?,
                    // SAFETY: this is how the vendor's headers declare the function.
                    $($name: unsafe { find(libraries, $symbol) }?,)+
                })
            }

            /// Functions that tell a test of each call.
            #[cfg(test)]
            #[allow(non_snake_case, reason = "the vendor's names")]
            pub(crate) fn fake() -> Self {
                unsafe extern "C" fn text(_: c_int) -> *const c_char {
                    c"a made-up error".as_ptr()
                }
                $(unsafe extern "C" fn $name($(_: $argument),*) -> c_int {
                    $crate::tests::called(stringify!($name))
                })+
                Self { text, $($name,)+ }
            }
        }
    };
}

functions! {
    ncclGetVersion = "ncclGetVersion"(*mut c_int);
    ncclCommInitAll = "ncclCommInitAll"(*mut Handle, c_int, *const c_int);
    ncclCommDestroy = "ncclCommDestroy"(Handle);
    ncclGroupStart = "ncclGroupStart"();
    ncclGroupEnd = "ncclGroupEnd"();
    ncclAllReduce = "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    ncclReduceScatter = "ncclReduceScatter"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    ncclAllGather = "ncclAllGather"(*const c_void, *mut c_void, usize, c_int, Handle, Handle);
    ncclBroadcast = "ncclBroadcast"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle);
    cuDeviceGet = "cuDeviceGet"(*mut c_int, c_int);
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
    cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2"(c_int);
    cuCtxGetCurrent = "cuCtxGetCurrent"(*mut Handle);
    cuCtxSetCurrent = "cuCtxSetCurrent"(Handle);
    cuStreamCreate = "cuStreamCreate"(*mut Handle, c_uint);
    cuStreamDestroy = "cuStreamDestroy_v2"(Handle);
    cuStreamIsCapturing = "cuStreamIsCapturing"(Handle, *mut c_int);
    cuStreamWaitEvent = "cuStreamWaitEvent"(Handle, Handle, c_uint);
    cuEventCreate = "cuEventCreate"(*mut Handle, c_uint);
    cuEventRecord = "cuEventRecord"(Handle, Handle);
    cuEventDestroy = "cuEventDestroy_v2"(Handle);
}

/// The function of this name, of the first library that has it.
///
/// # Safety
/// `F` is the type of the function.
unsafe fn find<F: Copy>(libraries: &[libloading::Library], name: &'static str) -> Result<F, &'static str> {
    for library in libraries {
        // SAFETY: passed on to the caller.
        if let Ok(function) = unsafe { library.get::<F>(name) } {
            return Ok(*function);
        }
    }
    Err(name)
}

/// Calls a function of the table. Expands to one unsafe operation.
macro_rules! call {
    ($functions:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $functions.outcome(stringify!($name), ($functions.$name)($($argument),*))
    };
}

pub(crate) use call;

impl Functions {
    /// The functions of the libraries, which are loaded by the first call that succeeds.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) for a library that is missing or too old.
    pub(crate) fn load() -> Result<&'static Self> {
        static LOADED: OnceLock<Functions> = OnceLock::new();
        match LOADED.get() {
            Some(functions) => Ok(functions),
            None => Self::open().map(|functions| LOADED.get_or_init(|| functions)),
        }
    }

    fn open() -> Result<Self> {
        let unavailable = |why: String, help: &str| Error::new(ErrorKind::Unavailable, why).help(help);
        let install = "install NVIDIA's NCCL 2.20 or newer (`libnccl2`, or the wheel nvidia-nccl-cu13), and name \
                       the folder of libnccl.so.2 in LD_LIBRARY_PATH";
        let nccl = library::open(&["libnccl.so.2", "libnccl.so"])
            .map_err(|why| unavailable(format!("NCCL cannot be loaded: {why}"), install))?;
        let cuda = library::open(&["libcuda.so.1"])
            .map_err(|why| unavailable(format!("CUDA's driver cannot be loaded: {why}"), "install it"))?;
        let libraries = [nccl, cuda];
        let functions = Self::fill(&libraries)
            .map_err(|name| unavailable(format!("neither NCCL nor CUDA's driver has {name}"), install))?;
        // The functions are used for as long as the process lives.
        mem::forget(libraries);
        let mut version = 0;
        // SAFETY: the place is valid.
        unsafe { call!(functions, ncclGetVersion(&raw mut version)) }?;
        if version < OLDEST {
            return Err(unavailable(format!("NCCL is too old: its version code is {version}"), install));
        }
        Ok(functions)
    }

    pub(crate) fn outcome(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let failed = |why| Err(Error::new(ErrorKind::Driver, why));
        let why = format!("{call} failed with {code}");
        if !call.starts_with("nccl") {
            return failed(why);
        }
        // SAFETY: NCCL has a text, a constant, for every number.
        let text = unsafe { (self.text)(code) };
        // SAFETY: a text that ends in NUL.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        failed(format!("{why}: {text}"))
            .map_err(|error| error.help("set NCCL_DEBUG=WARN in the environment: NCCL then says more"))
    }
}
