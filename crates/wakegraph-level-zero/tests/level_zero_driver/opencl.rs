//! The OpenCL device that kernels run on: the first that takes SPIR-V.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::{LazyLock, Mutex};

use crate::misuse::misuse;
use crate::spirv::Parameter;

/// An object of OpenCL's.
type Object = *mut c_void;

/// Declares the functions, and how to find them.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)+) => {
        #[allow(non_snake_case, reason = "OpenCL's names")]
        #[derive(Clone, Copy)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)+
        }

        impl Functions {
            fn load() -> Option<Self> {
                // SAFETY: the loader of OpenCL runs no code that could do harm.
                let library = unsafe { libloading::Library::new("libOpenCL.so.1") }.ok()?;
                let functions = Self {
                    $($name: {
                        // SAFETY: this is how OpenCL declares the function.
                        *unsafe { library.get(stringify!($name)) }.ok()?
                    },)+
                };
                std::mem::forget(library);
                Some(functions)
            }
        }
    };
}

functions! {
    clGetPlatformIDs(c_uint, *mut Object, *mut c_uint) -> c_int;
    clGetDeviceIDs(Object, u64, c_uint, *mut Object, *mut c_uint) -> c_int;
    clGetDeviceInfo(Object, c_uint, usize, *mut c_void, *mut usize) -> c_int;
    clCreateContext(*const isize, c_uint, *const Object, *const c_void, *mut c_void, *mut c_int) -> Object;
    clCreateCommandQueueWithProperties(Object, Object, *const u64, *mut c_int) -> Object;
    clCreateProgramWithIL(Object, *const c_void, usize, *mut c_int) -> Object;
    clBuildProgram(Object, c_uint, *const Object, *const c_char, *const c_void, *mut c_void) -> c_int;
    clGetProgramBuildInfo(Object, Object, c_uint, usize, *mut c_void, *mut usize) -> c_int;
    clReleaseProgram(Object) -> c_int;
    clCreateKernel(Object, *const c_char, *mut c_int) -> Object;
    clReleaseKernel(Object) -> c_int;
    clSetKernelArg(Object, c_uint, usize, *const c_void) -> c_int;
    clSetKernelArgSVMPointer(Object, c_uint, *const c_void) -> c_int;
    clEnqueueNDRangeKernel(
        Object, Object, c_uint, *const usize, *const usize, *const usize, c_uint, *const Object, *mut Object
    ) -> c_int;
    clFinish(Object) -> c_int;
}

struct Device {
    functions: Functions,
    device: Object,
    context: Object,
    /// Queues that no thread uses.
    queues: Mutex<Vec<Queue>>,
}

// SAFETY: OpenCL's objects may be used by any thread, kernels by one at a time.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

static DEVICE: LazyLock<Option<Device>> = LazyLock::new(|| {
    let functions = Functions::load()?;
    let mut platforms = [null_mut(); 16];
    let mut count = 0;
    // SAFETY: the array has the length that is said.
    let code = unsafe { (functions.clGetPlatformIDs)(16, platforms.as_mut_ptr(), &raw mut count) };
    if code != 0 {
        return None;
    }
    let device =
        platforms[..count.min(16) as usize].iter().find_map(|platform| first_cpu(functions, *platform))?;
    let mut code = 0;
    // SAFETY: the device has just been found.
    let context = unsafe {
        (functions.clCreateContext)(null(), 1, &raw const device, null(), null_mut(), &raw mut code)
    };
    (code == 0).then_some(Device { functions, device, context, queues: Mutex::default() })
});

fn first_cpu(functions: Functions, platform: Object) -> Option<Object> {
    const CPU: u64 = 2;
    const IL_VERSION: c_uint = 0x105b;
    let (mut device, mut count) = (null_mut(), 0);
    // SAFETY: there is room for one device.
    let code = unsafe { (functions.clGetDeviceIDs)(platform, CPU, 1, &raw mut device, &raw mut count) };
    if code != 0 || count == 0 {
        return None;
    }
    let mut versions = [0u8; 256];
    // SAFETY: the array has the length that is said.
    let code = unsafe {
        (functions.clGetDeviceInfo)(device, IL_VERSION, 256, versions.as_mut_ptr().cast(), null_mut())
    };
    (code == 0 && versions.starts_with(b"SPIR-V")).then_some(device)
}

/// Whether there is an OpenCL device for this driver.
pub(crate) fn is_there() -> bool {
    DEVICE.is_some()
}

fn device() -> &'static Device {
    DEVICE.as_ref().expect("an OpenCL device, as zeInit found")
}

/// A built program.
#[derive(Debug)]
pub(crate) struct Program(Object);

