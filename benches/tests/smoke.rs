//! Runs the benchmark for a moment. The run is far too short for meaningful figures.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::Command;

#[test]
fn every_cell_and_every_budget_is_measured() {
    let program = Path::new(env!("CARGO_BIN_EXE_side-by-side"));
    let nodegate = program.with_file_name("nodegate");
    assert!(
        nodegate.exists(),
        "cargo test --workspace builds it; alone, run cargo build --bin nodegate first"
    );
    let run = Command::new(program).args(["--smoke", "--nodegate"]).arg(nodegate).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{text}{}", String::from_utf8_lossy(&run.stderr));

    let row = |line: &&str| line.starts_with("| ") && !line.contains("NaN") && !line.contains("server");
    assert_eq!(text.lines().filter(row).count(), 4 * 2, "four kinds of load, two servers each: {text}");
    assert_eq!(text.matches("PASS").count() + text.matches("MISS").count(), 12, "{text}");
}
