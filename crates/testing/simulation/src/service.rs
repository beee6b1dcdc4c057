//! Judges what the agent says of a watched Service: how many of its endpoints on the node are ready.

use crate::oracle::{Judged, Law};
use nodegate_readiness::OnStale;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Counts that are remembered: those of the last minutes.
const REMEMBERED: usize = 1500;

/// What the agent answers about the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAnswer {
    /// `localEndpoints` of `/services/<namespace>/<name>`.
    pub(crate) local_endpoints: usize,
    /// Whether its check passed, and whether that was called stale.
    pub(crate) passed: bool,
    pub(crate) stale: bool,
}

/// What an agent can't be older than: the count when it began, and that which its predecessor had shown by
/// then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceBeginning {
    shown: usize,
    handed_over: Option<usize>,
}

/// Each number of endpoints that the Service ever had on the node, and since when.
pub(crate) struct ServiceOracle {
    on_stale: OnStale,
    counts: VecDeque<(usize, Instant)>,
    /// The number of the first count that is remembered.
    first: usize,
    /// What the agent says is fresh is this count or a newer one.
    shown: usize,
    /// The newest count that it may have meant: numbers of endpoints repeat themselves.
    may_have_shown: usize,
    /// What its predecessor may have handed over is this count or a newer one.
    handed_over: Option<usize>,
    /// The agent has shown that it has heard of the Service.
    knows: bool,
    /// The agent has its predecessor's memory.
    remembers: bool,
}

impl ServiceOracle {
    pub(crate) fn new(on_stale: OnStale) -> Self {
        let counts = VecDeque::from([(0, nodegate_clock::now())]);
        Self {
            on_stale,
            counts,
            first: 0,
            shown: 0,
            may_have_shown: 0,
            handed_over: None,
            knows: false,
            remembers: false,
        }
    }

    /// The Service has so many endpoints on the node from now on. Returns the number of that count.
    pub(crate) fn changed(&mut self, count: usize) -> usize {
        if self.counts.back().is_none_or(|(last, _)| *last != count) {
            self.counts.push_back((count, nodegate_clock::now()));
        }
        if self.counts.len() > REMEMBERED {
            self.counts.pop_front();
            self.first += 1;
        }
        self.last()
    }

    fn last(&self) -> usize {
        self.first + self.counts.len() - 1
    }

    /// Returns what an agent that begins now will know at the least.
    pub(crate) fn beginning(&self) -> ServiceBeginning {
        let handed_over =
            if self.knows { Some(self.shown) } else { self.handed_over.filter(|_| self.remembers) };
        ServiceBeginning { shown: self.last(), handed_over }
    }

    /// From now on an agent answers that began then, and whose first list is consistent.
    pub(crate) fn restarted(&mut self, beginning: ServiceBeginning) {
        let ServiceBeginning { shown, handed_over } = beginning;
        (self.shown, self.handed_over, self.knows, self.remembers) = (shown, handed_over, false, false);
        self.may_have_shown = shown;
    }

    /// It takes over what its predecessor knew.
    pub(crate) fn taken_over(&mut self) {
        self.remembers = true;
    }

    /// Returns true if the agent may have shown this count or a newer one.
    pub(crate) fn may_have_shown(&self, number: usize) -> bool {
        self.knows && self.may_have_shown >= number
    }

    /// The oldest count that was true within the last `unseen`.
    fn oldest_allowed(&self, unseen: Duration) -> usize {
        let now = nodegate_clock::now();
        let over = |number: usize| self.counts.get(number + 1 - self.first).map(|(_, since)| *since);
        let reaches =
            |number: &usize| over(*number).is_none_or(|over| now.saturating_duration_since(over) <= unseen);
        (self.first..=self.last()).find(reaches).unwrap_or(self.last())
    }

    pub(crate) fn judge(&mut self, answer: ServiceAnswer, law: Law) -> Result<Judged, String> {
        let handed_over = self.handed_over.filter(|_| self.remembers && !self.knows);
        let known = handed_over.filter(|_| answer.stale).unwrap_or(self.shown).max(self.first);
        let oldest = if answer.stale { known } else { known.max(self.oldest_allowed(law.unseen)) };
        let is = |number: &usize| self.counts[number - self.first].0 == answer.local_endpoints;
        let found = (oldest..=self.last()).find(is);
        let newest = (oldest..=self.last()).rev().find(is);
        let guess = match self.on_stale {
            // The Node may be stale while the Service is not: then the number is the one that is known.
            OnStale::NotReady => !answer.passed && (answer.local_endpoints == 0 || found.is_some()),
            _ => found.is_some() || (!self.knows && handed_over.is_none() && answer.local_endpoints == 1),
        };
        if !answer.stale && answer.passed != (answer.local_endpoints > 0) {
            return Err(format!("two answers about one Service: {answer:?}"));
        }
        match (answer.stale, found) {
            (false, Some(number)) => {
                (self.shown, self.knows) = (number, true);
                self.may_have_shown = newest.unwrap_or(number);
                Ok(Judged::Fresh)
            }
            (true, _) if guess && law.stale_allowed => Ok(Judged::Stale),
            (true, _) if guess => Err("a Service is stale while proof is to be had".to_owned()),
            _ => Err(self.explain(answer, law)),
        }
    }

    fn explain(&self, answer: ServiceAnswer, law: Law) -> String {
        let now = nodegate_clock::now();
        let then = (self.first..self.last())
            .rev()
            .find(|number| self.counts[number - self.first].0 == answer.local_endpoints);
        let over = then.map(|number| now.saturating_duration_since(self.counts[number + 1 - self.first].1));
        let what = match (answer.stale, then, over) {
            (false, Some(number), _) if number < self.shown => {
                "a Service is fresh, and older than what the agent has shown".to_owned()
            }
            (false, _, Some(over)) => format!("a Service is fresh and wrong for {:.1} s", over.as_secs_f64()),
            (false, ..) => "a Service is fresh, and never was like this".to_owned(),
            (true, ..) => "a Service is stale, and not what was last known".to_owned(),
        };
        format!("{what}, {:?} allowed: {answer:?}", law.unseen)
    }
}
