//! Replaces the agents of a world: starves, opens and restarts them. `world.rs` and `episode.rs` call it.

use crate::agent::Restart;
use crate::balancer::Balancer;
use crate::proof::ProofOracle;
use crate::trace::note;
use crate::world::{RunningWorld, Successor};
use std::time::Duration;

/// The time that an agent has after starvation until its state must be consistent.
const SETTLED: Duration = Duration::from_millis(100);

impl RunningWorld {
    /// Checks the agent. A starved agent, or one that was starved until just now, passes always.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        let (starved, since) = self.starved;
        let settled_for = nodegate_clock::now().saturating_duration_since(since);
        if starved || settled_for < SETTLED { Ok(()) } else { self.agent.is_well() }
    }

    /// Lets the current agent answer once it listens, and replaces it by a successor that listens. Returns
    /// true if an agent listens.
    pub(crate) fn update_listener(&mut self) -> Result<bool, String> {
        let mut asked_before = None;
        if let Some(next) = self.successor.take_if(|next| next.agent.opened().is_some()) {
            note!(self.trace, "the successor listens");
            self.report.transitions(&self.agent.transitions());
            self.report.replaced += 1;
            if let Some(opened) = next.agent.opened() {
                next.agent.opens_in_time(opened, Some(&self.agent).filter(|_| self.listens))?;
            }
            self.agent = next.agent;
            self.oracle.restarted(next.beginning);
            self.services.restarted(next.service_beginning);
            self.proof = ProofOracle::default();
            asked_before = self.listens.then_some(self.balancer.known_since());
            self.listens = false;
        }
        if let Some(opened) = self.agent.opened().filter(|_| !self.listens) {
            self.agent.opens_in_time(opened, None)?;
            self.listens = true;
            self.balancer = Balancer::new(opened, asked_before);
            self.takes_over();
        }
        Ok(self.listens)
    }

    fn takes_over(&mut self) {
        if self.agent.has_only_taken_over() {
            note!(self.trace, "the agent has taken over what its predecessor knew");
            self.oracle.taken_over();
            self.services.taken_over();
        }
    }

    /// Sets whether the agents' tasks get CPU time.
    pub(crate) fn starve(&mut self, starved: bool) {
        self.starved = (starved, nodegate_clock::now());
        self.agent.starve(starved);
        self.successor.iter().for_each(|next| next.agent.starve(starved));
    }

    /// Starts another agent, in place of this one or beside it.
    pub(crate) fn restart_agent(&mut self, restart: Restart) {
        note!(self.trace, "{restart:?}");
        let agent = self.agent.successor(&self.settings, &self.cluster.network, &self.trace, restart);
        let (beginning, service_beginning) = (self.oracle.beginning(), self.services.beginning());
        self.successor = None;
        if restart == Restart::Replaced {
            self.successor = Some(Successor { agent, beginning, service_beginning });
            return;
        }
        self.report.transitions(&self.agent.transitions());
        self.agent = agent;
        self.oracle.restarted(beginning);
        self.services.restarted(service_beginning);
        self.proof = ProofOracle::default();
        self.listens = false;
    }
}
