//! The rules for a pod on a draining node, in the order in which they count. `gate` allows all others at once.

use crate::decision::{AgentReply, Answer, Decision, EvictWhen, KEPT, Limits, OVERLOADED, UNREACHABLE, Why};
use crate::reduced_objects::ReadNode;
use nodegate_agent_api::DrainSummary;
use nodegate_agent_client::sentence;
use nodegate_program::sanitize_short;
use nodegate_readiness::Verdict;
use nodegate_readiness::probers::{NO_PROBERS, TOO_FEW};
use std::borrow::Cow;
use std::time::Duration;

/// An agent that is fresh and still says Ready after this time has other drain signals than the gate.
const MISMATCH_AFTER: Duration = Duration::from_secs(5);
/// A Node that has not been ready for this long, and whose agent is silent, is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);
/// For this long since this replica first saw the drain, the client is asked to retry after a second.
const RETRY_SOON: Duration = Duration::from_secs(10);
/// The number of load balancers that a message names.
const NAMED: usize = 3;
/// What a message adds if no setting names the load balancers.
const EVERY_CLIENT: &str = "; without --balancers every regular client of the agent counts as one";
/// The longest foreign text in a message, in characters: any program may answer at an agent's address.
const MAX_TEXT: usize = 240;

/// A review of a pod on a draining node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain<'a> {
    pub(crate) node: &'a ReadNode,
    /// The annotation of the pod, else that of its namespace.
    pub(crate) annotation: Option<EvictWhen>,
    pub(crate) agent: &'a AgentReply,
    /// The time since this replica of the gate first saw the drain.
    pub(crate) seen_for: Duration,
    /// The drain is at least this old, as the Node's own dates and all earlier reviews show it.
    pub(crate) age: Duration,
}

/// What an agent's reply means for an eviction, whatever the age of the drain.
enum Course {
    Allow,
    /// It goes on with a warning.
    AllowAnyway,
    Hold,
    /// It is not known whether the load balancers have acknowledged: `--unknown-hold` limits the hold.
    HoldUnknown,
}

/// Decides about a pod on a draining node.
pub(crate) fn decide(drain: &Drain<'_>, limits: &Limits) -> Decision {
    let when = match drain.annotation {
        Some(EvictWhen::Now) => return Decision::allowed("annotated_now"),
        None if limits.only_annotated => return Decision::allowed("not_annotated"),
        annotation => annotation.unwrap_or(limits.evict_when),
    };
    let (course, why, what) = judge(drain, when);
    let age = age(drain);
    let anyway = Answer::AllowedUnacknowledged;
    let (answer, why, end) = match course {
        Course::Allow => return Decision::allowed(why),
        Course::AllowAnyway => (anyway, why, "; evicting anyway".to_owned()),
        // The hold of a node that is kept in the pool begins when its turn has come.
        _ if age > limits.max_hold && why != KEPT => {
            let end = format!("; the drain is older than {:?}: evicting anyway", limits.max_hold);
            (anyway, "max_hold", end)
        }
        Course::HoldUnknown if age >= limits.unknown_hold => {
            (anyway, why, format!("; the drain is older than {:?}: evicting anyway", limits.unknown_hold))
        }
        Course::Hold | Course::HoldUnknown => {
            (Answer::Denied { retry_soon: drain.seen_for < RETRY_SOON }, why, String::new())
        }
    };
    let message = format!("node {}: {what}{end}", short(&drain.node.identity.name));
    Decision { answer, why, message }
}

