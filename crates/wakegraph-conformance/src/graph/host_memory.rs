//! Host buffers of memory that earlier ones have left, and of memory that the application has.
#![expect(unsafe_code, reason = "registers memory by its address")]

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use wakegraph::memory::CopySource;
use wakegraph::{Device, ErrorKind, Graph, HostBuffer, Range};

use crate::kernels::add;
use crate::suite::{Need, Setup, tests};
use crate::support::{Token, Tracker};

tests!("graph/host_memory":
    &[Need::Results] => [dropped_buffers_leave_zeroed_memory, vectors_are_both_sides_of_copies,
        sources_have_any_owner, sources_may_be_read_only_pages, other_devices_copy_from_sources, kernels_use_registered_memory,
        owners_outlive_what_is_in_flight, sockets_read_into_buffers_and_write_from_them],
    &[] => [misuse_is_refused]);

fn dropped_buffers_leave_zeroed_memory(setup: &Setup) {
    let device = setup.device();
    setup.block_on(async {
        for len in [1, 100, 5000, 100_000] {
            for round in 0..3u32 {
                let buffer = device.host_buffer::<u32>(len).unwrap();
                assert!(buffer.read().await.iter().all(|&x| x == 0), "{len}, round {round}");
                let x = device.buffer::<u32>(len).unwrap();
                let mut graph = Graph::new(device);
                graph.fill(&x, 7 + round);
                graph.copy(&x, &buffer);
                let submission = graph.finalize().unwrap().submit();
                let guard = buffer.read();
                drop((graph, x));
                assert!(guard.await.iter().all(|&x| x == 7 + round));
                submission.await.unwrap();
            }
        }
    });
}

/// Small vectors share pages.
fn vectors_are_both_sides_of_copies(setup: &Setup) {
    let device = setup.device();
    setup.block_on(async {
        for len in [1usize, 3, 1000, 300_000] {
            let elements: Vec<u16> = (0..len).map(|i| i as u16).collect();
            let input = device.register_owned(elements.clone()).unwrap();
            let output = device.register_owned(vec![0u16; len].into_boxed_slice()).unwrap();
            let x = device.buffer::<u16>(len).unwrap();
            let mut graph = Graph::new(device);
            graph.copy(&input, &x);
            graph.copy(&x, &output);
            let exec = graph.finalize().unwrap();
            exec.submit().await.unwrap();
            assert_eq!(*output.read().await, elements);
            input.write().await.fill(9);
            exec.submit().await.unwrap();
            assert!(output.read().await.iter().all(|&x| x == 9));
        }
    });
}

async fn copied<T: bytemuck::Pod>(device: &Device, source: impl CopySource<T>, len: usize) -> Vec<T> {
    let x = device.buffer::<T>(len).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(source, &x);
    graph.finalize().unwrap().submit().await.unwrap();
    x.to_vec().await.unwrap()
}

fn sources_have_any_owner(setup: &Setup) {
    let device = setup.device();
    setup.block_on(async {
        let bytes = Bytes::from((0..200).collect::<Vec<u8>>());
        let source = device.register_source(bytes.clone()).unwrap();
        assert_eq!(*source, bytes);
        assert_eq!(copied(device, &source, 200).await, bytes);
        assert_eq!(copied(device, source.slice(3..7).unwrap(), 4).await, [3, 4, 5, 6]);
        drop(source);

        let words: Arc<[u32]> = Arc::new([1, 2, 3, 4]);
        let words = device.register_source(words).unwrap();
        assert_eq!(copied(device, words.clone(), 4).await, [1, 2, 3, 4]);
        let wide = words.cast::<u64>().unwrap();
        assert_eq!(copied(device, &wide, 2).await.len(), 2);
        let three = words.slice(..3).unwrap();
        assert_eq!(three.cast::<u64>().unwrap_err().kind(), ErrorKind::InvalidSize);
        assert_eq!(three.cast::<u8>().unwrap().len(), 12);

        // An owner that has its elements inside itself.
        let inline = device.register_source([5u8; 64]).unwrap();
        assert_eq!(copied(device, &inline, 64).await, [5; 64]);
        let odd = inline.slice(1..9).unwrap();
        let error = odd.cast::<u64>().map(|odd| odd.len());
        assert!(
            odd.as_ptr().addr().is_multiple_of(8) || error.unwrap_err().kind() == ErrorKind::InvalidArgument
        );
    });
}

/// Pages that cannot be written.
static PAGES: [u8; 8192] = [42; 8192];
/// They are registered once at a time.
static PAGES_IN_USE: Mutex<()> = Mutex::new(());

struct Pages(#[expect(dead_code, reason = "dropped")] Token);

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &PAGES
    }
}

