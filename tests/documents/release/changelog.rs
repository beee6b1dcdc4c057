//! The changelog and the tag: a version has both a date and a tag, or neither.

use super::{Clone, SECTION, VERSION};

fn release(clone: &Clone) -> Result<String, String> {
    clone.run(&format!("mkdir target; CARGO_TARGET_DIR=$PWD/target/out hack/release {VERSION} 2>target/said && cat target/said target/out/release-{VERSION}/SHA256SUMS || {{ cat target/said >&2; exit 1; }}"))
}

#[test]
fn a_date_and_a_tag_come_together_or_it_is_a_rehearsal() {
    let release = |heading: &str, tagged: bool| {
        let clone = Clone::with_changelog(&format!("## [{VERSION}]{heading}\n\n{SECTION}"));
        if tagged {
            clone.must(&format!("git tag v{VERSION}"));
        }
        release(&clone)
    };
    let untagged = release(" - 2026-01-01", false).unwrap_err();
    assert!(
        untagged.contains(&format!("CHANGELOG.md dates {VERSION}, and this commit has no tag")),
        "{untagged}"
    );
    let undated = release("", true).unwrap_err();
    assert!(undated.contains("CHANGELOG.md has no date for it"), "{undated}");
    let said = release("", false).unwrap();
    assert!(said.contains("a rehearsal") && said.contains("SHA256SUMS"), "{said}");
}
