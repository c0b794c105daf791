//! A process that does the same with `cudarc`: NVRTC in each process, or a cubin for each program from files.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::{Ptx, result, sys};

use crate::Started;
use crate::work::{ELEMENTS, PIXELS, TAPS, WIDTH, Work, checksum, frame, level, programs};

/// Whether a process finds the cubins that [`make`] has made.
pub(crate) fn run(start: Instant, work: Work, folder: Option<&Path>) -> Started {
    let context = CudaContext::new(0).expect("a device");
    let stream = context.new_stream().expect("a stream");
    let opened = start.elapsed();
    let functions = load(&context, work, folder);
    let (total, checksum) = match work {
        Work::Photo => photo(start, &stream, &functions),
        Work::Chain => chain(start, &stream, &functions),
    };
    Started { total, opened, checksum }
}

/// Makes the cubins.
pub(crate) fn make(work: Work, folder: &Path) {
    let context = CudaContext::new(0).expect("a device");
    for (number, (source, _)) in programs(work, true).iter().enumerate() {
        std::fs::write(folder.join(format!("{number}.cubin")), cubin(&context, source)).expect("a folder");
    }
}

fn load(context: &Arc<CudaContext>, work: Work, folder: Option<&Path>) -> Vec<CudaFunction> {
    let mut functions = Vec::new();
    for (number, (source, names)) in programs(work, true).into_iter().enumerate() {
        let code = match folder {
            Some(folder) => std::fs::read(folder.join(format!("{number}.cubin"))).expect("a cubin"),
            None => cubin(context, &source),
        };
        let module = context.load_module(Ptx::from_binary(code)).expect("code for the device");
        functions.extend(names.iter().map(|name| module.load_function(name).expect("a kernel")));
    }
    functions
}

fn cubin(context: &CudaContext, source: &str) -> Vec<u8> {
    let (major, minor) = context.compute_capability().expect("a device");
    let architecture = format!("--gpu-architecture=sm_{major}{minor}");
    let source = CString::new(source).expect("a text");
    let program = result::create_program(&source, None).expect("a compiler");
    // SAFETY: the program has just been created.
    unsafe { result::compile_program(program, &[&architecture, "--fmad=false"]) }.expect("a valid source");
    let mut size = 0;
    // SAFETY: the program is compiled, and the place is a number's.
    unsafe { sys::nvrtcGetCUBINSize(program, &raw mut size) }.result().expect("a cubin");
    let mut code = vec![0u8; size];
    // SAFETY: there is room for as many bytes.
    unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()) }.result().expect("a cubin");
    // SAFETY: it is not used any more.
    unsafe { result::destroy_program(program) }.expect("a program");
    code
}

fn chain(start: Instant, stream: &Arc<CudaStream>, functions: &[CudaFunction]) -> (Duration, u64) {
    let mut x = stream.alloc_zeros::<u32>(ELEMENTS).expect("memory");
    let (config, count) = (LaunchConfig::for_num_elems(ELEMENTS as u32), ELEMENTS as i32);
    for function in functions {
        let mut launch = stream.launch_builder(function);
        launch.arg(&mut x).arg(&count);
        // SAFETY: the kernel changes as many elements as there are.
        unsafe { launch.launch(config) }.expect("a launch");
    }
    let out = stream.clone_dtoh(&x).expect("a copy");
    stream.synchronize().expect("a result");
    (start.elapsed(), checksum(bytemuck::cast_slice(&out)))
}

fn photo(start: Instant, stream: &Arc<CudaStream>, functions: &[CudaFunction]) -> (Duration, u64) {
    let [grayscale, blur_rows, blur_columns, sobel, histogram, threshold] = functions else {
        panic!("six kernels")
    };
    let bytes = || stream.alloc_zeros::<u8>(PIXELS).expect("memory");
    let rgb = stream.clone_htod(&frame()).expect("a copy");
    let taps = stream.clone_htod(&TAPS).expect("a copy");
    let [mut gray, mut smeared, mut blurred, mut gradient, mut edges] = [(); 5].map(|()| bytes());
    let mut bins = stream.alloc_zeros::<u32>(256).expect("memory");
    let config = LaunchConfig::for_num_elems(PIXELS as u32);
    let (width, pixels, count) = (WIDTH as i32, PIXELS as i32, TAPS.len() as i32);
    /// Launches a kernel with these arguments.
    macro_rules! launch {
        ($kernel:ident($($argument:expr),*)) => {{
            let mut launch = stream.launch_builder($kernel);
            $(launch.arg($argument);)*
            // SAFETY: the kernels stay within the image, as their last argument says its size.
            unsafe { launch.launch(config) }.expect("a launch");
        }};
    }
    launch!(grayscale(&rgb, &mut gray, &pixels));
    launch!(blur_rows(&taps, &count, &gray, &mut smeared, &width));
    launch!(blur_columns(&taps, &count, &smeared, &mut blurred, &width));
    launch!(sobel(&blurred, &mut gradient, &width));
    launch!(histogram(&gradient, &mut bins, &pixels));
    let counts = stream.clone_dtoh(&bins).expect("a copy");
    stream.synchronize().expect("a histogram");
    let level = level(&counts);
    launch!(threshold(&level, &gradient, &mut edges, &pixels));
    let picture = stream.clone_dtoh(&edges).expect("a copy");
    stream.synchronize().expect("a result");
    (start.elapsed(), checksum(&picture))
}
