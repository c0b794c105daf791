//! What every test needs: a device, memory, streams, kernels. Everything lasts until the process
//! ends.

use std::ffi::{CString, c_void};

use crate::api::{Dim3, HOST_FLAGS, Hip, Hiprtc, KernelNode, MEMCPY_DEFAULT, NOT_READY, STREAM_NON_BLOCKING};

/// Panics unless a call succeeds.
macro_rules! ok {
    ($call:expr) => {
        assert_eq!($call, 0, "{}", stringify!($call))
    };
}
pub(crate) use ok;

pub(crate) struct Device {
    pub(crate) hip: Hip,
}

/// Host memory that devices reach, as 32-bit numbers.
pub(crate) struct HostMemory {
    pub(crate) address: usize,
}

impl HostMemory {
    fn at(&self, index: usize) -> *mut u32 {
        (self.address as *mut u32).wrapping_add(index)
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        // SAFETY: inside the allocation; the tests wait for the devices first.
        unsafe { self.at(index).read_volatile() }
    }

    pub(crate) fn set(&self, index: usize, value: u32) {
        // SAFETY: as above.
        unsafe { self.at(index).write_volatile(value) }
    }

    pub(crate) fn values(&self, count: usize) -> Vec<u32> {
        (0..count).map(|index| self.get(index)).collect()
    }
}

impl Device {
    pub(crate) fn open() -> Self {
        let names = ["libamdhip64.so.6", "libamdhip64.so.5"];
        let hip = names.iter().find_map(|name| Hip::load(name).ok());
        let hip = hip.unwrap_or_else(|| panic!("{:?}", Hip::load(names[0]).err()));
        ok!(hip.hipInit(0));
        Self { hip }
    }

    /// How many devices there are.
    pub(crate) fn count(&self) -> i32 {
        let mut count = -1;
        ok!(self.hip.hipGetDeviceCount(&mut count));
        count
    }

    pub(crate) fn memory(&self, bytes: usize) -> usize {
        let mut address = 0;
        ok!(self.hip.hipMalloc(&mut address, bytes));
        address
    }

    pub(crate) fn host_memory(&self, bytes: usize) -> HostMemory {
        let mut address = 0;
        ok!(self.hip.hipHostMalloc(&mut address, bytes, HOST_FLAGS));
        HostMemory { address }
    }

    pub(crate) fn stream(&self) -> usize {
        let mut stream = 0;
        ok!(self.hip.hipStreamCreateWithFlags(&mut stream, STREAM_NON_BLOCKING));
        stream
    }

    pub(crate) fn event(&self) -> usize {
        let mut event = 0;
        ok!(self.hip.hipEventCreateWithFlags(&mut event, 0));
        event
    }

    pub(crate) fn wait(&self, event: usize) {
        loop {
            match self.hip.hipEventQuery(event) {
                NOT_READY => std::thread::yield_now(),
                code => return ok!(code),
            }
        }
    }

    /// The first numbers at an address of the device.
    pub(crate) fn read(&self, address: usize, count: usize) -> Vec<u32> {
        let host = self.host_memory(count * 4);
        let stream = self.stream();
        ok!(self.hip.hipMemcpyAsync(host.address, address, count * 4, MEMCPY_DEFAULT, stream));
        ok!(self.hip.hipStreamSynchronize(stream));
        host.values(count)
    }

    /// Compiles a source, by the hipRTC in front, and loads it.
    pub(crate) fn module(&self, source: &str) -> usize {
        let code = compile(source).unwrap();
        let mut module = 0;
        ok!(self.hip.hipModuleLoadData(&mut module, code.as_ptr().cast()));
        // HIP may read the code later.
        std::mem::forget(code);
        module
    }

    pub(crate) fn function(&self, module: usize, name: &str) -> usize {
        let mut function = 0;
        ok!(self.hip.hipModuleGetFunction(&mut function, module, CString::new(name).unwrap().as_ptr()));
        function
    }

    pub(crate) fn launch(
        &self,
        function: usize,
        grid: u32,
        block: u32,
        stream: usize,
        arguments: &[*const c_void],
    ) {
        let arguments = arguments.as_ptr();
        ok!(self.hip.hipModuleLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, arguments, 0));
    }

    pub(crate) fn graph(&self) -> usize {
        let mut graph = 0;
        ok!(self.hip.hipGraphCreate(&mut graph, 0));
        graph
    }

    pub(crate) fn kernel_node(&self, graph: usize, after: &[usize], parameters: &KernelNode) -> usize {
        let mut node = 0;
        ok!(self.hip.hipGraphAddKernelNode(&mut node, graph, after.as_ptr(), after.len(), parameters));
        node
    }

    pub(crate) fn instance(&self, graph: usize) -> usize {
        let mut instance = 0;
        ok!(self.hip.hipGraphInstantiateWithFlags(&mut instance, graph, 0));
        instance
    }
}

/// Parameters of a kernel node; the addresses of the arguments are read when it is added.
pub(crate) fn kernel(function: usize, grid: Dim3, block: Dim3, arguments: &[*const c_void]) -> KernelNode {
    KernelNode { block, extra: 0, function, grid, arguments: arguments.as_ptr(), shared_bytes: 0 }
}

/// The address of an argument.
pub(crate) fn by<T>(argument: &T) -> *const c_void {
    std::ptr::from_ref(argument).cast()
}

/// The code object for a source, or the log.
pub(crate) fn compile(source: &str) -> Result<Vec<u8>, String> {
    let rtc = Hiprtc::load("libhiprtc.so")?;
    let (source, name) = (CString::new(source).unwrap(), c"kernels.hip");
    let mut program = 0;
    ok!(rtc.hiprtcCreateProgram(&mut program, source.as_ptr(), name.as_ptr(), 0, 0, 0));
    let options = [c"--offload-arch=gfx1030".as_ptr()];
    let result = rtc.hiprtcCompileProgram(program, 1, options.as_ptr());
    let mut bytes = 0;
    if result != 0 {
        ok!(rtc.hiprtcGetProgramLogSize(program, &mut bytes));
        let mut log = vec![0; bytes];
        ok!(rtc.hiprtcGetProgramLog(program, log.as_mut_ptr()));
        return Err(String::from_utf8_lossy(&log).into_owned());
    }
    ok!(rtc.hiprtcGetCodeSize(program, &mut bytes));
    let mut code = vec![0; bytes];
    ok!(rtc.hiprtcGetCode(program, code.as_mut_ptr()));
    ok!(rtc.hiprtcDestroyProgram(&mut program));
    std::mem::forget(rtc);
    Ok(code)
}
