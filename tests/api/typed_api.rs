//! Kernels as users declare and launch them: the forms that `kernel!` takes, kernels known only at
//! run time, and what is said about wrong arguments.
//!
//! What must not compile is shown by doctests of the items concerned (`compile_fail` with the
//! compiler's error code).
#![expect(unsafe_code, reason = "declares device code")]

use std::sync::Mutex;

use bytemuck::{Pod, Zeroable};
use wakegraph::kernel::{
    CallArg, KernelCall, KernelDef, KernelSources, Param, ParamKind, ParamType, RangeBound, RawKernel,
};
use wakegraph::memory::{AccessMode, CopySource, Layout, RectCopy};
use wakegraph::{Buffer, Device, Error, ErrorKind, FinalizeOptions, Graph, HostBuffer, Local, Range, kernel};

use crate::support::block_on;

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    mass: f32,
}

/// What kernels without memory tell the test.
static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(what: impl Into<String>) {
    CALLS.lock().unwrap().push(what.into());
}

/// A function as a kernel's host code.
fn negate_all(_: &Range, x: &mut [i32]) {
    x.iter_mut().for_each(|x| *x = -*x);
}

kernel! {
    fn nothing() { host: |_| tell("nothing") }

    /// Documented, with
    /// several lines,
    #[must_use]
    pub(crate) fn eight(
        a: u8, b: i16, c: f32, d: u64,
        e: &[u8], f: &[Particle], g: &mut [u8], h: &mut [Particle],
    ) {
        host: |range, a, b, c, d, e, f, g, h| {
            assert_eq!(range.count(), 2);
            assert_eq!((a, b, c, d), (1, -2, 3.5, u64::MAX));
            g.copy_from_slice(e);
            h.copy_from_slice(f);
        },
    }

    fn negate(x: &mut [i32]) { host: negate_all }
    fn with_source(x: &mut [i32],) {
        host: |_, x| x.fill(1),
        // SAFETY: a work-item writes its element, which the bound says is there.
        c: unsafe { "KERNEL(with_source, (SLICE(i32, x))) { x[GLOBAL_ID(0)] = 1; }" },
    }
    fn move_all(by: Particle, all: &mut [Particle]) {
        host: |_, by, all| for particle in all {
            for (x, dx) in particle.position.iter_mut().zip(by.position) {
                *x += dx;
            }
            particle.mass += by.mass;
        }
    }
    fn scratch(small: Local<u8>, large: Local<Particle>) {
        host: |_, small, large| tell(format!("{} and {}", small.len(), large.len()))
    }
    fn arrays(matrix: [f32; 4], x: &[[f32; 2]], y: &mut [[f32; 2]]) {
        host: |_, [a, b, c, d], x, y| for (y, [p, q]) in y.iter_mut().zip(x) {
            *y = [a * p + b * q, c * p + d * q];
        }
    }
}

mod inner {
    wakegraph::kernel! {
        /// Seen from outside the module.
        pub(super) fn visible(x: &mut [u8]) { host: |_, x| x.fill(9) }
    }
}

fn device() -> Device {
    Device::open("host:0").unwrap()
}

fn run(device: &Device, call: impl Into<KernelCall>, range: Range) {
    let mut graph = Graph::new(device);
    graph.launch(call, range);
    let exec = graph.finalize().unwrap();
    block_on(exec.submit()).unwrap();
}

#[test]
fn without_parameters_and_with_local_memory_only() {
    let device = device();
    run(&device, nothing(), Range::linear(1));
    run(&device, scratch(Local::new(16), Local::new(3)), Range::linear(4).local([4]));
    assert_eq!(std::mem::take(&mut *CALLS.lock().unwrap()), ["nothing", "16 and 3"]);
}

#[test]
fn with_eight_parameters() {
    let device = device();
    let particles = [Particle { position: [1.0, 2.0, 3.0], mass: 4.0 }; 3];
    let (e, f) = (device.buffer_from(&[5u8, 6]).unwrap(), device.buffer_from(&particles).unwrap());
    let (g, h) = (device.buffer::<u8>(2).unwrap(), device.host_buffer::<Particle>(3).unwrap());
    // Device and host memory, by reference and by value.
    run(&device, eight(1, -2, 3.5, u64::MAX, &e, f.clone(), &g, &h), Range::linear(2));
    assert_eq!(block_on(g.to_vec()).unwrap(), [5, 6]);
    assert_eq!(*block_on(h.read()), particles);
}

