//! Timelines as trace events, the JSON that Chrome's `about:tracing` and Perfetto read.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::Timeline;
use super::tracks::Tracks;

/// Groups of rows become processes, rows their threads, both numbered from 1 on.
pub(super) fn trace_events(timeline: &Timeline) -> String {
    let tracks = Tracks::new(timeline);
    let mut events = Events::default();
    for (group, pid) in tracks.groups.iter().zip(1..) {
        let error = timeline.clocks.iter().find(|clock| clock.device == group.name).map(|clock| clock.error);
        let name = match error {
            Some(Duration::ZERO) => format!("{} (on the host's clock)", group.name),
            Some(error) => format!("{} (clock to within {error:?})", group.name),
            None => group.name.clone(),
        };
        events.name("process_name", pid, 0, &name);
        for (row, tid) in group.rows.iter().zip(1..) {
            events.name("thread_name", pid, tid, &row.name);
            for bar in &row.bars {
                let mut args = String::new();
                if let Some(run) = bar.run {
                    let _ = write!(args, "\"run\":{},\"submission\":{}", run.run, run.submission);
                }
                if let Some((_, partition)) = bar.partition {
                    let (number, succeeded) = (partition.partition, partition.succeeded);
                    let measured = bar.measured;
                    let _ = write!(
                        args,
                        ",\"partition\":{number},\"succeeded\":{succeeded},\"measured\":{measured}"
                    );
                }
                let (name, start) = (Json(&bar.name), Micros(bar.start));
                let duration = Micros(bar.end.saturating_sub(bar.start));
                events.push(format_args!(
                    "\"ph\":\"X\",\"name\":{name},\"cat\":\"wakegraph\",\"pid\":{pid},\"tid\":{tid},\
                     \"ts\":{start},\"dur\":{duration},\"args\":{{{args}}}"
                ));
            }
        }
    }
    for ([from, to], id) in tracks.arrows(timeline).into_iter().zip(1..) {
        // An arrow belongs to the bar that is there at its time, so it begins just before the end.
        let leaves = from.end.saturating_sub(Duration::from_nanos(1)).max(from.start);
        for (phase, place, at) in [("\"s\"", from, leaves), ("\"f\",\"bp\":\"e\"", to, to.start)] {
            let (pid, tid, at) = (place.group + 1, place.row + 1, Micros(at));
            events.push(format_args!(
                "\"ph\":{phase},\"id\":{id},\"name\":\"dependency\",\"cat\":\"wakegraph\",\"pid\":{pid},\
                 \"tid\":{tid},\"ts\":{at}"
            ));
        }
    }
    for (name, points) in [("runs in flight", &timeline.in_flight), ("memory in use", &timeline.memory)] {
        let (name, unit) = (Json(name), if name == "memory in use" { "bytes" } else { "runs" });
        for (at, value) in points {
            let at = Micros(*at);
            events.push(format_args!(
                "\"ph\":\"C\",\"name\":{name},\"pid\":1,\"tid\":0,\"ts\":{at},\"args\":{{\"{unit}\":{value}}}"
            ));
        }
    }
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", events.0)
}

#[derive(Default)]
struct Events(String);

impl Events {
    fn push(&mut self, fields: fmt::Arguments<'_>) {
        let separator = if self.0.is_empty() { "" } else { ",\n" };
        let _ = write!(self.0, "{separator}{{{fields}}}");
    }

    fn name(&mut self, what: &str, pid: usize, tid: usize, name: &str) {
        let name = Json(name);
        self.push(format_args!(
            "\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}"
        ));
        let (sort, order) = (what.replace("name", "sort_index"), if tid == 0 { pid } else { tid });
        self.push(format_args!(
            "\"ph\":\"M\",\"name\":\"{sort}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"sort_index\":{order}}}"
        ));
    }
}

/// A string of JSON.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for char in self.0.chars() {
            match char {
                '"' | '\\' => write!(f, "\\{char}")?,
                '\0'..='\x1f' => write!(f, "\\u{:04x}", u32::from(char))?,
                _ => f.write_char(char)?,
            }
        }
        f.write_char('"')
    }
}

/// Microseconds, to the nanosecond.
struct Micros(Duration);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_micros(), self.0.subsec_nanos() % 1000)
    }
}
