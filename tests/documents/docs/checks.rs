//! docs/checks.md documents every check: a row and a section with its settings.

use super::pages::read;
use nodegate_local_checks::{HostRoot, KNOWN, LocalChecks};
use nodegate_readiness::Catalog;

/// Returns the text from the heading of this check to the next heading.
fn section<'a>(text: &'a str, check: &str) -> &'a str {
    let mut sections = text.split("\n## ");
    let heading = format!("`{check}`");
    let found = sections.find(|section| section.lines().next().is_some_and(|line| line.contains(&heading)));
    found.unwrap_or_else(|| panic!("docs/checks.md has no section `{check}`"))
}

#[test]
fn every_check_has_a_row_and_a_section() {
    let docs = read("docs/checks.md");
    let catalog = Catalog::default();
    let names = catalog.ids().map(|id| catalog.name(id)).chain(KNOWN.iter().map(|known| known.name));
    for name in names.chain(["http:<name>", "tcp:<name>"]) {
        let row = |line: &str| line.starts_with('|') && line.contains(&format!("`{name}`"));
        assert!(docs.lines().any(row), "docs/checks.md has no row for {name}");
        assert!(section(&docs, name).len() > 300, "docs/checks.md says next to nothing of {name}");
    }
}

#[test]
fn every_setting_of_a_check_is_in_its_section() {
    let docs = read("docs/checks.md");
    for name in KNOWN.iter().map(|known| known.name) {
        let mut mistakes = Vec::new();
        LocalChecks::new(&[format!("{name}:none=1")], &[], &HostRoot::default(), &mut mistakes);
        let (_, keys) = mistakes[0].split_once("takes interval, timeout, rise, fall").unwrap();
        for key in keys.split(", ").filter(|key| !key.is_empty()) {
            let is_there = section(&docs, name).contains(&format!("`{key}=`"));
            assert!(is_there, "docs/checks.md: {name} has no {key}=");
        }
    }
}
