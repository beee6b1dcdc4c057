//! Wrong settings, each named at the first start.

use crate::lab::Lab;

#[test]
fn every_wrong_setting_is_named() {
    let lab = Lab::new();
    let output = lab
        .command(&[
            "--max-hold=5s",
            "--drain-on=cordon",
            "--evict-when=soon",
            "--agent-port=0",
            "--tls-cert-file=x",
            "--namespace=../x",
        ])
        .env("NODEGATE_GATE_HOLD", "some")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    for line in [
        "--drain-on (NODEGATE_GATE_DRAIN_ON) \"cordon\": takes unschedulable,",
        "--evict-when (NODEGATE_GATE_EVICT_WHEN) \"soon\": takes told or released",
        "--agent-port (NODEGATE_GATE_AGENT_PORT) \"0\": takes 1 to 65535",
        "--hold (NODEGATE_GATE_HOLD) \"some\": takes all or annotated",
        "--namespace (NODEGATE_GATE_NAMESPACE) \"../x\": takes the name of an object",
        "--told-unknown-hold (NODEGATE_GATE_TOLD_UNKNOWN_HOLD) \"30s\": takes at most --max-hold",
        "--tls-cert-file and --tls-key-file: one of them is missing",
    ] {
        assert!(said.contains(line), "{line}\nis not in\n{said}");
    }
}

#[test]
fn a_removed_setting_says_what_takes_its_place() {
    let lab = Lab::new();
    let mut command = lab.command(&["--unknown-hold=3s", "--secret=x"]);
    let output = command.env("NODEGATE_GATE_REVIEW_TIMEOUT", "1s").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    for line in [
        "--unknown-hold (NODEGATE_GATE_UNKNOWN_HOLD) was removed: use --told-unknown-hold",
        "--secret (NODEGATE_GATE_SECRET) was removed: use --name",
        "--review-timeout (NODEGATE_GATE_REVIEW_TIMEOUT) was removed: it is always 2.5 s",
    ] {
        assert!(said.contains(line), "{line}\nis not in\n{said}");
    }
}

#[test]
fn a_taken_port_is_named() {
    let lab = Lab::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = lab.command(&[&format!("--listen={address}")]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("can't listen on {address}")), "{said}");
}
