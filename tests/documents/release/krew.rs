//! The manifest by which krew installs kubectl's plugin from the release's page.

use super::{Clone, VERSION};
use nodegate_testbed::programs::run;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

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

#[test]
fn krews_manifest_matches_the_released_archives() {
    let clone = Clone::new();
    let release = clone.release("one");
    let manifest = fs::read_to_string(release.join("nodegate.krew.yaml")).unwrap();
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&json!("Plugin"), &json!("nodegate")));
    assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
    let platform = |os: &str, architecture: &str, program: &str| {
        let name = format!("kubectl-nodegate-{VERSION}-{os}-{architecture}");
        let archive = release.join(format!("{name}.tar.gz"));
        let entries = entries(&archive);
        for (mode, file) in [("-rwxr-xr-x", program), ("-rw-r--r--", "LICENSE")] {
            let entry = (mode.to_owned(), format!("{name}/{file}"));
            assert!(entries.contains(&entry), "{entry:?} is not among {entries:?}");
        }
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
}