#[test]
fn functions_sources_structs_arrays_and_modules() {
    let device = device();
    let x = device.buffer_from(&[1, -2, 3]).unwrap();
    run(&device, negate(&x), Range::linear(3));
    assert_eq!(block_on(x.to_vec()).unwrap(), [-1, 2, -3]);
    run(&device, with_source(&x), Range::linear(3));
    assert_eq!(block_on(x.to_vec()).unwrap(), [1; 3]);

    let all = device.buffer::<Particle>(2).unwrap();
    let by = Particle { position: [1.0, 2.0, 3.0], mass: 0.5 };
    run(&device, move_all(by, &all), Range::linear(2));
    assert_eq!(block_on(all.to_vec()).unwrap(), [by; 2]);

    let (from, to) = (device.buffer_from(&[[1.0f32, 2.0]]).unwrap(), device.buffer::<[f32; 2]>(1).unwrap());
    run(&device, arrays([1.0, 10.0, 100.0, 1000.0], &from, &to), Range::linear(1));
    assert_eq!(block_on(to.to_vec()).unwrap(), [[21.0, 2100.0]]);

    let bytes = device.buffer::<u8>(3).unwrap();
    run(&device, inner::visible(&bytes), Range::linear(3));
    assert_eq!(block_on(bytes.to_vec()).unwrap(), [9; 3]);
}

kernel! {
    fn for_devices_only(x: &mut [i32]) {
        // SAFETY: never runs.
        c: unsafe { "KERNEL(for_devices_only, (SLICE(i32, x))) { }" },
        // SAFETY: never runs.
        spirv: unsafe { &[3u8, 2, 35, 7] },
    }
    fn in_many_variants(x: &mut [i32]) {
        host: |_, x| x.fill(2),
        // SAFETY: never runs.
        opencl_c: unsafe { "__kernel void in_many_variants(__global int *x) { }" },
        // SAFETY: never runs.
        ptx: unsafe { String::from(".version 7.0") }
    }
}

#[test]
fn the_host_takes_its_variant_and_says_when_there_is_none() {
    let device = device();
    let x = device.buffer::<i32>(2).unwrap();
    run(&device, in_many_variants(&x), Range::linear(2));
    assert_eq!(block_on(x.to_vec()).unwrap(), [2; 2]);

    // SAFETY: never runs.
    let raw = unsafe { RawKernel::new("raw").writes::<i32>("x").with_c("KERNEL(raw, (SLICE(i32, x))) { }") };
    // SAFETY: never runs.
    let binary =
        unsafe { RawKernel::new("binary").with_sources(KernelSources::new().cubin([0u8, 1].to_vec())) };
    let (raw, binary) = (raw.build(), binary.build());
    for (call, name) in [
        (for_devices_only(&x), "for_devices_only"),
        (raw.call().memory::<i32>(&x).into(), "raw"),
        (binary.call().into(), "binary"),
    ] {
        let mut graph = Graph::new(&device);
        graph.launch(call, Range::linear(2));
        let error = graph.finalize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
        assert!(error.to_string().contains(name) && error.to_string().contains("host"), "{error}");
    }
}

#[test]
fn a_call_is_reused_and_its_buffers_may_be_dropped() {
    let device = device();
    let x = device.buffer_from(&[1, 2]).unwrap();
    let call = negate(&x);
    let mut graph = Graph::new(&device);
    graph.launch(call.clone(), Range::linear(2));
    graph.launch(call, Range::linear(2));
    let copy = x.clone();
    drop(x);
    block_on(graph.finalize().unwrap().submit()).unwrap();
    assert_eq!(block_on(copy.to_vec()).unwrap(), [1, 2]);
}

