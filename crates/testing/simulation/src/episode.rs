//! Plays one episode: a calm, faults that overlap, and a healed cluster in which the agent must become fresh.

use crate::bounds::{Aftermath, BOOKMARK_OVERDUE, FaultBounds, GRACE, LATE, NODES_LOST};
use crate::connection::ApiUsage;
use crate::events::Event;
use crate::fault::ProofEffect;
use crate::fault::SimulatedFault::{
    AgentRestarted, CutEvents, Frozen, LateEvents, Malformed, NodeReplaced, Refusals, Rewound, Starved,
    Throttled,
};
use crate::plan::{Plan, Planned};
use crate::trace::note;
use crate::world::RunningWorld;
use std::time::{Duration, Instant};

/// The time from the first attempt after the last fault until the agent must be fresh.
const FRESH_AGAIN: Duration = Duration::from_secs(16);
/// The longest time until the first attempt: the longest backoff, or the timeout of a list under way.
const FIRST_ATTEMPT: Duration = Duration::from_secs(16);
/// The same after a `Retry-After`: up to 30 s, and up to a quarter at random.
const RETRY_AFTER: Duration = Duration::from_millis(37_500);
/// The time until a stale Service must be fresh: the next check is due at most 85 s after a list.
const SERVICE_FRESH_AGAIN: Duration = Duration::from_secs(130);
/// The interval at which the Node changes until the agent shows that it sees the change.
const MARKER_EVERY: Duration = Duration::from_secs(1);

/// Returns the time within which the agent must be fresh after these faults.
fn recovery<'a>(mut faults: impl Iterator<Item = &'a Planned>) -> Duration {
    let first_attempt = if faults.any(has_retry_after) { RETRY_AFTER } else { FIRST_ATTEMPT };
    first_attempt + FRESH_AGAIN
}

/// Returns true if the API server's answers during this fault may have a `Retry-After`.
fn has_retry_after(planned: &Planned) -> bool {
    matches!(planned.fault, Throttled | Refusals)
}

/// The requests that an outage may begin with, and that each second of it may add: two or three watches retry every 5 s on
/// average, each with a list and a watch; those that restart retry sooner.
const REQUESTS: (f64, f64) = (25.0, 1.2);
/// The same for connections.
const CONNECTIONS: (f64, f64) = (10.0, 0.35);
/// The same while the API server answers with errors: another connection after 3 s, 6 s, and so on up to 30 s.
const CONNECTIONS_FOR_ERRORS: (f64, f64) = (4.0, 0.04);

/// Limits the use of the API between `before` and `after`. The error says which limit was exceeded.
fn judge_cost(plan: &Plan, took: Duration, before: ApiUsage, after: ApiUsage) -> Result<(), String> {
    let most = |(first, each): (f64, f64)| (first + each * took.as_secs_f64()) as u64;
    let errors_alone = plan.faults.iter().all(|planned| planned.fault.keeps_the_connection());
    let connections = if errors_alone { CONNECTIONS_FOR_ERRORS } else { CONNECTIONS };
    for (what, used, most) in [
        ("requests", after.requests - before.requests, most(REQUESTS)),
        ("connections", after.connections - before.connections, most(connections)),
    ] {
        if used > most {
            return Err(format!("{used} {what} in {:.1} s of faults", took.as_secs_f64()));
        }
    }
    Ok(())
}

impl RunningWorld {
    /// Plays one episode. The error is a violation, with the names of the faults.
    pub(crate) async fn episode(&mut self) -> Result<(), String> {
        let plan = Plan::draw(&mut self.random);
        note!(self.trace, "{plan:?}");
        self.event_every = plan.event_every;
        self.pass(plan.calm).await?;
        self.cluster.network.mark();
        if plan.faults.iter().any(|planned| planned.fault == Rewound) {
            self.cluster.back_up();
        }
        let ended = match self.inject_faults(&plan).await {
            Ok(()) => {
                self.report.episode(&plan);
                self.require_recovery(&plan).await
            }
            broken => broken,
        };
        let faults: Vec<_> = plan.faults.iter().map(|planned| planned.fault.to_string()).collect();
        ended.map_err(|what| format!("{what} ({})", faults.join(" + ")))
    }

    async fn inject_faults(&mut self, plan: &Plan) -> Result<(), String> {
        let began = nodegate_clock::now();
        let before = self.cluster.network.usage();
        let mut edges: Vec<(Duration, bool, &Planned)> = Vec::new();
        for planned in &plan.faults {
            edges.push((planned.from, true, planned));
            if !planned.fault.is_a_moment() {
                edges.push((planned.until, false, planned));
            }
        }
        edges.sort_by_key(|(at, ..)| *at);
        for (at, begins, planned) in edges {
            self.pass((began + at).saturating_duration_since(nodegate_clock::now())).await?;
            if begins {
                self.strike(plan, planned);
            } else {
                self.cluster.end(planned);
                if planned.fault == Starved {
                    self.starve(false);
                }
            }
            self.last_edge = nodegate_clock::now();
        }
        let took = nodegate_clock::now().saturating_duration_since(began);
        judge_cost(plan, took, before, self.cluster.network.usage())
    }

    fn strike(&mut self, plan: &Plan, planned: &Planned) {
        let started = plan.faults.iter().filter(|other| other.from <= planned.from);
        self.bounds = self.bounds(started);
        self.cluster.begin(planned, &mut self.random);
        match planned.fault {
            NodeReplaced if self.cluster.node().exists() == Some(true) => {
                self.perform(&Event::Delete);
                if planned.force < 0.6 {
                    self.perform(&Event::Create);
                }
            }
            Rewound => drop(self.oracle.changed(&self.cluster.node())),
            AgentRestarted => self.restart_agent(),
            Starved => self.starve(true),
            _ => {}
        }
    }