fn sources_may_be_read_only_pages(setup: &Setup) {
    let (_in_use, tracker) = (PAGES_IN_USE.lock(), Tracker::new());
    let source = setup.device().register_source(Pages(tracker.token())).unwrap();
    setup.block_on(async { assert_eq!(copied(setup.device(), &source, PAGES.len()).await, PAGES) });
    drop(source);
    tracker.wait_until_freed();
}

fn other_devices_copy_from_sources(setup: &Setup) {
    let other = Device::open("host:5").unwrap();
    let source = other.register_source(vec![1u32, 2, 3]).unwrap();
    setup.block_on(async { assert_eq!(copied(setup.device(), &source, 3).await, [1, 2, 3]) });
}

/// Not on OpenCL, which refuses.
fn kernels_use_registered_memory(setup: &Setup) {
    let device = setup.device();
    let x: HostBuffer<u32> = device.register_owned(vec![1u32; 1 << 20]).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(2, &x), Range::linear(1 << 20));
    if matches!(device.info().backend, "opencl" | "level_zero") {
        assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::InvalidArgument);
        return;
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert!(x.read().await.iter().all(|&x| x == 3));
    });
}

/// A vector that tells when it is dropped.
struct Owner(Vec<u8>, #[expect(dead_code, reason = "dropped")] Token);

impl AsMut<[u8]> for Owner {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn owners_outlive_what_is_in_flight(setup: &Setup) {
    let (device, tracker) = (setup.device(), Tracker::new());
    let owner = || Owner(vec![1; 100_000], tracker.token());
    let input = device.register_source(owner()).unwrap();
    let output = device.register_owned(owner()).unwrap();
    let x = device.buffer::<u8>(100_000).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&input, &x);
    graph.copy(&x, &output);
    let submission = graph.finalize().unwrap().submit();
    drop((graph, x, input));
    setup.block_on(async {
        assert!(output.read().await.iter().all(|&x| x == 1));
        submission.await.unwrap();
        drop(output);
        // An owner of nothing goes, too.
        let empty = Owner(Vec::new(), tracker.token());
        assert!(device.register_source(empty).unwrap().is_empty());
    });
    tracker.wait_until_freed();
}

fn misuse_is_refused(setup: &Setup) {
    let device = setup.device();
    let mut memory = vec![0u32; 64];
    let start = memory.as_mut_ptr().expose_provenance();
    // SAFETY: the memory is valid, and nothing uses it.
    let register = |address, len| unsafe { device.register::<u32>(address, len, ()) };
    let refused = |address, len| register(address, len).unwrap_err().kind();
    assert_eq!(refused(0, 4), ErrorKind::InvalidArgument);
    assert_eq!(refused(start + 2, 4), ErrorKind::InvalidArgument);
    assert_eq!(refused(start, usize::MAX / 2), ErrorKind::InvalidSize);
    assert_eq!(refused(usize::MAX - 3, 4), ErrorKind::InvalidSize);

    let middle = register(start + 64, 16).unwrap();
    for (offset, len) in [(64, 16), (68, 1), (60, 2), (124, 8), (0, 64)] {
        let error = register(start + offset, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{offset} {len}");
        assert!(error.message().contains("overlaps registered memory"), "{error}");
    }
    let other = Device::open("host:5").unwrap();
    // SAFETY: as above.
    let elsewhere = unsafe { other.register::<u32>(start + 64, 16, ()) };
    assert_eq!(elsewhere.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let before = register(start, 16).unwrap();
    let behind = register(start + 128, 16).unwrap();
    drop((before, middle, behind));
    drop(register(start, 64).unwrap());
}

fn sockets_read_into_buffers_and_write_from_them(setup: &Setup) {
    let device = setup.device();
    let (input, output) = (device.host_buffer::<u32>(300).unwrap(), device.host_buffer::<u32>(300).unwrap());
    let x = device.buffer::<u32>(300).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&input, &x);
    graph.launch(add(7, &x), Range::linear(300));
    graph.copy(&x, &output);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for round in 0..3 {
            // Less than an element at a time.
            let ((mut peer, mut socket), sent) = (duplex(3), vec![round; 1200]);
            let (input, output) = (&input, &output);
            let server = async {
                assert_eq!(input.write().await.read_from(&mut socket).await.unwrap(), 1200);
                exec.submit().await.unwrap();
                output.read().await.write_to(&mut socket).await.unwrap();
            };
            let mut received = vec![0; 1200];
            let client = async {
                peer.write_all(&sent).await.unwrap();
                peer.read_exact(&mut received).await.unwrap();
            };
            tokio::join!(server, client);
            let expected = (u32::from_ne_bytes([round; 4]) + 7).to_ne_bytes();
            assert_eq!(received, expected.repeat(300));
        }
    });
}
