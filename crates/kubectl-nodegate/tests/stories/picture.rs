//! The picture of the terminal for the documents: the program's output as SVG.

use crate::fleet::{on_a_terminal, one_of_each};
use std::fmt::Write as _;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/fleet.svg");

/// The size of a character, as most monospaced fonts have it at 14 px.
const WIDTH: f64 = 8.43;
const HEIGHT: usize = 20;
const MARGIN: usize = 16;

/// Returns the output for a cluster with one node of each kind.
fn shown() -> String {
    let lab = one_of_each();
    let output = on_a_terminal(&lab.command(&["--via=node"]), "").output().unwrap();
    format!("\u{1b}[32m$\u{1b}[0m kubectl nodegate\n{}", String::from_utf8(output.stdout).unwrap())
}

/// Returns the colour for a terminal code; plain text has no code.
fn colour(code: &str) -> &'static str {
    match code {
        "2" => "#8b949e",
        "31" => "#ff7b72",
        "32" => "#7ee787",
        "33" => "#e3b341",
        "35" => "#d2a8ff",
        _ => "#e6edf3",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns a line with its colours; each part starts at its column, whatever the font.
fn line(text: &str, y: usize) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for (number, part) in text.split("\u{1b}[").enumerate() {
        let (code, part) = if number == 0 { ("0", part) } else { part.split_once('m').unwrap() };
        // Each word starts at its column, so that no font can shift it.
        for (at, word) in words(part) {
            let x = (column + at) as f64 * WIDTH + MARGIN as f64;
            let fill = colour(code);
            writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{fill}\">{}</text>", escaped(word)).unwrap();
        }
        column += part.chars().count();
    }
    out
}

/// Splits a text into words with their columns; a single space does not end a word.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut from = 0;
    for part in text.split("  ") {
        let word = part.trim_start();
        if !word.trim_end().is_empty() {
            let begins = from + part.len() - word.len();
            words.push((text[..begins].chars().count(), word.trim_end()));
        }
        from += part.len() + 2;
    }
    words
}

fn svg(shown: &str) -> String {
    let lines: Vec<&str> = shown.lines().map(|line| line.trim_end_matches('\r')).collect();
    let plain = |line: &str| {
        line.split("\u{1b}[")
            .enumerate()
            .map(|(n, part)| if n == 0 { part } else { part.split_once('m').unwrap().1 }.chars().count())
            .sum::<usize>()
    };
    let columns = lines.iter().map(|line| plain(line)).max().unwrap();
    let width = (columns as f64 * WIDTH).ceil() as usize + 2 * MARGIN;
    let height = lines.len() * HEIGHT + 2 * MARGIN;
    let texts: String =
        lines.iter().enumerate().map(|(number, text)| line(text, MARGIN + 14 + number * HEIGHT)).collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"kubectl nodegate\">\n<!-- Written by make plugin-picture from what the program shows. -->\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"14\">\n{texts}</g>\n</svg>\n"
    )
}

#[test]
#[ignore = "writes the picture: make plugin-picture"]
fn write() {
    std::fs::write(PICTURE, svg(&shown())).unwrap();
}

/// Returns the words of a picture, without times.
fn said(svg: &str) -> Vec<&str> {
    let texts = svg.lines().filter_map(|line| line.strip_prefix("<text ")?.split_once('>'));
    let texts = texts.map(|(_, text)| text.trim_end_matches("</text>"));
    texts.filter(|text| !["s", "min", "ms", "h"].contains(&text.rsplit(' ').next().unwrap())).collect()
}

#[test]
fn it_shows_what_the_program_shows() {
    let picture = std::fs::read_to_string(PICTURE).unwrap_or_default();
    assert_eq!(said(&picture), said(&svg(&shown())), "run make plugin-picture");
}
