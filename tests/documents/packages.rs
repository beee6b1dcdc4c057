//! The packages that hack/packages makes of placeholders. nodegate-haproxy's tests install those of the program.

use crate::docs::pages::{ROOT, read};
use crate::man;
use nodegate_testbed::programs::{must_run, run, system};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROGRAMS: [&str; 3] = ["nodegate-haproxy", "nodegate-shutdown", "kubectl-nodegate"];
/// The names of an architecture in Debian and in rpm.
const ARCHITECTURES: [(&str, &str); 2] = [("amd64", "x86_64"), ("arm64", "aarch64")];

/// The packages of one run. Building them takes seconds.
static PACKAGES: LazyLock<TempDir> = LazyLock::new(|| build(&["amd64", "arm64"]));

/// Makes packages in a directory `packages`.
fn build(architectures: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path().join("programs");
    man::write_to(&programs);
    for program in PROGRAMS {
        fs::write(programs.join(program), format!("{program}\n")).unwrap();
    }
    let mut pack = system(format!("{ROOT}/hack/packages"));
    pack.args(architectures).env("PROGRAMS", &programs).env("CARGO_TARGET_DIR", directory.path());
    must_run(&mut pack);
    directory
}

fn deb(program: &str, architecture: &str) -> PathBuf {
    PACKAGES.path().join(format!("packages/{program}_{VERSION}-1_{architecture}.deb"))
}

fn rpm(program: &str, architecture: &str) -> PathBuf {
    PACKAGES.path().join(format!("packages/{program}-{VERSION}-1.{architecture}.rpm"))
}

/// Returns the mode and the path of each file in a package.
fn files_of_deb(package: &Path) -> BTreeSet<String> {
    let listed = run(&format!("dpkg-deb --contents {}", package.display()));
    let words = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let files = words.filter(|words| words[0].starts_with('-'));
    files.map(|words| format!("{} {}", words[0], words[5].trim_start_matches('.'))).collect()
}

fn files_of_rpm(package: &Path) -> BTreeSet<String> {
    let format = "--queryformat=[%{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEMODES:perms} %{FILENAMES}\\n]";
    let listed = must_run(system("rpm").args(["--query", "--package", format]).arg(package));
    listed.lines().map(|line| line.strip_prefix("root:root ").unwrap().to_owned()).collect()
}

/// One test, because building the packages takes seconds.
#[test]
fn packages() {
    both_formats_install_the_same_files();
    the_documented_files_are_in_the_packages();
    an_upgrade_keeps_changes_of_settings_and_template();
    the_same_commit_gives_the_same_packages();
}

fn both_formats_install_the_same_files() {
    // Where each format has its licence and its changelog.
    let own = ["/lintian/", "/copyright", "/changelog.Debian.gz", "/licenses/"];
    for program in PROGRAMS {
        for (debian, other) in ARCHITECTURES {
            let (deb, rpm) = (files_of_deb(&deb(program, debian)), files_of_rpm(&rpm(program, other)));
            let common = |files: &BTreeSet<String>| -> BTreeSet<_> {
                let common = files.iter().filter(|file| !own.iter().any(|part| file.contains(part)));
                common.map(|file| file.replace("/vendor-completions/", "/site-functions/")).collect()
            };
            assert_eq!(common(&deb), common(&rpm), "{program}");
            assert!(deb.contains(&format!("-rwxr-xr-x /usr/bin/{program}")), "{deb:?}");
        }
    }
}

fn the_documented_files_are_in_the_packages() {
    let text = read("docs/packaging.md");
    let mut seen = 0;
    for program in PROGRAMS {
        let table = text.split_once(&format!("| file of {program} | content |\n|---|---|\n")).unwrap().1;
        let rows = table.lines().take_while(|line| line.starts_with("| `/"));
        let documented: Vec<_> = rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect();
        seen += documented.len();
        let more = [
            format!("/usr/share/man/man1/{program}.1.gz"),
            format!("/usr/share/bash-completion/completions/{program}"),
            format!("/usr/share/fish/vendor_completions.d/{program}.fish"),
            format!("/usr/share/zsh/vendor-completions/_{program}"),
        ];
        let files = files_of_deb(&deb(program, "amd64"));
        for path in documented.into_iter().chain(more) {
            let is_it =
                |file: &String| file.ends_with(&format!(" {path}")) || file.contains(&format!(" {path}/"));
            assert!(files.iter().any(is_it), "{path} is not among {files:?}");
        }
    }
    assert_eq!(seen, 15);
}

fn an_upgrade_keeps_changes_of_settings_and_template() {
    let kept = "/etc/default/nodegate-haproxy\n/etc/nodegate-haproxy/haproxy.cfg.TEMPLATE\n";
    let control = run(&format!("dpkg-deb --info {} conffiles", deb("nodegate-haproxy", "amd64").display()));
    assert_eq!(control, kept);
    let rpm = rpm("nodegate-haproxy", "x86_64").display().to_string();
    assert_eq!(run(&format!("rpm --query --package --configfiles {rpm}")), kept);
    let flags = run(&format!("rpm --query --package --queryformat [%{{FILEFLAGS:fflags}}\\n] {rpm}"));
    assert_eq!(flags.lines().filter(|flags| *flags == "cn").count(), 2, "config(noreplace): {flags}");
}

fn the_same_commit_gives_the_same_packages() {
    let again = build(&["amd64"]);
    let mut compared = 0;
    for entry in fs::read_dir(again.path().join("packages")).unwrap() {
        let name = entry.unwrap().file_name();
        let read = |from: &TempDir| fs::read(from.path().join("packages").join(&name)).unwrap();
        assert!(read(&again) == read(&PACKAGES), "{} differs", name.display());
        compared += 1;
    }
    assert_eq!(compared, 6);
}
