//! Man pages: `clap_mangen` lays the options out, and the sections at the end of `--help` follow as they are.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

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
    let mut out = Vec::new();
    man.render_title(&mut out).unwrap();
    // Ragged right and without hyphenation, so that readers can copy commands.
    Roff::new().control("nh", []).control("ad", ["l"]).to_writer(&mut out).unwrap();
    man.render_name_section(&mut out).unwrap();
    let bin = command.get_bin_name().unwrap_or(command.get_name());
    let synopsis = vec![bold(bin), roman(" ["), italic("options"), roman("]")];
    Roff::new().control("SH", ["SYNOPSIS"]).text(synopsis).to_writer(&mut out).unwrap();
    man.render_description_section(&mut out).unwrap();
    man.render_options_section(&mut out).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out).unwrap();
    }
    let mut own = Roff::new();
    let below = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    sections(&mut own, &below);
    own.control("SH", ["SEE ALSO"]).text([roman(DOCUMENTS)]);
    own.to_writer(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Converts the text at the end of `--help`: a line at the margin begins a section, and the lines below it stay as
/// they are.
fn sections(out: &mut Roff, text: &str) {
    let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
    while let Some(title) = lines.next() {
        out.control("SH", [title.trim()]).control("nf", []);
        while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
            out.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        out.control("fi", []);
    }
}
