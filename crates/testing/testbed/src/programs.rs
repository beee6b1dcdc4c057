//! The programs under test, which cargo has built beside the running test, and those of the system.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn agent() -> PathBuf {
    built("nodegate", "--bin nodegate")
}

pub fn eviction_gate() -> PathBuf {
    built("nodegate-eviction-gate", "-p nodegate-eviction-gate")
}

pub fn nodegate_shutdown() -> PathBuf {
    built("nodegate-shutdown", "-p nodegate-shutdown")
}

pub fn kubectl_nodegate() -> PathBuf {
    built("kubectl-nodegate", "-p nodegate-kubectl --bin kubectl-nodegate")
}

pub fn nodegate_haproxy() -> PathBuf {
    built("nodegate-haproxy", "-p nodegate-haproxy")
}

pub fn demo() -> PathBuf {
    built("examples/demo", "--example demo")
}

/// Copies the agent to a directory in which another user can run it, and returns its path.
pub fn agent_in(directory: &Path) -> PathBuf {
    let (copy, built) = (directory.join("nodegate"), agent());
    if !copy.exists() && fs::hard_link(&built, &copy).is_err() {
        fs::copy(&built, &copy).unwrap();
    }
    copy
}

/// Returns the path of a program that cargo has built, or of that in the directory `NODEGATE_PROGRAMS`. A test is in
/// `target/<profile>/deps`, an example in a directory beside that, a program in `target/<profile>` itself.
fn built(name: &str, how: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let others = std::env::var_os("NODEGATE_PROGRAMS").map(PathBuf::from);
    let directories = others.iter().map(PathBuf::as_path).chain(own.ancestors().skip(1).take(2));
    let mut paths = directories.map(|directory| directory.join(name));
    let missing = || panic!("{name} is not beside {}: cargo build {how}", own.display());
    paths.find(|program| program.is_file()).unwrap_or_else(missing)
}

/// Returns a load balancer that `hack/install` has fetched, or `None` if it has not.
pub fn fetched(name: &str) -> Option<PathBuf> {
    above(&format!("tools/bin/{name}"), Path::is_file)
}

/// Returns a file or directory of `target`, above the running test.
fn above(name: &str, is_it: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    own.ancestors().skip(1).map(|directory| directory.join(name)).find(|path| is_it(path))
}

/// Returns the Debian that `hack/install` has fetched, of release `NODEGATE_DEBIAN` (13).
pub fn debian() -> PathBuf {
    let release = std::env::var("NODEGATE_DEBIAN").unwrap_or_else(|_| "13".to_owned());
    let found = above(&format!("debian-{release}"), |root| root.join("etc/debian_version").is_file());
    found.unwrap_or_else(|| panic!("there is no target/debian-{release}: hack/install debian-{release}"))
}

/// Returns a program of the system. Debian keeps many of them outside of a user's PATH.
pub fn system(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

/// Runs a program. Returns its output if it succeeds, and otherwise what it says of that.
pub fn try_run(command: &mut Command) -> Result<String, String> {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; hack/install installs it"));
    let said = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() {
        Ok(said(output.stdout))
    } else {
        Err(said([output.stderr, output.stdout].concat()))
    }
}

/// Runs a program and returns its output. Panics if it fails.
#[track_caller]
pub fn must_run(command: &mut Command) -> String {
    try_run(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a program of the system, with words behind single spaces. Panics if it fails.
#[track_caller]
pub fn run(command: &str) -> String {
    let mut words = command.split(' ');
    must_run(system(words.next().unwrap()).args(words))
}

/// Ends the test with a panic unless it runs as root.
pub fn needs_root(what: &str) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs {what}, which only root may have: run it as root"
    );
}
