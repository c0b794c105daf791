//! Timelines: what they hold, and the files that they are written to. Recordings see the whole process, so
//! this is a process of its own, and each test looks at the runs of its own device.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use wakegraph::kernel::RawKernel;
use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::timeline::{Timeline, TimelinePoll, TimelineRun};
use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Graph, Range, read};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A device partition, a host task and a device partition, one after the other.
fn three_partitions(device: &Device, options: FinalizeOptions) -> ExecutableGraph {
    let x = device.buffer::<u32>(1000).unwrap();
    let out = device.host_buffer::<u32>(1000).unwrap();
    let mut graph = Graph::new(device);
    graph.fill(&x, 1).name("clear <&\"\\>");
    graph.copy(&x, &out).name("fetch");
    let post = graph.host_task((read(&out),), async |(_out,)| tokio::task::yield_now().await);
    let post = post.name("post").id();
    graph.copy(&out, &x).name("back").after([post]);
    graph.finalize_with(options).unwrap()
}

/// The runs that have a partition on the device.
fn runs_on<'t>(timeline: &'t Timeline, device: &Device) -> Vec<&'t TimelineRun> {
    let is_own = |run: &&TimelineRun| {
        run.partitions.iter().any(|partition| partition.device.as_deref() == Some(device.selector()))
    };
    timeline.runs.iter().filter(is_own).collect()
}

#[test]
fn host_and_device_are_on_one_clock() {
    let device = Device::open("host:600").unwrap();
    let exec = three_partitions(&device, FinalizeOptions::new().profiling(true));
    block_on(async {
        exec.submit().await.unwrap();
        let recording = Timeline::record();
        let (first, second) = (exec.submit(), exec.submit());
        first.await.unwrap();
        second.await.unwrap();
        let timeline = recording.finish();
        exec.submit().await.unwrap();

        let runs = runs_on(&timeline, &device);
        assert_eq!(runs.iter().map(|run| run.submission).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(runs[1].follows, [runs[0].run]);
        for run in &runs {
            // The host device has the clock of the host, so not a nanosecond is out of order.
            let mut last = run.submitted;
            for partition in &run.partitions {
                let span = partition.span.unwrap();
                assert!(span.measured && partition.succeeded, "{partition:?}");
                assert!(last <= span.start && span.start <= span.end, "{run:?}");
                last = span.end;
                assert!(
                    partition.node_spans.iter().all(|node| span.start <= node.start && node.end <= span.end)
                );
            }
            assert!(last <= run.ended.unwrap() && run.ended.unwrap() <= timeline.length);
            let waits: Vec<&[u32]> = run.partitions.iter().map(|partition| &*partition.waits_for).collect();
            assert_eq!(waits, [&[][..], &[0], &[1]]);
            assert_eq!(run.partitions[0].node_spans.len(), 2);
        }
        let clock = timeline.clocks.iter().find(|clock| clock.device == device.selector()).unwrap();
        assert_eq!(clock.error, Duration::ZERO);
        assert!(timeline.memory.iter().any(|(_, bytes)| *bytes >= 4000), "{:?}", timeline.memory);
        assert!(timeline.in_flight.iter().any(|(_, runs)| *runs >= 2), "{:?}", timeline.in_flight);
    });
}

#[test]
fn runs_have_the_name_of_their_executable() {
    let device = Device::open("host:612").unwrap();
    let exec = three_partitions(&device, FinalizeOptions::new().name("embedder"));
    let unnamed = three_partitions(&device, FinalizeOptions::new());
    block_on(async {
        let recording = Timeline::record();
        exec.submit().await.unwrap();
        unnamed.submit().await.unwrap();
        let timeline = recording.finish();
        let names: Vec<_> = runs_on(&timeline, &device).iter().map(|run| run.executable.as_deref()).collect();
        assert_eq!(names, [Some("embedder"), None]);
        for picture in [timeline.to_trace_events(), timeline.to_svg()] {
            assert!(picture.contains("submission 1 of 'embedder'"), "{picture}");
        }
    });
}

#[test]
fn without_profiling_the_host_says_what_it_knows() {
    let device = Device::open("host:601").unwrap();
    let exec = three_partitions(&device, FinalizeOptions::new());
    block_on(async {
        let recording = Timeline::record();
        exec.submit().await.unwrap();
        let timeline = recording.finish();
        let runs = runs_on(&timeline, &device);
        let spans: Vec<_> = runs[0].partitions.iter().map(|partition| partition.span.unwrap()).collect();
        assert_eq!(spans.iter().map(|span| span.measured).collect::<Vec<_>>(), [false, true, false]);
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start), "{spans:?}");
        assert!(runs[0].partitions.iter().all(|partition| partition.node_spans.is_empty()));
    });
}

