//! The `container_runtime` check of the real agent beside a real containerd that fails.
//!
//! These tests need root for containerd, and fail without it.

use crate::host::containerd::Containerd;
use nodegate_testbed::Agent;

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
