//! The table, as `make checks-test` prints it and as docs/checks.md has it.

use crate::check_states::part::{Pace, Part, Says, State};
use crate::check_states::play::{Told, play};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/checks.md");
const BEGIN: &str = "<!-- The table from here on is written by `make checks-test WRITE=1`. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

/// A check with the states of its component.
pub(crate) struct Scenario {
    pub(crate) title: &'static str,
    pub(crate) play: fn(Pace) -> Vec<Option<Told>>,
    played_with: &'static str,
    rows: fn() -> Vec<Row>,
}

/// The rows of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    All,
    /// Without those in which the check and an agent that starts fail alike, or a check that failed passes again.
    Surprising,
}

/// The cells that do not depend on the run.
struct Row {
    state: &'static str,
    says: Says,
    newcomer: Says,
    /// `None` where the row before has the same answer.
    within: Option<u64>,
    note: Option<&'static str>,
}

impl Scenario {
    pub(crate) const fn of<P: Part>() -> Self {
        Self { title: P::TITLE, play: play::<P>, played_with: P::PLAYED_WITH, rows: rows::<P> }
    }

    /// Returns the rows of this check; `cell` returns the seconds of a row.
    fn table(&self, rows: Rows, mut cell: impl FnMut(usize) -> String) -> String {
        let mut text = String::new();
        for (number, row) in (self.rows)().into_iter().enumerate() {
            let Row { state, says, newcomer, within, note } = row;
            let seconds = cell(number);
            let is_recovery = says.verdict() == "passes" && within.is_some();
            let is_out = matches!(says.verdict(), "fails" | "drains");
            if rows == Rows::Surprising && newcomer == says && (is_recovery || is_out) {
                continue;
            }
            let newcomer = if newcomer == says { "the same".to_owned() } else { both(newcomer) };
            let within = within.map_or_else(|| "–".to_owned(), |within| within.to_string());
            let note = note.map_or_else(String::new, |note| format!(" ({note})"));
            let _ = writeln!(
                text,
                "| `{}` | {state}{note} | {} | {} | {seconds} | {within} | {newcomer} |",
                self.title,
                says.verdict(),
                code(says.reason()),
            );
        }
        text
    }
}

fn rows<P: Part>() -> Vec<Row> {
    let before = std::iter::once(None).chain(P::STATES.iter().map(|state| Some(state.says)));
    let row = |(state, before): (&State<P>, Option<Says>)| Row {
        state: state.name,
        says: state.says,
        newcomer: state.newcomer,
        within: before.is_some_and(|before| before != state.says).then_some(state.within.as_secs()),
        note: state.note,
    };
    P::STATES.iter().zip(before).map(row).collect()
}

fn code(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!("`{reason}`") }
}

fn both(says: Says) -> String {
    let reason = code(says.reason());
    if reason.is_empty() { says.verdict().to_owned() } else { format!("{}: {reason}", says.verdict()) }
}

/// The seconds of each row, by title and number.
pub(crate) type Seconds = BTreeMap<(&'static str, usize), String>;

/// Returns the text for the seconds column of a row.
pub(crate) fn cell(told: Option<&Told>) -> String {
    match told {
        None => "not played".to_owned(),
        Some(Ok(None)) => "–".to_owned(),
        Some(Ok(Some(shown))) => format!("{:.1}", shown.as_secs_f64()),
        Some(Err(how)) => format!("**did not hold**: {}", how.replace('\n', " ")),
    }
}

/// Returns the programs that the states were played with, and the table of all checks.
pub(crate) fn render(scenarios: &[Scenario], seconds: &Seconds, rows: Rows) -> String {
    let mut text = String::new();
    let mut played: Vec<(&str, Vec<String>)> = Vec::new();
    for scenario in scenarios {
        let title = format!("`{}`", scenario.title);
        match played.iter_mut().find(|(with, _)| *with == scenario.played_with) {
            Some((_, titles)) => titles.push(title),
            None => played.push((scenario.played_with, vec![title])),
        }
    }
    for (with, titles) in played {
        let _ = writeln!(text, "- {}: {with}.", titles.join(", "));
    }
    text += "\n| check | state | answer | reason | seconds | at most | an agent that starts then |\n|---|---|---|---|---|---|---|\n";
    for scenario in scenarios {
        text += &scenario.table(rows, |number| {
            seconds.get(&(scenario.title, number)).cloned().unwrap_or_else(|| "?".to_owned())
        });
    }
    text
}

/// Splits the document into the text before the table, the table, and the text after it.
fn documented(text: &str) -> (&str, &str, &str) {
    let (before, rest) = text.split_once(BEGIN).expect("docs/checks.md has the mark where the table begins");
    let (table, after) = rest.split_once(END).expect("docs/checks.md has the mark where the table ends");
    (before, table.trim(), after)
}

pub(crate) fn write(table: &str) {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (before, _, after) = documented(&text);
    fs::write(DOCUMENT, format!("{before}{BEGIN}\n{table}\n{END}{after}")).unwrap();
}

/// Asserts that the table in the document equals that of the scenarios, except for the seconds.
pub(crate) fn assert_documented(scenarios: &[Scenario]) {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (_, table, _) = documented(&text);
    let without_seconds = |line: &str| {
        let mut cells: Vec<&str> = line.split(" | ").collect();
        if let [_, _, _, _, seconds, _, _] = cells.as_mut_slice() {
            assert!(*seconds == "seconds" || *seconds == "–" || seconds.parse::<f64>().is_ok(), "{line}");
            *seconds = "";
        }
        cells.join(" | ")
    };
    let known = render(scenarios, &known_seconds(scenarios), Rows::Surprising);
    let lines = |text: &str| text.lines().map(without_seconds).collect::<Vec<_>>();
    let (documented, known) = (lines(table), lines(known.trim()));
    for (documented, known) in std::iter::zip(&documented, &known) {
        assert_eq!(documented, known, "docs/checks.md, and what make checks-test knows");
    }
    assert_eq!(documented.len(), known.len(), "docs/checks.md has as many lines as make checks-test knows");
}

fn known_seconds(scenarios: &[Scenario]) -> Seconds {
    let rows = scenarios
        .iter()
        .flat_map(|scenario| (0..(scenario.rows)().len()).map(|number| (scenario.title, number)));
    rows.map(|row| (row, "–".to_owned())).collect()
}
