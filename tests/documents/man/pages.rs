//! Man pages. `clap_mangen` lays the options out; this module takes the end of `--help` apart by its
//! indentation, so that both have one text.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, line_break, roman};

const ALL: [&str; 9] = [
    "nodegate",
    "nodegate-status",
    "nodegate-wait",
    "nodegate-eviction-gate",
    "nodegate-haproxy",
    "kubectl-nodegate",
    "kubectl-nodegate-wait",
    "kubectl-nodegate-drain",
    "kubectl-nodegate-uncordon",
];

const DOCUMENTS: &str = "https://github.com/nodegate/nodegate/tree/main/docs";

/// Returns the pages of a program: its own, and one for each of its subcommands.
pub(crate) fn of(program: &Command) -> Vec<(String, String)> {
    let mut program = program.clone();
    program.build();
    let commands = std::iter::once(&program).chain(program.get_subcommands());
    commands.map(|command| (format!("man/{}.1", name(command)), page(command, &program))).collect()
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command, program: &Command) -> String {
    let version = program.get_version().unwrap();
    // An empty date in quotes: roff would drop an empty field.
    let man = Man::new(command.clone())
        .date("\"\"")
        .source(format!("nodegate {version}"))
        .manual("nodegate manual");
    let mut own = Roff::new();
    let below = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    sections(&mut own, &below);
    see_also(&mut own, command);
    let mut out = Vec::new();
    man.render_title(&mut out).unwrap();
    man.render_name_section(&mut out).unwrap();
    synopsis(command).to_writer(&mut out).unwrap();
    man.render_description_section(&mut out).unwrap();
    man.render_options_section(&mut out).unwrap();
    own.to_writer(&mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    // Each part begins with the same definitions.
    let definitions = out.split_once(".TH").unwrap().0;
    let body = out.replace(definitions, "");
    let mut lines = vec![".\\\" Written by make generate WHAT=man from the program's argument parser."];
    lines.extend(definitions.lines());
    for line in body.lines().map(str::trim_end) {
        let last = lines.last().copied().unwrap_or_default();
        match line {
            // A section begins with a paragraph anyway.
            ".PP" if last.starts_with(".SH") => {}
            // Ragged right and without hyphenation, so that readers can copy commands.
            ".SH NAME" => lines.extend([".nh", ".ad l", line]),
            _ => lines.push(line),
        }
    }
    format!("{}\n", lines.join("\n"))
}

fn synopsis(command: &Command) -> Roff {
    let mut out = Roff::new();
    let bin = command.get_bin_name().unwrap_or(command.get_name());
    let line = |words: &str| vec![bold(words), roman(" ["), italic("options"), roman("]")];
    let mut lines = line(bin);
    for each in command.get_subcommands() {
        lines.push(line_break());
        lines.extend(line(&format!("{bin} {}", each.get_name())));
    }
    out.control("SH", ["SYNOPSIS"]).text(lines);
    out
}

/// Converts the text at the end of `--help`. A line at the margin begins a section, with the words in
/// parentheses as its first paragraph. Below are rows of a term and its meaning, commands (those under
/// EXAMPLES, or with a deeper indentation), and prose.
fn sections(out: &mut Roff, text: &str) {
    let (mut examples, mut in_prose) = (false, false);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let was_in_prose = std::mem::take(&mut in_prose);
        let Some(body) = line.strip_prefix("  ") else {
            let (title, note) = line.split_once(" (").unwrap_or((line, ""));
            out.control("SH", [title]);
            if let Some(note) = note.strip_suffix(')') {
                out.text([roman(note)]);
            }
            examples = title == "EXAMPLES";
            continue;
        };
        match (examples, body.split_once("  ")) {
            (true, _) => example(out, body),
            (false, Some(("", command))) => example(out, command),
            (false, Some((term, meaning))) => {
                out.control("TP", []).text([bold(term)]).text([roman(meaning.trim_start())]);
            }
            (false, None) => {
                if !was_in_prose {
                    out.control("PP", []);
                }
                out.text([roman(body)]);
                in_prose = true;
            }
        }
    }
}

/// Writes a command below its comment.
fn example(out: &mut Roff, line: &str) {
    let (command, comment) =
        line.split_once(" # ").map_or((line, None), |(command, said)| (command, Some(said)));
    out.control("PP", []);
    if let Some(comment) = comment {
        out.text([roman(format!("{comment}:"))]);
    }
    out.control("RS", ["4"])
        .control("nf", [])
        .text([bold(command.trim_end())])
        .control("fi", [])
        .control("RE", []);
}

fn see_also(out: &mut Roff, command: &Command) {
    out.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for other in ALL.into_iter().filter(|other| *other != name(command)) {
        line.extend([bold(other), roman("(1), ")]);
    }
    line.push(roman(DOCUMENTS));
    out.text(line);
}