#[test]
fn kernels_known_only_at_run_time() {
    let device = device();
    let (x, y) = (device.buffer_from(&[1u32, 2]).unwrap(), device.host_buffer::<u32>(2).unwrap());
    let captured = [10u32, 20];
    let kernel = RawKernel::new("pick")
        .value::<u8>("index")
        .value::<Local<u16>>("scratch")
        .reads::<u32>("x")
        .writes::<u32>("y")
        .host(move |range, args| {
            let index: u8 = args.value()?;
            assert_eq!((args.local()?, range.count(), args.remaining()), (8, 2, 2));
            let x = args.read::<u32>()?;
            for (y, x) in args.write::<u32>()?.iter_mut().zip(x) {
                *y = x * captured[usize::from(index)];
            }
            Ok(())
        });
    for (index, expected) in [(0u8, [10, 20]), (1, [20, 40])] {
        let call = kernel.call().value(index).value(Local::<u16>::new(4)).memory::<u32>(&x).memory::<u32>(&y);
        run(&device, call, Range::linear(2).local([2]));
        assert_eq!(*block_on(y.read()), expected);
    }
}

#[track_caller]
fn refused(build: impl FnOnce(&mut Graph)) -> Error {
    let mut graph = Graph::new(&device());
    build(&mut graph);
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("typed_api.rs"), "the place in the source: {error}");
    error
}

kernel! {
    fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
        host: |_, a, x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x),
    }
}