    /// Returns the bounds from the first of these faults until the agent has recovered from all.
    fn bounds<'a>(&self, faults: impl Iterator<Item = &'a Planned>) -> FaultBounds {
        let stale_after = nodegate_readiness::Policy::default().stale_after;
        let mut unseen = Duration::ZERO;
        let faults: Vec<_> = faults.collect();
        let has = |fault| faults.iter().any(|planned| planned.fault == fault);
        if has(Rewound) {
            // A server that was cut off reconnects to the restored etcd: its Leases go on while the Node is of the old history.
            if self.settings.leases && faults.iter().any(|planned| planned.cuts_off()) {
                unseen = NODES_LOST + GRACE;
            }
            // An event of the old history that is late may come after a check of the new one.
            if has(LateEvents) {
                unseen = unseen.max(stale_after + LATE + GRACE);
            }
        }
        for planned in &faults {
            unseen = unseen.max(planned.unseen(stale_after, &self.settings));
        }
        let are = |effect| {
            faults.iter().filter(move |planned| planned.proof_effect(self.cluster.network.address) == effect)
        };
        let blocks = are(ProofEffect::Blocks).next().is_some();
        let disturbances = are(ProofEffect::Disturbs).count();
        let within = recovery(faults.iter().copied());
        // Without the answers to check and list, the last renewal before the missed bookmark counts until it is stale.
        if blocks && self.settings.leases && faults.iter().any(|planned| planned.loses_nodes()) {
            unseen = unseen.max(BOOKMARK_OVERDUE + stale_after + GRACE);
        }
        // A server that was held up sends all at once, one stream after the other: a renewal may come before an event of the
        // Node that is cut or malformed.
        let held_up = |planned: &&Planned| planned.fault == Frozen || planned.cuts_off();
        let overtakes = (has(CutEvents) || has(Malformed)) && faults.iter().any(held_up);
        FaultBounds {
            unseen,
            dates_are_exact: !overtakes && !faults.iter().any(|planned| planned.hides_events()),
            stale_allowed: (blocks || disturbances > 1).then_some(within),
        }
    }

    /// Waits until the agent has shown the latest state. The error says that it took too long.
    async fn require_recovery(&mut self, plan: &Plan) -> Result<(), String> {
        let healed = nodegate_clock::now();
        note!(self.trace, "HEALED");
        self.cluster.network.mark();
        let marker = self.events.marker(&self.cluster.node());
        let wanted = self.perform(&marker);
        let within = recovery(plan.faults.iter());
        let mut within = within.max(self.bounds.unseen);
        let mut may_be_mistaken = plan.faults.iter().any(Planned::loses_nodes);
        let mut next_marker = healed + MARKER_EVERY;
        while !(self.oracle.has_shown(wanted) && self.agent.last_proof() >= Some(healed)) {
            self.pass(Duration::from_millis(50)).await?;
            self.probe()?;
            // A check in this moment finds the absence that the agent may know from earlier, and nothing wrong with the watch.
            if may_be_mistaken && self.cluster.node().facts().is_none() {
                within += BOOKMARK_OVERDUE;
                may_be_mistaken = false;
            }
            let now = nodegate_clock::now();
            self.in_time(plan, healed, now, within)?;
            if now >= next_marker {
                next_marker = now + MARKER_EVERY;
                let marker = self.events.marker(&self.cluster.node());
                self.perform(&marker);
            }
        }
        let took = nodegate_clock::now() - healed;
        note!(self.trace, "RECOVERED after {:.3} s", took.as_secs_f64());
        self.report.recovered(took);
        let stale_after = nodegate_readiness::Policy::default().stale_after;
        let left_alone = plan.faults.iter().any(has_retry_after);
        let retry_after = if left_alone { RETRY_AFTER } else { Duration::ZERO };
        self.aftermath = Aftermath::of(stale_after, retry_after);
        self.bounds = FaultBounds { unseen: FaultBounds::FAIR.unseen, stale_allowed: None, ..self.bounds };
        // A count that no longer changes is right for one number of endpoints by chance, but not for two in a row.
        let mut right_in_a_row = 0;
        while self.settings.service && right_in_a_row < 2 {
            self.write();
            self.pass(MARKER_EVERY).await?;
            let is_right = self.agent.ask_for_service() == Some(self.cluster.endpoints);
            right_in_a_row = if is_right { right_in_a_row + 1 } else { 0 };
            if nodegate_clock::now().saturating_duration_since(healed) > SERVICE_FRESH_AGAIN {
                return Err(format!("the Service is not fresh {SERVICE_FRESH_AGAIN:?} after the last fault"));
            }
        }
        Ok(())
    }

    fn in_time(&self, plan: &Plan, healed: Instant, now: Instant, within: Duration) -> Result<(), String> {
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(healed) > within {
            return Err(format!("not fresh {:.1} s after the last fault", since(healed).as_secs_f64()));
        }
        // A lost change is not noticed at once. Before a `Retry-After` is over, a watch may be resumed, but no check sent.
        let may_wait = self.bounds.unseen > FRESH_AGAIN || plan.faults.iter().any(has_retry_after);
        match self.cluster.network.usage().first_for_nodes {
            Some(first) if !may_wait && since(first) > FRESH_AGAIN => Err(format!(
                "not fresh {:.1} s after the first attempt after the last fault",
                since(first).as_secs_f64()
            )),
            _ => Ok(()),
        }
    }
}
