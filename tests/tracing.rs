//! What `tracing` sees of runs, compared with the tables in `docs/tracing.md`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::{Instrument, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use wakegraph::kernel::RawKernel;
use wakegraph::{Device, Error, ErrorKind, FinalizeOptions, Graph, Range, read};

/// A span or an event.
#[derive(Clone, Debug)]
struct Record {
    is_span: bool,
    target: &'static str,
    level: String,
    name: String,
    fields: BTreeMap<&'static str, String>,
    parent: Option<u64>,
}

impl Record {
    fn run(&self) -> Option<&str> {
        self.fields.get("run").map(String::as_str)
    }

    fn partition(&self) -> Option<&str> {
        self.fields.get("partition").map(String::as_str)
    }
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.name = format!("{value:?}"),
            name => _ = self.fields.insert(name, format!("{value:?}")),
        }
    }
}

#[derive(Default)]
struct Recorded {
    spans: BTreeMap<u64, Record>,
    events: Vec<Record>,
    follows: BTreeSet<(u64, u64)>,
    closed: BTreeSet<u64>,
}

/// Records what comes from this crate. The registry gives identifiers again, so this has its own.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Recorded>>);

struct Number(u64);

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap()
    }
}

fn number<S>(context: &Context<'_, S>, id: &span::Id) -> Option<u64>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    Some(context.span(id)?.extensions().get::<Number>()?.0)
}

fn record(metadata: &'static tracing::Metadata<'static>, parent: Option<u64>) -> Record {
    Record {
        is_span: metadata.is_span(),
        target: metadata.target(),
        level: metadata.level().to_string(),
        name: metadata.name().into(),
        fields: BTreeMap::new(),
        parent,
    }
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let parent = span.parent().and_then(|parent| Some(parent.extensions().get::<Number>()?.0));
        let mut record = record(attributes.metadata(), parent);
        attributes.record(&mut record);
        let mut recorded = self.lock();
        let number = recorded.spans.len() as u64;
        recorded.spans.insert(number, record);
        span.extensions_mut().insert(Number(number));
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let parent = context.event_span(event).and_then(|parent| number(&context, &parent.id()));
        let mut record = record(event.metadata(), parent);
        event.record(&mut record);
        self.lock().events.push(record);
    }

    fn on_follows_from(&self, id: &span::Id, earlier: &span::Id, context: Context<'_, S>) {
        if let Some(pair) = number(&context, id).zip(number(&context, earlier)) {
            self.lock().follows.insert(pair);
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let number = number(&context, &id);
        self.lock().closed.extend(number);
    }
}

/// A row of the first two tables of the page: target, level and name, with the fields that are always there
/// and those that may be.
type Row = ((String, String, String), (BTreeSet<String>, BTreeSet<String>));

fn rows(page: &str, heading: &str) -> Vec<Row> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let words =
        |text: &str| text.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect::<BTreeSet<String>>();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells = cells(line);
        let (always, sometimes) = cells[4].split_once(';').unwrap_or((&cells[4], ""));
        let plain = |cell: &str| cell.trim_matches('`').to_owned();
        ((plain(&cells[1]), plain(&cells[2]), plain(&cells[3])), (words(always), words(sometimes)))
    };
    lines.map(row).collect()
}

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) {
        item: |i, x| x[i] += 1,
    }
}

