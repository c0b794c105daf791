//! The tests, with their environment and how their process ends.

use crate::api::{End as CopyEnd, MEMCPY_DEFAULT, Memcpy3d, Memset};
use crate::device::{Device, by, compile, kernel, ok};

/// How a test's process ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Well,
    /// By a signal, after it has printed this.
    Aborts(&'static str),
}

type Test = (&'static str, &'static [(&'static str, &'static str)], End, fn());

const BOXES_TO_THE_HOST: &str = "boxes_are_copied_to_the_host";

/// Why a version does not pass a test.
pub(crate) fn defect(version: &str, test: &str) -> Option<&'static str> {
    let loses_offset = version.starts_with("5.") && test == BOXES_TO_THE_HOST;
    loses_offset.then_some("HIP 5.7.1 does not start where the destination in host memory does")
}

pub(crate) const ALL: &[Test] = &[
    ("streams_order_copies_and_sets", &[], End::Well, streams_order_copies_and_sets),
    ("events_order_streams", &[("WAKEGRAPH_HSA_DELAY_US", "200")], End::Well, events_order_streams),
    ("kernels_compute", &[], End::Well, kernels_compute),
    ("build_errors_have_a_log", &[], End::Well, build_errors_have_a_log),
    ("graphs_compute", &[], End::Well, graphs_compute),
    ("boxes_are_copied", &[], End::Well, || boxes_are_copied(false)),
    (BOXES_TO_THE_HOST, &[], End::Well, || boxes_are_copied(true)),
    ("fan_outs_join", &[("WAKEGRAPH_HSA_DELAY_US", "50")], End::Well, fan_outs_join),
    ("fan_outs_join_by_plain_packets", &[("DEBUG_CLR_GRAPH_PACKET_CAPTURE", "0")], End::Well, fan_outs_join),
    ("two_devices_wait_for_each_other", &[("WAKEGRAPH_HSA_GPUS", "2")], End::Well, two_devices),
    (
        "devices_without_peers",
        &[("WAKEGRAPH_HSA_GPUS", "2"), ("WAKEGRAPH_HSA_PEERS", "0")],
        End::Well,
        no_peers,
    ),
    ("little_memory_is_refused", &[("WAKEGRAPH_HSA_MEMORY", "67108864")], End::Well, little_memory),
    ("no_device_is_reported", &[("WAKEGRAPH_HSA_GPUS", "0")], End::Well, no_device),
    (
        "faults_end_the_process",
        &[("WAKEGRAPH_HSA_FAULT", "2")],
        End::Aborts("aborting with error"),
        kernels_compute,
    ),
    ("calls_fail_by_name", &[("WAKEGRAPH_HSA_FAIL", "hsa_init:1")], End::Well, no_device),
    ("kernels_outside_memory_are_named", &[], End::Aborts("by kernel store"), kernels_outside_memory),
];

