//! Device memory that comes, is used at once and goes, while other work is in flight.
#![expect(unsafe_code, reason = "asks for memory that is not cleared")]

use wakegraph::{Buffer, Device, Graph, Range};

use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/memory":
    &[Need::Results] => [the_first_use_finds_zeroes, dropped_memory_serves_no_two_at_once,
        memory_that_is_not_cleared],
    &[Need::Results, Need::TwoDevices] => [another_device_finds_zeroes]);

const LENGTHS: [usize; 3] = [1, 1000, 300_000];

/// Memory that is zeroed, in the place of other memory that has just been freed.
fn zeroed(device: &Device, len: usize) -> Buffer<u32> {
    drop(device.buffer_from(&vec![u32::MAX; len]).unwrap());
    device.buffer(len).unwrap()
}

fn the_first_use_finds_zeroes(setup: &Setup) {
    let device = setup.device();
    let queues = [(); 3].map(|()| device.queue().unwrap());
    setup.block_on(async {
        for len in LENGTHS {
            // By commands of several queues.
            for _ in 0..10 {
                let all: Vec<_> = queues.iter().map(|queue| (queue, zeroed(device, len))).collect();
                for (queue, x) in &all {
                    queue.launch(add(1, x), Range::linear(len));
                }
                for (_, x) in &all {
                    assert_eq!(x.to_vec().await.unwrap(), vec![1; len]);
                }
            }
            // By an executable.
            let (x, host) = (zeroed(device, len), device.host_buffer::<u32>(len).unwrap());
            let mut graph = Graph::new(device);
            graph.launch(add(2, &x), Range::linear(len));
            graph.copy(&x, &host);
            graph.finalize().unwrap().submit().await.unwrap();
            assert_eq!(*host.read().await, vec![2; len]);
            // By the host.
            assert_eq!(zeroed(device, len).to_vec().await.unwrap(), vec![0; len]);
            let x = zeroed(device, len);
            x.write(&[7]).await.unwrap();
            let elements = x.to_vec().await.unwrap();
            assert!(elements[0] == 7 && elements[1..].iter().all(|&element| element == 0));
        }
    });
}

fn dropped_memory_serves_no_two_at_once(setup: &Setup) {
    let device = setup.device();
    let queues = [(); 2].map(|()| device.queue().unwrap());
    setup.block_on(async {
        for len in LENGTHS {
            let results: Vec<_> = (0..20).map(|_| device.host_buffer::<u32>(len).unwrap()).collect();
            for (result, queue) in results.iter().zip(queues.iter().cycle()) {
                let x = device.buffer::<u32>(len).unwrap();
                queue.launch(add(3, &x), Range::linear(len));
                queue.copy(&x, result);
            }
            for result in &results {
                assert_eq!(*result.read().await, vec![3; len]);
            }
        }
    });
}

fn memory_that_is_not_cleared(setup: &Setup) {
    let device = setup.device();
    let queue = device.queue().unwrap();
    setup.block_on(async {
        for len in LENGTHS {
            // SAFETY: all elements are written before any is read, here and below.
            let x = unsafe { device.buffer_uninit::<u32>(len) }.unwrap();
            x.write(&vec![4; len]).await.unwrap();
            // SAFETY: as above.
            let y = unsafe { device.buffer_uninit::<u32>(len) }.unwrap();
            queue.copy(&x, &y);
            queue.launch(add(1, &y), Range::linear(len));
            assert_eq!(y.to_vec().await.unwrap(), vec![5; len]);
        }
    });
}

fn another_device_finds_zeroes(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    setup.block_on(async {
        for len in LENGTHS {
            for (here, there) in [(a, b), (b, a)] {
                let (x, y) = (zeroed(here, len), there.buffer_from(&vec![1u32; len]).unwrap());
                let mut graph = Graph::new(there);
                graph.copy(&x, &y);
                graph.finalize().unwrap().submit().await.unwrap();
                assert_eq!(y.to_vec().await.unwrap(), vec![0; len]);
                // New memory in its place.
                let x = zeroed(here, len);
                let mut graph = Graph::new(there);
                graph.launch(add(1, &y), Range::linear(len));
                graph.copy(&x, &y);
                graph.launch(add(2, &y), Range::linear(len));
                graph.finalize().unwrap().submit().await.unwrap();
                assert_eq!(y.to_vec().await.unwrap(), vec![2; len]);
            }
        }
    });
}
