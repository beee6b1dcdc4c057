//! The picture of the table: a bar for each balancer, from a cordon to the last new connection on the node.

use crate::balancer::ROWS;
use crate::event::Event;
use crate::table::Cells;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/time-to-notice.svg");
/// The name of a bar that would never end: kube-proxy's health check of a cordoned node. Its `nodeEligible`
/// considers the deletion and the autoscaler's taint, and nothing else (`pkg/proxy/healthcheck`, KEP-3836).
const KUBE_PROXY: &str = "kube-proxy's /healthz";

const LINE: usize = 26;
const TOP: usize = 56;
const NAMES: usize = 210;
/// The width of a second: the slowest bar ever measured, of seven seconds, fits with its label.
const SECONDS: f64 = 60.0;
/// The length of a bar without an end.
const NEVER: f64 = 7.5 * SECONDS;

/// The name, and the times from the shortest to the longest; empty if the balancer never notices.
type Bar = (&'static str, Vec<Duration>);

fn bars(cells: &Cells) -> Vec<Bar> {
    let times = |number: usize| cells.get(&(number, Event::Cordon)).map(|cell| cell.left().to_vec());
    let rows = ROWS.iter().enumerate().filter_map(|(number, row)| Some((row.pictured?, number)));
    let mut bars: Vec<Bar> = rows.map(|(name, number)| (name, times(number).unwrap_or_default())).collect();
    let last = bars.len() - 1;
    bars.insert(last, (KUBE_PROXY, Vec::new()));
    bars
}

fn bar(text: &mut String, number: usize, (name, times): &Bar) {
    let y = TOP + number * LINE;
    let _ = writeln!(text, r#"<text x="{}" y="{}" text-anchor="end">{name}</text>"#, NAMES - 10, y + 14);
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        let _ =
            writeln!(text, r#"<rect class="never" x="{NAMES}" y="{y}" width="{NEVER}" height="18" rx="3"/>"#);
        let _ = writeln!(text, r#"<text x="{}" y="{}">never</text>"#, NAMES + 8, y + 14);
        return;
    };
    let width = |time: &Duration| (time.as_secs_f64() * SECONDS).max(2.0);
    let middle = &times[times.len() / 2];
    let _ = writeln!(
        text,
        r#"<rect class="worst" x="{NAMES}" y="{y}" width="{:.0}" height="18" rx="3"/>"#,
        width(last)
    );
    let _ = writeln!(
        text,
        r#"<rect class="usual" x="{NAMES}" y="{y}" width="{:.0}" height="18" rx="3"/>"#,
        width(middle)
    );
    let label = format!("{:.1} to {:.1} s", first.as_secs_f64(), last.as_secs_f64());
    let at = f64::from(u32::try_from(NAMES).unwrap()) + width(last) + 8.0;
    let _ = writeln!(text, r#"<text x="{at:.0}" y="{}">{label}</text>"#, y + 14);
}

fn render(cells: &Cells) -> String {
    let bars = bars(cells);
    let height = TOP + bars.len() * LINE + 14;
    let mut text = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-label="Seconds from a cordon to the last new connection on the node, by balancer">
<style>
text {{ font: 14px system-ui, sans-serif; fill: #24292f }}
.title {{ font-weight: 600 }}
.usual {{ fill: #2da44e }}
.worst {{ fill: #2da44e; opacity: .35 }}
.never {{ fill: #cf222e; opacity: .35 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} }}
</style>
<text class="title" x="10" y="22">From kubectl cordon to the last new connection on the node</text>
<text x="10" y="42">dark: the middle of five times; light: the longest</text>
"#
    );
    bars.iter().enumerate().for_each(|(number, known)| bar(&mut text, number, known));
    text + "</svg>\n"
}

pub(crate) fn write(cells: &Cells) {
    fs::write(FILE, render(cells)).unwrap();
}

/// Asserts that the picture exists and has all bars.
pub(crate) fn assert_complete() {
    let text = fs::read_to_string(FILE).unwrap();
    for (name, _) in bars(&Cells::new()) {
        assert!(text.contains(&format!(">{name}</text>")), "the picture has no bar for {name}");
    }
}
