//! The files of a release, as hack/release packs them, with placeholders for compiled files.

use nodegate_testbed::programs::{run, system};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The longest line that krew accepts without a warning.
const LONGEST_LINE: usize = 80;

/// Placeholders for the slow programs, sufficient for hack/release: a binary is a text that names it, the
/// image an empty layout.
const STANDS_IN: [(&str, &str); 5] = [
    (
        "hack/build-binary",
        ". hack/architectures; program=$(built \"$1\" \"$2\"); mkdir -p \"$(dirname \"$program\")\"; echo \"$2 for $1\" >\"$program\"",
    ),
    ("hack/build-image", "true"),
    ("hack/sbom", "echo '{}' >\"$1\""),
    (
        "bin/cargo",
        "[[ $1 == test ]] || { echo \"path+file:///nodegate#nodegate@$STANDS_IN_VERSION\"; exit; }; \
         mkdir -p \"$CARGO_TARGET_DIR/packaging/man\"; cd \"$CARGO_TARGET_DIR/packaging/man\"; \
         touch nodegate.1 nodegate-status.1 nodegate-haproxy.1 kubectl-nodegate.1",
    ),
    (
        "bin/buildah",
        "[[ \"$1 $2\" == 'manifest push' ]] || exit 0; to=${!#}; to=${to#oci:}; to=${to%:*}; mkdir -p \"$to/blobs\"; \
         echo '{}' >\"$to/oci-layout\"; echo '{\"digest\":\"sha256:0123456789abcdef\"}' >\"$to/index.json\"",
    ),
];

/// A clone of the current work tree, with its changes committed.
struct Clone {
    directory: tempfile::TempDir,
}

impl Clone {
    fn new() -> Self {
        let clone = Self { directory: tempfile::tempdir().unwrap() };
        let root = env!("CARGO_MANIFEST_DIR");
        clone.must(&format!("git -C {root} ls-files --cached --others --exclude-standard -z | tar -C {root} --null -T - -c | tar x"));
        let dated = format!("## [{VERSION}] - 2026-01-01\n\n### Upgrading\n\nNothing to do.\n");
        fs::write(clone.path().join("CHANGELOG.md"), dated).unwrap();
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

    fn must(&self, script: &str) {
        let path = format!("{}/bin:{}", self.path().display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("set -euo pipefail; {script}")]).current_dir(self.path());
        let output = bash.env("PATH", path).env("STANDS_IN_VERSION", VERSION).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
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

fn sha256(file: &Path) -> String {
    let sum = run(&format!("sha256sum {}", file.display()));
    sum.split_once(' ').unwrap().0.to_owned()
}

/// Returns the mode and the name of each file and directory in an archive.
fn entries(archive: &Path) -> Vec<(String, String)> {
    let listed = run(&format!("tar -tvzf {}", archive.display()));
    let entry = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words[0].to_owned(), words[5..].join(" "))
    };
    listed.lines().map(entry).collect()
}

/// Asserts the rules of krew's own `ValidatePlugin` and `validate-krew-manifest`.
fn is_valid(manifest: &Value) {
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&json!("Plugin"), &json!("nodegate")));
    let text = |key: &str| manifest["spec"][key].as_str().unwrap();
    assert_eq!((text("version"), text("homepage")), (&*format!("v{VERSION}"), env!("CARGO_PKG_REPOSITORY")));
    assert!(text("shortDescription").lines().count() == 1 && text("shortDescription").len() < 50);
    for line in text("description").lines().chain(text("caveats").lines()) {
        assert!(line.len() <= LONGEST_LINE, "{line}");
    }
    assert!(text("caveats").contains("ln -s kubectl-nodegate kubectl_complete-nodegate\n"), "{manifest}");
}

#[test]
fn krews_manifest_matches_the_released_archives() {
    let clone = Clone::new();
    let release = clone.release("one");
    let manifest = fs::read_to_string(release.join("nodegate.krew.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    is_valid(&manifest);
    let platform = |os: &str, architecture: &str, program: &str| {
        let name = format!("kubectl-nodegate-{VERSION}-{os}-{architecture}");
        let archive = release.join(format!("{name}.tar.gz"));
        let entries = entries(&archive);
        for (mode, file) in [("-rwxr-xr-x", program), ("-rw-r--r--", "LICENSE")] {
            let entry = (mode.to_owned(), format!("{name}/{file}"));
            assert!(entries.contains(&entry), "{entry:?} is not among {entries:?}");
        }
        let page = ("-rw-r--r--".to_owned(), format!("{name}/man/kubectl-nodegate.1"));
        assert_eq!(entries.contains(&page), os == "linux", "{entries:?}");
        // krew extracts nothing else.
        assert!(entries.iter().all(|(mode, _)| mode.starts_with(['-', 'd'])), "{entries:?}");
        json!({
            "selector": {"matchLabels": {"os": os, "arch": architecture}},
            "uri": format!("{}/releases/download/v{VERSION}/{name}.tar.gz", env!("CARGO_PKG_REPOSITORY")),
            "sha256": sha256(&archive),
            "bin": program,
            "files": [
                {"from": format!("{name}/{program}"), "to": "."},
                {"from": format!("{name}/LICENSE"), "to": "."},
            ],
        })
    };
    let linux_and_mac = [("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64")];
    let mut platforms = linux_and_mac.map(|(os, arch)| platform(os, arch, "kubectl-nodegate")).to_vec();
    platforms.push(platform("windows", "amd64", "kubectl-nodegate.exe"));
    assert_eq!(manifest["spec"]["platforms"], json!(platforms));

    clone.must(&format!("CARGO_TARGET_DIR=$PWD/target/no-mac hack/release {VERSION}"));
    let manifest = fs::read_to_string(clone.released("no-mac").join("nodegate.krew.yaml")).unwrap();
    assert!(manifest.contains("os: windows") && !manifest.contains("darwin"), "{manifest}");
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
    assert!(files.contains(&"nodegate.krew.yaml".to_owned()), "{files:?}");
    assert_eq!(fs::read_to_string(other.join("SHA256SUMS")).unwrap(), sums);
}
