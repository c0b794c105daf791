//! The spans of runs as `tracing-opentelemetry` exports them. A global subscriber, so a process of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::Instrument;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::SubscriberExt;
use wakegraph::{Device, Graph, read};

fn attribute<'s>(span: &'s SpanData, name: &'static str) -> Option<&'s Value> {
    let mut attributes = span.attributes.iter();
    attributes.find(|attribute| attribute.key == Key::from_static_str(name)).map(|attribute| &attribute.value)
}

fn number(span: &SpanData, name: &'static str) -> Option<u64> {
    attribute(span, name)?.as_str().parse().ok()
}

/// The spans that it follows from.
fn links(span: &SpanData) -> Vec<SpanId> {
    span.links.iter().map(|link| link.span_context.span_id()).collect()
}

/// All spans, once the last one has ended. The thread that ends a run still has its span for a moment after
/// it has woken the task that awaits the run, and a span ends after those inside of it.
fn finished_spans(exporter: &InMemorySpanExporter) -> Vec<SpanData> {
    loop {
        let spans = exporter.get_finished_spans().unwrap();
        if spans.iter().any(|span| span.name == "request") {
            return spans;
        }
        std::thread::yield_now();
    }
}

#[test]
fn spans_of_a_run_belong_to_the_trace_of_the_request() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    // What is under `runtime` is for tokio-console, as `docs/tracing.md` says.
    let is_wanted = FilterFn::new(|metadata| !metadata.target().starts_with("runtime"));
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test")).with_filter(is_wanted);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let device = Device::open("host:0").unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        let out = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        graph.copy(&x, &out);
        let (open, gate) = tokio::sync::watch::channel(false);
        let post = graph.host_task((read(&out),), async move |(_out,)| {
            let own = tracing::info_span!("upstream");
            gate.clone().wait_for(|open| *open).instrument(own).await.map(drop)
        });
        let post = post.name("post").id();
        graph.fill(&x, 2).after([post]);
        let exec = graph.finalize().unwrap();
        let request = tracing::info_span!("request");
        async {
            let (first, second) = (exec.submit(), exec.submit());
            // Not before, so that the second one comes after a run that is in flight.
            open.send(true).unwrap();
            first.await.unwrap();
            second.await.unwrap();
        }
        .instrument(request)
        .await;
    });
    drop(runtime);
    let spans = finished_spans(&exporter);
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let [request] = named("request")[..] else { panic!("{spans:?}") };
    assert_eq!(request.parent_span_id, SpanId::INVALID);
    let (mut runs, partitions) = (named("run"), named("partition"));
    runs.sort_by_key(|run| number(run, "submission"));
    assert_eq!((runs.len(), partitions.len()), (2, 6));
    let id = |span: &SpanData| span.span_context.span_id();
    assert!(links(runs[0]).is_empty());
    assert_eq!(links(runs[1]), [id(runs[0])], "the second submission comes after the first");

    for run in runs {
        assert_eq!(run.parent_span_id, id(request));
        let partition = |index: u64| {
            let is_it = |span: &&&SpanData| {
                number(span, "run") == number(run, "run") && number(span, "partition") == Some(index)
            };
            *partitions.iter().find(is_it).unwrap()
        };
        for (index, device) in [(0, "host:0"), (1, "host"), (2, "host:0")] {
            let span = partition(index);
            assert_eq!(span.parent_span_id, id(run));
            assert_eq!(attribute(span, "device").unwrap().as_str(), device);
            let before = index.checked_sub(1).map(|before| id(partition(before)));
            assert_eq!(links(span), before.as_slice());
        }
        let of_run = |span: &&&SpanData| number(span, "run") == number(run, "run");
        let host_tasks = named("host_task");
        let host_task = host_tasks.iter().find(of_run).unwrap();
        assert_eq!(host_task.parent_span_id, id(partition(1)));
        assert!(attribute(host_task, "node").unwrap().as_str().contains("post"));
        let mut upstream = named("upstream").into_iter();
        assert!(upstream.any(|span| span.parent_span_id == id(host_task)), "spans of the closure are inside");
        // The events of a run are on its span.
        let events: Vec<&str> = run.events.iter().map(|event| &*event.name).collect();
        assert!(events.contains(&"started") && events.contains(&"finished"), "{events:?}");
    }
    let ours = spans.iter().filter(|span| !["finalize"].contains(&&*span.name));
    assert!(ours.clone().count() >= 1 + 2 + 6 + 2 + 2);
    for span in ours {
        assert_eq!(span.span_context.trace_id(), request.span_context.trace_id(), "{}", span.name);
    }
}
