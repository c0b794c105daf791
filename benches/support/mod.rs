//! What the benchmarks share: rows that race ours against a hand-written base in the same run, and
//! how they print.
//!
//! A row alternates between rounds of ours and rounds of the base, so that whatever else the
//! machine does hits both. `ours` and `base` are medians over the rounds of a round's mean, per
//! operation; `min` is the best of our rounds; `p50` and `p99` are over our single samples, and
//! tell a rare long wait from one that is always there. Every figure is on one line:
//!
//! `BENCH name ours=… base=… unit=… ratio=… limit=… p50=… p99=… min=…`
//!
//! `--quick` runs fewer rounds; `--check` makes the process fail when a row exceeds its limit; any
//! other word runs only the rows whose name contains it.
#![allow(dead_code, unreachable_pub, reason = "every benchmark uses a part of it")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

pub mod barrier;
pub mod counting;
pub mod cpu;
pub mod handoff;
pub mod load;
pub mod resident;

use std::future::Future;
use std::process::ExitCode;
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

/// One way to do the work of a row.
pub trait Contender: Send + 'static {
    /// Does it once.
    fn once(&mut self) -> impl Future<Output = ()> + Send;
}

/// How a row is measured.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    name: &'a str,
    limit: Option<f64>,
    rounds: usize,
    samples: usize,
    calls: usize,
    operations: usize,
}

impl<'a> Row<'a> {
    /// 200 rounds of 50 samples, each one call of one operation.
    pub fn new(name: &'a str) -> Self {
        Self { name, limit: None, rounds: 200, samples: 50, calls: 1, operations: 1 }
    }

    /// The ratio that `--check` accepts.
    pub fn limit(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Whether ours takes longer than the limit allows.
    pub fn is_exceeded(&self, ours: &Times, base: &Times) -> bool {
        self.limit.is_some_and(|limit| ours.median() > limit * base.median())
    }

    /// How often ours and base take turns, and how many samples a turn takes.
    pub fn rounds(self, rounds: usize, samples: usize) -> Self {
        Self { rounds, samples, ..self }
    }

    /// Calls between two readings of the clock, for operations that are about as short as a reading.
    pub fn calls(self, calls: usize) -> Self {
        Self { calls, ..self }
    }

    /// Operations that one call does; figures are per operation.
    pub fn operations(self, operations: usize) -> Self {
        Self { operations, ..self }
    }
}

/// Prints rows and remembers whether one exceeded its limit.
#[derive(Debug)]
pub struct Report {
    quick: bool,
    check: bool,
    filters: Vec<String>,
    exceeded: bool,
}

impl Report {
    /// As the command line says.
    pub fn from_args() -> Self {
        let (options, filters): (Vec<_>, Vec<_>) =
            std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
        let has = |option: &str| options.iter().any(|given| given == option);
        Self { quick: has("--quick"), check: has("--check"), filters, exceeded: false }
    }

    /// Whether the row is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }

    /// `full`, or a tenth of it in a quick run, but at least 3.
    pub fn reduced(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(3) } else { full }
    }

    /// How often a row is measured until it keeps its limit.
    pub fn attempts(&self) -> usize {
        if self.check { 3 } else { 1 }
    }

    /// Races the two inside a task of the runtime.
    pub fn race(&mut self, row: Row<'_>, runtime: &Runtime, ours: impl Contender, base: impl Contender) {
        self.race_best(row, runtime, ours, vec![(String::new(), base)]);
    }

