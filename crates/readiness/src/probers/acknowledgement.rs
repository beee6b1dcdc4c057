//! Judges whether the balancers have acknowledged a verdict: [`judge`], over plain data. Everything that shows or uses an
//! acknowledgement shows its value.

use super::history::{ProbeHistory, Standing, takes_out};
use super::{FALL, MAX_INTERVAL, MAX_LISTENING, MIN_LISTENING, RISE};
use crate::check::Verdict;
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A pool change, which the balancers have to acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// The node went out of the pool: it is draining or not ready.
    Out,
    /// The node came back: it is ready.
    Back,
}

impl PoolChange {
    /// Returns the pool change that leads to this verdict.
    pub fn of(verdict: Option<Verdict>) -> Self {
        if verdict.is_some_and(takes_out) { Self::Out } else { Self::Back }
    }
}

/// The conditions under which a prober has acknowledged, by the agent's settings `--ack-fall`, `--ack-rise`,
/// `--ack-interval` and `--ack-probers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckSettings {
    /// The number of answers in a row that take a node out.
    pub fall: u32,
    /// The number of answers in a row that bring it back.
    pub rise: u32,
    /// The interval at which each balancer asks; `null` if the observed interval counts. Several balancers
    /// behind one address look like one that asks more often.
    pub interval_ms: Option<u64>,
    /// The minimum number of regular probers; `null` if one is enough.
    pub probers: Option<usize>,
}

impl Default for AckSettings {
    fn default() -> Self {
        Self { fall: FALL, rise: RISE, interval_ms: None, probers: None }
    }
}

impl AckSettings {
    /// Returns the number of answers in a row for this pool change.
    pub fn times(&self, change: PoolChange) -> u32 {
        match change {
            PoolChange::Out => self.fall,
            PoolChange::Back => self.rise,
        }
    }

    /// Returns the time after which a prober with this interval has acknowledged: its answers in a row, and the probe
    /// after them.
    pub fn time(&self, change: PoolChange, interval: Duration) -> Duration {
        self.interval().unwrap_or(interval).saturating_mul(self.times(change).saturating_add(1))
    }

    fn interval(&self) -> Option<Duration> {
        self.interval_ms.map(Duration::from_millis)
    }
}

/// What the answers to a prober follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProberKind {
    /// The node's verdict.
    Node {
        /// True with `?excluded=200`: the exclusion label alone does not take the node out.
        ignores_label: bool,
    },
    /// The ready endpoints of the Service with this index.
    Service {
        /// Its index in the catalog of the agent's checks and Services.
        index: usize,
        /// True with `?drain=`: a drain of the node changes the answer, too.
        sees_drains: bool,
        /// As of a prober of the node.
        ignores_label: bool,
    },
    /// Nothing that a drain changes: `GET /`, `?check=kubelet`.
    Other,
}

impl ProberKind {
    /// Returns true if a drain of the node changes the answer.
    pub fn sees_drains(self) -> bool {
        matches!(self, Self::Node { .. } | Self::Service { sees_drains: true, .. })
    }

    /// Returns true if its answers are about the subject.
    pub fn is_about(self, of: SubjectKind<'_>) -> bool {
        match of {
            SubjectKind::Node { .. } => self.sees_drains(),
            SubjectKind::Service(service) => matches!(self, Self::Service { index, .. } if index == service),
        }
    }

    /// Returns true if the pool change changes its answer.
    fn must_learn(self, of: SubjectKind<'_>, change: PoolChange) -> bool {
        match (of, change) {
            (SubjectKind::Node { by_label_alone: true, .. }, PoolChange::Out) => !matches!(
                self,
                Self::Node { ignores_label: true } | Self::Service { ignores_label: true, .. }
            ),
            // It gets no other answer while the Service has no endpoint here.
            (SubjectKind::Node { services_out, .. }, PoolChange::Back) => {
                !matches!(self, Self::Service { index, .. } if services_out.contains(&index))
            }
            _ => true,
        }
    }
}

/// The subject of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub enum SubjectKind<'a> {
    /// The node.
    Node {
        /// True if only the exclusion label takes it out.
        by_label_alone: bool,
        /// The indices of the Services without a ready endpoint here.
        services_out: &'a [usize],
        /// True if `--balancers` names the clients that count, so there must be one.
        needs_probers: bool,
    },
    /// The watched Service with this index.
    Service(usize),
}

