//! Devices with a share of another's compute units: graphs on a share, on the rest and on the device compute
//! the same, also in one graph.

use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, Range};

use crate::kernels::mix;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/shares":
    &[] => [shares_without_units_are_refused, shares_have_units_of_their_own_or_are_refused],
    &[Need::Results] => [graphs_run_beside_the_device, one_graph_spans_device_and_shares]);

const LEN: usize = 1000;

/// The first device, if it can be divided here.
fn divisible(setup: &Setup) -> Option<&Device> {
    let device = setup.device();
    if device.info().compute_units < 2 {
        lacks("a second compute unit");
        return None;
    }
    // Intel's runtime for the CPU keeps the threads of a sub-device, which spin for work: all later tests of
    // the process would take twice as long.
    if device.info().driver.starts_with("Intel(R) OpenCL") {
        lacks("a driver that ends the threads of its sub-devices");
        return None;
    }
    Some(device)
}

/// A share and the rest of the first device, if there is such a thing.
fn shared(setup: &Setup) -> Option<(Device, Device)> {
    match divisible(setup)?.share(1) {
        Err(error) if error.kind() == ErrorKind::FeatureNotSupported => {
            lacks("shares of compute units");
            None
        }
        shared => Some(shared.unwrap()),
    }
}

fn shares_without_units_are_refused(setup: &Setup) {
    let device = setup.device();
    for none in [0, device.info().compute_units, usize::MAX] {
        assert_eq!(device.share(none).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

fn shares_have_units_of_their_own_or_are_refused(setup: &Setup) {
    let Some(device) = divisible(setup) else { return };
    match device.share(1) {
        Ok((share, rest)) => {
            let [of_share, of_rest] = [&share, &rest].map(|device| device.info().compute_units);
            assert!(of_share >= 1 && of_rest >= 1 && of_share + of_rest <= device.info().compute_units);
            assert!(share != rest && share != *device && share.selector() != rest.selector());
            assert!(share.selector().starts_with(device.selector()), "{}", share.selector());
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
            assert!(error.to_string().contains(device.selector()), "{error}");
            assert!(error.to_string().contains(device.info().backend), "{error}");
        }
    }
}

/// Kernels in a chain, with the value that they leave behind `first`.
fn chain(device: &Device, first: u32) -> (ExecutableGraph, Buffer<u32>, u32) {
    let x = device.buffer_from(&[first; LEN]).unwrap();
    let (mut graph, mut value) = (Graph::new(device), first);
    for n in 1..=5 {
        graph.launch(mix(n, &x), Range::linear(LEN));
        value = value.wrapping_mul(31).wrapping_add(n);
    }
    (graph.finalize().unwrap(), x, value)
}

fn graphs_run_beside_the_device(setup: &Setup) {
    let Some((share, rest)) = shared(setup) else { return };
    setup.block_on(async move {
        for round in 0..3 {
            let chains = [setup.device(), &share, &rest].map(|device| chain(device, round));
            let submissions = chains.each_ref().map(|(exec, ..)| exec.submit());
            for submission in submissions {
                submission.await.unwrap();
            }
            for (_, x, value) in &chains {
                assert_eq!(x.to_vec().await.unwrap(), [*value; LEN]);
            }
        }
        // A submission in flight keeps its share.
        let (exec, x, value) = chain(&share, 7);
        let submission = exec.submit();
        drop((share, rest, exec));
        submission.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [value; LEN]);
    });
}

fn one_graph_spans_device_and_shares(setup: &Setup) {
    let Some((share, rest)) = shared(setup) else { return };
    let buffers = [setup.device(), &share, &rest].map(|device| device.buffer_from(&[1_u32; LEN]).unwrap());
    let (mut graph, mut step) = (Graph::new(setup.device()), 1_u32);
    for n in 0..6 {
        let [from, to] = [n, n + 1].map(|index| &buffers[index % 3]);
        graph.launch(mix(n as u32, from), Range::linear(LEN));
        graph.copy(from, to);
        step = step.wrapping_mul(31).wrapping_add(n as u32);
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(buffers[0].to_vec().await.unwrap(), [step; LEN]);
        let submissions: Vec<_> = (0..20).map(|_| exec.submit()).collect();
        for submission in submissions {
            submission.await.unwrap();
            step = (0..6).fold(step, |value, n| value.wrapping_mul(31).wrapping_add(n));
        }
        assert_eq!(buffers[0].to_vec().await.unwrap(), [step; LEN]);
    });
}
