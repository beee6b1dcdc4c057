//! The agents of a world, one after the other: each gets its turns or not, opens its ports, and has a
//! successor.

use crate::agent::Restart;
use crate::balancer::Balancer;
use crate::proof::ProofOracle;
use crate::second::Second;
use crate::trace::note;
use crate::world::{RunningWorld, Successor};
use std::time::Duration;

/// An agent that gets its turns again has said so everywhere within this time.
const FED: Duration = Duration::from_millis(100);

impl RunningWorld {
    /// An agent without turns, or with the first ones after a while, need not be well.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        let (starved, since) = self.starved;
        let fed_for = nodegate_clock::now().saturating_duration_since(since);
        if starved || fed_for < FED { Ok(()) } else { self.agent.is_well() }
    }

    /// Lets the agent answer from when it listens. Returns whether one does.
    pub(crate) fn opens(&mut self) -> Result<bool, String> {
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
            self.second.iter_mut().for_each(Second::restarted);
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

    /// From now on the agent's tasks get no turn, or do again.
    pub(crate) fn starve(&mut self, starved: bool) {
        self.starved = (starved, nodegate_clock::now());
        self.agent.starve(starved);
        self.successor.iter().for_each(|next| next.agent.starve(starved));
    }

    /// Another agent begins where this one was, or beside it.
    pub(crate) fn restart_agent(&mut self, restart: Restart) {
        note!(self.trace, "{restart:?}");
        let agent = self.agent.successor(&self.shape, &self.site.network, &self.trace, restart);
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