/// The subject of an acknowledgement, with all that a judgement depends on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The node or a Service.
    pub of: SubjectKind<'a>,
    /// Its verdict; `None` while it has none.
    pub verdict: Option<Verdict>,
    /// True if that verdict may be a guess.
    pub is_stale: bool,
    /// The time since which the agent has recorded every prober.
    pub listening_since: Moment,
    /// True if it started over because there were more probers than it can remember.
    pub is_overflown: bool,
    /// All known probers.
    pub probers: &'a [(ProberKind, ProbeHistory)],
}

/// How far one prober has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckProgress {
    /// The number of answers in a row that agree with the verdict.
    pub had: u32,
    /// The required number: the answers on which it acts, and one more probe.
    pub required: u32,
    /// The time that they have taken.
    pub took: Duration,
    /// The time that they take by the prober's interval.
    pub needs: Duration,
}

impl AckProgress {
    /// Returns true if the prober must have acted on the verdict.
    pub fn is_done(&self) -> bool {
        self.had >= self.required && self.took >= self.needs
    }
}

/// The reason why it is not known whether all probers have acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The agent has no verdict: it does not know which Node is its own.
    Misconfigured,
    /// The agent's verdict may be a guess.
    Stale,
    /// The agent has not listened for long enough to know its probers.
    Listening {
        /// The time that it has listened.
        listened: Duration,
        /// True if it started over because there were more probers than it can remember.
        overflown: bool,
    },
    /// The probers with these indices may be balancers or other clients.
    Undecided(Vec<usize>),
    /// There are fewer regular probers, silent ones included, than required.
    TooFew {
        /// Their number.
        probers: usize,
        /// The required number.
        wanted: usize,
    },
    /// There is no regular prober that has to acknowledge, and none is required: `WaitState::NoProbers`, for which
    /// `nodegate wait` exits with 3.
    NoProbers,
}

/// The word for programs if there is no regular prober.
pub const NO_PROBERS: &str = "no_probers";
/// The word for programs if there are fewer regular probers than required.
pub const TOO_FEW: &str = "too_few";

impl Unknown {
    /// Returns the word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Misconfigured => "misconfigured",
            Self::Stale => "stale",
            Self::Listening { overflown: false, .. } => "listening",
            Self::Listening { overflown: true, .. } => "overflown",
            Self::Undecided(_) => "undecided",
            Self::TooFew { .. } => TOO_FEW,
            Self::NoProbers => NO_PROBERS,
        }
    }
}

/// The judgement of a subject at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The pool change that leads to the present verdict.
    pub change: PoolChange,
    /// Whether all probers have acknowledged it, or why the agent can't know.
    pub acknowledgement: Result<bool, Unknown>,
    /// The probers that have to acknowledge it, by their indices.
    pub awaited: Vec<(usize, AckProgress)>,
    /// The interval of the slowest regular or silent prober, for display: `needs_ms`, `interval_ms`; `None` without one.
    pub slowest: Option<Duration>,
}

impl Judgement {
    /// Returns whether all have acknowledged this pool change; `None` if that is not known.
    pub fn is_acknowledged(&self, change: PoolChange) -> Option<bool> {
        if self.is_guess() {
            None
        } else if change != self.change {
            Some(false)
        } else {
            self.acknowledgement.as_ref().ok().copied()
        }
    }

    /// Returns whether this prober has acknowledged the present verdict; `None` if it need not, or if that is not known.
    pub fn of_prober(&self, index: usize) -> Option<bool> {
        let mut awaited = self.awaited.iter().filter(|_| !self.is_guess());
        awaited.find_map(|(known, progress)| (*known == index).then(|| progress.is_done()))
    }

    /// Returns true if the verdict itself is not known.
    fn is_guess(&self) -> bool {
        matches!(self.acknowledgement, Err(Unknown::Misconfigured | Unknown::Stale))
    }
}

