//! Sentences about an acknowledgement: what is missing, and why it is not known.

use crate::sentence;
use nodegate_agent_api::{
    DrainStatus, Goal, ProberRecord, ServiceStatus, Standing, Status, Traffic, WaitState,
};
use nodegate_readiness::probers::{AckProgress, MIN_LISTENING, PoolChange, Sessions, Unknown};
use nodegate_readiness::{Age, Reason, Verdict};
use std::time::Duration;

/// The most clients, or nodes, that a sentence names.
const NAMED: usize = 8;

/// Names the first of many, and says how many are left.
pub fn named(all: &[String]) -> String {
    let first = all.get(..NAMED).unwrap_or(all);
    match all.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Says of clients that they can't see drains; `None` if there are none.
pub fn cant_see(cant_see_drains: &[String]) -> Option<String> {
    (!cant_see_drains.is_empty()).then(|| format!("{} can't see drains", named(cant_see_drains)))
}

/// Returns the number of balancers in words, and names those that can't see drains.
fn balancers(probers: usize, cant_see_drains: &[String]) -> String {
    match cant_see(cant_see_drains) {
        Some(who) => format!("{probers} of {} balancers; {who}", probers + cant_see_drains.len()),
        None if probers == 1 => "the one balancer that probes".to_owned(),
        None => format!("{probers} balancers"),
    }
}

/// Returns why it is not known whether the balancers have acknowledged. `who` names the prober with an index.
pub fn not_known(
    unknown: &Unknown,
    service: Option<&str>,
    who: impl Fn(usize) -> String,
    cant_see_drains: &[String],
) -> String {
    match (unknown, service) {
        (Unknown::Misconfigured, _) => "the agent has no verdict: it does not know its node".to_owned(),
        (Unknown::Stale, _) => "the cache is stale: the verdict may be a guess".to_owned(),
        (Unknown::Listening { listened, overflown: false }, _) => {
            let (listened, of) = (Age::from(*listened), Age::from(MIN_LISTENING));
            format!("the agent has listened for {listened} of {of}: it does not know its probers yet")
        }
        (Unknown::Listening { listened, overflown: true }, _) => {
            let ago = Age::from(*listened);
            format!("the table of probers overflowed {ago} ago; --balancers names the probers that count")
        }
        (Unknown::Undecided(probers), _) => {
            let who = probers.iter().take(NAMED).map(|index| who(*index)).collect::<Vec<_>>().join(", ");
            format!(
                "not known yet whether these probe regularly: {who}; --balancers names the probers that count"
            )
        }
        (Unknown::TooFew { probers, wanted }, _) => {
            format!("{probers} of {wanted} required balancers probe regularly")
        }
        (Unknown::NoProbers, Some(service)) => format!("no balancer probes /services/{service} regularly"),
        (Unknown::NoProbers, None) => match cant_see(cant_see_drains) {
            None => "no balancer probes this agent regularly".to_owned(),
            Some(who) => format!("no balancer sends a probe request that a drain changes; {who}"),
        },
    }
}

/// Returns what a prober lacks to have acknowledged.
pub fn lacks(progress: &AckProgress, prober: &ProberRecord) -> String {
    let AckProgress { had, required, took, needs } = *progress;
    let lately = match (prober.standing, prober.interval_ms) {
        (Standing::Silent, _) => format!(", silent for {}", Age(prober.last_ms)),
        (_, Some(interval)) => format!(", probes every {}", Age(interval)),
        _ => String::new(),
    };
    if had < required {
        return format!("got it {had} of {required} times{lately}");
    }
    format!(
        "got it {had} times within {}, which takes it {} by itself{lately}",
        Age::from(took),
        Age::from(needs)
    )
}

/// Returns why it is not known whether a session is left.
pub fn sessions_not_known(traffic: Option<&Traffic>) -> String {
    let Some(traffic) = traffic else {
        return "the agent has no --traffic-port, and NodePort traffic has no socket on the host".to_owned();
    };
    let ports = traffic.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    match &traffic.error {
        Some(error) => format!("the connections to port {ports} can't be counted: {error}"),
        None => format!("the connections to port {ports} have not been counted lately"),
    }
}

/// Returns the sessions of a node, as far as its agent counts them.
pub fn sessions(traffic: Option<&Traffic>) -> Sessions {
    match traffic.map(Traffic::established) {
        None => Sessions::NotCounted,
        Some(None) => Sessions::Unknown,
        Some(Some(0)) => Sessions::Ended,
        Some(Some(_)) => Sessions::Left,
    }
}

/// Returns what a wait lacks, or what has come: the words of `/wait`.
pub fn wait(
    state: WaitState,
    goal: Goal,
    status: &Status,
    service: Option<&ServiceStatus>,
    not_ready_for: Option<Duration>,
) -> String {
    let drain = service.map_or(&status.drain, |service| &service.drain);
    let balancers = || balancers(drain.acknowledged_probers, &drain.cant_see_drains);
    match state {
        WaitState::Reached if goal == Goal::Released => {
            format!("no session left; acknowledged: {}", balancers())
        }
        WaitState::Reached => balancers(),
        WaitState::InService if service.is_some() => {
            "a ready endpoint of the Service remains on this node".to_owned()
        }
        WaitState::InService => "the node is not going out".to_owned(),
        WaitState::Kept => status.kept.as_ref().map(sentence::kept).unwrap_or_default(),
        WaitState::NotReadyForLong => {
            format!("the node has been NotReady for {}", Age::from(not_ready_for.unwrap_or_default()))
        }
        WaitState::NoProbers | WaitState::NotKnown => drain.not_known.clone().unwrap_or_default(),
        WaitState::SessionsNotCounted => sessions_not_known(drain.traffic.as_ref()),
        WaitState::Waiting => waiting(goal, drain, status, service),
    }
}

fn waiting(goal: Goal, drain: &DrainStatus, status: &Status, service: Option<&ServiceStatus>) -> String {
    let missing = drain.waiting_for.iter().take(NAMED);
    let missing: Vec<_> =
        missing.map(|one| format!("{} {} ({})", one.prober, one.request, one.why)).collect();
    let is_out =
        service.map_or(status.verdict != Some(Verdict::Ready), |service| service.local_endpoints == 0);
    match (goal.pool_change(), service) {
        (PoolChange::Back, Some(service)) if is_out => {
            format!("{} has no ready endpoint here", service.service)
        }
        (PoolChange::Back, None) if is_out => {
            let verdict = status.verdict.map_or("not known", Verdict::title);
            format!("the node is {verdict}: {}", status.reason.as_ref().map_or("", Reason::as_str))
        }
        _ if !missing.is_empty() => missing.join("; "),
        _ => match drain.traffic.as_ref().and_then(Traffic::established) {
            Some(left) => format!("all acknowledged; {left} sessions are left"),
            None => sessions_not_known(drain.traffic.as_ref()),
        },
    }
}
