//! Timelines as pictures.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::Timeline;
use super::tracks::{TrackPlace, Tracks};

/// All in pixels.
const MARGIN: f64 = 150.0;
const WIDTH: f64 = 900.0;
const ROW: f64 = 22.0;
const TITLE: f64 = 20.0;
const COUNTER: f64 = 36.0;
/// About the width of a letter.
const LETTER: f64 = 6.2;
/// Room that an arrow needs. Where there are more of them than fit, they would hide the bars.
const ARROW: f64 = 8.0;

const COLOURS: [&str; 6] = ["#cfd8dc", "#ffcc80", "#90caf9", "#a5d6a7", "#ce93d8", "#ef9a9a"];

pub(super) fn draw(timeline: &Timeline) -> String {
    let tracks = Tracks::new(timeline);
    let bars = || tracks.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.bars);
    let start = bars().map(|bar| bar.start).min().unwrap_or_default();
    let end = bars().map(|bar| bar.end).max().unwrap_or(timeline.length);
    let mut picture =
        Picture { start, length: (end - start).max(Duration::from_nanos(1)), text: String::new() };
    let mut tops = Vec::new();
    let mut y = TITLE;
    for (group, colour) in tracks.groups.iter().zip(COLOURS.iter().cycle()) {
        let clock = timeline.clocks.iter().find(|clock| clock.device == group.name);
        let clock = match clock.map(|clock| clock.error) {
            None => String::new(),
            Some(Duration::ZERO) => ", on the host's clock".to_owned(),
            Some(error) => format!(", clock to within {error:?}"),
        };
        picture.label(6.0, y + 14.0, "start", true, &format!("{}{clock}", group.name));
        y += TITLE;
        tops.push(y);
        for row in &group.rows {
            picture.label(MARGIN - 8.0, y + 15.0, "end", false, &row.name);
            for bar in &row.bars {
                picture.bar(y, bar, colour);
            }
            y += ROW;
        }
    }
    let arrows = tracks.arrows(timeline);
    if arrows.len() as f64 * ARROW <= WIDTH {
        for [from, to] in &arrows {
            let middle = |place: &TrackPlace| tops[place.group] + ROW * (place.row as f64 + 0.5);
            picture.arrow((from.end, middle(from)), (to.start, middle(to)));
        }
    } else {
        let left_out = format!("{} arrows are left out: record fewer runs to see them", arrows.len());
        picture.label(MARGIN, TITLE - 6.0, "start", false, &left_out);
    }
    y += 6.0;
    for (name, points) in [("runs in flight", &timeline.in_flight), ("memory in use", &timeline.memory)] {
        if points.iter().any(|(_, value)| *value > 0) {
            picture.counter(y, name, points);
            y += COUNTER + 6.0;
        }
    }
    picture.axis(y);
    let (width, height) = (MARGIN + WIDTH + 30.0, y + 30.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" \
         markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#455a64\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
        picture.text
    )
}

struct Picture {
    start: Duration,
    length: Duration,
    text: String,
}

impl Picture {
    fn x(&self, at: Duration) -> f64 {
        MARGIN + WIDTH * (at.saturating_sub(self.start).as_secs_f64() / self.length.as_secs_f64()).min(1.0)
    }

