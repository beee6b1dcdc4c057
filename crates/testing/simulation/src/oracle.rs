//! Says of every answer whether it may have been given; section by section what the contract says of
//! freshness.
//!
//! It knows each state that the Node was ever in, and when. A fresh answer must be that of a state which was
//! true within the last so many seconds (how many, is for the faults to say), and never an older one than the
//! agent has shown to know. A stale one must be what `--on-stale` makes of a state that the agent may have
//! known last, and may be given only where there may have been no proof.

use crate::truth::{ProbeKind, SimulatedAnswer, Truth};
use nodegate_readiness::OnStale;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The ways of asking that are judged.
pub const KINDS: [ProbeKind; 5] = ProbeKind::ALL;
/// States that are remembered: those of the last minutes.
const REMEMBERED: usize = 400;

/// A renewal and a change that were written at the same time may arrive in either order.
const AT_ONCE: Duration = Duration::from_millis(10);

/// What holds for answers for the time being.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// A change may be missed for so long.
    pub unseen: Duration,
    /// There may be no proof.
    pub stale_allowed: bool,
    /// Nothing hides events of the Node while its Lease is renewed.
    pub dates_are_exact: bool,
    /// Who may be believed of a `Ready=Unknown`.
    pub believed: Believed,
}

/// Who may be believed of a Node whose kubelet the control plane no longer hears.
#[derive(Clone, Copy, Debug)]
pub struct Believed {
    /// The control plane: it is not ready.
    pub control_plane: bool,
    /// The kubelet here, which answers.
    pub kubelet: bool,
}

impl Believed {
    /// What the agent has seen of it nobody can say.
    pub const EITHER: Self = Self { control_plane: true, kubelet: true };
}

struct State {
    truth: Truth,
    since: Instant,
    fresh: [SimulatedAnswer; KINDS.len()],
    unconfirmed: [Option<SimulatedAnswer>; KINDS.len()],
    stale: [SimulatedAnswer; KINDS.len()],
}

impl State {
    /// Whether this is what is answered in this state.
    fn may_be(&self, kind: usize, answer: &SimulatedAnswer, believed: Believed) -> bool {
        match &self.unconfirmed[kind] {
            None => self.fresh[kind] == *answer,
            Some(unconfirmed) => {
                (believed.control_plane && self.fresh[kind] == *answer)
                    || (believed.kubelet && unconfirmed == answer)
            }
        }
    }
}

/// Judges answers.
pub struct Oracle {
    on_stale: OnStale,
    states: VecDeque<State>,
    /// The number of the first state that is remembered.
    first: usize,
    /// What the agent says is fresh is this state or a newer one: it has shown that it knows it, or this was
    /// the state when it began, and its first list is consistent.
    shown: usize,
    /// When it has shown that.
    shown_at: VecDeque<(Instant, usize)>,
    /// What it holds as last known is this state or a newer one: its predecessor has shown that, and may have
    /// handed it over.
    handed_over: usize,
    /// The agent has shown nothing yet.
    knows_nothing: bool,
    /// The agent has its predecessor's memory.
    remembers: bool,
}

/// What an agent can't be older than.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// The state when it began: its first list is consistent.
    shown: usize,
    /// The state that its predecessor had shown by then.
    handed_over: usize,
}

/// What an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// What the agent holds true.
    Fresh,
    /// What `--on-stale` makes of what it knew last.
    Stale,
    /// "OK" is said of a Node that is ready, and of one that is not known.
    Either,
}

impl Oracle {
    /// Begins with this state of the Node.
    pub fn new(on_stale: OnStale, truth: &Truth) -> Self {
        let mut oracle = Self {
            on_stale,
            states: VecDeque::new(),
            first: 0,
            shown: 0,
            shown_at: VecDeque::new(),
            handed_over: 0,
            knows_nothing: true,
            remembers: false,
        };
        oracle.changed(truth);
        oracle
    }

    /// Records that the Node is like this from now on, and returns the number of that state.
    pub fn changed(&mut self, truth: &Truth) -> usize {
        if self.states.back().is_none_or(|last| last.truth != *truth) {
            self.states.push_back(State {
                truth: truth.clone(),
                since: nodegate_clock::now(),
                fresh: KINDS.map(|kind| truth.answer(kind)),
                unconfirmed: KINDS.map(|kind| truth.unconfirmed_answer(kind)),
                stale: KINDS.map(|kind| truth.stale_answer(kind, self.on_stale)),
            });
        }
        if self.states.len() > REMEMBERED {
            self.states.pop_front();
            self.first += 1;
        }
        self.first + self.states.len() - 1
    }

    /// Returns what an agent that begins now will know at the least.
    pub(crate) fn beginning(&self) -> Beginning {
        let handed_over = if self.knows_nothing { self.handed_over } else { self.shown };
        Beginning { shown: self.last(), handed_over }
    }

