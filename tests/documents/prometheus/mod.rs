//! The metrics, and the files that use them (charts/nodegate/files), with Debian's promtool: every alert fires when
//! it is due, and alerts and dashboards have valid queries of metrics that exist.

mod fresh;
mod rules;

use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

/// Runs promtool in a directory and returns its output.
fn promtool(directory: &Path, args: &[&str]) -> String {
    let output = Command::new("promtool")
        .args(args)
        .current_dir(directory)
        .output()
        .expect("promtool is installed; `make test` does it");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that `promtool check metrics` finds nothing in an exposition.
fn check_metrics(exposition: &str) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(exposition.as_bytes()).unwrap();
    file.rewind().unwrap();
    let output = Command::new("promtool").args(["check", "metrics"]).stdin(file).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
