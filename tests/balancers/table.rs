//! The table of all rows and events and its picture, as `make lb-test` makes them and as docs/load-balancers.md has them.

use crate::balancer::{ROWS, Row};
use crate::event::Event;
use crate::scenario::Outcome;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::time::Duration;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers.md");
const BEGIN: &str = "<!-- The table from here on is written by `make lb-test WRITE=1`. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

/// The effect of an event that was played once or several times.
pub(crate) struct Cell(pub(crate) Vec<Outcome>);

impl Cell {
    /// Returns the times from the event to the last new connection; none if the node stayed at least once.
    fn left(&self) -> Vec<Duration> {
        let left = self.0.iter().map(|outcome| outcome.left_after).collect::<Option<Vec<_>>>();
        let mut left = left.unwrap_or_default();
        left.sort();
        left
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures = self.0.iter().map(|outcome| outcome.failures.len()).sum::<usize>();
        let requests = self.0.iter().map(|outcome| outcome.requests).sum::<u64>();
        write!(f, "{failures} of {requests} · ")?;
        match self.left().as_slice() {
            [] => write!(f, "stays")?,
            [only] => write!(f, "{:.2} s", only.as_secs_f64())?,
            [first, .., last] => write!(f, "{:.2} to {:.2} s", first.as_secs_f64(), last.as_secs_f64())?,
        }
        let back = if self.0.iter().any(|outcome| outcome.back) { ", back" } else { "" };
        write!(f, "{back} · {}", if self.0.iter().all(|outcome| outcome.kept) { "kept" } else { "cut" })?;
        let says = self.0.iter().find_map(|outcome| outcome.says.as_ref());
        says.map_or(Ok(()), |says| write!(f, " · {says}"))
    }
}

/// The cells, by the number of the row and by event.
pub(crate) type Cells = BTreeMap<(usize, Event), Cell>;

fn header() -> String {
    let names = Event::all().map(Event::name).join(" | ");
    format!("| balancer | {names} |\n|---|{}\n", "---|".repeat(Event::all().len()))
}

fn is_whole(cell: &str, event: Event) -> bool {
    let stays_wrongly = event.must_leave() && cell.contains(" · stays · ");
    cell.starts_with("0 of ") && cell.contains(" · kept") && !stays_wrongly
}

/// The notes for cells that keep less: the reasons of the rows, each with a number.
#[derive(Default)]
struct Notes(Vec<&'static str>);

impl Notes {
    fn mark(&mut self, cell: &str, row: &Row, event: Event) -> String {
        let Some(why) = row.reason(event).filter(|_| !is_whole(cell, event)) else { return String::new() };
        let known = self.0.iter().position(|known| *known == why);
        let at = known.unwrap_or_else(|| {
            self.0.push(why);
            self.0.len() - 1
        });
        format!(" ({})", at + 1)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (number, note) in (1..).zip(&self.0) {
            let _ = write!(text, "\n({number}) {note}.\n");
        }
        text
    }
}

pub(crate) fn render(cells: &Cells) -> String {
    let (mut text, mut notes) = (header(), Notes::default());
    for (number, row) in ROWS.iter().enumerate() {
        let cell = |event: Event| {
            let cell = cells.get(&(number, event)).map_or_else(|| "not played".to_owned(), Cell::to_string);
            let mark = notes.mark(&cell, row, event);
            cell + &mark
        };
        let _ = writeln!(text, "| {} | {} |", row.title(), Event::all().map(cell).join(" | "));
    }
    text + &notes.text()
}

fn documented(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once(BEGIN).expect("the document has the mark where the table begins");
    let (table, after) = rest.split_once(END).expect("the document has the mark where the table ends");
    (before, table.trim(), after)
}

pub(crate) fn write(cells: &Cells) {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (before, _, after) = documented(&text);
    fs::write(DOCUMENT, format!("{before}{BEGIN}\n{}\n{END}{after}", render(cells))).unwrap();
    fs::write(PICTURE, draw(cells)).unwrap();
}

/// Shows that the document has these rows and events, no cell that is worse than its row allows, and a picture.
#[test]
fn the_table_in_load_balancers_md_is_a_complete_run() {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (_, table, _) = documented(&text);
    let body = table.strip_prefix(&header()).expect("its header is that of make lb-test");
    let rows: Vec<&str> = body.lines().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), ROWS.len(), "a row for each");
    let mut notes = Notes::default();
    for (line, row) in std::iter::zip(rows, ROWS.iter()) {
        let cells = line.strip_prefix(&format!("| {} | ", row.title()));
        let cells: Vec<&str> = cells.expect(line).trim_end_matches(" |").split(" | ").collect();
        assert_eq!(cells.len(), Event::all().len(), "{line}");
        for (cell, event) in std::iter::zip(cells, Event::all()) {
            let is_right = cell.contains(" of ") && (is_whole(cell, event) || row.reason(event).is_some());
            assert!(is_right, "{}, {}: {cell}", row.title(), event.name());
            let mark = notes.mark(cell, row, event);
            assert!(cell.ends_with(&mark), "{}, {}: {cell}", row.title(), event.name());
        }
    }
    assert!(table.ends_with(notes.text().trim_end()), "its notes are those of the rows");
    let picture = fs::read_to_string(PICTURE).unwrap();
    for (name, _) in bars(&Cells::new()) {
        assert!(picture.contains(&format!(">{name}</text>")), "the picture has no bar for {name}");
    }
}

