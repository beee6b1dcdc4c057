//! The packages that hack/packages makes, with placeholders for the compiled programs. The tests of
//! nodegate-haproxy install packages of the real program.

use crate::man;
use nodegate_testbed::programs::{must_run, run, system};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
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
    must_run(pack.env("CARGO_NET_OFFLINE", "true").env("FAST", "1"));
    directory
}

fn deb(program: &str, architecture: &str) -> PathBuf {
    PACKAGES.path().join(format!("packages/{program}_{VERSION}-1_{architecture}.deb"))
}

fn rpm(program: &str, architecture: &str) -> PathBuf {
    PACKAGES.path().join(format!("packages/{program}-{VERSION}-1.{architecture}.rpm"))
}

/// Returns the paths of a package's files, each with its mode.
fn files_of_deb(package: &Path) -> BTreeSet<(String, String)> {
    let listed = run(&format!("dpkg-deb --contents {}", package.display()));
    let files = listed.lines().filter(|line| line.starts_with('-'));
    let words = files.map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.map(|words| (words[5].trim_start_matches('.').to_owned(), words[0].to_owned())).collect()
}

fn files_of_rpm(package: &Path) -> BTreeSet<(String, String)> {
    let format = "--queryformat=[%{FILENAMES}\\t%{FILEMODES:perms}\\t%{FILEUSERNAME}:%{FILEGROUPNAME}\\n]";
    let listed = must_run(system("rpm").args(["--query", "--package", format]).arg(package));
    let fields = listed.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let files = fields.inspect(|fields| assert_eq!(fields[2], "root:root", "{fields:?}"));
    files.map(|fields| (fields[0].to_owned(), fields[1].to_owned())).collect()
}

/// Returns a path as the other format has it. `None` for a file that only this format has.
fn in_common((path, mode): &(String, String), program: &str) -> Option<(String, String)> {
    let own = [
        format!("/usr/share/lintian/overrides/{program}"),
        format!("/usr/share/doc/{program}/copyright"),
        format!("/usr/share/doc/{program}/changelog.Debian.gz"),
        format!("/usr/share/licenses/{program}/LICENSE"),
    ];
    let path = path.replace("/usr/share/zsh/vendor-completions/", "/usr/share/zsh/site-functions/");
    (!own.contains(&path)).then(|| (path, mode.clone()))
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
    for program in PROGRAMS {
        for (debian, other) in ARCHITECTURES {
            let (deb, rpm) = (files_of_deb(&deb(program, debian)), files_of_rpm(&rpm(program, other)));
            let common = |files: &BTreeSet<_>| -> BTreeSet<_> {
                files.iter().filter_map(|file| in_common(file, program)).collect()
            };
            assert_eq!(common(&deb), common(&rpm), "{program}");
            assert!(deb.contains(&(format!("/usr/bin/{program}"), "-rwxr-xr-x".to_owned())), "{deb:?}");
            assert_eq!(deb.len() - common(&deb).len(), 3, "{deb:?}");
        }
    }
}

fn the_documented_files_are_in_the_packages() {
    let text = fs::read_to_string(format!("{ROOT}/docs/packaging.md")).unwrap();
    let mut seen = 0;
    for program in PROGRAMS {
        let table = text.split_once(&format!("| file of {program} | content |\n|---|---|\n")).unwrap().1;
        let files = files_of_deb(&deb(program, "amd64"));
        for row in table.lines().take_while(|line| line.starts_with("| `/")) {
            let path = row.split('`').nth(1).unwrap();
            let is_it = |file: &str| file == path || file.starts_with(&format!("{path}/"));
            assert!(files.iter().any(|(file, _)| is_it(file)), "{path} is not among {files:?}");
            seen += 1;
        }
        let generated = PACKAGES.path().join("programs/man");
        for page in fs::read_dir(generated).unwrap().map(|page| page.unwrap().file_name()) {
            let page = page.into_string().unwrap();
            let packed = files.iter().any(|(file, _)| *file == format!("/usr/share/man/man1/{page}.gz"));
            assert_eq!(packed, page.starts_with(program), "{page}");
        }
        for place in
            ["bash-completion/completions/", "fish/vendor_completions.d/", "zsh/vendor-completions/_"]
        {
            let ending = if place.starts_with("fish") { ".fish" } else { "" };
            let file = format!("/usr/share/{place}{program}{ending}");
            assert!(files.iter().any(|(path, _)| *path == file), "{file} is not among {files:?}");
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
