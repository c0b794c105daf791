//! Names of executables, and places in the source, where people read of them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use wakegraph::service::ExecutablePool;
use wakegraph::{Error, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, Range, read};

use crate::common::{current_thread, device, held_kernel, raw};
use crate::deadline::paused;
use crate::support::{Hold, PANIC, silence_expected_panics};

fn named(graph: &Graph, name: &str) -> ExecutableGraph {
    graph.finalize_with(FinalizeOptions::new().name(name)).unwrap()
}

async fn failure(exec: &ExecutableGraph) -> Error {
    exec.submit().await.unwrap_err()
}

#[test]
fn an_error_names_its_executable() {
    current_thread().block_on(async {
        let device = device();
        let mut graph = Graph::new(&device);
        graph.host_task((), async |()| Err::<(), _>("connection refused")).name("post");
        let (exec, unnamed) = (named(&graph, "embedder"), graph.finalize().unwrap());
        assert_eq!((exec.name(), unnamed.name()), (Some("embedder"), None));
        let error = failure(&exec).await;
        assert_eq!(error.executable(), Some("embedder"));
        assert!(error.to_string().contains("partition 0, of 'embedder', added at "), "{error}");
        assert_eq!(failure(&unnamed).await.executable(), None);
    });
}

#[test]
fn a_failed_finalize_names_the_executable() {
    let device = device();
    let mut graph = Graph::new(&device);
    graph.write(&device.buffer::<u32>(4).unwrap(), &[0; 8]);
    let error = graph.finalize_with(FinalizeOptions::new().name("embedder")).unwrap_err();
    assert_eq!(error.executable(), Some("embedder"), "{error}");
}

#[test]
fn a_refused_submission_names_the_executable() {
    current_thread().block_on(async {
        let device = device();
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
        let exec = named(&graph, "embedder");
        device.shutdown(std::time::Duration::MAX).await.unwrap();
        let error = failure(&exec).await;
        assert_eq!((error.kind(), error.executable()), (ErrorKind::Unavailable, Some("embedder")), "{error}");
    });
}

#[test]
fn what_cannot_start_or_hangs_names_the_executable() {
    let device = device();
    let host = device.host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.host_task((read(&host),), async |_| ());
    let exec = named(&graph, "embedder");
    let error = exec.submit().now_or_never().expect("outside tokio").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}");
    assert_eq!(error.executable(), Some("embedder"), "{error}");
    paused().block_on(async {
        let guard = host.write().await;
        let mut submission = exec.prepare().watchdog(Duration::from_secs(1)).submit();
        let error = (&mut submission).await.unwrap_err();
        assert_eq!((error.kind(), error.executable()), (ErrorKind::Stalled, Some("embedder")), "{error}");
        drop(guard);
        submission.await.unwrap();
    });
}

#[test]
fn a_refused_update_names_the_executable() {
    current_thread().block_on(async {
        let mut graph = Graph::new(&device());
        let task = graph.host_task((), async |()| ()).id();
        for updatable in [false, true] {
            let options = FinalizeOptions::new().name("embedder").updatable(updatable);
            let exec = graph.finalize_with(options).unwrap();
            let error = exec.update().range(task, Range::linear(1)).apply().await.unwrap_err();
            assert_eq!(error.executable(), Some("embedder"), "{error}");
        }
    });
}

#[test]
fn what_a_loop_runs_has_the_name_of_the_whole() {
    current_thread().block_on(async {
        let device = device();
        let flag = device.host_buffer::<u32>(1).unwrap();
        flag.write().await[0] = 1;
        let mut body = Graph::new(&device);
        body.host_task((read(&flag),), async |(_,)| Err::<(), _>("connection refused"));
        let mut graph = Graph::new(&device);
        graph.while_nonzero(&flag, &body);
        assert_eq!(failure(&named(&graph, "embedder")).await.executable(), Some("embedder"));
    });
}

#[test]
fn progress_names_executables() {
    current_thread().block_on(async {
        let (device, hold) = (device(), Hold::new());
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        graph.launch(held_kernel(&hold).call(), Range::linear(1)).name("held");
        graph.host_task((), async |()| ());
        let first = named(&graph, "embedder");
        let mut graph = Graph::new(&device);
        graph.fill(&x, 2);
        graph.host_task((), async |()| ());
        let (first, second) = (first.submit(), named(&graph, "reranker").submit());
        hold.wait_for(1);
        let progress = first.progress().unwrap();
        assert_eq!(progress.executable.as_deref(), Some("embedder"));
        assert!(progress.to_string().starts_with("'embedder': partition "), "{progress}");
        let behind = second.progress().unwrap();
        assert_eq!(behind.waits_for, ["submission 1 of 'embedder'"]);
        hold.open();
        first.await.unwrap();
        second.await.unwrap();
    });
}

#[test]
fn executables_of_a_pool_have_its_name_unless_named() {
    current_thread().block_on(async {
        let device = device();
        let make = move |options: Option<FinalizeOptions>| {
            let mut graph = Graph::new(&device);
            graph.fill(&device.buffer::<u32>(4)?, 1);
            Ok((options.map_or_else(|| graph.finalize(), |options| graph.finalize_with(options))?, ()))
        };
        let make = Arc::new(make);
        for (pool, options, name) in [
            (Some("photos"), None, Some("photos")),
            (Some("photos"), Some(FinalizeOptions::new().name("blur")), Some("blur")),
            (None, None, None),
        ] {
            let (builder, make) = (ExecutablePool::builder().slots(1), make.clone());
            let builder = pool.into_iter().fold(builder, |builder, name| builder.name(name));
            let pool = builder.build(move |_| make(options.clone()));
            assert_eq!(pool.try_acquire().unwrap().executable().name(), name);
        }
        assert_eq!(make(None).unwrap().0.name(), None, "outside a pool");
    });
}

#[test]
fn failures_of_closures_say_where_their_nodes_were_added() {
    silence_expected_panics();
    current_thread().block_on(async {
        let device = device();
        let mut lines = Vec::new();
        let mut check = async |kind, add: &dyn Fn(&mut Graph) -> u32| {
            let mut graph = Graph::new(&device);
            graph.launch(raw("before", || Ok(())).call(), Range::linear(1));
            let line = add(&mut graph);
            graph.launch(raw("after", || Ok(())).call(), Range::linear(1));
            let error = failure(&graph.finalize().unwrap()).await;
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(&format!("names.rs:{line}:")), "{line}: {error}");
            lines.push(line);
        };
        check(ErrorKind::HostTaskFailed, &|graph| {
            graph.host_task((), async |()| Err::<(), _>("connection refused"));
            line!() - 1
        })
        .await;
        check(ErrorKind::HostTaskPanicked, &|graph| {
            graph.host_task_blocking((), |()| -> () { std::panic::panic_any(PANIC) });
            line!() - 1
        })
        .await;
        check(ErrorKind::KernelPanicked, &|graph| {
            let panics = raw("panics", || -> wakegraph::Result<()> { std::panic::panic_any(PANIC) });
            graph.launch(panics.call(), Range::linear(1));
            line!() - 1
        })
        .await;
        assert_eq!(lines.len(), 3);
    });
}
