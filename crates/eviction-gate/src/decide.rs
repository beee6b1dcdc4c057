//! The rules, in the order in which they count. `review::gate` calls them for each review.

use super::case::{AgentReply, Answer, Decision, Drain, EvictWhen, HoldMode, Limits, Why};
use nodegate_agent_api::DrainSummary;
use nodegate_agent_client::sentence;
use nodegate_program::sanitize_short;
use nodegate_readiness::Verdict;
use nodegate_readiness::probers::{NO_PROBERS, TOO_FEW};
use std::time::Duration;

/// An agent that is fresh and still says Ready after this time has other drain signals than the gate.
const MISMATCH_AFTER: Duration = Duration::from_secs(5);
/// A Node that has not been ready for this long, and whose agent is silent, is dead.
const DEAD_AFTER: Duration = Duration::from_secs(30);
/// During this part of a hold the client is asked to retry after a second.
const RETRY_SOON: Duration = Duration::from_secs(10);
/// The number of load balancers that a message names.
const NAMED: usize = 3;
/// What a message adds if no setting names the load balancers.
const EVERY_CLIENT: &str = "; without --balancers every regular client of the agent counts as one";
/// The longest foreign text in a message, in characters: any program may answer at an agent's address.
const MAX_TEXT: usize = 240;

/// Decides about a pod on a draining node.
pub(crate) fn decide(drain: &Drain<'_>, limits: &Limits) -> Decision {
    let when = match (drain.annotation, limits.hold) {
        (Some(EvictWhen::Now), _) => return Decision::allowed(Why::ANNOTATED_NOW),
        (None, HoldMode::Annotated) => return Decision::allowed(Why::NOT_ANNOTATED),
        (annotation, _) => annotation.unwrap_or(limits.evict_when),
    };
    let Hold { why, what, is_unknown } = match judge(drain, when) {
        Err(hold) => hold,
        Ok(decision) => return decision,
    };
    let age = age(drain);
    // Its hold begins when its turn has come.
    if age > limits.max_hold && why != Why::KEPT {
        let held = format!("; the drain is older than {:?}: evicting anyway", limits.max_hold);
        return Decision::unacknowledged(Why::MAX_HOLD, about(drain, &what, &held));
    }
    if is_unknown && age >= limits.unknown_hold {
        let held = format!("; held for {:?}: evicting anyway", limits.unknown_hold);
        return Decision::unacknowledged(why, about(drain, &what, &held));
    }
    let retry_soon = drain.seen_for < RETRY_SOON;
    Decision { answer: Answer::Denied { retry_soon }, why, message: about(drain, &what, "") }
}

/// What an agent's reply means for an eviction: it goes on, or it is held.
type Judgement = Result<Decision, Hold>;

/// A reason to hold, whatever the age of the drain.
struct Hold {
    why: Why,
    what: String,
    /// True if it is not known whether the load balancers have acknowledged: `--unknown-hold` limits the
    /// hold.
    is_unknown: bool,
}

fn hold(why: Why, what: impl Into<String>) -> Judgement {
    Err(Hold { why, what: what.into(), is_unknown: false })
}

fn hold_unknown(why: Why, what: impl Into<String>) -> Judgement {
    Err(Hold { why, what: what.into(), is_unknown: true })
}

fn judge(drain: &Drain<'_>, when: EvictWhen) -> Judgement {
    match drain.agent {
        AgentReply::Summary(summary) => judge_summary(drain, summary, when),
        AgentReply::WrongAgent(why) => hold_unknown(Why::WRONG_AGENT, short(why)),
        AgentReply::NoReply(why) => {
            let what = format!("the node's agent does not answer: {}", short(why));
            match drain.not_ready_for {
                Some(time) if time >= DEAD_AFTER => Ok(nevertheless(drain, Why::NODE_DEAD, &what)),
                _ => hold_unknown(Why::UNREACHABLE, what),
            }
        }
        AgentReply::Overloaded => hold(Why::OVERLOADED, "too many drains at once to query every agent"),
    }
}