    /// Races ours against several ways to do the same; the base is the fastest of them, whose name
    /// the row tells.
    pub fn race_best<B: Contender>(
        &mut self,
        row: Row<'_>,
        runtime: &Runtime,
        ours: impl Contender,
        bases: Vec<(String, B)>,
    ) {
        if !self.wants(row.name) {
            return;
        }
        let turns = (self.reduced(row.rounds), row.samples, row.calls);
        let (names, bases): (Vec<_>, Vec<_>) = bases.into_iter().unzip();
        let bases = bases.into_iter().map(|base| Timed::new(base, row.operations)).collect();
        let mut timed = (Timed::new(ours, row.operations), bases);
        // Where a system places threads that wake each other decides between 2 and 50 microseconds,
        // by luck that lasts. A row that exceeds its limit gets other chances.
        let attempts = self.attempts();
        for attempt in 1..=attempts {
            timed =
                runtime.block_on(async { tokio::spawn(alternate(timed, turns)).await.expect("no panic") });
            let ours = std::mem::take(&mut timed.0.times);
            let bases = timed.1.iter_mut().map(|one| std::mem::take(&mut one.times));
            let bases: Vec<_> = names.iter().zip(bases).collect();
            let best = bases.iter().min_by(|(_, one), (_, other)| one.median().total_cmp(&other.median()));
            let Some((name, base)) = best else { return };
            let (value, reference) = (ours.median(), base.median());
            let exceeded = row.is_exceeded(&ours, base);
            if exceeded && attempt < attempts {
                continue;
            }
            let mut tail = tail(row.limit, &ours, base);
            if !name.is_empty() {
                tail += &format!(" base_is={name}");
                let others = bases.iter().map(|(name, times)| format!("{name}:{}", number(times.median())));
                tail += &format!(" bases={}", others.collect::<Vec<_>>().join(","));
            }
            return self.line(row.name, value, reference, "ns", &tail, exceeded);
        }
    }

    /// Races two functions that each give one sample. They are made only if the row is asked for.
    pub fn race_timed<A, B>(&mut self, row: Row<'_>, unit: &str, make: impl FnOnce() -> (A, B))
    where
        A: FnMut() -> f64,
        B: FnMut() -> f64,
    {
        if !self.wants(row.name) {
            return;
        }
        let (mut ours, mut base) = make();
        let (mut times, mut base_times) = (Times::default(), Times::default());
        for round in 0..self.reduced(row.rounds) + 1 {
            let samples: Vec<_> = (0..row.samples).map(|_| ours()).collect();
            let base_samples: Vec<_> = (0..row.samples).map(|_| base()).collect();
            // The first round fills caches.
            if round > 0 {
                times.add(&samples);
                base_times.add(&base_samples);
            }
        }
        let (value, reference) = (times.median(), base_times.median());
        let exceeded = row.is_exceeded(&times, &base_times);
        self.line(row.name, value, reference, unit, &tail(row.limit, &times, &base_times), exceeded);
    }

    /// Prints a row of times, in nanoseconds, that were taken elsewhere.
    pub fn compare(&mut self, row: Row<'_>, ours: &Times, base: &Times) {
        let exceeded = row.is_exceeded(ours, base);
        self.line(row.name, ours.median(), base.median(), "ns", &tail(row.limit, ours, base), exceeded);
    }

    /// Prints a row measured otherwise; `exceeded` when it breaks its limit.
    pub fn figure(&mut self, name: &str, ours: f64, base: f64, unit: &str, exceeded: bool) {
        self.line(name, ours, base, unit, &format!("p99={}", number(ours)), exceeded);
    }

    /// By which power of a count the work grows, from a quarter of `most` to `most`: of the best of some
    /// rounds.
    /// `work` gives its seconds on the CPU, as a busy machine interrupts long work and not short work.
    pub fn slope(&mut self, name: &str, most: usize, mut work: impl FnMut(usize) -> f64) {
        const LIMIT: f64 = 1.1;
        if !self.wants(name) {
            return;
        }
        let attempts = self.attempts();
        for attempt in 1..=attempts {
            let mut best = [f64::INFINITY; 2];
            for _ in 0..self.reduced(7) {
                for (best, count) in best.iter_mut().zip([most / 4, most]) {
                    *best = best.min(work(count));
                }
            }
            let slope = (best[1] / best[0]).ln() / 4f64.ln();
            let exceeded = slope > LIMIT;
            if exceeded && attempt < attempts {
                continue;
            }
            let [few, many] = best.map(|seconds| number(seconds * 1e6));
            let tail = format!("limit={LIMIT} few_us={few} many_us={many}");
            return self.line(name, slope, 1.0, "power", &tail, exceeded);
        }
    }

    /// What the process should end with.
    pub fn finish(self) -> ExitCode {
        if self.check && self.exceeded { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn line(&mut self, name: &str, ours: f64, base: f64, unit: &str, tail: &str, exceeded: bool) {
        self.exceeded |= exceeded;
        let (left, right) = (number(ours), number(base));
        let ratio = if base == 0.0 { 0.0 } else { ours / base };
        let verdict = if exceeded { " EXCEEDED" } else { "" };
        println!("BENCH {name} ours={left} base={right} unit={unit} ratio={ratio:.3} {tail}{verdict}");
    }
}

/// A tokio runtime of one thread.
pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a tokio runtime")
}

/// A tokio runtime of two workers.
pub fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a tokio runtime")
}

/// Lets all take turns; who begins takes turns as well.
async fn alternate<A: Contender, B: Contender>(
    (mut ours, mut bases): (Timed<A>, Vec<Timed<B>>),
    (rounds, samples, calls): (usize, usize, usize),
) -> (Timed<A>, Vec<Timed<B>>) {
    for round in 0..rounds + 2 {
        // The first two rounds fill tables and caches, and teach the prediction.
        let counts = round >= 2;
        // Ours follows each of the bases in turn: some leave the threads of the driver awake, others asleep.
        let place = round % (bases.len() + 1);
        let (before, after) = bases.split_at_mut(place);
        for base in before {
            base.round(samples, calls, counts).await;
        }
        ours.round(samples, calls, counts).await;
        for base in after {
            base.round(samples, calls, counts).await;
        }
    }
    (ours, bases)
}

/// One contender with its times.
struct Timed<C> {
    contender: C,
    operations: usize,
    times: Times,
}

/// Nanoseconds an operation.
#[derive(Debug, Default)]
pub struct Times {
    rounds: Vec<f64>,
    samples: Vec<f64>,
}

impl Times {
    /// The middle one of what the rounds took.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// Adds a round that took as long as its middle sample.
    pub fn add_by_median(&mut self, samples: &[f64]) {
        self.rounds.push(median(samples));
        self.samples.extend_from_slice(samples);
    }

