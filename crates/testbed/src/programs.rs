//! The programs under test, as cargo has built them beside the test that runs.

use std::fs;
use std::path::{Path, PathBuf};

/// The agent.
pub fn agent() -> PathBuf {
    built("nodegate", "--bin nodegate")
}

/// The simulated API server as a program of its own.
pub fn kube_sim() -> PathBuf {
    built("kube-sim", "-p nodegate-kube-sim --bin kube-sim")
}

/// What `make demo` runs.
pub fn demo() -> PathBuf {
    built("examples/demo", "--example demo")
}

/// The agent in a directory where another user finds it.
pub fn agent_in(directory: &Path) -> PathBuf {
    let (copy, built) = (directory.join("nodegate"), agent());
    if !copy.exists() && fs::hard_link(&built, &copy).is_err() {
        fs::copy(&built, &copy).unwrap();
    }
    copy
}

/// A test is in `target/<profile>/deps`, an example beside that, and a program in `target/<profile>` itself.
fn built(name: &str, how: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().skip(1).take(2).map(|place| place.join(name));
    let missing = || panic!("{name} is not beside {}: cargo build {how}", own.display());
    places.find(|program| program.is_file()).unwrap_or_else(missing)
}
