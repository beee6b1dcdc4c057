//! A test that `make bench` works. The run is far too short for meaningful figures.
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
    let out = tempfile::tempdir().unwrap();
    let run = Command::new(program)
        .args(["--smoke", "--nodegate"])
        .arg(nodegate)
        .arg("--out")
        .arg(out.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{text}{}", String::from_utf8_lossy(&run.stderr));

    let json = std::fs::read(out.path().join("side_by_side.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4 * 4, "four ways to ask, four servers each");
    for cell in cells {
        assert!(cell["cpu_us_per_request"][0].as_f64().is_some_and(|cpu| cpu > 0.0), "{cell}");
        assert!(cell["latency_us"]["p99"].as_f64().is_some_and(|latency| latency > 0.0), "{cell}");
    }
    let verdicts = json["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 12);
    assert!(verdicts.iter().all(|verdict| verdict["measured"].is_number()), "{verdicts:?}");
    assert_eq!(text.matches("PASS").count() + text.matches("MISS").count(), verdicts.len(), "{text}");
}