#[test]
fn aliasing_arguments_are_refused_where_they_are_written() {
    let device = device();
    let x = device.buffer::<f32>(8).unwrap();
    let part = |range| x.slice(range).unwrap();
    let error = refused(|graph| {
        graph.launch(axpy(1.0, &x, &x), Range::linear(8));
    });
    for word in ["axpy", "'x'", "'y'", "overlap", "disjoint"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    refused(|graph| {
        graph.launch(axpy(1.0, part(0..5), part(4..8)), Range::linear(4));
    });
    run(&device, axpy(1.0, part(0..4), part(4..8)), Range::linear(4));
}

#[test]
fn raw_calls_that_do_not_fit_are_refused() {
    let device = device();
    let x: Buffer<f32> = device.buffer(8).unwrap();
    let odd: HostBuffer<u8> = device.host_buffer(7).unwrap();
    let kernel = RawKernel::new("scale").value::<f32>("by").writes::<f32>("x").host(|_, _| Ok(()));
    let scalar = || kernel.call().value(1.0f32);
    for (call, word) in [
        (kernel.call(), "2 arguments"),
        (scalar(), "1 were given"),
        (scalar().memory::<f32>(&x).value(1u8), "3 were given"),
        (kernel.call().memory::<f32>(&x).value(1.0f32), "'by'"),
        (kernel.call().value(1.0f64).memory::<f32>(&x), "'by'"),
        (kernel.call().value(Local::<f32>::new(1)).memory::<f32>(&x), "'by'"),
        (scalar().value(2.0f32), "'x'"),
        (scalar().memory::<u8>(&odd), "'x'"),
    ] {
        let error = refused(|graph| {
            graph.launch(call, Range::linear(1));
        });
        assert!(error.to_string().contains("scale") && error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn memory_of_a_device_out_of_reach_is_refused_by_name() {
    use wakegraph::backend::host::{self, HostOptions};
    let alone = || Device::from_hal(host::open(HostOptions::new().threads(1).peer_access(false)).unwrap());
    let (a, b) = (alone(), alone());
    let (x, y) = (a.buffer::<f32>(4).unwrap(), b.buffer::<f32>(4).unwrap());
    let mut graph = Graph::new(&a);
    graph.launch(axpy(1.0, &x, &y), Range::linear(4)).name("reaches out");
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.node().unwrap().contains("reaches out"), "{error}");
    assert!(error.to_string().contains("typed_api.rs"), "{error}");
    let (owner, this) = (&b.info().selector, &a.info().selector);
    let why = format!("cannot be accessed from {this}, as it belongs to {owner}");
    assert!(
        error.message().contains("'y' (bytes 0..16 of 16)") && error.message().ends_with(&why),
        "{error}"
    );
    let x = a.host_buffer::<f32>(4).unwrap();
    drop((graph, x));
}

#[test]
fn refused_arguments_and_rectangles_say_what_does_not_fit() {
    let device = Device::open("host").unwrap();
    let (x, bytes) = (device.buffer::<u32>(8).unwrap(), device.buffer::<u8>(6).unwrap());
    let scale = RawKernel::new("scale").value::<f32>("factor").writes::<u32>("data").host(|_, _| Ok(()));
    let refused = |call: wakegraph::kernel::RawCall| {
        let mut graph = Graph::new(&device);
        graph.launch(call, Range::linear(1));
        graph.finalize().unwrap_err().message().to_owned()
    };
    assert_eq!(
        refused(scale.call().value(1.0f32)),
        "kernel 'scale' takes 2 arguments (factor, data), 1 were given"
    );
    assert_eq!(
        refused(scale.call().value(1.0f64).memory::<u32>(&x)),
        "kernel 'scale' gets a value of 8 bytes for 'factor', which takes a value of 4 bytes"
    );
    assert_eq!(
        refused(scale.call().memory::<u32>(&x).value(1.0f32)),
        "kernel 'scale' gets memory of 32 bytes for 'factor', which takes a value of 4 bytes"
    );
    assert_eq!(
        refused(scale.call().value(1.0f32).value(2u8)),
        "kernel 'scale' gets a value of 1 byte for 'data', which takes memory of 4-byte elements to read and write"
    );
    assert_eq!(
        refused(scale.call().value(1.0f32).memory::<u8>(&bytes)),
        "kernel 'scale' gets 6 bytes for 'data', which are not whole elements of 4 bytes"
    );
    let y = device.buffer::<u32>(8).unwrap();
    let mut graph = Graph::new(&device);
    graph.copy_rect(&x, &y, RectCopy::new([2, 3], Layout::rows(2), Layout::rows(4)));
    assert_eq!(
        graph.finalize().unwrap_err().message(),
        "in the destination, the rectangle ends at byte 40 of 32, 8 too far: 8 bytes x 3 rows x 1 slices, from byte \
         0 on, a row every 16 bytes, a slice every 48"
    );
    let unknown = Device::open("abacus:0").unwrap_err().to_string();
    assert!(unknown.contains("'abacus'") && unknown.contains("host"), "{unknown}");
}

kernel! {
    fn one_index(by: u32, from: &[u32], to: &mut [u32]) { item: |i, by, from, to| to[i] = by * from[i] }
    fn two_indices(width: u64, _tile: Local<u8>, to: &mut [u32]) {
        range: |width, tile, to| [width as usize, to.len() / width as usize * tile.len()],
        item: |[x, y], width, tile, to| {
            assert_eq!(tile.len(), 1);
            to[y * width as usize + x] = (10 * y + x) as u32;
        },
    }
    fn three_indices(to: &mut [u32]) { range: |_| RangeBound::ANY, item: |[x, _, z], to| to[x] += z as u32 }
    fn without_parameters() { item: |i| ITEMS.lock().unwrap().push(i) }
}

/// The indices that `without_parameters` was called with.
static ITEMS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A kernel of one argument of bytes, by what is public for `kernel!`.
fn kernel_of_bytes(access: AccessMode) -> &'static KernelDef {
    let kind = ParamKind::Buffer { access, element_size: 1, element_align: 1 };
    let params = Box::new([Param { name: "x".into(), kind }]);
    let def = KernelDef::new("bytes", params, Box::new([ParamType::of::<[u8]>()]));
    Box::leak(Box::new(match access {
        AccessMode::Read => def.host(|_, args| args.read::<u8>().map(|x| assert_eq!(x, [7; 4]))),
        _ => def.host(|_, args| args.write::<u8>().map(|x| x.fill(9))),
    }))
}

#[test]
fn no_node_writes_a_source_of_copies() {
    let device = device();
    let bytes: std::sync::Arc<[u8]> = [7; 4].into();
    let (source, buffer) = (device.register_source(bytes.clone()).unwrap(), device.buffer::<u8>(4).unwrap());
    let writes = kernel_of_bytes(AccessMode::ReadWrite);
    let call = |operand| KernelCall::new(writes, [CallArg::Memory(operand)]);
    let writing = || call(CopySource::<u8>::operand(&source));
    let is_refused = |error: &Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let why = "registered as a source of copies cannot be written, as argument 'x' of kernel 'bytes' is";
        assert!(error.to_string().contains(why), "{error}");
    };
    is_refused(&refused(|graph| _ = graph.launch(writing(), Range::linear(1))));
    let grouped = |graph: &mut Graph| _ = graph.command_group().launch(writing(), Range::linear(1)).build();
    is_refused(&refused(grouped));
    is_refused(&block_on(device.queue().unwrap().launch(writing(), Range::linear(1)).wait()).unwrap_err());

    let mut graph = Graph::new(&device);
    let node = graph.launch(call(buffer.operand()), Range::linear(1)).id();
    let flag = device.buffer_from(&[1u32]).unwrap();
    let mut body = Graph::new(&device);
    let inside = body.launch(call(buffer.operand()), Range::linear(1)).id();
    let around = graph.if_nonzero(&flag, &body).id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    for node in [node.into(), inside.within(around)] {
        is_refused(&block_on(exec.update().launch(node, writing()).apply()).unwrap_err());
    }
    block_on(exec.submit()).unwrap();
    assert_eq!(block_on(buffer.to_vec()).unwrap(), [9; 4]);

    let reads = kernel_of_bytes(AccessMode::Read);
    let reading = KernelCall::new(reads, [CallArg::Memory(CopySource::<u8>::operand(&source))]);
    run(&device, reading, Range::linear(1));
    assert_eq!(*bytes, [7; 4]);
}

#[test]
fn what_does_not_fit_is_named_with_a_way_out() {
    let device = device();
    let x = device.buffer::<i32>(16).unwrap();
    let text = |build: &dyn Fn(&mut Graph)| {
        let mut graph = Graph::new(&device);
        build(&mut graph);
        graph.finalize().unwrap_err().to_string()
    };
    let of_range = |range: Range| text(&|graph| _ = graph.launch(negate(&x), range));
    for (error, texts) in [
        (
            of_range(Range::linear(16).local([4, 4])),
            ["range [16] in groups of [4, 4]:", "choose a work-group"],
        ),
        (x.slice(9..17).unwrap_err().to_string(), ["of a buffer of 16", "pass a range within the buffer"]),
        (text(&|graph| _ = graph.write(&x, &[])), ["cannot copy 0 elements", "slices of equal length"]),
        (
            text(&|graph| {
                let [from, to] = [(); 2].map(|()| device.host_buffer::<i32>(4).unwrap());
                graph.copy(&from, &to);
            }),
            ["both sides of the copy are host buffers [buffer copy #0", "in a host task"],
        ),
    ] {
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    }
}

kernel! {
    fn fails(_x: &mut [i32]) { host: |_, _x| panic!("as it should") }
}

#[test]
fn failures_while_running_name_the_place_in_the_source() {
    let device = device();
    let x = device.buffer::<i32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.launch(fails(&x), Range::linear(4));
    let error = block_on(graph.finalize().unwrap().submit()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KernelPanicked);
    assert!(error.to_string().contains("typed_api.rs"), "{error}");
    let mut graph = Graph::new(&device);
    graph.host_task((), async |()| Err::<(), _>("as it should"));
    let exec = graph.finalize().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { exec.submit().await }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostTaskFailed);
    assert!(error.to_string().contains("typed_api.rs"), "{error}");
}