    fn label(&mut self, x: f64, y: f64, anchor: &str, bold: bool, text: &str) {
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let text = Xml(text);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{weight}>{text}</text>"
        );
    }

    fn bar(&mut self, y: f64, bar: &super::tracks::Bar<'_>, colour: &str) {
        let (x, width) = (self.x(bar.start), (self.x(bar.end) - self.x(bar.start)).max(1.0));
        let dashes = if bar.measured { "" } else { " stroke-dasharray=\"3 2\"" };
        let took = bar.end.saturating_sub(bar.start);
        let tip = format!("{}: {took:?} from {:?}", bar.name, bar.start.saturating_sub(self.start));
        let (tip, height) = (Xml(&tip), ROW - 4.0);
        let _ = writeln!(
            self.text,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"2\" \
             fill=\"{colour}\" stroke=\"#607d8b\" stroke-width=\"0.7\"{dashes}><title>{tip}</title></rect>",
            y + 2.0
        );
        let letters = ((width - 6.0) / LETTER) as usize;
        let fits = |name: &str| name.chars().count() <= letters;
        let text = match short(&bar.name) {
            _ if letters < 3 => return,
            _ if fits(&bar.name) => bar.name.clone(),
            short if fits(&short) => short,
            short => short.chars().take(letters - 1).chain(['…']).collect(),
        };
        self.label(x + 3.0, y + 15.0, "start", false, &text);
    }

    fn arrow(&mut self, from: (Duration, f64), to: (Duration, f64)) {
        let ((x, y), (to_x, to_y)) = ((self.x(from.0), from.1), (self.x(to.0), to.1));
        let bend = ((to_x - x).abs() / 2.0).clamp(8.0, 40.0);
        let _ = writeln!(
            self.text,
            "<path d=\"M{x:.1} {y:.1}C{:.1} {y:.1} {:.1} {to_y:.1} {to_x:.1} {to_y:.1}\" fill=\"none\" \
             stroke=\"#455a64\" stroke-width=\"1\" marker-end=\"url(#head)\"/>",
            x + bend,
            to_x - bend
        );
    }

    /// A counter as steps, with its largest value.
    fn counter(&mut self, y: f64, name: &str, points: &[(Duration, u64)]) {
        let most = points.iter().map(|(_, value)| *value).max().unwrap_or(1).max(1);
        let (bottom, mut path) = (y + COUNTER, String::new());
        let _ = write!(path, "M{MARGIN:.1} {bottom:.1}");
        for (at, value) in points {
            let height = bottom - (COUNTER - 4.0) * (*value as f64 / most as f64);
            let _ = write!(path, "H{:.1}V{height:.1}", self.x(*at));
        }
        let _ = writeln!(
            self.text,
            "<path d=\"{path}H{:.1}V{bottom:.1}z\" fill=\"#eceff1\" stroke=\"#90a4ae\"/>",
            MARGIN + WIDTH
        );
        let most = if name == "memory in use" { bytes(most) } else { most.to_string() };
        self.label(MARGIN - 8.0, y + 15.0, "end", false, name);
        self.label(MARGIN - 8.0, y + 29.0, "end", false, &format!("at most {most}"));
    }

    /// Times below all rows, some eight of them, at round numbers.
    fn axis(&mut self, y: f64) {
        let eighth = self.length.as_nanos() as f64 / 8.0;
        let magnitude = 10f64.powf(eighth.max(1.0).log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
        let step = round.into_iter().find(|&step| step >= eighth).unwrap_or(10.0 * magnitude);
        let mut at = 0.0;
        while at <= self.length.as_nanos() as f64 {
            let moment = Duration::from_nanos(at as u64);
            let x = self.x(self.start + moment);
            let _ = writeln!(
                self.text,
                "<path d=\"M{x:.1} {TITLE}V{y:.1}\" stroke=\"#b0bec5\" stroke-width=\"0.5\" \
                 stroke-dasharray=\"1 3\"/>"
            );
            self.label(x, y + 16.0, "middle", false, &format!("{moment:?}"));
            at += step;
        }
    }
}

/// Only the names that users have given, where there are any: `kernel 'blur' (#2)` becomes `blur`.
fn short(name: &str) -> String {
    let given: Vec<&str> = name.split('\'').skip(1).step_by(2).collect();
    if given.is_empty() { name.to_owned() } else { given.join(", ") }
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} kB", count / 1000),
        _ => format!("{} MB", count / 1_000_000),
    }
}

/// Text of XML.
struct Xml<'a>(&'a str);

impl fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            match char {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\n' | '\t' => f.write_char(' ')?,
                // XML has no others.
                '\0'..' ' | '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                _ => f.write_char(char)?,
            }
        }
        Ok(())
    }
}
