//! What the page shows while requests run.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use wakegraph::graph::CommandKind;
use wakegraph::profile::Profile;
use wakegraph::service::PoolStatus;

/// Latencies of so many requests are kept.
const KEPT: usize = 1000;

/// Figures of the requests that were answered last.
#[derive(Default)]
pub(crate) struct Figures {
    answered: u64,
    latencies: VecDeque<Duration>,
    profile: Profile,
}

impl Figures {
    pub(crate) fn record(&mut self, latency: Duration, profile: Profile) {
        self.answered += 1;
        self.latencies.truncate(KEPT - 1);
        self.latencies.push_front(latency);
        self.profile = profile;
    }

    /// A piece of HTML.
    pub(crate) fn html(&self, pool: PoolStatus) -> String {
        let [p50, p99] = [50, 99].map(|percent| self.percentile(percent).as_secs_f64() * 1e3);
        let figures = [
            ("answered", self.answered.to_string()),
            ("in flight", (pool.made - pool.idle).to_string()),
            ("waiting", pool.waiting.to_string()),
            ("p50", format!("{p50:.1} ms")),
            ("p99", format!("{p99:.1} ms")),
        ];
        let figures = figures.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{value}</dd></div>"));
        format!("<dl>{}</dl>{}", figures.concat(), timeline(&self.profile))
    }

    /// The latency that so many percent of the requests did not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let mut latencies: Vec<_> = self.latencies.iter().copied().collect();
        latencies.sort_unstable();
        let rank = (latencies.len() * percent).div_ceil(100).max(1);
        latencies.get(rank - 1).copied().unwrap_or_default()
    }
}

/// The nodes of a run as bars over time, as SVG.
fn timeline(profile: &Profile) -> String {
    const ROW: usize = 22;
    let scale = 560.0 / profile.total().as_secs_f64().max(1e-9);
    let mut svg = format!(r#"<svg viewBox="0 0 860 {}" role="img">"#, ROW * profile.nodes.len());
    for (row, node) in profile.nodes.iter().enumerate() {
        let (x, width) = (200.0 + node.start.as_secs_f64() * scale, node.duration().as_secs_f64() * scale);
        let class = if node.kind == CommandKind::HostTask { "host" } else { "device" };
        let (y, ms) = (ROW * row, node.duration().as_secs_f64() * 1e3);
        let label = node.label.rsplit_once(" (#").map_or(&*node.label, |(label, _)| label);
        let _ = write!(
            svg,
            r#"<text x="0" y="{}">{label}</text><rect class="{class}" x="{x:.1}" y="{}" width="{:.1}" height="16" rx="2"/><text class="ms" x="{:.1}" y="{}">{ms:.2} ms</text>"#,
            y + 15,
            y + 3,
            width.max(1.5),
            x + width.max(1.5) + 6.0,
            y + 15,
        );
    }
    svg + "</svg>"
}
