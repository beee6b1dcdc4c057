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
fn every_check_has_a_row_and_a_section_with_its_settings() {
    let docs = read("docs/checks.md");
    let catalog = Catalog::default();
    let known: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
    let from_memory = catalog.ids().map(|id| catalog.name(id));
    for name in from_memory.chain(known.iter().copied()).chain(["http:<name>", "tcp:<name>"]) {
        let row = |line: &str| line.starts_with('|') && line.contains(&format!("`{name}`"));
        assert!(docs.lines().any(row), "docs/checks.md has no row for {name}");
        let section = section(&docs, name);
        assert!(section.len() > 300, "docs/checks.md says next to nothing of {name}");
        let mut mistakes = Vec::new();
        if known.contains(&name) {
            LocalChecks::new(&[format!("{name}:none=1")], &[], &HostRoot::default(), &mut mistakes);
        }
        let keys =
            mistakes.iter().map(|text| text.split_once("takes interval, timeout, rise, fall").unwrap().1);
        for key in keys.flat_map(|keys| keys.split(", ")).filter(|key| !key.is_empty()) {
            assert!(section.contains(&format!("`{key}=`")), "docs/checks.md: {name} has no {key}=");
        }
    }
}