    /// Adds a round that took as long as its samples in the mean.
    fn add(&mut self, samples: &[f64]) {
        self.rounds.push(samples.iter().sum::<f64>() / samples.len() as f64);
        self.samples.extend_from_slice(samples);
    }
}

/// What a row tells behind its ratio.
fn tail(limit: Option<f64>, ours: &Times, base: &Times) -> String {
    let limit = limit.map_or(String::new(), |limit| format!("limit={limit} "));
    format!(
        "{limit}p50={} p99={} min={} base_p50={} base_p99={} base_min={}",
        number(median(&ours.samples)),
        number(percentile(&ours.samples, 0.99)),
        number(percentile(&ours.rounds, 0.0)),
        number(median(&base.samples)),
        number(percentile(&base.samples, 0.99)),
        number(percentile(&base.rounds, 0.0)),
    )
}

impl<C: Contender> Timed<C> {
    fn new(contender: C, operations: usize) -> Self {
        Self { contender, operations, times: Times::default() }
    }

    async fn round(&mut self, samples: usize, calls: usize, counts: bool) {
        // Not counted: what the other contender's round has pushed out of caches, threads that have
        // to find their cores.
        for _ in 0..=samples / 5 {
            self.contender.once().await;
        }
        let mut nanoseconds = Vec::with_capacity(samples);
        for _ in 0..samples {
            let start = Instant::now();
            for _ in 0..calls {
                self.contender.once().await;
            }
            nanoseconds.push(start.elapsed().as_nanos() as f64 / (calls * self.operations) as f64);
        }
        if counts {
            self.times.add(&nanoseconds);
        }
    }
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which `share` of the values lie; not a number for none.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
