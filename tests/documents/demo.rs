//! `make demo`, as a user runs it. The tour needs kubectl.

use crate::running_demo::{Running, demo};
use nodegate_testbed::network::ports::{Loopback, free_row};
use std::collections::BTreeSet;
use std::fs;

#[test]
fn every_step_of_the_demos_tour_succeeds() {
    let output = demo(Loopback::new(), free_row()).args(["--tour", "--haproxy"]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    for seen in ["6 of 6 steps showed what they should", "requests through HAProxy, 0 lost"] {
        assert!(text.contains(seen), "no {seen:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe:\n{text}");
    if std::env::var_os("NODEGATE_WRITE").is_some() {
        fs::write(PICTURE, draw(&text)).unwrap();
    }
    let (picture, now) = (lines_of(&fs::read_to_string(PICTURE).unwrap()), lines_of(&draw(&text)));
    assert!(picture.len() > 10 && picture.is_subset(&now), "{PICTURE} has other lines than {now:#?}");
}

/// The README's picture: lines of the tour, as it prints them. `NODEGATE_WRITE=1` draws it.
const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/demo.svg");
/// The steps of the tour in the picture.
const STEPS: [&str; 2] = ["A node is cordoned", "The API server dies"];
const LINE: usize = 20;
const HEAD: &str = r##"xml:space="preserve" role="img" aria-label="The demo in a terminal: a cordon and an outage of the API server">
<style>
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #e6edf3 }
.good { fill: #7ee787 }
.flip { fill: #f0b755 }
.does { fill: #8b949e }
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
"##;

/// Returns the lines of the picture: what each step does, each flip of worker-1, and what the step has shown.
fn shown(text: &str) -> Vec<&str> {
    let has_title =
        |step: &&str| STEPS.iter().any(|title| step.trim_start_matches(numeric).starts_with(title));
    let is_flip = |line: &str| line.contains("  worker-1  ") && line.contains(" -> ");
    let kept = |line: &&str| !class(line).is_empty() && (class(line) != "flip" || is_flip(line));
    let steps = text.split("\n\n").filter(has_title);
    steps.flat_map(|step| step.lines().take(1).chain(step.lines().skip(1).filter(kept))).collect()
}

fn numeric(c: char) -> bool {
    matches!(c, '0'..='9' | ' ' | '/')
}

/// Returns the class of a line of the tour in the picture; none for a title.
fn class(line: &str) -> &'static str {
    match line {
        _ if line.starts_with("  ✓") => "good",
        _ if line.starts_with("  does") => "does",
        _ if line.contains(" -> ") => "flip",
        _ => "",
    }
}

fn draw(text: &str) -> String {
    let lines = std::iter::once("$ make demo ARGS=--tour").chain(shown(text));
    // A long line goes on below.
    let lines: Vec<_> = lines
        .flat_map(|line| line.split("; ").enumerate().map(move |(at, part)| (class(line), at > 0, part)))
        .collect();
    let escaped = |line: &str| line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let drawn = lines.iter().enumerate().map(|(at, (class, is_more, line))| {
        let (x, y) = (if *is_more { 50 } else { 16 }, 30 + at * LINE);
        format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(line))
    });
    let (drawn, height) = (drawn.collect::<String>(), 24 + lines.len() * LINE);
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {height}\" {HEAD}{drawn}</svg>\n")
}

/// Returns the lines of a picture, without what differs from one tour to the next.
fn lines_of(picture: &str) -> BTreeSet<String> {
    let texts = picture.lines().filter_map(|line| line.strip_suffix("</text>")?.split_once("\">"));
    texts.map(|(_, text)| text.split(", after ").next().unwrap_or_default()).map(without_numbers).collect()
}

/// Replaces each number, with its unit, and takes a latency at the end away.
fn without_numbers(text: &str) -> String {
    let words = text.split(' ').filter(|word| !word.is_empty() && !matches!(*word, "ms" | "s"));
    words.filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_demo_leaves_nothing_behind_after_a_signal() {
    for name in ["INT", "TERM", "HUP"] {
        let mut demo = Running::start(&["--no-haproxy"]);
        assert_eq!(demo.agents().len(), 3);
        demo.signal(name);
        let (status, rest) = demo.end();
        assert_eq!(status.code(), Some(0), "SIG{name}: {rest}");
        demo.assert_nothing_left();
    }
}
