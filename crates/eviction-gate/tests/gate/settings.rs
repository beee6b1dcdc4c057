//! Wrong settings: the gate names each at its first start.

use crate::lab::Lab;

#[test]
fn every_wrong_setting_is_named() {
    let lab = Lab::new();
    let output = lab
        .command(&[
            "--max-hold=5s",
            "--unknown-hold=30s",
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
        "--evict-when (NODEGATE_GATE_EVICT_WHEN) \"soon\": takes acknowledged or released",
        "--agent-port (NODEGATE_GATE_AGENT_PORT) \"0\": takes 1 to 65535",
        "--hold (NODEGATE_GATE_HOLD) \"some\": takes all or annotated",
        "--namespace (NODEGATE_GATE_NAMESPACE) \"../x\": takes the name of an object",
        "--unknown-hold (NODEGATE_GATE_UNKNOWN_HOLD) \"30s\": takes at most --max-hold",
        "--tls-key-file (NODEGATE_GATE_TLS_KEY_FILE) is missing: give both files",
    ] {
        assert!(said.contains(line), "{line}\nis not in\n{said}");
    }
}
