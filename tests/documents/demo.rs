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
    let picture = fs::read_to_string(PICTURE).unwrap();
    let shown = picture.lines().filter_map(|line| Some(line.strip_suffix("</text>")?.rsplit_once("\">")?.1));
    let shown: BTreeSet<_> = shown.filter(|line| !line.starts_with("$ ")).map(without_figures).collect();
    // The picture breaks long lines.
    let printed = text.replace("; ", "\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let printed: BTreeSet<_> = printed.lines().map(without_figures).collect();
    assert!(shown.len() > 10 && shown.is_subset(&printed), "{PICTURE} has other lines than {printed:#?}");
}

/// The README's picture: lines of the tour, as it prints them.
const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/demo.svg");

/// Returns a line without what differs from one tour to the next: numbers with their units, and a latency at its end.
fn without_figures(line: &str) -> String {
    let line = line.split(", after ").next().unwrap_or_default();
    let words = line.split(' ').filter(|word| !word.is_empty() && !matches!(*word, "ms" | "s"));
    words.filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_demo_leaves_nothing_behind_after_a_signal() {
    for name in ["INT", "TERM", "HUP"] {
        let mut demo = Running::start(&["--no-haproxy"]);
        demo.signal(name);
        let (status, rest) = demo.end();
        assert_eq!(status.code(), Some(0), "SIG{name}: {rest}");
        demo.assert_nothing_left();
    }
}