    /// From now on an agent answers that began then, and knows nothing.
    pub(crate) fn restarted(&mut self, beginning: Beginning) {
        let Beginning { shown, handed_over } = beginning;
        (self.shown, self.handed_over, self.knows_nothing, self.remembers) =
            (shown, handed_over, true, false);
        self.shown_at.clear();
    }

    /// A write of the Node, announced by [`Oracle::changed`], is done: the agent's time for it begins.
    pub fn written(&mut self) {
        if let Some(last) = self.states.back_mut() {
            last.since = nodegate_clock::now();
        }
    }

    /// Returns the state that the agent had shown by then: an answer on its way may be overtaken by another.
    fn shown_by(&self, asked: Instant) -> usize {
        match self.shown_at.iter().rposition(|(at, _)| *at <= asked) {
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

    /// It takes over what its predecessor knew.
    pub(crate) fn taken_over(&mut self) {
        self.remembers = true;
    }

    /// Returns true if the agent has shown that it knows this state or a newer one.
    pub fn has_shown(&self, state: usize) -> bool {
        !self.knows_nothing && self.shown >= state
    }

    fn last(&self) -> usize {
        self.first + self.states.len() - 1
    }

    fn state(&self, number: usize) -> &State {
        &self.states[number - self.first]
    }

    /// The oldest state that was true within the last `unseen`.
    fn oldest_allowed(&self, unseen: Duration) -> usize {
        let now = nodegate_clock::now();
        let reaches = |number: &usize| {
            let until = (*number < self.last()).then(|| self.state(number + 1).since);
            until.is_none_or(|until| now.saturating_duration_since(until) <= unseen)
        };
        (self.first..=self.last()).find(reaches).unwrap_or(self.last())
    }

    /// Judges the answer to the kind of this number, asked for at this time. The error says what is wrong.
    pub fn judge(
        &mut self,
        kind: usize,
        answer: &SimulatedAnswer,
        law: Law,
        asked: Instant,
    ) -> Result<Judged, String> {
        let shown = self.shown_by(asked);
        let oldest = shown.max(self.first).max(self.oldest_allowed(law.unseen));
        let is = |number: &usize| self.state(*number).may_be(kind, answer, law.believed);
        let fresh = (oldest..=self.last()).find(is);
        let knows_nothing = self.knows_nothing && !self.remembers;
        let since = if self.knows_nothing && self.remembers { self.handed_over } else { shown };
        let stale = (since.max(self.first)..=self.last())
            .any(|number| self.state(number).stale[kind] == *answer)
            || (knows_nothing && Truth::healthy().stale_answer(KINDS[kind], self.on_stale) == *answer);
        match (fresh, stale) {
            (Some(_), true) => Ok(Judged::Either),
            (Some(number), false) => {
                self.show(number);
                Ok(Judged::Fresh)
            }
            (None, true) if law.stale_allowed => Ok(Judged::Stale),
            (None, true) => Err(format!("stale while proof is to be had: {}", answer.text())),
            (None, false) => Err(self.explain(kind, answer, oldest, law)),
        }
    }

    /// Judges the date of the proof of an answer that is fresh: the state that it shows was true then, or
    /// came later. All but a Node's absence has a version: a Node that was away, was there and is away again
    /// can't be told from one that stayed away.
    pub(crate) fn judge_date(
        &self,
        kind: usize,
        answer: &SimulatedAnswer,
        law: Law,
        proof: Instant,
    ) -> Result<(), String> {
        let is = |number: &usize| self.state(*number).may_be(kind, answer, law.believed);
        let shown = (self.shown.max(self.first)..=self.last()).rev().find(is);
        let shown = shown.filter(|number| !self.between_absences(*number, proof));
        let over = shown.filter(|number| *number < self.last()).map(|number| self.state(number + 1).since);
        match over.map(|over| proof.saturating_duration_since(over)) {
            Some(late) if law.dates_are_exact && late > AT_ONCE => Err(format!(
                "proof is dated {:.3} s after the state that it is of: {}",
                late.as_secs_f64(),
                answer.text()
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if there was no Node before this state, and none at `time`.
    fn between_absences(&self, number: usize, time: Instant) -> bool {
        let then = (self.first..=self.last()).rev().find(|other| self.state(*other).since <= time);
        let absent = |number: usize| !self.state(number).truth.present;
        number > self.first && absent(number - 1) && then.is_some_and(absent)
    }

    fn explain(&self, kind: usize, answer: &SimulatedAnswer, oldest: usize, law: Law) -> String {
        let now = nodegate_clock::now();
        let was = |number: &usize| self.state(*number).may_be(kind, answer, law.believed);
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
        format!("{what}, {:?} allowed: {}", law.unseen, answer.text())
    }
}