#[test]
fn items_are_those_of_the_range() {
    let device = device();
    let (from, to) = (device.buffer_from(&[1u32, 2, 3, 4]).unwrap(), device.buffer::<u32>(6).unwrap());
    run(&device, one_index(10, &from, &to), Range::linear(2).starting_at([1]));
    assert_eq!(block_on(to.to_vec()).unwrap(), [0, 20, 30, 0, 0, 0]);
    run(&device, two_indices(3, Local::new(1), &to), Range::new([2, 1]).starting_at([1, 1]).local([1, 1]));
    assert_eq!(block_on(to.to_vec()).unwrap(), [0, 20, 30, 0, 11, 12]);
    run(&device, three_indices(&to), Range::new([2, 2, 2]).starting_at([0, 5, 100]));
    assert_eq!(block_on(to.to_vec()).unwrap(), [402, 422, 30, 0, 11, 12]);
    run(&device, without_parameters(), Range::linear(2).starting_at([7]));
    assert_eq!(*ITEMS.lock().unwrap(), [7, 8]);
}

kernel! {
    fn in_any_order(tile: wakegraph::Local<u32>, x: &mut [u32]) {
        // SAFETY: a work-item uses the element with its index, which the bound keeps below the length.
        c: unsafe { "KERNEL(in_any_order, (LOCAL_SLICE(u32, tile), SLICE(u32, x))) {
                         x[GLOBAL_ID(0)] = LEN(tile);
                     }" },
        group: |group, tile, x| x.row(0, 0).fill((tile.len() + group.offset()[0]) as u32),
        range: |tile, x| [if tile.len() == 2 { x.len() } else { 0 }],
    }
}