/// Returns what happens to an eviction, and the reason.
fn judge(drain: &Drain<'_>, when: EvictWhen) -> (Course, Why, Cow<'static, str>) {
    use Course::{Allow, AllowAnyway, Hold, HoldUnknown};
    let summary = match drain.agent {
        Ok(summary) => summary,
        Err((why, what)) => {
            let is_dead = *why == UNREACHABLE && drain.node.not_ready_for >= Some(DEAD_AFTER);
            return match *why {
                _ if is_dead => (AllowAnyway, "node_dead", short(what).into()),
                OVERLOADED => (Hold, OVERLOADED, short(what).into()),
                why => (HoldUnknown, why, short(what).into()),
            };
        }
    };
    if summary.stale {
        return (HoldUnknown, "stale", "the agent's cache is stale".into());
    }
    if let Some(kept) = &summary.kept {
        return (Hold, KEPT, sentence::kept(kept).into());
    }
    match summary.verdict {
        None => return (HoldUnknown, "not_known", not_known(summary)),
        Some(Verdict::Ready) if drain.seen_for < MISMATCH_AFTER => {
            return (Hold, "not_out", "the agent does not say yet that the node is going out".into());
        }
        Some(Verdict::Ready) => {
            let what = "the agent says that the node is ready: its --drain-on differs from the gate's";
            return (AllowAnyway, "mismatch", what.into());
        }
        Some(Verdict::Draining | Verdict::NotReady) => {}
    }
    match (summary.acknowledged, when, summary.released) {
        (Some(true), EvictWhen::Released, Some(true)) => (Allow, "released", "".into()),
        (Some(true), EvictWhen::Released, Some(false)) => {
            (Hold, "sessions", "all load balancers have acknowledged the drain; sessions are left".into())
        }
        (Some(true), EvictWhen::Released, None) => {
            (HoldUnknown, "not_known", "the agent does not know whether sessions are left".into())
        }
        (Some(true), _, _) => (Allow, "acknowledged", "".into()),
        (Some(false), _, _) => (Hold, "waiting", waiting(summary).into()),
        (None, _, _) if !matches!(summary.not_known_code.as_deref(), Some(NO_PROBERS | TOO_FEW)) => {
            (HoldUnknown, "not_known", not_known(summary))
        }
        // Its label keeps it out of load balancers, and none probes it.
        (None, _, _) if drain.node.is_excluded && summary.probers == 0 => (Allow, "out_by_label", "".into()),
        // No setting requires that load balancers probe this node.
        (None, _, _) if !summary.balancers && summary.settings.probers.is_none() => {
            (Allow, "no_probers", "".into())
        }
        (None, _, _) => (HoldUnknown, "no_probers", not_known(summary)),
    }
}

/// Returns the age of the drain: the highest that anything shows. An agent that was restarted, that lies, or that does
/// not answer makes no drain younger. That of a node that was kept in the pool begins with its turn.
fn age(drain: &Drain<'_>) -> Duration {
    match (out_for(drain.agent), drain.agent) {
        (Some(time), Ok(summary)) if summary.was_kept => time,
        (time, _) => time.unwrap_or_default().max(drain.age),
    }
}

/// Returns for how long a fresh agent has said that the node is out, if it says so.
pub(crate) fn out_for(agent: &AgentReply) -> Option<Duration> {
    let summary = agent.as_ref().ok()?;
    let is_out = matches!(summary.verdict, Some(Verdict::Draining | Verdict::NotReady));
    (is_out && !summary.stale).then(|| Duration::from_millis(summary.since_ms))
}

/// Returns what a drain still waits for.
fn waiting(summary: &DrainSummary) -> String {
    let acknowledged = summary.acknowledged_probers.min(summary.probers);
    let text = format!("{acknowledged} of {} load balancers have acknowledged the drain", summary.probers);
    let named: Vec<_> = summary.waiting_for.iter().take(NAMED).map(|name| short(name)).collect();
    if named.is_empty() {
        return text + "; waiting until the interval of --ack-interval has passed";
    }
    let others = summary.probers.saturating_sub(acknowledged).max(summary.waiting_for.len());
    let more = match others.saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let every = if summary.balancers { "" } else { EVERY_CLIENT };
    format!("{text}; waiting for {}{more}{every}", named.join(", "))
}

/// Returns why the agent does not know.
fn not_known(summary: &DrainSummary) -> Cow<'static, str> {
    match &summary.not_known {
        Some(why) => short(why).into(),
        None => "the agent does not say whether the load balancers have acknowledged the drain".into(),
    }
}

/// Returns foreign text, bounded and without characters that steer a terminal.
fn short(text: &str) -> String {
    sanitize_short(text, MAX_TEXT)
}

#[cfg(test)]
mod tests;
