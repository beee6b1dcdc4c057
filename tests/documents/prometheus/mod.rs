//! The metrics, and the files that use them (charts/nodegate/files), with Debian's promtool: every alert fires when
//! it is due, and alerts and dashboards have valid queries of metrics that exist.

mod fresh;
mod rules;

use nodegate_testbed::programs::must_run;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs promtool in a directory.
fn promtool(directory: &Path, args: &[&str]) {
    must_run(Command::new("promtool").args(args).current_dir(directory));
}

/// Asserts that `promtool check metrics` finds nothing in an exposition.
fn check_metrics(exposition: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, exposition).unwrap();
    must_run(Command::new("promtool").args(["check", "metrics"]).stdin(file.reopen().unwrap()));
}