#[test]
fn the_parts_of_a_kernel_stand_in_any_order() {
    let device = device();
    let x = device.buffer::<u32>(4).unwrap();
    run(&device, in_any_order(Local::new(2), &x), Range::linear(4).local([2]));
    assert_eq!(block_on(x.to_vec()).unwrap(), [2, 2, 4, 4]);
    let mut graph = Graph::new(&device);
    graph.launch(in_any_order(Local::new(1), &x), Range::linear(4).local([2]));
    assert!(graph.errors()[0].message().contains("the bound on its range is [0]"), "{:?}", graph.errors());
}

kernel! {
    fn add_to_rows(width: u32, x: &mut [u32]) {
        range: |width, x| [x.len() / width as usize],
        item: |i, width, x| x[i * width as usize] += 1,
    }
    fn add_one(x: &mut [u32]) { item: |i, x| x[i] += 1 }
}

#[test]
fn a_bound_that_panics_is_an_error() {
    let device = device();
    let [x, y, z] = [(); 3].map(|()| device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(&device);
    graph.launch(add_to_rows(0, &x), Range::linear(1));
    assert_eq!(graph.take_errors()[0].kind(), ErrorKind::KernelPanicked);

    // Nor does it leave out edges of other nodes, whose parameters change with its own.
    let (memory, width) = (graph.param(&x), graph.param(1u32));
    let first = graph.launch(add_one(&y), Range::linear(4)).id();
    let second = graph.launch(add_one(&x), Range::linear(4)).param("x", &memory).id();
    graph.launch(add_to_rows(1, &z), Range::linear(4)).param("width", &width);
    memory.set(&y);
    width.set(0);
    graph.fill(&z, 1);
    assert_eq!(graph.predecessors(second).unwrap(), [first]);
    assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::KernelPanicked);
    width.set(1);
    graph.finalize().unwrap();
}

#[test]
fn a_replaced_bound_holds_for_launches_and_updates() {
    let device = device();
    let (from, to) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    // SAFETY: the kernel has no device code.
    let call = |bound: RangeBound| unsafe { one_index(1, &from, &to).with_range_bound(bound) };
    let mut graph = Graph::new(&device);
    graph.launch(call([2].into()), Range::linear(3));
    assert!(graph.errors()[0].message().contains("the bound on its range is [2]"), "{:?}", graph.errors());
    let mut graph = Graph::new(&device);
    let node = graph.launch(call([2].into()), Range::linear(2)).id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let error = block_on(exec.update().range(node, Range::linear(3)).apply()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSize);
    block_on(exec.update().launch(node, call(RangeBound::ANY)).range(node, Range::linear(9)).apply())
        .unwrap();
    // Rust's own checks stay.
    assert_eq!(block_on(exec.submit()).unwrap_err().kind(), ErrorKind::KernelPanicked);
}

#[test]
fn a_write_of_no_elements_is_refused_by_graphs_and_queues() {
    let device = Device::open("host").unwrap();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.write(&x, &[]);
    let of_graph = graph.finalize().unwrap_err();
    let of_queue = block_on(async { device.queue().unwrap().write(&x, &[]).await }).unwrap_err();
    assert_eq!([of_graph.kind(), of_queue.kind()], [ErrorKind::InvalidSize; 2]);
    assert_eq!(of_graph.message(), of_queue.message());
}
