//! A timeline as rows of bars that do not overlap.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{PreparationStep, Timeline, TimelinePartition, TimelinePreparation, TimelineRun};
use crate::runtime::execution::labels::list_names;

/// A timeline, ready to be drawn.
#[derive(Default)]
pub(super) struct Tracks<'t> {
    /// The groups of rows: submissions, preparation, host tasks, the threads that ran these, then a device
    /// each.
    pub(super) groups: Vec<Group<'t>>,
    /// Place where the bar of each partition is, by the index of its run.
    pub(super) places: HashMap<(usize, u32), TrackPlace>,
}

/// Rows that belong together.
pub(super) struct Group<'t> {
    pub(super) name: String,
    pub(super) rows: Vec<Row<'t>>,
}

/// Bars that do not overlap, by their begin.
pub(super) struct Row<'t> {
    pub(super) name: String,
    pub(super) bars: Vec<Bar<'t>>,
}

pub(super) struct Bar<'t> {
    pub(super) name: String,
    pub(super) start: Duration,
    pub(super) end: Duration,
    pub(super) measured: bool,
    /// None for a step of preparation.
    pub(super) run: Option<&'t TimelineRun>,
    /// The index of the run, and its partition, if the bar stands for a whole one.
    pub(super) partition: Option<(usize, &'t TimelinePartition)>,
}

/// Place where a bar is.
#[derive(Clone, Copy)]
pub(super) struct TrackPlace {
    pub(super) group: usize,
    pub(super) row: usize,
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// The contents of the rows of one name, in the order of the devices and their queues.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind<'t> {
    /// The first, as the counters of the whole process stand with it.
    Submissions,
    Preparation(PreparationStep),
    HostTasks,
    /// Of a thread that ran host tasks, by its index.
    Thread(usize),
    /// Of a device, by the number of the queue: its partitions, and then its nodes.
    Queue(&'t str, u64, QueueRow),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum QueueRow {
    Partitions,
    Nodes,
}

impl<'t> Tracks<'t> {
    pub(super) fn new(timeline: &'t Timeline) -> Self {
        let mut bars: BTreeMap<Kind<'t>, Vec<Bar<'t>>> = BTreeMap::new();
        for TimelinePreparation { step, device, of, start, end } in &timeline.preparations {
            let name = format!("{} {of} on {device}", step.name());
            let bar = Bar { name, start: *start, end: *end, measured: true, run: None, partition: None };
            bars.entry(Kind::Preparation(*step)).or_default().push(bar);
        }
        for (index, run) in timeline.runs.iter().enumerate() {
            let of_run = Some(run);
            let name = match (&run.executable, &*run.partitions) {
                (Some(name), _) => format!("run {}, submission {} of '{name}'", run.run, run.submission),
                // A command of a queue has a name of its own.
                (None, [only]) if only.nodes.len() == 1 => format!("run {}: {}", run.run, only.nodes[0]),
                (None, _) => format!("run {}, submission {}", run.run, run.submission),
            };
            let end = run.ended.unwrap_or(timeline.length);
            let bar = Bar { name, start: run.submitted, end, measured: true, run: of_run, partition: None };
            bars.entry(Kind::Submissions).or_default().push(bar);
            for partition in &run.partitions {
                let names = list_names(partition.nodes.iter().map(String::as_str));
                for poll in &partition.polls {
                    let (name, start, end) = (names.clone(), poll.start, poll.end);
                    let bar = Bar { name, start, end, measured: true, run: of_run, partition: None };
                    bars.entry(Kind::Thread(poll.thread)).or_default().push(bar);
                }
                let (kind, nodes) = match (&partition.device, partition.queue) {
                    (Some(device), Some(queue)) => {
                        let of = |row| Kind::Queue(device, queue, row);
                        (of(QueueRow::Partitions), Some(of(QueueRow::Nodes)))
                    }
                    _ => (Kind::HostTasks, None),
                };
                bars.entry(kind).or_default().extend(partition.span.map(|span| Bar {
                    name: names,
                    start: span.start,
                    end: span.end,
                    measured: span.measured,
                    run: of_run,
                    partition: Some((index, partition)),
                }));
                let Some(nodes) = nodes.filter(|_| !partition.node_spans.is_empty()) else { continue };
                let spans = partition.nodes.iter().zip(&partition.node_spans);
                bars.entry(nodes).or_default().extend(spans.map(|(name, span)| Bar {
                    name: name.clone(),
                    start: span.start,
                    end: span.end,
                    measured: true,
                    run: of_run,
                    partition: None,
                }));
            }
        }
        let mut tracks = Self::default();
        let mut queues = 0;
        for (kind, bars) in bars {
            let (group, name) = match kind {
                Kind::Preparation(step) => ("preparation", step.name().to_owned()),
                Kind::Submissions => ("submissions", "runs".to_owned()),
                Kind::HostTasks => ("host", "host tasks".to_owned()),
                Kind::Thread(thread) => ("threads of the host", timeline.threads[thread].clone()),
                Kind::Queue(device, _, QueueRow::Partitions) => {
                    let is_new = tracks.groups.last().is_none_or(|last| last.name != device);
                    queues = if is_new { 0 } else { queues + 1 };
                    (device, format!("queue {queues}"))
                }
                Kind::Queue(device, _, QueueRow::Nodes) => (device, "nodes".to_owned()),
            };
            tracks.add(group, &name, bars);
        }
        tracks
    }

    /// Adds bars to a group, in as many rows as it takes for none to overlap.
    fn add(&mut self, group: &str, name: &str, mut bars: Vec<Bar<'t>>) {
        if self.groups.last().is_none_or(|last| last.name != group) {
            self.groups.push(Group { name: group.to_owned(), rows: Vec::new() });
        }
        let number = self.groups.len() - 1;
        let rows = &mut self.groups[number].rows;
        let first = rows.len();
        bars.sort_by_key(|bar| (bar.start, bar.end));
        for bar in bars {
            let is_free = |row: &Row<'_>| row.bars.last().is_none_or(|last| last.end <= bar.start);
            let row = rows[first..].iter().position(is_free).map_or(rows.len(), |row| first + row);
            if row == rows.len() {
                let name =
                    if row == first { name.to_owned() } else { format!("{name} ({})", row - first + 1) };
                rows.push(Row { name, bars: Vec::new() });
            }
            if let Some((run, partition)) = bar.partition {
                let place = TrackPlace { group: number, row, start: bar.start, end: bar.end };
                self.places.insert((run, partition.partition), place);
            }
            rows[row].bars.push(bar);
        }
    }

    /// The two ends of every dependency between partitions.
    pub(super) fn arrows(&self, timeline: &Timeline) -> Vec<[TrackPlace; 2]> {
        let mut arrows = Vec::new();
        for (index, run) in timeline.runs.iter().enumerate() {
            for partition in &run.partitions {
                let Some(to) = self.places.get(&(index, partition.partition)) else { continue };
                let from = partition.waits_for.iter().filter_map(|&from| self.places.get(&(index, from)));
                arrows.extend(from.map(|from| [*from, *to]));
            }
        }
        arrows
    }
}