const SOURCE: &str = r#"
extern "C" __global__ void add(unsigned *x, unsigned n) { x[blockIdx.x * blockDim.x + threadIdx.x] += n; }
extern "C" __global__ void axpy(unsigned a, const unsigned *x, unsigned *y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] += a * x[i];
}
extern "C" __global__ void fold(unsigned *x, unsigned *y, unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) sum += x[i];
    y[0] = sum;
}
extern "C" __global__ void reverse(unsigned *x) {
    __shared__ unsigned all[256];
    all[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    unsigned mine = all[255 - threadIdx.x];
    __syncthreads();
    all[threadIdx.x] = mine + 1;
    __syncthreads();
    x[blockIdx.x * 256 + threadIdx.x] = all[threadIdx.x];
}
extern "C" __global__ void store(unsigned *x, unsigned value) { x[0] = value; }
"#;

const N: usize = 1024;

fn streams_order_copies_and_sets() {
    let device = Device::open();
    assert_eq!(device.count(), 1);
    let (stream, host) = (device.stream(), device.host_memory(4 * N));
    let (x, y) = (device.memory(4 * N), device.memory(4 * N));
    let hip = &device.hip;
    for round in 0..10 {
        ok!(hip.hipMemsetD32Async(x, 7 + round, N, stream));
        ok!(hip.hipMemsetD16Async(x + 4, 0x1234, 2, stream));
        ok!(hip.hipMemsetAsync(x + 9, 0xab, 3, stream));
        ok!(hip.hipMemcpyAsync(y, x, 4 * N, MEMCPY_DEFAULT, stream));
        ok!(hip.hipMemcpyAsync(host.address, y, 4 * N, MEMCPY_DEFAULT, stream));
        ok!(hip.hipStreamSynchronize(stream));
        let mut expected = vec![7 + round as u32; N];
        expected[1] = 0x1234_1234;
        expected[2] = 0xabab_ab00 | expected[0];
        assert_eq!(host.values(N), expected);
    }
    // Memory of the program, which HIP copies piece by piece.
    let pageable: Vec<u32> = (0..300_000).collect();
    let large = device.memory(4 * pageable.len());
    ok!(hip.hipMemcpyAsync(large, pageable.as_ptr() as usize, 4 * pageable.len(), MEMCPY_DEFAULT, stream));
    ok!(hip.hipStreamSynchronize(stream));
    assert_eq!(device.read(large, pageable.len()), pageable);
    ok!(hip.hipFree(large));
    ok!(hip.hipFree(x));
    ok!(hip.hipHostFree(host.address));
    ok!(hip.hipStreamDestroy(stream));
}

fn events_order_streams() {
    let device = Device::open();
    let hip = &device.hip;
    let (x, y) = (device.memory(4 * N), device.memory(4 * N));
    let (first, second, event, end) = (device.stream(), device.stream(), device.event(), device.event());
    // An event that was never recorded reads as complete.
    ok!(hip.hipEventQuery(event));
    for round in 0..50 {
        ok!(hip.hipMemsetD32Async(x, round, N, first));
        ok!(hip.hipEventRecord(event, first));
        ok!(hip.hipStreamWaitEvent(second, event, 0));
        ok!(hip.hipMemcpyAsync(y, x, 4 * N, MEMCPY_DEFAULT, second));
        ok!(hip.hipEventRecord(end, second));
        ok!(hip.hipStreamWaitEvent(first, end, 0));
    }
    device.wait(end);
    assert_eq!(device.read(y, N), [49; N]);
    let mut milliseconds = -1.0;
    ok!(hip.hipEventElapsedTime(&mut milliseconds, event, end));
    assert!(milliseconds >= 0.0, "{milliseconds}");
    ok!(hip.hipEventDestroy(event));
}

fn kernels_compute() {
    let device = Device::open();
    let (module, stream, x) = (device.module(SOURCE), device.stream(), device.memory(4 * N));
    let (add, reverse) = (device.function(module, "add"), device.function(module, "reverse"));
    ok!(device.hip.hipMemsetD32Async(x, 5, N, stream));
    device.launch(add, 4, 256, stream, &[by(&x), by(&3_u32)]);
    device.launch(add, 1, 16, stream, &[by(&x), by(&2_u32)]);
    device.launch(reverse, 4, 256, stream, &[by(&x)]);
    ok!(device.hip.hipStreamSynchronize(stream));
    let expected: Vec<u32> = (0..N).map(|i| if (240..256).contains(&i) { 11 } else { 9 }).collect();
    assert_eq!(device.read(x, N), expected);
    ok!(device.hip.hipModuleUnload(module));
}

fn build_errors_have_a_log() {
    let log = compile("extern \"C\" __global__ void f() { undeclared(); }").unwrap_err();
    assert!(log.contains("kernels.hip:1") && log.contains("undeclared"), "{log}");
}

fn set(to: usize, value: u32, width: usize) -> Memset {
    Memset { to, element: 4, height: 1, pitch: 0, value, width }
}

fn graphs_compute() {
    let device = Device::open();
    let hip = &device.hip;
    let module = device.module(SOURCE);
    let [add, axpy] = ["add", "axpy"].map(|name| device.function(module, name));
    let (stream, host) = (device.stream(), device.host_memory(4 * N));
    let (x, y) = (device.memory(4 * N), device.memory(4 * N));
    let (graph, event) = (device.graph(), device.event());
    let [mut one, mut five, mut copy, mut record] = [0; 4];
    ok!(hip.hipGraphAddMemsetNode(&mut one, graph, std::ptr::null(), 0, &set(x, 1, N)));
    ok!(hip.hipGraphAddMemsetNode(&mut five, graph, std::ptr::null(), 0, &set(y, 5, N)));
    let (grid, block) = ([4, 1, 1], [256, 1, 1]);
    let plus = device.kernel_node(graph, &[one], &kernel(add, grid, block, &[by(&x), by(&2_u32)]));
    let arguments = [by(&3_u32), by(&x), by(&y)];
    let times = device.kernel_node(graph, &[five, plus], &kernel(axpy, grid, block, &arguments));
    let bytes = 4 * N;
    ok!(hip.hipGraphAddMemcpyNode1D(&mut copy, graph, &times, 1, host.address, y, bytes, MEMCPY_DEFAULT));
    ok!(hip.hipGraphAddEventRecordNode(&mut record, graph, &copy, 1, event));
    let instance = device.instance(graph);
    ok!(hip.hipGraphUpload(instance, stream));
    let run = || {
        host.set(0, 77);
        ok!(hip.hipGraphLaunch(instance, stream));
        ok!(hip.hipStreamSynchronize(stream));
        ok!(hip.hipEventQuery(event));
        host.get(0)
    };
    for _ in 0..20 {
        assert_eq!(run(), 5 + 3 * (1 + 2));
    }
    ok!(hip.hipGraphExecKernelNodeSetParams(
        instance,
        plus,
        &kernel(add, grid, block, &[by(&x), by(&10_u32)])
    ));
    assert_eq!(run(), 5 + 3 * (1 + 10));
    ok!(hip.hipGraphNodeSetEnabled(instance, plus, 0));
    assert_eq!(run(), 5 + 3);
    ok!(hip.hipGraphNodeSetEnabled(instance, copy, 0));
    assert_eq!(run(), 77);
    ok!(hip.hipGraphExecDestroy(instance));
    ok!(hip.hipGraphDestroy(graph));
}

/// Widths, pitches and offsets that HIP copies in units of 1, 4 and 16 bytes.
fn boxes_are_copied(to_host: bool) {
    const BYTES: usize = 65536;
    let device = Device::open();
    let hip = &device.hip;
    let (stream, host) = (device.stream(), device.host_memory(BYTES));
    let (x, y) = (device.memory(BYTES), device.memory(BYTES));
    (0..BYTES / 4).for_each(|index| host.set(index, (index as u32).wrapping_mul(0x9e37_79b1)));
    ok!(hip.hipMemcpyAsync(x, host.address, BYTES, MEMCPY_DEFAULT, stream));
    ok!(hip.hipStreamSynchronize(stream));
    let bytes_of = |words: Vec<u32>| words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    let source = bytes_of(host.values(BYTES / 4));
    // Offset, pitch and rows a slice at each end; width, rows, slices.
    let boxes = [
        ([3, 128, 16], [5, 96, 10], [60, 7, 3]),
        ([0, 256, 4], [0, 256, 4], [256, 4, 4]),
        ([1, 33, 5], [2, 47, 6], [31, 4, 5]),
        ([16, 4096, 8], [0, 64, 8], [64, 8, 1]),
        ([4, 100, 6], [8, 60, 7], [36, 6, 2]),
        ([32, 160, 6], [16, 96, 7], [48, 6, 2]),
    ];
    for (from, to, [width, rows, slices]) in boxes {
        let end = |base, [offset, pitch, height]: [usize; 3]| CopyEnd {
            array: 0,
            position: [0; 3],
            base: base + offset,
            pitch,
            width: pitch,
            height,
        };
        let target = if to_host { host.address } else { y };
        ok!(hip.hipMemsetAsync(target, 0, BYTES, stream));
        let parameters = Memcpy3d {
            from: end(x, from),
            to: end(target, to),
            extent: [width, rows, slices],
            kind: MEMCPY_DEFAULT,
        };
        let (graph, mut node) = (device.graph(), 0);
        ok!(hip.hipGraphAddMemcpyNode(&mut node, graph, std::ptr::null(), 0, &parameters));
        ok!(hip.hipGraphLaunch(device.instance(graph), stream));
        ok!(hip.hipStreamSynchronize(stream));
        let found = if to_host { host.values(BYTES / 4) } else { device.read(y, BYTES / 4) };
        let mut expected = vec![0; BYTES];
        for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
            let at = |[offset, pitch, height]: [usize; 3]| offset + (slice * height + row) * pitch;
            expected[at(to)..][..width].copy_from_slice(&source[at(from)..][..width]);
        }
        let found = bytes_of(found);
        let wrong = (0..BYTES).filter(|&at| found[at] != expected[at]).count();
        assert_eq!(wrong, 0, "{from:?} {to:?} {width} {rows} {slices} to the host: {to_host}");
    }
}

