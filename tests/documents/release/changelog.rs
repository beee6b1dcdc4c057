//! The changelog and the tag: a version has both a date and a tag, or neither.

use super::{Clone, SECTION, VERSION};

fn release(clone: &Clone) -> Result<String, String> {
    clone.run(&format!("mkdir target; CARGO_TARGET_DIR=$PWD/target/out hack/release {VERSION} 2>target/said && cat target/said target/out/release-{VERSION}/SHA256SUMS || {{ cat target/said >&2; exit 1; }}"))
}

#[test]
fn a_date_without_a_tag_is_refused() {
    let clone = Clone::with_changelog(&format!("## [{VERSION}] - 2026-01-01\n\n{SECTION}"));
    let refused = release(&clone).unwrap_err();
    assert!(
        refused.contains(&format!("CHANGELOG.md dates {VERSION}, and this commit has no tag")),
        "{refused}"
    );
}

#[test]
fn a_tag_without_a_date_is_refused() {
    let clone = Clone::with_changelog(&format!("## [{VERSION}]\n\n{SECTION}"));
    clone.must(&format!("git tag v{VERSION}"));
    let refused = release(&clone).unwrap_err();
    assert!(refused.contains("CHANGELOG.md has no date for it"), "{refused}");
}

#[test]
fn without_both_it_is_a_rehearsal() {
    let clone = Clone::with_changelog(&format!("## [{VERSION}]\n\n{SECTION}"));
    let said = release(&clone).unwrap();
    assert!(said.contains("a rehearsal") && said.contains("SHA256SUMS"), "{said}");
}