#[test]
fn the_page_lists_what_is_emitted() {
    let recorder = Recorder::default();
    let filter = tracing_subscriber::filter::Targets::new().with_target("wakegraph", tracing::Level::TRACE);
    let layer = recorder.clone().with_filter(filter);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let device = Device::open("host:0").unwrap();
    let x = device.buffer::<u32>(4).unwrap();
    let out = device.host_buffer::<u32>(4).unwrap();

    // One partition, and three with a host task in the middle.
    let mut short = Graph::new(&device);
    let fill = short.fill(&x, 1).id();
    let short = short.finalize_with(FinalizeOptions::default().updatable(true)).unwrap();
    let mut long = Graph::new(&device);
    long.launch(add_one(&x), Range::linear(4));
    long.copy(&x, &out);
    let here = line!() + 1;
    let check = long.host_task((read(&out),), async |(out,)| assert_eq!(*out, [2; 4])).name("check").id();
    long.fill(&x, 0).after([check]);
    let long = long.finalize_with(FinalizeOptions::new().name("long")).unwrap();
    let request = tracing::info_span!(target: "wakegraph", "request");
    let submissions = async {
        let (open, gate) = tokio::sync::oneshot::channel::<()>();
        let first = short.prepare().after_future(gate).submit();
        let second = long.submit();
        open.send(()).unwrap();
        first.await.unwrap();
        second.await.unwrap();
    };
    runtime.block_on(submissions.instrument(request.clone()));

    // Updated, cancelled, failed, and not started because another failed.
    runtime.block_on(async {
        short.update().enabled(fill, false).apply().await.unwrap();
        short.submit().await.unwrap();
        let (_never, gate) = tokio::sync::oneshot::channel::<()>();
        let waiting = short.prepare().after_future(async { gate.await.map_err(std::io::Error::other) });
        let waiting = waiting.submit();
        waiting.cancel();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Cancelled);
        let mut failing = Graph::new(&device);
        let fails = RawKernel::new("fails").host(|_, _| Err(Error::new(ErrorKind::Driver, "as it should")));
        failing.launch(fails.call(), Range::linear(1)).name("fails");
        let failing = failing.finalize().unwrap();
        let failed = failing.submit();
        let after = long.prepare().after(&failed).submit();
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Driver);
        after.await.unwrap_err();
    });

    // Behind a guard.
    let mut download = Graph::new(&device);
    download.copy(&x, &out);
    let download = download.finalize().unwrap();
    let guard_line = line!() + 2;
    runtime.block_on(async {
        let guard = out.read().await;
        let waiting = download.submit();
        while !recorder.lock().events.iter().any(|event| event.name == "waits for a guard") {
            tokio::task::yield_now().await;
        }
        drop(guard);
        waiting.await.unwrap();
    });

    // Recorded, eager, and many at once.
    runtime.block_on(async {
        let queue = device.queue().unwrap();
        queue.fill(&x, 3).await.unwrap();
        queue.host_task((), async |()| ()).await.unwrap();
        let mut graph = Graph::new(&device);
        let recording = graph.record([&queue]).unwrap();
        queue.fill(&x, 4);
        drop(recording);
        let exec = graph.finalize().unwrap();
        let crowd: Vec<_> = (0..100).map(|_| exec.submit()).collect();
        for submission in crowd {
            submission.await.unwrap();
        }
    });
    drop((short, long, download));
    drop(runtime);

    drop(request);
    let recorded = std::mem::take(&mut *recorder.lock());
    let page = include_str!("../docs/tracing.md");
    compare(&recorded, &rows(page, "Spans"), true);
    compare(&recorded, &rows(page, "Events\n"), false);

    let waits = recorded.events.iter().find(|event| event.name == "waits for a guard").unwrap();
    let waits_for = &waits.fields["waits_for"];
    assert!(waits_for.contains(&format!("tracing.rs:{guard_line}:")), "{waits_for}");

    // A run's spans hang together.
    let find = |name: &str, run: &str, partition: Option<&str>| {
        let mut spans = recorded.spans.iter();
        let is_it = |record: &Record| {
            record.name == name && record.run() == Some(run) && record.partition() == partition
        };
        *spans.find(|(_, record)| is_it(record)).unwrap().0
    };
    let parts = ["0", "1", "2"].map(|partition| find("partition", "2", Some(partition)));
    let run = find("run", "2", None);
    let host_task = find("host_task", "2", Some("1"));
    assert_eq!(recorded.spans[&run].fields["executable"], "long");
    assert!(!recorded.spans[&find("run", "1", None)].fields.contains_key("executable"));
    assert_eq!(recorded.spans[&recorded.spans[&run].parent.unwrap()].name, "request");
    assert!(parts.iter().all(|part| recorded.spans[part].parent == Some(run)));
    assert_eq!(recorded.spans[&host_task].parent, Some(parts[1]));
    let location = &recorded.spans[&host_task].fields["location"];
    assert!(location.contains(&format!("tracing.rs:{here}")), "{location}");
    assert!(recorded.spans[&host_task].fields["node"].contains("check"));
    assert!(
        recorded.follows.contains(&(parts[1], parts[0])) && recorded.follows.contains(&(parts[2], parts[1]))
    );
    assert!(recorded.follows.contains(&(run, find("run", "1", None))), "both use the buffer");

    // Every run and partition has one end, and all spans are closed.
    let runs: Vec<&Record> = recorded.spans.values().filter(|record| record.name == "run").collect();
    assert!(runs.len() >= 108, "{}", runs.len());
    for record in recorded.spans.values().filter(|record| matches!(&*record.name, "run" | "partition")) {
        let ends = recorded.events.iter().filter(|event| {
            event.target == record.target
                && event.name == "finished"
                && event.run() == record.run()
                && event.partition() == record.partition()
        });
        assert_eq!(ends.count(), 1, "{record:?}");
    }
    let open = recorded.spans.keys().filter(|number| !recorded.closed.contains(number));
    let open: Vec<_> = open.map(|number| &recorded.spans[number]).collect();
    assert!(open.is_empty(), "{open:?}");
}

fn compare(recorded: &Recorded, rows: &[Row], spans: bool) {
    assert!(rows.len() >= 5, "the table has not been read");
    let mut seen = BTreeSet::new();
    let records = recorded.spans.values().chain(&recorded.events);
    for record in records.filter(|record| record.is_span == spans && record.name != "request") {
        let key = (record.target.to_owned(), record.level.clone(), record.name.clone());
        let row = rows.iter().find(|(row, _)| *row == key);
        let (always, sometimes) = &row.unwrap_or_else(|| panic!("not on the page: {record:?}")).1;
        let fields: BTreeSet<String> = record.fields.keys().map(|name| (*name).to_owned()).collect();
        assert!(always.is_subset(&fields), "{record:?} lacks fields of {always:?}");
        assert!(fields.difference(always).all(|field| sometimes.contains(field)), "{record:?}");
        seen.insert(key);
    }
    let missing: Vec<_> = rows.iter().filter(|(row, _)| !seen.contains(row)).collect();
    assert!(missing.is_empty(), "on the page, but never emitted: {missing:?}");
}