fn fan_outs_join() {
    const WIDTH: usize = 100;
    let device = Device::open();
    let hip = &device.hip;
    let module = device.module(SOURCE);
    let [add, fold] = ["add", "fold"].map(|name| device.function(module, name));
    let (stream, host) = (device.stream(), device.host_memory(4));
    let (x, y, graph) = (device.memory(4 * WIDTH), device.memory(4), device.graph());
    let (mut clear, mut copy) = (0, 0);
    ok!(hip.hipGraphAddMemsetNode(&mut clear, graph, std::ptr::null(), 0, &set(x, 0, WIDTH)));
    let children: Vec<usize> = (0..WIDTH)
        .map(|child| {
            let arguments = [by(&(x + 4 * child)), by(&1_u32)];
            device.kernel_node(graph, &[clear], &kernel(add, [1; 3], [1; 3], &arguments))
        })
        .collect();
    let arguments = [by(&x), by(&y), by(&(WIDTH as u32))];
    let join = device.kernel_node(graph, &children, &kernel(fold, [1; 3], [1; 3], &arguments));
    ok!(hip.hipGraphAddMemcpyNode1D(&mut copy, graph, &join, 1, host.address, y, 4, MEMCPY_DEFAULT));
    let instance = device.instance(graph);
    for round in 0..200 {
        host.set(0, 0);
        ok!(hip.hipGraphLaunch(instance, stream));
        ok!(hip.hipStreamSynchronize(stream));
        assert_eq!(host.get(0), WIDTH as u32, "round {round}");
    }
}

