//! An episode: calm, then faults that overlap, then all is healed and the agent must show that it knows.

use crate::agent::Restart;
use crate::cost;
use crate::events::Event;
use crate::fault::SimulatedFault;
use crate::law::{Aftermath, BOOKMARK_OVERDUE, GRACE, Laws, NODES_LOST, Weight};
use crate::plan::Plan;
use crate::planned::Planned;
use crate::trace::note;
use crate::world::RunningWorld;
use std::time::{Duration, Instant};

/// Fresh within this time of the first attempt after the last fault.
const FRESH_AGAIN: Duration = Duration::from_secs(16);
/// Attempts for the Node back off to this, and one that was under way when all was healed may take as long as
/// a list may.
const FIRST_ATTEMPT: Duration = Duration::from_secs(16);
/// `Retry-After` is honoured up to 30 s, and up to a quarter more is added by chance.
const RETRY_AFTER: Duration = Duration::from_millis(37_500);
/// A list of the Node revives no Service that is stale: the consistency check does, which is due 85 s after
/// that at the latest.
const SERVICE_FRESH_AGAIN: Duration = Duration::from_secs(130);
/// How often the Node changes while the agent is to show that it sees it.
const MARKER_EVERY: Duration = Duration::from_secs(1);

/// The agent is fresh again within this time once proof is to be had.
fn recovery<'a>(mut faults: impl Iterator<Item = &'a Planned>) -> Duration {
    let asks_for_it =
        |planned: &Planned| matches!(planned.fault, SimulatedFault::Throttled | SimulatedFault::Refusals);
    let first_attempt = if faults.any(asks_for_it) { RETRY_AFTER } else { FIRST_ATTEMPT };
    first_attempt + FRESH_AGAIN
}

fn restart(force: f64) -> Restart {
    if force < 0.4 { Restart::Replaced } else { Restart::Crash { remembers: force < 0.8 } }
}

impl RunningWorld {
    pub(crate) async fn episode(&mut self) -> Result<(), String> {
        let plan = Plan::draw(&mut self.random);
        note!(self.trace, "{plan:?}");
        self.event_every = plan.event_every;
        self.pass(plan.calm).await?;
        if plan.silence {
            self.kubelet_cut_off().await?;
        }
        self.site.network.mark();
        if plan.faults.iter().any(|planned| planned.fault == SimulatedFault::Rewound) {
            self.site.back_up();
            self.truth_of_backup = self.truth.clone();
        }
        let ended = match self.break_it(&plan).await {
            Ok(()) => {
                self.report.episode(&plan);
                self.demand(&plan).await
            }
            broken => broken,
        };
        let faults: Vec<_> = plan.faults.iter().map(|planned| planned.fault.name()).collect();
        ended.map_err(|what| format!("{what} ({})", faults.join(" + ")))
    }

