//! Where the time of all frames went.

use std::fmt;
use std::time::Duration;

use wakegraph::profile::{NodeTimes, Profile};

/// How long each stage took over the frames, as a table.
pub(crate) struct Stages {
    rows: Vec<Row>,
    /// All frames together.
    total: Duration,
}

/// One stage: its time in every frame, the shortest first.
struct Row {
    label: String,
    times: Vec<Duration>,
}

impl Stages {
    pub(crate) fn new(profiles: &[Profile]) -> Self {
        let labels =
            profiles.first().into_iter().flat_map(|profile| &profile.nodes).map(|node| node.label.clone());
        let stages = labels.enumerate().map(|(stage, label)| {
            let times =
                profiles.iter().filter_map(|profile| profile.nodes.get(stage)).map(NodeTimes::duration);
            Row::new(label, times)
        });
        let idle = Row::new("between the stages".to_owned(), profiles.iter().map(idle));
        let frame = Row::new("frame".to_owned(), profiles.iter().map(Profile::total));
        let total = frame.times.iter().sum();
        Self { rows: stages.chain([idle, frame]).collect(), total }
    }
}

impl Row {
    fn new(label: String, times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        Self { label, times }
    }

    /// The time that `percent` of the frames did not exceed (nearest rank).
    fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied().unwrap_or_default()
    }
}

/// The time of a frame in which none of its stages ran.
fn idle(profile: &Profile) -> Duration {
    let mut spans: Vec<_> = profile.nodes.iter().map(|node| (node.start, node.end)).collect();
    spans.sort_unstable();
    let (mut idle, mut busy_until) = (Duration::ZERO, Duration::ZERO);
    for (start, end) in spans {
        idle += start.saturating_sub(busy_until);
        busy_until = busy_until.max(end);
    }
    idle
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or_default();
        writeln!(f, "  {:<width$}  {:>10}  {:>10}  {:>6}", "stage", "median us", "p99 us", "share")?;
        for row in &self.rows {
            let [median, p99] = [50, 99].map(|percent| row.percentile(percent).as_secs_f64() * 1e6);
            let share = row.times.iter().sum::<Duration>().div_duration_f64(self.total) * 100.0;
            writeln!(f, "  {:<width$}  {median:>10.1}  {p99:>10.1}  {share:>4.1} %", row.label)?;
        }
        Ok(())
    }
}

/// The text, two columns further right.
pub(crate) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