fn two_devices() {
    let device = Device::open();
    let hip = &device.hip;
    assert_eq!(device.count(), 2);
    let made = [0, 1].map(|index| {
        ok!(hip.hipSetDevice(index));
        let mut reaches = 0;
        ok!(hip.hipDeviceCanAccessPeer(&mut reaches, index, 1 - index));
        assert_eq!(reaches, 1);
        ok!(hip.hipDeviceEnablePeerAccess(1 - index, 0));
        let module = device.module(SOURCE);
        (device.stream(), device.event(), device.memory(4 * N), device.function(module, "add"))
    });
    ok!(hip.hipSetDevice(0));
    ok!(hip.hipMemsetD32Async(made[0].2, 0, N, made[0].0));
    ok!(hip.hipEventRecord(made[0].1, made[0].0));
    for round in 1..=10 {
        let (here, there) = (round % 2, 1 - round % 2);
        let (stream, event, memory, add) = made[here];
        ok!(hip.hipSetDevice(here as i32));
        ok!(hip.hipStreamWaitEvent(stream, made[there].1, 0));
        ok!(hip.hipMemcpyAsync(memory, made[there].2, 4 * N, MEMCPY_DEFAULT, stream));
        device.launch(add, 4, 256, stream, &[by(&memory), by(&1_u32)]);
        ok!(hip.hipEventRecord(event, stream));
    }
    device.wait(made[0].1);
    assert_eq!(device.read(made[0].2, N), [10; N]);
}

fn no_peers() {
    let device = Device::open();
    let mut reaches = -1;
    ok!(device.hip.hipDeviceCanAccessPeer(&mut reaches, 0, 1));
    assert_eq!(reaches, 0);
}

fn little_memory() {
    const OUT_OF_MEMORY: i32 = 2;
    let device = Device::open();
    let mut address = 0;
    assert_eq!(device.hip.hipMalloc(&mut address, 128 << 20), OUT_OF_MEMORY);
    device.memory(16 << 20);
}

fn no_device() {
    const NO_DEVICE: i32 = 100;
    let hip =
        crate::api::Hip::load("libamdhip64.so.6").or_else(|_| crate::api::Hip::load("libamdhip64.so.5"));
    let mut count = -1;
    assert_eq!(hip.unwrap().hipGetDeviceCount(&mut count), NO_DEVICE);
}

fn kernels_outside_memory() {
    let device = Device::open();
    let (module, stream) = (device.module(SOURCE), device.stream());
    let function = device.function(module, "store");
    device.launch(function, 1, 1, stream, &[by(&0x1000_usize), by(&1_u32)]);
    ok!(device.hip.hipStreamSynchronize(stream));
}