    async fn break_it(&mut self, plan: &Plan) -> Result<(), String> {
        let began = nodegate_clock::now();
        let before = self.site.network.asked();
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
                self.site.end(planned);
                if planned.fault == SimulatedFault::Starved {
                    self.starve(false);
                }
            }
            self.last_edge = nodegate_clock::now();
        }
        let took = nodegate_clock::now().saturating_duration_since(began);
        cost::judge(plan, took, before, self.site.network.asked())
    }

    fn strike(&mut self, plan: &Plan, planned: &Planned) {
        let begun = plan.faults.iter().filter(|other| other.from <= planned.from);
        self.law = self.law(begun);
        self.site.begin(planned, &mut self.random);
        match planned.fault {
            SimulatedFault::NodeReplaced if self.truth.present => {
                self.perform(&Event::Delete);
                if planned.force < 0.6 {
                    self.perform(&Event::Create);
                }
            }
            SimulatedFault::Rewound => {
                self.truth = self.truth_of_backup.clone();
                self.oracle.changed(&self.truth);
                // Right away: by the next turn it may have changed again.
                self.services.changed(self.site.endpoints);
            }
            SimulatedFault::AgentRestarted => self.restart_agent(restart(planned.force)),
            SimulatedFault::Starved => self.starve(true),
            _ => {}
        }
    }

    /// What holds from the first of these faults on, until the agent has shown that it is over all of them.
    fn law<'a>(&self, faults: impl Iterator<Item = &'a Planned>) -> Laws {
        let stale_after = nodegate_readiness::Policy::default().stale_after;
        let (mut unseen, mut service_unseen) = (Duration::ZERO, Duration::ZERO);
        let faults: Vec<_> = faults.collect();
        let has = |fault| faults.iter().any(|planned| planned.fault == fault);
        // Mended alone, the Leases go on while the Nodes' events are of a history that is over.
        if self.shape.leases && has(SimulatedFault::Rewound) && has(SimulatedFault::LeaseMemberLost) {
            unseen = NODES_LOST + Duration::from_secs(1);
        }
        for planned in &faults {
            unseen = unseen.max(planned.unseen(stale_after, &self.shape));
            service_unseen = service_unseen.max(planned.service_unseen(stale_after, &self.shape));
        }
        let are = |weight| {
            faults.iter().filter(move |planned| planned.weight(self.site.network.address()) == weight)
        };
        let blocks = are(Weight::Blocks).next().is_some();
        let disturbances = are(Weight::Disturbs).count();
        // Until the last block ends nothing can tell that a Service's stream is lost, and the answers are stale.
        if service_unseen > stale_after + GRACE {
            let first = are(Weight::Blocks).map(|planned| planned.from).min().unwrap_or_default();
            let last = are(Weight::Blocks).map(|planned| planned.until).max().unwrap_or_default();
            service_unseen += last.saturating_sub(first);
        }
        let patience = recovery(faults.iter().copied());
        let stale = blocks || disturbances > 1;
        // The bound for a lost stream has an answer to the check, and to the list after it. Without them the
        // last renewal that came before its bookmark was missed counts, until it is older than
        // `--stale-after`.
        if blocks && self.shape.leases && faults.iter().any(|planned| planned.loses_nodes()) {
            unseen = unseen.max(BOOKMARK_OVERDUE + stale_after + GRACE);
        }
        Laws {
            unseen,
            dates_are_exact: !faults.iter().any(|planned| planned.hides_events()),
            service_unseen,
            stale_allowed: stale.then_some(patience),
            service_stale_allowed: stale,
        }
    }

    /// All is well again: the agent has so long to show it.
    async fn demand(&mut self, plan: &Plan) -> Result<(), String> {
        let healed = nodegate_clock::now();
        note!(self.trace, "HEALED");
        self.site.network.mark();
        let marker = self.events.marker(&self.truth);
        let wanted = self.perform(&marker);
        let patience = recovery(plan.faults.iter());
        let patience = patience.max(self.law.unseen);
        let mut next_marker = healed + MARKER_EVERY;
        self.write();
        let endpoints = self.services.changed(self.site.endpoints);
        while !(self.oracle.has_shown(wanted) && self.agent.has_proof_since(healed)) {
            self.pass(Duration::from_millis(50)).await?;
            // More questions than its own would change the balancer's pace, by which a forger is told from
            // it.
            if !self.shape.strangers.forge() {
                self.probe()?;
            }
            let now = nodegate_clock::now();
            self.in_time(healed, now, patience)?;
            if now >= next_marker {
                next_marker = now + MARKER_EVERY;
                let marker = self.events.marker(&self.truth);
                self.perform(&marker);
            }
        }
        let took = nodegate_clock::now() - healed;
        note!(self.trace, "RECOVERED after {:.3} s", took.as_secs_f64());
        self.report.recovered(took);
        let stale_after = nodegate_readiness::Policy::default().stale_after;
        self.aftermath = Aftermath::of(stale_after, self.law.service_unseen);
        self.law = Laws { unseen: Laws::FAIR.unseen, stale_allowed: None, ..self.law };
        while self.shape.service && !self.services.may_have_shown(endpoints) {
            self.pass(MARKER_EVERY).await?;
            if nodegate_clock::now().saturating_duration_since(healed) > SERVICE_FRESH_AGAIN {
                return Err(format!("the Service is not fresh {SERVICE_FRESH_AGAIN:?} after the last fault"));
            }
        }
        Ok(())
    }

    fn in_time(&self, healed: Instant, now: Instant, patience: Duration) -> Result<(), String> {
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(healed) > patience {
            return Err(format!("not fresh {:.1} s after the last fault", since(healed).as_secs_f64()));
        }
        // One that was lost by a stream that goes on is not looked for at once.
        let lost = self.law.unseen > FRESH_AGAIN;
        match self.site.network.asked().first_for_nodes {
            Some(first) if !lost && since(first) > FRESH_AGAIN => Err(format!(
                "not fresh {:.1} s after the first attempt after the last fault",
                since(first).as_secs_f64()
            )),
            _ => Ok(()),
        }
    }
}
