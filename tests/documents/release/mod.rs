//! The files of a release, as hack/release packs them, with placeholders for compiled files.

mod krew;
mod published;

use nodegate_testbed::programs::{must_run, system, try_run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Placeholders for the slow programs, sufficient for hack/release: a binary is a text that names it, an image
/// has a text as its only layer, the site has one page.
const STAND_INS: &str = "tests/documents/release/stand-ins";

/// The section of a version in the changelog, without its date.
const SECTION: &str = "### Upgrading\n\nNothing to do.\n";

/// A clone of the current work tree, with its changes committed.
struct Clone {
    directory: tempfile::TempDir,
}

impl Clone {
    /// Clones the work tree as a release: its changelog has a date, and its commit a tag.
    fn new() -> Self {
        let clone = Self::with_changelog(&format!("## [{VERSION}] - 2026-01-01\n\n{SECTION}"));
        clone.must(&format!("git tag v{VERSION}"));
        clone
    }

    fn with_changelog(changelog: &str) -> Self {
        let clone = Self { directory: tempfile::tempdir().unwrap() };
        let root = env!("CARGO_MANIFEST_DIR");
        clone.must(&format!("git -C {root} ls-files --cached --others --exclude-standard -z | tar -C {root} --null -T - -c | tar x"));
        fs::write(clone.path().join("CHANGELOG.md"), changelog).unwrap();
        clone.must(&format!("cp -r {STAND_INS}/. ."));
        let git = "git -c user.name=nodegate -c user.email=nodegate@localhost -c commit.gpgsign=false";
        clone.must(&format!("git init --quiet && git add . && {git} commit --quiet --message release"));
        clone
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a script in the clone and returns its output, or its errors.
    fn run(&self, script: &str) -> Result<String, String> {
        let path = format!("{}/bin:{}", self.path().display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("set -euo pipefail; {script}")]).current_dir(self.path());
        bash.env("PATH", path).env("STANDS_IN_VERSION", VERSION).env("TOOLS", "tools");
        try_run(&mut bash)
    }

    fn must(&self, script: &str) -> String {
        self.run(script).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Makes a release in this target directory, with binaries that a Mac has built, and returns the
    /// directory of its files.
    fn release(&self, target: &str) -> PathBuf {
        for platform in ["darwin-amd64", "darwin-arm64"] {
            self.must(&format!(
                "mkdir -p target/mac/{platform}; echo {platform} >target/mac/{platform}/kubectl-nodegate"
            ));
        }
        self.must(&format!("DARWIN=target/mac CARGO_TARGET_DIR=$PWD/target/{target} hack/release {VERSION}"));
        self.released(target)
    }

    fn released(&self, target: &str) -> PathBuf {
        self.path().join(format!("target/{target}/release-{VERSION}"))
    }
}

#[test]
fn every_released_file_is_in_the_checksums_and_reproducible() {
    let clone = Clone::new();
    let (one, other) = (clone.release("one"), clone.release("other"));
    let check = ["--check", "--strict", "--quiet", "SHA256SUMS"];
    must_run(system("sha256sum").args(check).current_dir(&one));
    let sums = fs::read_to_string(one.join("SHA256SUMS")).unwrap();
    let summed: BTreeSet<_> = sums.lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect();
    let files = fs::read_dir(&one).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(summed, files.filter(|name| name != "SHA256SUMS").collect());
    for name in ["nodegate.krew.yaml", "amd64.deb", "arm64.deb"] {
        assert!(summed.contains(name), "{summed:?}");
    }
    assert_eq!(fs::read_to_string(other.join("SHA256SUMS")).unwrap(), sums);
}

#[test]
fn a_date_and_a_tag_come_together_or_it_is_a_rehearsal() {
    for (heading, tagged, said) in
        [(" - 2026-01-01", false, "and not both"), ("", true, "and not both"), ("", false, "a rehearsal")]
    {
        let clone = Clone::with_changelog(&format!("## [{VERSION}]{heading}\n\n{SECTION}"));
        if tagged {
            clone.must(&format!("git tag v{VERSION}"));
        }
        let release = clone.run(&format!("CARGO_TARGET_DIR=$PWD/target/out hack/release {VERSION} 2>&1"));
        assert_eq!(release.is_ok(), said == "a rehearsal");
        assert!(release.unwrap_or_else(|error| error).contains(said), "{heading} {tagged}");
    }
}
