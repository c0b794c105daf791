//! A library that knows nothing of us: cuBLAS, where it is installed.
#![expect(unsafe_code, reason = "calls the library")]

use std::ffi::{c_int, c_void};
use std::ptr;

use libloading::Library;
use wakegraph::interop::NativeAccess;
use wakegraph::{Error, ErrorKind, Graph, Range, Result};

use super::raw;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/native/blas": &[Need::Cuda] => [a_product_of_matrices]);

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;
type SetWorkspace = unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int;
type Sgemm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    *const f32,
    *mut f32,
    c_int,
) -> c_int;

/// The library with a handle of it.
#[derive(Clone, Copy)]
struct Blas {
    library: &'static Library,
    handle: Handle,
}

// SAFETY: the handle is used by one thread at a time: the one that finalizes.
unsafe impl Send for Blas {}
// SAFETY: as for `Send`.
unsafe impl Sync for Blas {}

impl Blas {
    fn load() -> Option<Self> {
        const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so"];
        // SAFETY: the vendor's library, whose initialisers may run on any thread.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        let mut this = Self { library: Box::leak(Box::new(library)), handle: ptr::null_mut() };
        raw::bind();
        // SAFETY: this is how the vendor's headers declare the function.
        let create = unsafe { this.library.get::<Create>("cublasCreate_v2") }.unwrap();
        // SAFETY: a context is current; the place is a pointer's.
        check("cublasCreate", unsafe { create(&raw mut this.handle) }).unwrap();
        Some(this)
    }

    fn on(self, stream: *mut c_void, workspace: *mut c_void, bytes: usize) -> Result<()> {
        // SAFETY: this is how the vendor's headers declare the function.
        let set_stream = unsafe { self.library.get::<SetStream>("cublasSetStream_v2") }.unwrap();
        // SAFETY: handle and stream are alive.
        check("cublasSetStream", unsafe { set_stream(self.handle, stream) })?;
        // SAFETY: this is how the vendor's headers declare the function.
        let set_workspace = unsafe { self.library.get::<SetWorkspace>("cublasSetWorkspace_v2") }.unwrap();
        // SAFETY: so many bytes are there.
        check("cublasSetWorkspace", unsafe { set_workspace(self.handle, workspace, bytes) })
    }

    /// c = a * b, square and column by column.
    fn multiply(self, n: usize, a: usize, b: usize, c: usize) -> Result<()> {
        let (n, one, zero) = (n as c_int, 1f32, 0f32);
        // SAFETY: this is how the vendor's headers declare the function.
        let sgemm = unsafe { self.library.get::<Sgemm>("cublasSgemm_v2") }.unwrap();
        let [a, b, c] = [a, b, c].map(ptr::with_exposed_provenance_mut::<f32>);
        // SAFETY: n by n elements are at all three addresses; the factors are read at once.
        let code =
            unsafe { sgemm(self.handle, 0, 0, n, n, n, &raw const one, a, n, b, n, &raw const zero, c, n) };
        check("cublasSgemm", code)
    }
}

fn check(call: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::new(ErrorKind::Driver, format!("{call} failed with {code}"))),
    }
}

wakegraph::kernel! {
    /// Element `i` is `start + i` modulo 7.
    fn number(start: u32, x: &mut [f32]) {
        // SAFETY: a work-item writes the element with its index, and a launch is bounded by the
        // slice's length.
        c: unsafe { "KERNEL(number, (u32 start, SLICE(float, x))) {
                         x[GLOBAL_ID(0)] = (float)((start + GLOBAL_ID(0)) % 7);
                     }" },
    }
}

// number a, number b -> c = a * b, by cuBLAS -> host
fn a_product_of_matrices(setup: &Setup) {
    let Some(blas) = Blas::load() else { return lacks("cuBLAS") };
    const N: usize = 64;
    let device = setup.device();
    let [a, b, c] = [(); 3].map(|()| device.buffer::<f32>(N * N).unwrap());
    let (workspace, output) =
        (device.buffer::<u8>(4 << 20).unwrap(), device.host_buffer::<f32>(N * N).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(number(1, &a), Range::linear(N * N));
    graph.launch(number(3, &b), Range::linear(N * N));
    let accesses = [
        NativeAccess::read(&a),
        NativeAccess::read(&b),
        NativeAccess::write(&c),
        NativeAccess::write(&workspace),
    ];
    // SAFETY: the product reads the first two, writes the third, and has the fourth as its
    // workspace, all on the stream.
    unsafe {
        graph.native("product", accesses, move |stream, [a, b, c, workspace]| {
            let room = ptr::with_exposed_provenance_mut(workspace.address());
            blas.on(stream.stream(), room, workspace.len())?;
            blas.multiply(N, a.address(), b.address(), c.address())
        })
    };
    graph.copy(&c, &output);
    let exec = graph.finalize().unwrap();
    let element = |start: usize, row: usize, column: usize| ((start + column * N + row) % 7) as f32;
    let product = |row, column| (0..N).map(|k| element(1, row, k) * element(3, k, column)).sum::<f32>();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            // Sums of so few small whole numbers are exact, in whatever order.
            let expected: Vec<f32> = (0..N * N).map(|i| product(i % N, i / N)).collect();
            assert_eq!(*output.read().await, expected[..]);
        }
    });
}
