//! The files of a release, as hack/release packs them, with placeholders for compiled files.

mod changelog;
mod krew;
mod published;
mod signed;

use nodegate_testbed::programs::system;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Placeholders for the slow programs, sufficient for hack/release: a binary is a text that names it, an image
/// has a text as its only layer, the site has one page.
const STANDS_IN: [(&str, &str); 8] = [
    (
        "hack/build-binary",
        ". hack/architectures.sh; program=$(built \"$1\" \"$2\"); mkdir -p \"$(dirname \"$program\")\"; echo \"$2 for $1\" >\"$program\"",
    ),
    ("hack/build-image", "true"),
    (
        "hack/packages",
        "mkdir -p \"$CARGO_TARGET_DIR/packages\"; for each; do echo \"$each\" >\"$CARGO_TARGET_DIR/packages/$each.deb\"; done",
    ),
    (
        "tools/bin/cargo-cyclonedx",
        "for each in $(git ls-files '*Cargo.toml'); do echo '{}' >\"${each%Cargo.toml}sbom.json\"; done",
    ),
    ("hack/site.py", "mkdir -p \"$1\"; echo '<p>' >\"$1/index.html\""),
    ("tools/bin/mdbook", "true"),
    (
        "bin/cargo",
        "[[ $1 == test ]] || { echo \"path+file:///nodegate#nodegate@$STANDS_IN_VERSION\"; exit; }; \
         mkdir -p \"$CARGO_TARGET_DIR/packaging/man\"; cd \"$CARGO_TARGET_DIR/packaging/man\"; \
         touch nodegate.1 nodegate-status.1 nodegate-haproxy.1 nodegate-shutdown.1 kubectl-nodegate.1",
    ),
    (
        "bin/buildah",
        "[[ \"$1 $2\" == 'manifest push' ]] || exit 0; to=${!#}; to=${to#oci:}; to=${to%:*}; echo \"${to##*/}\" >\"$to-layer\"; \
         hack/oci-artifact.py \"$to\" application/vnd.oci.image.config.v1+json application/vnd.oci.image.layer.v1.tar \"$to-layer\"",
    ),
];

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
        for (path, script) in STANDS_IN {
            let file = clone.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, format!("#!/usr/bin/env bash\nset -euo pipefail\n{script}\n")).unwrap();
            fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
        }
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
        bash.env("PATH", path)
            .env("STANDS_IN_VERSION", VERSION)
            .env("TOOLS", "tools")
            .env_remove("RELEASE_KEY");
        let output = bash.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
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
    let checked = system("sha256sum")
        .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
        .current_dir(&one)
        .status()
        .unwrap();
    assert!(checked.success());
    let sums = fs::read_to_string(one.join("SHA256SUMS")).unwrap();
    let summed: Vec<_> = sums.lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect();
    let mut files: Vec<_> = fs::read_dir(&one)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "SHA256SUMS")
        .collect();
    files.sort();
    let mut sorted = summed.clone();
    sorted.sort();
    assert_eq!(sorted, files);
    for name in ["nodegate.krew.yaml", "amd64.deb", "arm64.deb"] {
        assert!(files.contains(&name.to_owned()), "{files:?}");
    }
    assert_eq!(fs::read_to_string(other.join("SHA256SUMS")).unwrap(), sums);
}