/// The picture of the table: a bar for each balancer, from a cordon to the last new connection on the node.
const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/time-to-notice.svg");
/// The name of a bar that would never end: kube-proxy's health check of a cordoned node. Its `nodeEligible`
/// considers the deletion and the autoscaler's taint, and nothing else (`pkg/proxy/healthcheck`, KEP-3836).
const KUBE_PROXY: &str = "kube-proxy's /healthz";

const LINE: usize = 26;
const TOP: usize = 56;
/// The width of a second: the slowest bar ever measured, of seven seconds, fits with its label.
const SECONDS: f64 = 60.0;

/// What is before the bars in it, after the `viewBox`.
const HEAD: &str = include_str!("time-to-notice.head");

/// Returns the names of the bars, each with its times from the shortest to the longest; none if the balancer never notices.
fn bars(cells: &Cells) -> Vec<(&'static str, Vec<Duration>)> {
    let times = |number: usize| cells.get(&(number, Event::Cordon)).map(Cell::left).unwrap_or_default();
    let rows = ROWS.iter().enumerate().filter_map(|(number, row)| Some((row.pictured?, times(number))));
    let mut bars: Vec<_> = rows.collect();
    bars.insert(bars.len() - 1, (KUBE_PROXY, Vec::new()));
    bars
}

fn bar(y: usize, name: &str, times: &[Duration]) -> String {
    let rect = |class: &str, width: f64| {
        format!(r#"<rect class="{class}" x="210" y="{y}" width="{width:.0}" height="18" rx="3"/>"#) + "\n"
    };
    let text = |x: f64, more: &str| format!(r#"<text x="{x:.0}" y="{}"{more}</text>"#, y + 14) + "\n";
    let name = text(200.0, &format!(r#" text-anchor="end">{name}"#));
    let width = |time: &Duration| (time.as_secs_f64() * SECONDS).max(2.0);
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return name + &rect("never", 7.5 * SECONDS) + &text(218.0, ">never");
    };
    let label = format!(">{:.1} to {:.1} s", first.as_secs_f64(), last.as_secs_f64());
    let bars = rect("worst", width(last)) + &rect("usual", width(&times[times.len() / 2]));
    name + &bars + &text(218.0 + width(last), &label)
}

fn draw(cells: &Cells) -> String {
    let bars = bars(cells);
    let height = TOP + bars.len() * LINE + 14;
    let bars = bars.iter().enumerate().map(|(at, (name, times))| bar(TOP + at * LINE, name, times));
    let view = format!("viewBox=\"0 0 760 {height}\"");
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {view} {HEAD}{}</svg>\n", bars.collect::<String>())
}
