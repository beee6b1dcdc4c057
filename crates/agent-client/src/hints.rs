//! Hints on a setting or a label that the operator may want to change.

use nodegate_readiness::drain::EXCLUDED;
use nodegate_readiness::{Age, HostSignals, Node, Reason};
use std::borrow::Cow;
use std::time::Duration;

/// The label that kubeadm and Talos put on control-plane nodes.
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

const EXCLUDED_CONTROL_PLANE: &str = "kubeadm and Talos put the label node.kubernetes.io/exclude-from-external-load-balancers on \
     every control-plane node, and this is one. If it should get traffic, take the label away (with Talos: out of \
     machine.nodeLabels), or set --drain-on without it";

/// Returns a hint for a control-plane node with the exclusion label. In a cluster of control-plane nodes
/// only, all nodes drain because of it, although the operator has set no label.
pub fn excluded_control_plane(reason: Option<&Reason>, node: &Node) -> Option<Cow<'static, str>> {
    let of_control_plane = node.facts()?.labels.contains_key(CONTROL_PLANE_LABEL);
    (of_control_plane && reason?.code() == EXCLUDED).then_some(EXCLUDED_CONTROL_PLANE.into())
}

/// Explains that the check `kubelet` fails for this reason although the Node is Ready.
pub fn kubelet_unreachable(reason: &Reason) -> String {
    format!(
        "the Node is Ready, but the check kubelet fails ({reason}). --on-unknown=local depends on that check: it \
         will take the node out of the pool when the control plane loses the kubelet. Set --check-settings \
         kubelet:url=…, or --on-unknown=not-ready"
    )
}

/// Explains that another program answers at this address, in this way.
pub fn port_taken(answer: &str) -> String {
    format!(
        "another program answers at the node's own address and port ({answer}), so load balancers may get its answer: \
         is it a Service's node port, or a rule of a firewall?"
    )
}

/// Returns what an operator should know of the delay of a shutdown, given the time that the slowest load balancer needs;
/// `None` if nothing is wrong.
pub fn shutdown_delay(host: HostSignals, needs_ms: Option<u64>) -> Option<String> {
    if host.shutdown {
        return None;
    }
    if !host.lock {
        return Some(
            "nodegate-shutdown holds no lock, or uses another directory than --host-signals: a reboot of this host does \
             not wait for load balancers"
                .into(),
        );
    }
    let needs = Duration::from_millis(needs_ms.unwrap_or_default());
    delay_too_short(Duration::from_millis(host.delay_ms?), needs)
}

/// Explains that the delay of a shutdown ends before the slowest load balancer has noticed; `None` if it does
/// not.
pub fn delay_too_short(delay: Duration, needs: Duration) -> Option<String> {
    let seconds = |time: Duration| time.as_millis().div_ceil(1000);
    if delay.is_zero() {
        return Some(format!("{NO_DELAY}: raise it"));
    }
    (delay < needs).then(|| {
        format!(
            "a shutdown is delayed by at most {} s, but the slowest load balancer needs {} s: raise InhibitDelayMaxSec= \
             of systemd-logind",
            seconds(delay),
            seconds(needs)
        )
    })
}

/// Says that the lock of `nodegate-shutdown` has no effect.
pub const NO_DELAY: &str = "systemd-logind delays no shutdown (InhibitDelayMaxSec=0)";

/// Returns the limit of a delay in words.
pub fn at_most(delay: Duration) -> String {
    // systemd's "infinity" in microseconds, as the file of the lock has it.
    if delay.as_millis() >= u128::from(u64::MAX / 1000) {
        return "without a limit (InhibitDelayMaxSec=infinity)".to_owned();
    }
    format!("at most {}", Age::from(delay))
}
