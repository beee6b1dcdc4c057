//! The `container_runtime` check of the real agent beside a real containerd that starts, hangs, loses its network and
//! ends.

// These tests need root for containerd, and fail without it.

use crate::host::containerd::Containerd;
use std::fs;

const CHECK: &str = "container_runtime";
const NOT_READY: &str =
    "NetworkReady: NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized";

#[test]
fn each_state_of_a_containerd_has_its_answer() {
    let mut containerd = Containerd::start();
    let socket = containerd.socket().display().to_string();
    containerd.kill();
    fs::remove_file(containerd.socket()).unwrap();
    let agent = containerd.agent("");
    agent.wait_fails(CHECK, &format!("NoSocket: {socket}"));
    containerd.restart();
    agent.wait_fails(CHECK, NOT_READY);
    containerd.configure_cni();
    agent.wait_passes(CHECK);
    // It accepts, and never answers.
    containerd.signal("STOP");
    agent.wait_fails(CHECK, "Timeout after 1s");
    containerd.signal("CONT");
    agent.wait_passes(CHECK);
    containerd.unconfigure_cni();
    agent.wait_fails(CHECK, NOT_READY);
    containerd.configure_cni();
    agent.wait_passes(CHECK);
    containerd.kill();
    agent.wait_fails(CHECK, &format!("ConnectionRefused: {socket}"));
    containerd.restart();
    agent.wait_passes(CHECK);
}

/// Shows that the agent needs the group of the socket. The user and the groups are those of the manifests:
/// base, and component `host-checks`.
#[test]
fn an_agent_without_privileges_needs_the_sockets_group() {
    let containerd = Containerd::start();
    containerd.configure_cni();
    let reason = format!("PermissionDenied: {}", containerd.socket().display());
    containerd.agent("--reuid 65534 --regid 65534 --clear-groups").wait_fails(CHECK, &reason);
    containerd.agent("--reuid 65521 --regid 65521 --groups 0").wait_passes(CHECK);
}