fn judge_summary(drain: &Drain<'_>, summary: &DrainSummary, when: EvictWhen) -> Judgement {
    if summary.stale {
        return hold_unknown(Why::STALE, "the agent's cache is stale");
    }
    if let Some(kept) = &summary.kept {
        return hold(Why::KEPT, sentence::kept(kept));
    }
    match summary.verdict {
        None => return hold_unknown(Why::NOT_KNOWN, not_known(summary)),
        Some(Verdict::Ready) if drain.seen_for < MISMATCH_AFTER => {
            return hold(Why::NOT_OUT, "the agent does not say yet that the node is going out");
        }
        Some(Verdict::Ready) => {
            let what = "the agent says that the node is ready: its --drain-on differs from the gate's";
            return Ok(nevertheless(drain, Why::MISMATCH, what));
        }
        Some(Verdict::Draining | Verdict::NotReady) => {}
    }
    match (summary.acknowledged, when, summary.released) {
        (Some(true), EvictWhen::Released, Some(true)) => Ok(Decision::allowed(Why::RELEASED)),
        (Some(true), EvictWhen::Released, Some(false)) => {
            hold(Why::SESSIONS, "all load balancers have acknowledged the drain; sessions are left")
        }
        (Some(true), EvictWhen::Released, None) => {
            hold_unknown(Why::NOT_KNOWN, "the agent does not know whether sessions are left")
        }
        (Some(true), _, _) => Ok(Decision::allowed(Why::ACKNOWLEDGED)),
        (Some(false), _, _) => hold(Why::WAITING, waiting(summary)),
        (None, _, _) if !matches!(summary.not_known_code.as_deref(), Some(NO_PROBERS | TOO_FEW)) => {
            hold_unknown(Why::NOT_KNOWN, not_known(summary))
        }
        // Its label keeps it out of load balancers, and none probes it.
        (None, _, _) if drain.is_excluded && summary.probers == 0 => Ok(Decision::allowed(Why::OUT_BY_LABEL)),
        // No setting requires that load balancers probe this node.
        (None, _, _) if !summary.balancers && summary.settings.probers.is_none() => {
            Ok(Decision::allowed(Why::NO_PROBERS))
        }
        (None, _, _) => hold_unknown(Why::NO_PROBERS, not_known(summary)),
    }
}

fn nevertheless(drain: &Drain<'_>, why: Why, what: &str) -> Decision {
    Decision::unacknowledged(why, about(drain, what, "; evicting anyway"))
}

/// Returns the age of the drain: the highest that anything shows. An agent that was restarted, that lies, or that does
/// not answer makes no drain younger. That of a node that was kept in the pool begins with its turn.
fn age(drain: &Drain<'_>) -> Duration {
    match (out_for(drain.agent), drain.agent) {
        (Some(time), AgentReply::Summary(summary)) if summary.was_kept => time,
        (time, _) => time.unwrap_or_default().max(drain.age),
    }
}

/// Returns for how long a fresh agent has said that the node is out, if it says so.
pub(crate) fn out_for(agent: &AgentReply) -> Option<Duration> {
    let AgentReply::Summary(summary) = agent else { return None };
    let is_out = matches!(summary.verdict, Some(Verdict::Draining | Verdict::NotReady));
    (is_out && !summary.stale).then(|| Duration::from_millis(summary.since_ms))
}

fn about(drain: &Drain<'_>, what: &str, end: &str) -> String {
    format!("node {}: {what}{end}", short(drain.node))
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
fn not_known(summary: &DrainSummary) -> String {
    let why = summary.not_known.as_deref().map(short);
    why.unwrap_or_else(|| {
        "the agent does not say whether the load balancers have acknowledged the drain".to_owned()
    })
}

/// Returns foreign text, bounded and without characters that steer a terminal.
fn short(text: &str) -> String {
    sanitize_short(text, MAX_TEXT)
}