// SAFETY: as above.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    /// The error is the log.
    pub(crate) fn build(module: &[u8]) -> Result<Self, String> {
        let Device { functions, device, context, .. } = device();
        let mut code = 0;
        // SAFETY: the module has the length that is said.
        let program = unsafe {
            (functions.clCreateProgramWithIL)(*context, module.as_ptr().cast(), module.len(), &raw mut code)
        };
        if code != 0 {
            return Err(format!("clCreateProgramWithIL: {code}"));
        }
        let program = Self(program);
        // SAFETY: the program and the device are valid.
        let code =
            unsafe { (functions.clBuildProgram)(program.0, 1, device, c"".as_ptr(), null(), null_mut()) };
        if code != 0 {
            return Err(format!("clBuildProgram: {code}\n{}", program.log()));
        }
        Ok(program)
    }

    fn log(&self) -> String {
        const BUILD_LOG: c_uint = 0x1183;
        let Device { functions, device, .. } = device();
        let mut log = vec![0u8; 1 << 16];
        let mut len = 0;
        // SAFETY: the buffer has the length that is said.
        unsafe {
            (functions.clGetProgramBuildInfo)(
                self.0,
                *device,
                BUILD_LOG,
                log.len(),
                log.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        log.truncate(len.saturating_sub(1));
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(crate) fn kernel(&self, name: &str) -> Option<Kernel> {
        let name = CString::new(name).ok()?;
        let mut code = 0;
        // SAFETY: the program is valid.
        let kernel = unsafe { (device().functions.clCreateKernel)(self.0, name.as_ptr(), &raw mut code) };
        (code == 0).then_some(Kernel(kernel))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: nothing uses the program any more; kernels keep it for themselves.
        unsafe { (device().functions.clReleaseProgram)(self.0) };
    }
}

/// A kernel that one command uses.
#[derive(Debug)]
pub(crate) struct Kernel(Object);

// SAFETY: as above.
unsafe impl Send for Kernel {}
// SAFETY: one thread at a time runs it.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Runs it to its end. Each argument comes with its bytes; memory of the group, with its size.
    pub(crate) fn run(&self, args: &[(Parameter, Vec<u8>)], sizes: [[usize; 3]; 3]) {
        let functions = &device().functions;
        for (i, (parameter, bytes)) in args.iter().enumerate() {
            let i = i as c_uint;
            let code = match parameter {
                Parameter::Pointer => {
                    let address = usize::from_ne_bytes(bytes[..].try_into().unwrap());
                    // SAFETY: the kernel is valid, and this driver has checked the address.
                    unsafe { (functions.clSetKernelArgSVMPointer)(self.0, i, address as *const c_void) }
                }
                Parameter::Local => {
                    let size = usize::from_ne_bytes(bytes[..].try_into().unwrap());
                    // SAFETY: the kernel is valid.
                    unsafe { (functions.clSetKernelArg)(self.0, i, size, null()) }
                }
                Parameter::Value { size } => {
                    // SAFETY: the value has this size.
                    unsafe { (functions.clSetKernelArg)(self.0, i, *size, bytes.as_ptr().cast()) }
                }
            };
            if code != 0 {
                misuse!("OpenCL refuses argument {i}: {code}");
            }
        }
        let queue = device().queues.lock().unwrap().pop().unwrap_or_else(Queue::new);
        let [offset, global, local] = sizes;
        // SAFETY: all arguments are set; what they name stays until the end of the command.
        let code = unsafe {
            (functions.clEnqueueNDRangeKernel)(
                queue.0,
                self.0,
                3,
                offset.as_ptr(),
                global.as_ptr(),
                local.as_ptr(),
                0,
                null(),
                null_mut(),
            )
        };
        if code != 0 {
            misuse!("OpenCL refuses the kernel: {code}, offset {offset:?} size {global:?} group {local:?}");
        }
        // SAFETY: the queue is valid.
        let code = unsafe { (functions.clFinish)(queue.0) };
        if code != 0 {
            misuse!("OpenCL's queue fails: {code}");
        }
        device().queues.lock().unwrap().push(queue);
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: nothing uses the kernel any more.
        unsafe { (device().functions.clReleaseKernel)(self.0) };
    }
}

struct Queue(Object);

// SAFETY: as above.
unsafe impl Send for Queue {}

impl Queue {
    fn new() -> Self {
        let Device { functions, device, context, .. } = device();
        let mut code = 0;
        // SAFETY: context and device are valid.
        let queue = unsafe {
            (functions.clCreateCommandQueueWithProperties)(*context, *device, null(), &raw mut code)
        };
        if code != 0 {
            misuse!("OpenCL makes no queue: {code}");
        }
        Self(queue)
    }
}