#[test]
fn polls_of_host_tasks_are_on_their_threads() {
    let device = Device::open("host:605").unwrap();
    let mut graph = Graph::new(&device);
    graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
    let busy = graph.host_task((), async |()| {
        for _ in 0..1200 {
            tokio::task::yield_now().await;
        }
    });
    let busy = busy.name("busy").id();
    let sent = graph.host_task_blocking((), |()| {}).name("blocks").after([busy]).id();
    let sent = Some(sent);
    graph.host_task((), async move |()| assert!(sent.is_none(), "on purpose")).name("panics").after(sent);
    let exec = graph.finalize().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let timeline = runtime.block_on(async {
        let recording = Timeline::record();
        exec.submit().await.unwrap_err();
        let unfinished = exec.submit();
        let timeline = recording.finish();
        unfinished.await.unwrap_err();
        timeline
    });
    let runs = runs_on(&timeline, &device);
    let polls = |name: &str| {
        let own = runs[0].partitions.iter().find(|partition| partition.nodes[0].contains(name)).unwrap();
        let span = own.span.unwrap();
        let inside = |poll: &&TimelinePoll| span.start <= poll.start && poll.end <= span.end;
        assert_eq!(own.polls.iter().filter(inside).count(), own.polls.len(), "{own:?}");
        assert!(own.polls.windows(2).all(|pair| pair[0].end <= pair[1].start), "one at a time");
        assert!(own.polls.iter().all(|poll| poll.start <= poll.end && poll.thread < timeline.threads.len()));
        own.polls.len()
    };
    assert_eq!([polls("busy"), polls("blocks"), polls("panics")], [1000, 1, 1]);
    assert!(timeline.omitted_polls >= 201, "{}", timeline.omitted_polls);
    assert!(runs[0].partitions.iter().filter(|own| own.device.is_some()).all(|own| own.polls.is_empty()));
    let mut names = timeline.threads.clone();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), timeline.threads.len(), "{:?}", timeline.threads);

    let text = timeline.to_trace_events();
    check_trace_events(&text);
    assert!(
        timeline.threads.iter().all(|thread| text.contains(thread) && timeline.to_svg().contains(thread))
    );
}

#[test]
fn commands_of_queues_and_runs_in_flight_are_there() {
    let (fake, control) = FakeDevice::open(FakeOptions::new().manual(true));
    let device = Device::from_hal(fake);
    let x = device.buffer::<u32>(4).unwrap();
    let queue = device.queue().unwrap();
    let recording = Timeline::record();
    let over = queue.fill(&x, 1);
    control.complete_all();
    block_on(over.into_future()).unwrap();
    drop(queue.fill(&x, 2));
    let timeline = recording.finish();
    control.complete_all();
    let runs = runs_on(&timeline, &device);
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(runs[0].ended.is_some() && runs[0].partitions[0].span.is_some());
    assert!(runs[0].partitions[0].nodes[0].contains("fill"), "{runs:?}");
    assert!(runs[1].ended.is_none() && runs[1].partitions[0].span.is_none());
    assert!(!runs[1].partitions[0].succeeded);
    // A file shows them all the same.
    check_trace_events(&timeline.to_trace_events());
}

