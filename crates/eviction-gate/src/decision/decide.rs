//! The rules, in the order in which they count.

use super::case::{AgentReply, Drain, EvictWhen, GatePods, HoldMode, Limits, NodeView, PodView};
use super::message::{not_known, short, waiting};
use super::why::{Answer, Decision, Why};
use nodegate_agent_client::DrainSummary;
use nodegate_readiness::Verdict;
use nodegate_readiness::probers::{NO_PROBERS, TOO_FEW};
use std::time::Duration;

/// An agent that is fresh and still says Ready after this time has other drain signals than the gate.
const MISMATCH_AFTER: Duration = Duration::from_secs(5);
/// A Node that has not been ready for this long, and whose agent is silent, is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);
/// During this part of a hold the client is asked to retry after a second.
const RETRY_SOON: Duration = Duration::from_secs(10);

/// Returns why the gate does not hold this Pod, whatever its Node; `None` if it depends on the Node.
pub fn pod_is_free(pod: Option<&PodView>, own: &GatePods) -> Option<Why> {
    let Some(pod) = pod else { return Some(Why::PodGone) };
    let is_gate = pod.namespace == own.namespace && pod.app.as_deref() == Some(own.app.as_str());
    let rules = [
        (pod.is_terminating, Why::PodTerminating),
        (!pod.is_running || pod.node.is_empty(), Why::PodNotRunning),
        (pod.is_daemon, Why::PodOfDaemonSet),
        (pod.is_mirror, Why::MirrorPod),
        (is_gate, Why::GatePod),
    ];
    rules.into_iter().find_map(|(applies, why)| applies.then_some(why))
}

/// Returns why the gate holds no Pod of this Node; `None` if it is draining.
pub fn node_is_free(node: Option<&NodeView>) -> Option<Why> {
    match node {
        None => Some(Why::NodeGone),
        Some(node) => node.drain_reason.is_none().then_some(Why::NotDraining),
    }
}

/// Decides about a pod on a draining node.
pub fn decide(drain: &Drain<'_>, limits: &Limits) -> Decision {
    let when = match (drain.annotation, limits.hold) {
        (Some(EvictWhen::Now), _) => return Decision::allowed(Why::AnnotatedNow),
        (None, HoldMode::Annotated) => return Decision::allowed(Why::NotAnnotated),
        (None, HoldMode::All) if limits.evict_when == EvictWhen::Now => {
            return Decision::allowed(Why::NotAnnotated);
        }
        (annotation, _) => annotation.unwrap_or(limits.evict_when),
    };
    let age = age(drain);
    let found = found(drain, when);
    let Finding::Hold { why, what, at_most } = found else {
        return match found {
            Finding::Free(why) => Decision::allowed(why),
            Finding::Unacknowledged(why, what) => {
                Decision::unacknowledged(why, said_of(drain, &what, "; evicting nevertheless"))
            }
            Finding::Hold { .. } => Decision::allowed(Why::Error),
        };
    };
    if age > limits.max_hold {
        let held =
            format!("; the drain is older than {}: evicting nevertheless", in_seconds(limits.max_hold));
        return Decision::unacknowledged(Why::MaxHold, said_of(drain, &what, &held));
    }
    if at_most == AtMost::ToldUnknownHold && age >= limits.told_unknown_hold {
        let held = format!("; held for {}: evicting nevertheless", in_seconds(limits.told_unknown_hold));
        return Decision::unacknowledged(why, said_of(drain, &what, &held));
    }
    let retry_soon = drain.seen_for < RETRY_SOON;
    Decision { answer: Answer::Denied { retry_soon }, why, message: said_of(drain, &what, "") }
}

/// The maximum time of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtMost {
    /// The time of `--max-hold`.
    MaxHold,
    /// The time of `--told-unknown-hold`.
    ToldUnknownHold,
}

/// What the agent's reply comes to, apart from the time that a hold may last.
enum Finding {
    Free(Why),
    Unacknowledged(Why, String),
    Hold { why: Why, what: String, at_most: AtMost },
}

fn found(drain: &Drain<'_>, when: EvictWhen) -> Finding {
    let unknown = |why, what| Finding::Hold { why, what, at_most: AtMost::ToldUnknownHold };
    match drain.agent {
        AgentReply::Summary(said) => of_summary(drain, said, when),
        AgentReply::WrongAgent(why) => unknown(Why::WrongAgent, short(why)),
        AgentReply::NoReply(why) => {
            let what = format!("the node's agent does not answer: {}", short(why));
            match drain.node.not_ready_for {
                Some(time) if time >= DEAD_AFTER => Finding::Unacknowledged(Why::NodeDead, what),
                _ => unknown(Why::Unreachable, what),
            }
        }
        AgentReply::Overloaded => {
            let what = "too many drains at once to ask every agent".to_owned();
            Finding::Hold { why: Why::Overloaded, what, at_most: AtMost::MaxHold }
        }
    }
}

fn of_summary(drain: &Drain<'_>, summary: &DrainSummary, when: EvictWhen) -> Finding {
    let hold = |why, what| Finding::Hold { why, what, at_most: AtMost::MaxHold };
    let unknown = |why, what| Finding::Hold { why, what, at_most: AtMost::ToldUnknownHold };
    if summary.stale {
        return unknown(Why::Stale, "the agent's cache is stale".to_owned());
    }
    match summary.verdict {
        None => return unknown(Why::NotKnown, not_known(summary)),
        Some(Verdict::Ready) if drain.seen_for < MISMATCH_AFTER => {
            return hold(Why::NotOut, "the agent does not say yet that the node is going out".to_owned());
        }
        Some(Verdict::Ready) => {
            let what = "the agent says that the node is ready: its --drain-on differs from the gate's";
            return Finding::Unacknowledged(Why::Mismatch, what.to_owned());
        }
        Some(Verdict::Draining | Verdict::NotReady) => {}
    }
    match (summary.told, when, summary.released) {
        (Some(true), EvictWhen::Released, Some(true)) => Finding::Free(Why::Released),
        (Some(true), EvictWhen::Released, Some(false)) => hold(
            Why::Sessions,
            "all load balancers have acknowledged the drain; sessions are left".to_owned(),
        ),
        (Some(true), EvictWhen::Released, None) => {
            unknown(Why::NotKnown, "the agent does not know whether sessions are left".to_owned())
        }
        (Some(true), _, _) => Finding::Free(Why::Told),
        (Some(false), _, _) => hold(Why::Waiting, waiting(summary)),
        (None, _, _) if matches!(summary.not_known_code.as_deref(), Some(NO_PROBERS | TOO_FEW)) => {
            if summary.balancers || summary.settings.probers.is_some() {
                unknown(Why::NoProbers, not_known(summary))
            } else {
                Finding::Free(Why::NoProbers)
            }
        }
        (None, _, _) => unknown(Why::NotKnown, not_known(summary)),
    }
}

/// Returns the age of the drain: the highest that anything shows. An agent that was restarted, that lies, or that does
/// not answer makes no drain younger.
fn age(drain: &Drain<'_>) -> Duration {
    match drain.agent {
        AgentReply::Summary(summary)
            if !summary.stale && matches!(summary.verdict, Some(Verdict::Draining | Verdict::NotReady)) =>
        {
            Duration::from_millis(summary.since_ms).max(drain.age)
        }
        _ => drain.age,
    }
}

fn said_of(drain: &Drain<'_>, what: &str, end: &str) -> String {
    format!("node {}: {what}{end}", short(&drain.node.name))
}

fn in_seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        format!("{} s", duration.as_secs())
    } else {
        format!("{} ms", duration.as_millis())
    }
}
