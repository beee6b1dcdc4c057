//! A release's signature with a key on disk, verified by the commands of docs/packaging.md.

use super::{Clone, VERSION};
use crate::docs::pages::Page;
use std::fs;
use std::path::Path;

/// Returns the commands of a block of docs/packaging.md whose reason not to run begins with this test's name.
fn documented(reason: &str) -> String {
    let page = Page::read("docs/packaging.md");
    let block = page.blocks.iter().find(|block| block.note.contains(reason));
    let block = block.unwrap_or_else(|| panic!("docs/packaging.md has no block with {reason:?}"));
    let commands = block.body.lines().filter_map(|line| line.strip_prefix("$ "));
    commands.collect::<Vec<_>>().join("\n")
}

/// Makes a key by the documented commands, in this directory of the clone.
fn make_key(clone: &Clone, directory: &str) {
    let commands = documented("runs it where it makes a release");
    clone.must(&format!("mkdir -p {directory}; cd {directory}; {commands}"));
}

fn append(file: &Path, text: &str) {
    let before = fs::read_to_string(file).unwrap();
    fs::write(file, before + text).unwrap();
}

#[test]
fn a_signed_release_is_verified_and_a_changed_one_is_refused() {
    let clone = Clone::new();
    make_key(&clone, "target/keys");
    make_key(&clone, "target/other");
    clone.must(&format!(
        "RELEASE_KEY=target/keys/nodegate.key CARGO_TARGET_DIR=$PWD/target/signed hack/release {VERSION}"
    ));
    let release = clone.released("signed");
    let commands = documented("runs it on a small release");
    let verify = |key: &str| {
        clone.run(&format!("cp target/{key}/nodegate.pub {0}; cd {0}; {commands}", release.display()))
    };
    assert_eq!(verify("keys").unwrap(), "Verified OK\n");
    assert!(verify("other").is_err(), "another key");

    let (file, sums) = (release.join("notes.md"), release.join("SHA256SUMS"));
    let (notes, summed) = (fs::read_to_string(&file).unwrap(), fs::read_to_string(&sums).unwrap());
    append(&file, "more");
    let refused = verify("keys").unwrap_err();
    assert!(refused.contains("1 computed checksum did NOT match"), "{refused}");
    fs::write(&file, notes).unwrap();
    append(&sums, "\n");
    assert!(verify("keys").is_err(), "changed checksums");
    fs::write(&sums, summed).unwrap();
    verify("keys").unwrap();
}

#[test]
fn a_file_that_is_no_key_is_refused_before_anything_is_built() {
    let clone = Clone::new();
    let refused = clone.run(&format!("RELEASE_KEY=LICENSE hack/release {VERSION}")).unwrap_err();
    assert!(refused.contains("RELEASE_KEY is no key: LICENSE"), "{refused}");
    assert!(!clone.path().join("target").exists());
}