/// On every device that there is.
#[test]
fn profiling_is_switched_on_while_executables_are_in_use() {
    let host = Device::open("host:604").unwrap();
    let others = Device::all().unwrap().into_iter().filter(|device| device.capabilities().profiling);
    for device in [host].into_iter().chain(others) {
        let exec = three_partitions(&device, FinalizeOptions::new());
        let queue = device.queue().unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        block_on(async {
            let profile = || async {
                let mut submission = exec.submit();
                (&mut submission).await.unwrap();
                submission.profile()
            };
            for _ in 0..3 {
                assert_eq!(profile().await, None);
                let profiling = (device.profile().unwrap(), device.profile().unwrap());
                drop(profiling.0);
                for _ in 0..3 {
                    let profile = profile().await.unwrap();
                    let measured: Vec<_> = profile.partitions.iter().map(|times| times.measured).collect();
                    assert_eq!(measured, [true; 3], "{device:?}: {profile:?}");
                    assert!(profile.partitions.iter().all(|times| times.start <= times.end), "{profile:?}");
                    assert_eq!(profile.nodes.len(), 1, "the host task: {profile:?}");
                }
                let recording = Timeline::record();
                profile().await.unwrap();
                queue.fill(&x, 1).await.unwrap();
                let timeline = recording.finish();
                let runs = runs_on(&timeline, &device);
                let mut partitions = runs.iter().flat_map(|run| &run.partitions);
                assert!(partitions.all(|partition| partition.span.unwrap().measured), "{device:?}: {runs:?}");
                assert_eq!(runs.len(), 2);
                assert!(timeline.clocks.iter().any(|clock| clock.device == device.selector()));
            }
            assert_eq!(profile().await, None);
        });
    }
}

#[test]
fn a_device_without_times_refuses_to_be_profiled() {
    let device =
        Device::from_hal(FakeDevice::open(FakeOptions::new().capabilities(|c| c.profiling = false)).0);
    assert_eq!(device.profile().unwrap_err().kind(), wakegraph::ErrorKind::FeatureNotSupported);
}

#[test]
fn nothing_is_recorded_before_or_after() {
    let device = Device::open("host:602").unwrap();
    let exec = three_partitions(&device, FinalizeOptions::new());
    block_on(async {
        exec.submit().await.unwrap();
        let empty = Timeline::record().finish();
        exec.submit().await.unwrap();
        assert_eq!(runs_on(&empty, &device).len(), 0);
        drop(Timeline::record());
    });
}

#[test]
fn perfetto_gets_slices_arrows_and_counters() {
    let device = Device::open("host:603").unwrap();
    let exec = three_partitions(&device, FinalizeOptions::new().profiling(true));
    let timeline = block_on(async {
        let recording = Timeline::record();
        for _ in 0..3 {
            exec.submit().await.unwrap();
        }
        recording.finish()
    });
    let names = check_trace_events(&timeline.to_trace_events());
    for name in ["fetch", "post", "back", "clear <&\"\\>"] {
        assert!(names.iter().any(|known| known.contains(name)), "{name} is not in {names:?}");
    }
    let svg = timeline.to_svg();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("clear &lt;&amp;&quot;\\&gt;") && !svg.contains("clear <"));
    assert!(svg.matches("marker-end").count() >= 6, "an arrow for each dependency");
}

#[test]
fn a_picture_of_many_runs_leaves_out_the_arrows() {
    let device = Device::open("host:606").unwrap();
    let exec = three_partitions(&device, FinalizeOptions::new());
    let mut timeline = block_on(async {
        let recording = Timeline::record();
        exec.submit().await.unwrap();
        recording.finish()
    });
    let run = runs_on(&timeline, &device)[0].clone();
    timeline.runs = vec![run.clone(); 50];
    assert!(timeline.to_svg().contains("marker-end"));
    timeline.runs = vec![run; 500];
    let crowded = timeline.to_svg();
    assert!(!crowded.contains("marker-end") && crowded.contains("1000 arrows are left out"));
}

