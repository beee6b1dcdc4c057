//! Programs of another release, for tests of version skew.

use nodegate_testbed::programs;
use std::path::PathBuf;

/// The programs of a release.
pub(crate) struct Release {
    name: String,
    /// The directory of another release's programs; this source's are found as in all tests.
    directory: Option<PathBuf>,
}

impl Release {
    /// Returns the release of this source.
    pub(crate) fn this() -> Self {
        Self { name: env!("CARGO_PKG_VERSION").to_owned(), directory: None }
    }

    /// Returns the release whose programs are in `SKEW_PROGRAMS`, by the name `SKEW_NAME`.
    pub(crate) fn other() -> Self {
        let variable =
            |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: make skew"));
        Self { name: variable("SKEW_NAME"), directory: Some(variable("SKEW_PROGRAMS").into()) }
    }

    /// Returns true if it is the release of this source.
    pub(crate) fn is_this(&self) -> bool {
        self.directory.is_none()
    }

    fn program(&self, name: &str, own: fn() -> PathBuf) -> PathBuf {
        self.directory.as_ref().map_or_else(own, |directory| directory.join(name))
    }

    pub(crate) fn agent(&self) -> PathBuf {
        self.program("nodegate", programs::agent)
    }

    pub(crate) fn plugin(&self) -> PathBuf {
        self.program("kubectl-nodegate", programs::kubectl_nodegate)
    }

    pub(crate) fn haproxy(&self) -> PathBuf {
        self.program("nodegate-haproxy", programs::nodegate_haproxy)
    }
}

/// Prints a row of the table.
pub(crate) fn row(program: &str, release: &Release, beside: &str, others: &Release, result: &str) {
    println!("| {program} {} | {beside} {} | {result} |", release.name, others.name);
}
