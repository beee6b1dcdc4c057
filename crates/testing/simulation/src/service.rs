//! Judges the agent's answers about a watched Service: the number of its ready endpoints on the node.
//! `world.rs` calls it.

use crate::oracle::{AnswerBounds, Judged};
use nodegate_readiness::OnStale;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum number of counts, which covers the last minutes.
const REMEMBERED: usize = 1500;

/// The agent's answer about the Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAnswer {
    /// The field `localEndpoints` of `/services/<namespace>/<name>`.
    pub(crate) local_endpoints: usize,
    /// True if its check passed.
    pub(crate) passed: bool,
    /// True if that result is marked as stale.
    pub(crate) stale: bool,
}

/// The oldest counts that a new agent may show: the count when it started, and the one that its predecessor
/// had shown by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceBeginning {
    shown: usize,
    handed_over: Option<usize>,
}

/// The judge of answers about the Service. It knows each number of endpoints on the node, and its time.
pub(crate) struct ServiceOracle {
    on_stale: OnStale,
    counts: VecDeque<(usize, Instant)>,
    /// The number of the first count in `counts`.
    first: usize,
    /// The oldest count that a fresh answer may have.
    shown: usize,
    /// The newest count that an answer may have meant: numbers of endpoints repeat.
    may_have_shown: usize,
    /// The oldest count that its predecessor may have handed over.
    handed_over: Option<usize>,
    /// True if the agent has given a fresh answer about the Service.
    knows: bool,
    /// True if the agent has its predecessor's facts.
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

    /// Records a new number of endpoints on the node. Returns the number of that count.
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

    /// Returns the oldest counts that an agent may show that starts now.
    pub(crate) fn beginning(&self) -> ServiceBeginning {
        let handed_over =
            if self.knows { Some(self.shown) } else { self.handed_over.filter(|_| self.remembers) };
        ServiceBeginning { shown: self.last(), handed_over }
    }

    /// Records that another agent answers, which started then and whose first list is consistent.
    pub(crate) fn restarted(&mut self, beginning: ServiceBeginning) {
        let ServiceBeginning { shown, handed_over } = beginning;
        (self.shown, self.handed_over, self.knows, self.remembers) = (shown, handed_over, false, false);
        self.may_have_shown = shown;
    }

    /// Records that the agent has taken over its predecessor's facts.
    pub(crate) fn taken_over(&mut self) {
        self.remembers = true;
    }

    /// Returns true if the agent may have shown this count or a newer one.
    pub(crate) fn may_have_shown(&self, number: usize) -> bool {
        self.knows && self.may_have_shown >= number
    }

    /// Returns the oldest count that was true within the last `unseen`.
    fn oldest_allowed(&self, unseen: Duration) -> usize {
        let now = nodegate_clock::now();
        let over = |number: usize| self.counts.get(number + 1 - self.first).map(|(_, since)| *since);
        let reaches =
            |number: &usize| over(*number).is_none_or(|over| now.saturating_duration_since(over) <= unseen);
        (self.first..=self.last()).find(reaches).unwrap_or(self.last())
    }

    pub(crate) fn judge(&mut self, answer: ServiceAnswer, bounds: AnswerBounds) -> Result<Judged, String> {
        let handed_over = self.handed_over.filter(|_| self.remembers && !self.knows);
        let known = handed_over.filter(|_| answer.stale).unwrap_or(self.shown).max(self.first);
        let oldest = if answer.stale { known } else { known.max(self.oldest_allowed(bounds.unseen)) };
        let is = |number: &usize| self.counts[number - self.first].0 == answer.local_endpoints;
        let found = (oldest..=self.last()).find(is);
        let newest = (oldest..=self.last()).rev().find(is);
        let guess = match self.on_stale {
            // If the Node is stale and the Service is not, the number is the known one.
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
            (true, _) if guess && bounds.stale_allowed => Ok(Judged::Stale),
            (true, _) if guess => Err("a Service is stale while proof is available".to_owned()),
            _ => Err(self.explain(answer, bounds)),
        }
    }

    fn explain(&self, answer: ServiceAnswer, bounds: AnswerBounds) -> String {
        let now = nodegate_clock::now();
        let then = (self.first..self.last())
            .rev()
            .find(|number| self.counts[number - self.first].0 == answer.local_endpoints);
        let over = then.map(|number| now.saturating_duration_since(self.counts[number + 1 - self.first].1));
        let what = match (answer.stale, then, over) {
            (false, Some(number), _) if number < self.shown => {
                "a Service is fresh, and older than the count that the agent has shown".to_owned()
            }
            (false, _, Some(over)) => format!("a Service is fresh and wrong for {:.1} s", over.as_secs_f64()),
            (false, ..) => "a Service is fresh, and never was like this".to_owned(),
            (true, ..) => "a Service is stale, and differs from the last known count".to_owned(),
        };
        format!("{what}, {:?} allowed: {answer:?}", bounds.unseen)
    }
}
