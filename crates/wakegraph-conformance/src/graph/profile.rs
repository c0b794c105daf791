//! Profiles of runs.

use wakegraph::graph::CommandKind;
use wakegraph::{FinalizeOptions, Graph, Range, read};

use crate::kernels::add;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/profile": &[Need::Results] => [every_node_has_its_times, off_by_default]);

fn every_node_has_its_times(setup: &Setup) {
    let device = setup.device();
    if !device.capabilities().profiling {
        return lacks("profiling");
    }
    let (x, host) = (device.buffer::<u32>(64).unwrap(), device.host_buffer::<u32>(64).unwrap());
    let mut graph = Graph::new(device);
    graph.fill(&x, 1).name("first");
    graph.launch(add(1, &x), Range::linear(64));
    graph.copy(&x, &host);
    graph.host_task((read(&host),), async |(host,)| assert_eq!(host[0], 2)).name("last");
    let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            let mut submission = exec.submit();
            (&mut submission).await.unwrap();
            let profile = submission.profile().unwrap();
            let kinds: Vec<_> = profile.nodes.iter().map(|node| node.kind).collect();
            let expected = [
                CommandKind::BufferFill,
                CommandKind::Kernel,
                CommandKind::BufferRead,
                CommandKind::HostTask,
            ];
            assert_eq!(kinds, expected);
            assert!(profile.nodes[0].label.contains("first") && profile.nodes[3].label.contains("last"));
            assert!(profile.nodes.iter().all(|node| node.start <= node.end), "{profile:?}");
            let on_device = &profile.nodes[..3];
            assert!(on_device.iter().any(|node| node.start < node.end), "no node took any time: {profile:?}");
            assert_eq!(profile.partitions.len(), 2);
            assert_eq!(profile.timeline(40).to_string().lines().count(), 2);
            assert!(profile.total() >= profile.nodes[0].end);
        }
    });
}

fn off_by_default(setup: &Setup) {
    let x = setup.device().buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(setup.device());
    graph.fill(&x, 1);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut submission = exec.submit();
        (&mut submission).await.unwrap();
        assert_eq!(submission.profile(), None);
    });
}
