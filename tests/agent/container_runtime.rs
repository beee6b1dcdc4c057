//! The `container_runtime` check of the real agent beside a real containerd that fails.
//!
//! These tests need root for containerd, and fail without it.

use nodegate_testbed::Agent;
use nodegate_testbed::host::containerd::Containerd;
use nodegate_testbed::process::threads_named;
use std::fs;

const NOT_READY: &str =
    "NetworkReady: NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized";

/// Waits until the check gives this reason; an empty one means that it passes. Returns the body without the
/// times.
fn wait_runtime(agent: &Agent, reason: &str) -> String {
    let mut json = match reason {
        "" => agent.wait_passes("container_runtime").json(),
        reason => agent.wait_fails("container_runtime", reason).json(),
    };
    json["checks"][0].as_object_mut().unwrap().remove("duration_ms");
    json.as_object_mut().unwrap().remove("total_duration_ms");
    json.to_string()
}

/// Returns the number of threads that look for the socket.
fn threads(agent: &Agent) -> usize {
    threads_named(agent.pid(), "cri_socket").len()
}

#[test]
fn a_runtime_that_is_frozen_killed_and_restarted() {
    let mut containerd = Containerd::start();
    containerd.configure_cni();
    let agent = containerd.agent("");
    assert_eq!(
        wait_runtime(&agent, ""),
        r#"{"checks":[{"name":"container_runtime","passed":true}],"status":"ready"}"#
    );

    containerd.signal("STOP");
    assert_eq!(
        wait_runtime(&agent, "Timeout after 1s"),
        r#"{"checks":[{"name":"container_runtime","passed":false,"reason":"Timeout after 1s"}],"status":"not-ready"}"#
    );
    containerd.signal("CONT");
    wait_runtime(&agent, "");

    let refused = format!("ConnectionRefused: {}", containerd.socket().display());
    containerd.kill();
    assert!(containerd.socket().exists(), "a killed containerd leaves its socket behind");
    assert_eq!(
        wait_runtime(&agent, &refused),
        format!(
            r#"{{"checks":[{{"name":"container_runtime","passed":false,"reason":"{refused}"}}],"status":"not-ready"}}"#
        )
    );
    fs::remove_file(containerd.socket()).unwrap();
    wait_runtime(&agent, &format!("NoSocket: {}", containerd.socket().display()));
    containerd.restart();
    wait_runtime(&agent, "");
    assert!(threads(&agent) <= 1);
}

#[test]
fn container_runtime_fails_without_a_network_plugin() {
    let containerd = Containerd::start();
    let agent = containerd.agent("");
    assert_eq!(
        wait_runtime(&agent, NOT_READY),
        format!(
            r#"{{"checks":[{{"name":"container_runtime","passed":false,"reason":"{NOT_READY}"}}],"status":"not-ready"}}"#
        )
    );
    containerd.configure_cni();
    wait_runtime(&agent, "");
    containerd.unconfigure_cni();
    wait_runtime(&agent, NOT_READY);
}

/// Shows that the agent needs the group of the socket. The user and the groups are those of the manifests:
/// base, and component `host-checks`.
#[test]
fn an_agent_without_privileges_needs_the_sockets_group() {
    let containerd = Containerd::start();
    containerd.configure_cni();
    wait_runtime(
        &containerd.agent("--reuid 65534 --regid 65534 --clear-groups"),
        &format!("PermissionDenied: {}", containerd.socket().display()),
    );
    wait_runtime(&containerd.agent("--reuid 65521 --regid 65521 --groups 0"), "");
}

#[test]
fn a_containerd_without_cri_fails() {
    let containerd = Containerd::start_without_cri();
    wait_runtime(&containerd.agent(""), &format!("NotCRIv1: {}", containerd.socket().display()));
}

#[test]
fn the_cri_socket_is_found_below_the_host_root() {
    let containerd = Containerd::start();
    containerd.configure_cni();
    let agent = containerd.agent_that_finds_it();
    wait_runtime(&agent, "");
}