/// Judges a subject as of `now`. Without a regular prober it is never acknowledged.
pub fn judge(subject: &Subject<'_>, settings: &AckSettings, now: Moment) -> Judgement {
    let change = PoolChange::of(subject.verdict);
    let probers = subject.probers.iter().enumerate();
    let about: Vec<_> = probers.filter(|(_, (kind, _))| kind.is_about(subject.of)).collect();
    let waited_for: Vec<_> =
        about.iter().filter(|(_, (_, history))| history.standing(now).is_waited_for()).collect();
    let must_learn = waited_for.iter().filter(|(_, (kind, _))| kind.must_learn(subject.of, change));
    let awaited: Vec<_> =
        must_learn.map(|(index, (_, history))| (*index, history.progress(change, settings, now))).collect();
    let slowest = waited_for.iter().filter_map(|(_, (_, history))| history.interval_to(change, now)).max();
    let undecided =
        about.iter().filter(|(_, (_, history))| history.is_undecided(subject.listening_since, now));
    let undecided: Vec<_> = undecided.map(|(index, _)| *index).collect();
    let listened = now.since(subject.listening_since);
    let needs_one = matches!(subject.of, SubjectKind::Node { needs_probers: true, .. });
    let wanted = settings.probers.unwrap_or(usize::from(needs_one));
    let unknown = if subject.verdict.is_none() {
        Some(Unknown::Misconfigured)
    } else if subject.is_stale {
        Some(Unknown::Stale)
    } else if listened < MIN_LISTENING {
        Some(Unknown::Listening { listened, overflown: subject.is_overflown })
    } else if !undecided.is_empty() {
        Some(Unknown::Undecided(undecided))
    } else if waited_for.len() < wanted {
        Some(Unknown::TooFew { probers: waited_for.len(), wanted })
    } else {
        // On the way back, `awaited` may lack all of them: those of Services that have no endpoint here.
        let is_any = if change == PoolChange::Back { !waited_for.is_empty() } else { !awaited.is_empty() };
        (!is_any).then_some(Unknown::NoProbers)
    };
    let acknowledgement = match unknown {
        Some(unknown) => Err(unknown),
        None => Ok(awaited.iter().all(|(_, progress)| progress.is_done())),
    };
    Judgement { change, acknowledgement, awaited, slowest }
}

impl ProbeHistory {
    /// Returns how far the prober has got with this pool change. It must have had the verdict so often in a row that it
    /// acts on it, and have sent one more probe. All of this must have taken as long as it takes at its interval.
    pub fn progress(&self, change: PoolChange, settings: &AckSettings, now: Moment) -> AckProgress {
        let agrees = takes_out(self.given.verdict) == (change == PoolChange::Out);
        let streak = (self.last.since(self.streak_from), self.streak_needs(change, settings, now));
        // Each of several balancers behind one address needs as long as a balancer that is alone.
        let of_each = settings
            .interval()
            .map(|interval| (now.since(self.streak_possible_from), settings.time(change, interval)));
        let (took, needs) = of_each.filter(|(took, needs)| took < needs).unwrap_or(streak);
        let required = settings.times(change).saturating_add(1);
        AckProgress { had: if agrees { self.in_a_row } else { 0 }, required, took, needs }
    }

    /// Returns the duration that the streak must have.
    ///
    /// By itself, a prober sends its (n + 1)-th probe n + 1 intervals after the probe before the streak. Half an
    /// interval less is enough: its interval may vary by a tenth without costing it another probe. The n-th
    /// answer, on which it acts, was given n intervals after that probe. That is half an interval earlier,
    /// even if other clients sent probes in between.
    ///
    /// A streak without a probe before it needs one interval less.
    fn streak_needs(&self, change: PoolChange, settings: &AckSettings, now: Moment) -> Duration {
        let seen = || self.streak_interval.or_else(|| self.longest_interval(now)).unwrap_or_default();
        let times = settings.times(change).saturating_mul(2);
        let halves =
            if self.streak_interval.is_some() { times.saturating_add(1) } else { times.saturating_sub(1) };
        settings.interval().unwrap_or_else(seen).saturating_mul(halves) / 2
    }

    /// Returns the interval by which the present or the next pool change of this kind is judged; `None` until the
    /// second probe.
    fn interval_to(&self, change: PoolChange, now: Moment) -> Option<Duration> {
        let is_out = takes_out(self.given.verdict) && change == PoolChange::Out;
        self.longest_interval(now).max(self.streak_interval.filter(|_| is_out))
    }

    /// Returns true if its first probe came while the agent could not tell a balancer from another client, and it
    /// may still turn out to be a balancer.
    fn is_undecided(&self, listening_since: Moment, now: Moment) -> bool {
        self.standing(now) == Standing::Occasional
            && now.since(listening_since) < MAX_LISTENING
            && self.first.since(listening_since) <= MIN_LISTENING
            && now.since(self.last) <= MAX_INTERVAL
    }
}
