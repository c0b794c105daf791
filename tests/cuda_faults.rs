//! A kernel that goes beyond its arguments ends everything on a CUDA device, and nothing else: every pending submission
//! fails, the process lives, and what the driver makes of the device afterwards is an error that says so. A process of its own, as nothing else may use the device.
#![cfg(feature = "cuda")]
#![expect(unsafe_code, reason = "declares device code, and breaks its promise on purpose")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

use wakegraph::{Device, ErrorKind, Graph, Range, kernel};

kernel! {
    /// Writes to an address that is nobody's.
    fn stray(address: u64) {
        // SAFETY: not safe. The device that runs it is lost, which is what the test is about; no memory is touched.
        c: unsafe { "KERNEL(stray, (u64 address)) { *(GLOBAL u32 *)address = 1; }" },
    }
    fn add(n: u32, x: &mut [u32]) {
        // SAFETY: each work-item of a launch over the buffer's length uses the element with its index.
        c: unsafe { "KERNEL(add, (u32 n, GLOBAL u32 *x)) { x[GLOBAL_ID(0)] += n; }" },
    }
}

fn open() -> Option<Device> {
    match Device::open("cuda:0") {
        Ok(device) => Some(device),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(!std::env::var("WAKEGRAPH_REQUIRE").unwrap_or_default().contains("cuda"), "{error}");
            eprintln!("ignored: {error}");
            None
        }
    }
}

async fn works(device: &Device) -> wakegraph::Result<()> {
    let x = device.buffer_from(&[1u32, 2, 3])?;
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(3));
    graph.finalize()?.submit().await?;
    assert_eq!(x.to_vec().await?, [2, 3, 4]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_fails_everything_pending_and_nothing_else() {
    let Some(device) = open() else { return };
    works(&device).await.unwrap();
    {
        let x = device.buffer::<u32>(8).unwrap();
        let mut graph = Graph::new(&device);
        graph.launch(stray(8), Range::linear(1)).name("stray");
        let faulty = graph.finalize().unwrap();
        let mut graph = Graph::new(&device);
        graph.launch(add(1, &x), Range::linear(8));
        let other = graph.finalize().unwrap();

        let first = faulty.submit();
        let behind = other.prepare().after(&first).submit();
        for error in [first.await.unwrap_err(), behind.await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
            assert_eq!(error.device(), Some("cuda:0"), "{error}");
        }
        assert_eq!(device.hal().status().unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(other.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(device.buffer::<u32>(8).unwrap_err().kind(), ErrorKind::DeviceLost);
    }
    drop(device);
    // The host goes on.
    let host = Device::open("host:0").unwrap();
    host.buffer_from(&[1u32]).unwrap();
    // A driver that lets the process have the device again gives one that works; those of today do not.
    match Device::open("cuda:0") {
        Ok(device) => works(&device).await.unwrap(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
            assert!(error.to_string().contains("new process"), "{error}");
        }
    }
}