/// Checks a file against the format's documentation, and gives the names of its slices.
fn check_trace_events(text: &str) -> Vec<String> {
    let file: Value = serde_json::from_str(text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let number = |event: &Value, field: &str| {
        let value = event[field].as_f64();
        value.unwrap_or_else(|| panic!("{field} is no number: {event}"))
    };
    // Times have three decimals.
    let nanoseconds = |event: &Value, field: &str| (number(event, field) * 1000.0).round() as u64;
    let (mut names, mut slices, mut flows) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let mut named = Vec::new();
    for event in events {
        let thread = (number(event, "pid") as u64, number(event, "tid") as u64);
        match event["ph"].as_str().unwrap() {
            "M" => match event["name"].as_str().unwrap() {
                "thread_name" => named.push(thread),
                "process_name" => assert!(event["args"]["name"].is_string()),
                "thread_sort_index" | "process_sort_index" => {
                    assert!(event["args"]["sort_index"].is_u64());
                }
                other => panic!("unknown metadata {other}"),
            },
            "X" => {
                let (start, took) = (nanoseconds(event, "ts"), nanoseconds(event, "dur"));
                slices.entry(thread).or_insert_with(Vec::new).push((start, start + took));
                let name = event["name"].as_str().unwrap();
                // Other tests prepare their own meanwhile.
                if !["compile ", "load ", "allocate ", "instantiate "]
                    .iter()
                    .any(|step| name.starts_with(step))
                {
                    assert!(event["args"]["run"].is_u64(), "{event}");
                    names.push(name.to_owned());
                }
            }
            "C" => assert!(event["args"].as_object().unwrap().values().all(Value::is_u64)),
            phase @ ("s" | "f") => {
                let ends = flows.entry(number(event, "id") as u64).or_insert_with(Vec::new);
                ends.push((phase == "s", thread, nanoseconds(event, "ts")));
                assert_eq!(event["bp"] == "e", phase == "f");
            }
            other => panic!("unknown phase {other}"),
        }
    }
    for (thread, slices) in &mut slices {
        assert!(named.contains(thread), "a row without a name");
        slices.sort_unstable();
        assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0), "slices of a row overlap: {slices:?}");
    }
    for ends in flows.values() {
        assert!(matches!(**ends, [(true, ..), (false, ..)]), "{ends:?}");
        for (_, thread, at) in ends {
            let is_in_slice = slices[thread].iter().any(|(start, end)| start <= at && at <= end);
            assert!(is_in_slice, "an arrow from or to nowhere");
        }
    }
    names
}

#[test]
fn what_comes_before_a_first_run_has_rows_of_its_own() {
    let (fake, _) = FakeDevice::open(FakeOptions::new().name("fake:prepared"));
    let device = Device::from_hal(fake);
    let recording = Timeline::record();
    let x = device.buffer::<u32>(4).unwrap();
    let kernel = RawKernel::new("blur").writes::<u32>("x").build();
    let mut graph = Graph::new(&device);
    graph.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
    let exec = graph.finalize_with(FinalizeOptions::new().name("photo")).unwrap();
    let timeline = recording.finish();
    let own: Vec<_> = timeline.preparations.iter().filter(|step| step.device == "fake:prepared").collect();
    let steps: Vec<_> = own.iter().map(|one| (one.step.name(), &*one.of)).collect();
    let expected = [
        ("allocate", "16 bytes"),
        ("compile", "kernel 'blur'"),
        ("load", "kernel 'blur'"),
        ("instantiate", "partition 0 of 'photo'"),
    ];
    assert_eq!(steps, expected);
    assert!(own.windows(2).all(|steps| steps[0].end <= steps[1].start), "{own:?}");
    let trace: Value = serde_json::from_str(&timeline.to_trace_events()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let has = |name: &str| events.iter().any(|event| event["name"] == name);
    assert!(events.iter().any(|event| event["args"]["name"] == "preparation"));
    assert!(has("compile kernel 'blur' on fake:prepared"));
    assert!(timeline.to_svg().contains("instantiate partition 0 of 'photo' on fake:prepared"));
    let text = exec.explain().to_string();
    assert!(text.contains("kernel 'blur' on fake:prepared: compiled in 0.0ns, loaded in "), "{text}");
}
