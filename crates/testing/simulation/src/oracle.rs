//! Judges every answer by the contract's rules for freshness. `world.rs` calls it.

// A fresh answer must match a state that was true within the bound of the active faults, and none older than the agent has
// shown. A stale answer must be what `--on-stale` makes of a state that the agent may have known last, and is allowed only
// if proof may have been unavailable.

use bytes::Bytes;
use nodegate_readiness::{CheckReport, Node, Policy, Reply};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum number of states, which covers the last minutes.
const REMEMBERED: usize = 400;

/// The time within which a renewal and a change count as simultaneous: they may arrive in either order.
const AT_ONCE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeKind {
    pub(crate) request: &'static str,
    drain: Option<u16>,
    /// True if the check `custom_conditions` is named, too.
    conditions: bool,
}

/// All kinds of probe requests. No node of the simulation has the exclusion label.
pub(crate) const KINDS: [ProbeKind; 3] = [
    ProbeKind { request: "/health", drain: None, conditions: false },
    ProbeKind { request: "/health?drain=404&excluded=200", drain: Some(404), conditions: false },
    ProbeKind { request: "/health?check=node_ready,custom_conditions", drain: None, conditions: true },
];

/// Returns the right answers for a fresh or a stale cache with this Node, by the agent's own rules, which have own tests.
pub(crate) fn answers(policy: &Policy, node: &Node, stale: bool) -> [SimulatedAnswer; KINDS.len()] {
    KINDS.map(|kind| {
        let report = |name, outcome| CheckReport::from_memory(name, outcome, stale);
        let mut reports = vec![report("node_ready", policy.node_ready(node, stale))];
        if kind.conditions {
            reports.push(report("custom_conditions", policy.custom_conditions(node, stale)));
        }
        let reply = Reply::render(&reports, kind.drain);
        SimulatedAnswer { status: reply.status, body: reply.body }
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedAnswer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl SimulatedAnswer {
    /// Returns true if the answer takes the node out of a load balancer's pool.
    pub(crate) fn takes_out(&self) -> bool {
        self.status != 200
    }

    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerBounds {
    /// The time for which the answer may miss a change.
    pub(crate) unseen: Duration,
    pub(crate) stale_allowed: bool,
    /// True if no fault hides events of the Node while its Lease is renewed.
    pub(crate) dates_are_exact: bool,
}

struct State {
    present: bool,
    since: Instant,
    fresh: [SimulatedAnswer; KINDS.len()],
    stale: [SimulatedAnswer; KINDS.len()],
}

pub(crate) struct Oracle {
    policy: Policy,
    states: VecDeque<State>,
    /// The number of the first state in `states`.
    first: usize,
    /// The oldest state that a fresh answer may have: the agent has shown it, or started in it.
    shown: usize,
    shown_at: VecDeque<(Instant, usize)>,
    knows_nothing: bool,
    /// The last proof when the answers became stale.
    outdated: Option<LastProof>,
}

/// The date of the last proof, or `None` before the first one.
#[derive(Clone, Copy)]
struct LastProof(Option<Instant>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Fresh,
    /// The answer is stale: what `--on-stale` makes of the last known facts.
    Stale,
    /// The answer, for example "OK", may be fresh or stale.
    Either,
}

impl Oracle {
    /// Returns an oracle whose first state is `node`.
    pub(crate) fn new(policy: Policy, node: &Node) -> Self {
        let mut oracle = Self {
            policy,
            states: VecDeque::new(),
            first: 0,
            shown: 0,
            shown_at: VecDeque::new(),
            knows_nothing: true,
            outdated: None,
        };
        oracle.changed(node);
        oracle
    }

    /// Records a new state of the Node, and returns its number. It is the last one if no answer differs.
    pub(crate) fn changed(&mut self, node: &Node) -> usize {
        let [fresh, stale] = [false, true].map(|stale| answers(&self.policy, node, stale));
        if self.states.back().is_none_or(|last| (&last.fresh, &last.stale) != (&fresh, &stale)) {
            let (present, since) = (node.facts().is_some(), nodegate_clock::now());
            self.states.push_back(State { present, since, fresh, stale });
        }
        if self.states.len() > REMEMBERED {
            self.states.pop_front();
            self.first += 1;
        }
        self.first + self.states.len() - 1
    }

    /// Records that another agent answers, which starts now, knows nothing, and has a consistent first list.
    pub(crate) fn restarted(&mut self) {
        (self.shown, self.knows_nothing, self.outdated) = (self.last(), true, None);
        self.shown_at.clear();
    }

    /// Returns the state that the agent had shown by then.
    fn shown_by(&self, then: Instant) -> usize {
        match self.shown_at.iter().rposition(|(at, _)| *at <= then) {
            Some(found) => self.shown_at[found].1,
            None if self.shown_at.is_empty() => self.shown,
            None => self.first,
        }
    }

    fn show(&mut self, number: usize) {
        if self.shown_at.back().is_none_or(|(_, last)| *last < number) {
            self.shown_at.push_back((nodegate_clock::now(), number));
        }
        if self.shown_at.len() > REMEMBERED {
            self.shown_at.pop_front();
        }
        (self.shown, self.knows_nothing) = (self.shown.max(number), false);
    }

    /// Returns true if the agent has shown that it knows this state or a newer one. An absent Node shows nothing.
    pub(crate) fn has_shown(&self, state: usize) -> bool {
        !self.knows_nothing && self.shown >= state && self.state(self.shown.max(self.first)).present
    }

    fn last(&self) -> usize {
        self.first + self.states.len() - 1
    }

    fn state(&self, number: usize) -> &State {
        &self.states[number - self.first]
    }

    /// Returns the oldest state that was true within the last `unseen`.
    fn oldest_allowed(&self, unseen: Duration) -> usize {
        let now = nodegate_clock::now();
        let reaches = |number: &usize| {
            let until = (*number < self.last()).then(|| self.state(number + 1).since);
            until.is_none_or(|until| now.saturating_duration_since(until) <= unseen)
        };
        (self.first..=self.last()).find(reaches).unwrap_or(self.last())
    }

    /// Judges the answer to a probe of this kind. The error says what is wrong.
    pub(crate) fn judge(
        &mut self,
        kind: usize,
        answer: &SimulatedAnswer,
        bounds: AnswerBounds,
    ) -> Result<Judged, String> {
        let oldest = self.shown.max(self.first).max(self.oldest_allowed(bounds.unseen));
        let is = |number: &usize| self.state(*number).fresh[kind] == *answer;
        let fresh = (oldest..=self.last()).find(is);
        let mut known = self.shown.max(self.first)..=self.last();
        let stale = known.any(|number| self.state(number).stale[kind] == *answer)
            || (self.knows_nothing && answers(&self.policy, &Node::Unknown, true)[kind] == *answer);
        match (fresh, stale) {
            (Some(_), true) => Ok(Judged::Either),
            (Some(number), false) => {
                self.show(number);
                Ok(Judged::Fresh)
            }
            (None, true) if bounds.stale_allowed => Ok(Judged::Stale),
            (None, true) => Err(format!("stale while proof is available: {}", answer.text())),
            (None, false) => Err(self.explain(kind, answer, oldest, bounds)),
        }
    }

    /// Judges how the Node became fresh again: by a consistent read that was sent after its last `proof`.
    pub(crate) fn judge_proof(
        &mut self,
        judged: Judged,
        proof: Option<Instant>,
        read: Option<Instant>,
    ) -> Result<(), String> {
        match judged {
            Judged::Stale => self.outdated = self.outdated.or(Some(LastProof(proof))),
            Judged::Either => {}
            Judged::Fresh => {
                if self.outdated.take().is_some_and(|LastProof(proof)| read <= proof) {
                    return Err("revived without a consistent read".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Judges the date of the proof of a fresh answer: its state was true then, or came later. An absent Node
    /// has no version, so a Node that came back and went again looks like one that stayed absent.
    pub(crate) fn judge_date(
        &self,
        kind: usize,
        answer: &SimulatedAnswer,
        bounds: AnswerBounds,
        proof: Instant,
    ) -> Result<(), String> {
        let is = |number: &usize| self.state(*number).fresh[kind] == *answer;
        let shown = (self.shown.max(self.first)..=self.last()).rev().find(is);
        let shown = shown.filter(|number| !self.absence_was_proved(*number, proof));
        let over = shown.filter(|number| *number < self.last()).map(|number| self.state(number + 1).since);
        match over.map(|over| proof.saturating_duration_since(over)) {
            Some(late) if bounds.dates_are_exact && late > AT_ONCE => Err(format!(
                "proof is dated {:.3} s after the end of the state that it proves: {}",
                late.as_secs_f64(),
                answer.text()
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if the proof may be of the absence before this state: nothing later was shown by then.
    fn absence_was_proved(&self, number: usize, proof: Instant) -> bool {
        let absent = |number: &usize| !self.state(*number).present;
        let before = (self.first..number).rev().find(absent);
        let then = (self.first..=self.last()).rev().find(|other| self.state(*other).since <= proof);
        before.is_some_and(|before| self.shown_by(proof) <= before) && then.is_some_and(|then| absent(&then))
    }

    fn explain(&self, kind: usize, answer: &SimulatedAnswer, oldest: usize, bounds: AnswerBounds) -> String {
        let now = nodegate_clock::now();
        let was = |number: &usize| self.state(*number).fresh[kind] == *answer;
        let then = (self.first..oldest).rev().find(was);
        let what = match then {
            Some(number) if number < self.shown && !self.knows_nothing => {
                "fresh, and older than what it has shown".to_owned()
            }
            Some(number) => {
                let over = self.state(number + 1).since;
                format!("fresh and wrong for {:.1} s", now.saturating_duration_since(over).as_secs_f64())
            }
            None => "never true".to_owned(),
        };
        format!("{what}, {:?} allowed: {}", bounds.unseen, answer.text())
    }
}
