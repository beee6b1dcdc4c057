//! Invalid settings: exit code 2, and one line for each that names the flag, the value and the accepted
//! values. `tests/documents/wrong_inputs.txt` has whole messages of more settings.

use nodegate_testbed::agent::run;
use std::process::Output;

/// Runs the agent. A setting that it accepts by mistake starts it.
fn nodegate(args: &[&str], env: &[(&str, &str)]) -> Output {
    let own = [("NODEGATE_LISTEN_ADDRESS", "127.0.0.1"), ("LISTEN_PORT", "0")];
    run(args, &[&own, env].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that the agent prints one line with the flag, the value, and a hint.
fn refuses(args: &[&str], env: &[(&str, &str)], needles: &[&str]) {
    let output = nodegate(args, env);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?} {env:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?} {env:?}: {text}");
    for needle in needles {
        assert!(text.contains(needle), "{args:?} {env:?}: no {needle:?} in {text}");
    }
}

#[test]
fn every_invalid_setting_is_named_with_its_value() {
    let cases: &[(&str, &str, &str, &str)] = &[
        ("--agent-check-port", "NODEGATE_AGENT_CHECK_PORT", "-1", "0 for none"),
        ("--traffic-port", "NODEGATE_TRAFFIC_PORT", "0", "up to 16 ports"),
        ("--metrics-addr", "NODEGATE_METRICS_ADDR", "127.0.0.1:25002", "--listen-port and --agent-"),
        ("--stale-after", "NODEGATE_STALE_AFTER", "1s", "2s to 1h"),
        ("--on-unknown", "NODEGATE_ON_UNKNOWN", "ready", "takes local or not-ready"),
        ("--unknown-after", "NODEGATE_UNKNOWN_AFTER", "25h", "0s to 24h"),
        ("--drain-on", "NODEGATE_DRAIN_ON", "condition:Ready=False", "<Type>[=<status>] (any but Ready)"),
        ("--pool-selector", "NODEGATE_POOL_SELECTOR", "pool=web)", "a label selector"),
        ("--shutdown-grace", "NODEGATE_SHUTDOWN_GRACE", "-1s", "with its unit: ms, s"),
        ("--default-checks", "NODEGATE_DEFAULT_CHECKS", ",", "at least one"),
        ("--background-checks", "NODEGATE_BACKGROUND_CHECKS", "node_ready", "answers from memory"),
        ("--on-demand", "NODEGATE_ON_DEMAND", "kubelet,node_ready", "answers from memory"),
        ("--host-root", "NODEGATE_HOST_ROOT", "host", "begins with /"),
        ("--conditions", "NODEGATE_CONDITIONS", "DiskPressure=Maybe", "MyAgentReady=False"),
        ("--log-format", "NODEGATE_LOG_FORMAT", "xml", "text or json"),
    ];
    for (flag, env, value, takes) in cases {
        refuses(&[&format!("{flag}={value}")], &[], &[flag, env, value, takes]);
        refuses(&[], &[(env, value)], &[flag, env, value, takes]);
    }
}

/// Shows that the agent treats an empty variable as unset: a template renders one for a value that the
/// operator did not give.
#[test]
fn an_empty_environment_variable_counts_as_unset() {
    let help = String::from_utf8(nodegate(&["--help"], &[]).stdout).unwrap();
    let empty: Vec<_> =
        help.split("[env: ").skip(1).map(|text| (text.split_once('=').unwrap().0, "")).collect();
    assert!(empty.len() > 20, "{empty:?}");
    refuses(&["--stale-after=x"], &empty, &["--stale-after"]);
}
