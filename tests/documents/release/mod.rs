//! The files of a release, as hack/release packs them, with placeholders for compiled files.

mod published;

use nodegate_testbed::programs::{must_run, run, system, try_run};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Placeholders for the slow programs, sufficient for hack/release: a binary is a text that names it, an image
/// has a text as its only layer, the site has one page.
const STAND_INS: &str = "tests/documents/release/stand-ins";

/// The date of a release in the changelog.
const DATE: &str = " - 2026-01-01";

/// A clone of the current work tree, with its changes committed.
struct Clone {
    directory: tempfile::TempDir,
}

impl Clone {
    /// Clones the work tree. In a release, the changelog has a date, and the commit a tag.
    fn new(date: &str, is_tagged: bool) -> Self {
        let clone = Self { directory: tempfile::tempdir().unwrap() };
        let root = env!("CARGO_MANIFEST_DIR");
        clone.must(&format!("git -C {root} ls-files --cached --others --exclude-standard -z | tar -C {root} --null -T - -c | tar x"));
        let changelog = format!("## [{VERSION}]{date}\n\n### Upgrading\n\nNothing to do.\n");
        fs::write(clone.path().join("CHANGELOG.md"), changelog).unwrap();
        clone.must(&format!("cp -r {STAND_INS}/. ."));
        let git = "git -c user.name=nodegate -c user.email=nodegate@localhost -c commit.gpgsign=false";
        clone.must(&format!("git init --quiet && git add . && {git} commit --quiet --message release"));
        if is_tagged {
            clone.must(&format!("git tag v{VERSION}"));
        }
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

    /// Makes a release, with binaries that a Mac has built, and returns the directory of its files.
    fn release(&self, target: &str) -> PathBuf {
        for platform in ["darwin-amd64", "darwin-arm64"] {
            self.must(&format!(
                "mkdir -p target/mac/{platform}; echo {platform} >target/mac/{platform}/kubectl-nodegate"
            ));
        }
        self.must(&format!("DARWIN=target/mac CARGO_TARGET_DIR=$PWD/target/{target} hack/release {VERSION}"));
        self.path().join(format!("target/{target}/release-{VERSION}"))
    }
}

#[test]
fn every_released_file_is_in_the_checksums_and_reproducible() {
    let clone = Clone::new(DATE, true);
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
    krews_manifest_matches_the_archives(&one, &sums);
}

/// Checks the manifest by which krew installs kubectl's plugin from the release's page.
fn krews_manifest_matches_the_archives(release: &Path, sums: &str) {
    let manifest = fs::read_to_string(release.join("nodegate.krew.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&json!("Plugin"), &json!("nodegate")));
    assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
    let platform = |(os, architecture, program): (&str, &str, &str)| {
        let name = format!("kubectl-nodegate-{VERSION}-{os}-{architecture}");
        let archive = format!("{name}.tar.gz");
        let sum = sums.lines().find_map(|line| line.strip_suffix(&format!("  {archive}"))).unwrap();
        let entries = run(&format!("tar -tvzf {}", release.join(&archive).display()));
        for (mode, file) in [("-rwxr-xr-x", program), ("-rw-r--r--", "LICENSE")] {
            let is_it = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {name}/{file}"));
            assert!(entries.lines().any(is_it), "no {mode} {file} in {entries}");
        }
        // krew extracts nothing else.
        assert!(entries.lines().all(|line| line.starts_with(['-', 'd'])), "{entries}");
        let files = [program, "LICENSE"].map(|file| json!({"from": format!("{name}/{file}"), "to": "."}));
        json!({
            "selector": {"matchLabels": {"os": os, "arch": architecture}},
            "uri": format!("{}/releases/download/v{VERSION}/{archive}", env!("CARGO_PKG_REPOSITORY")),
            "sha256": sum,
            "bin": program,
            "files": files,
        })
    };
    let platforms = [
        ("linux", "amd64", "kubectl-nodegate"),
        ("linux", "arm64", "kubectl-nodegate"),
        ("darwin", "amd64", "kubectl-nodegate"),
        ("darwin", "arm64", "kubectl-nodegate"),
        ("windows", "amd64", "kubectl-nodegate.exe"),
    ];
    assert_eq!(manifest["spec"]["platforms"], json!(platforms.map(platform)));
}

#[test]
fn a_date_and_a_tag_come_together_or_it_is_a_rehearsal() {
    for (date, is_tagged, said) in
        [(DATE, false, "and not both"), ("", true, "and not both"), ("", false, "a rehearsal")]
    {
        let clone = Clone::new(date, is_tagged);
        let release = clone.run(&format!("CARGO_TARGET_DIR=$PWD/target/out hack/release {VERSION} 2>&1"));
        assert_eq!(release.is_ok(), said == "a rehearsal");
        assert!(release.unwrap_or_else(|error| error).contains(said), "{date} {is_tagged}");
    }
}
