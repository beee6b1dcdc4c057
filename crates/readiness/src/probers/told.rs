//! Decides whether all regular probers are told.

use super::asked::{Standing, takes_out};
use super::record::{ProberRecord, millis};
use super::{FALL, LISTENS_FOR, RISE};
use crate::age::Age;
use crate::check::Verdict;
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A change that balancers are to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// The node went out of the pool: it is draining or not ready.
    Out,
    /// It came back.
    Ready,
}

impl PoolChange {
    /// Returns the one that brought this verdict.
    pub fn of(verdict: Option<Verdict>) -> Self {
        if verdict.is_some_and(takes_out) { Self::Out } else { Self::Ready }
    }
}

/// What must have happened for a prober to count as told, by the agent's settings `--told-fall`, `--told-rise`,
/// `--told-interval` and `--told-probers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldSettings {
    /// How many answers in a row take a node out.
    pub fall: u32,
    /// How many bring it back.
    pub rise: u32,
    /// The interval at which each balancer asks; `null` if that is what the agent sees. Several behind one address look like
    /// one that asks more often.
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// How many regular probers there must be; `null` if one is enough.
    #[serde(default)]
    pub probers: Option<usize>,
}

impl Default for ToldSettings {
    fn default() -> Self {
        Self { fall: FALL, rise: RISE, interval_ms: None, probers: None }
    }
}

impl ToldSettings {
    /// How many answers in a row count as heard.
    pub fn times(&self, turn: PoolChange) -> u32 {
        match turn {
            PoolChange::Out => self.fall,
            PoolChange::Ready => self.rise,
        }
    }
}

/// What is demanded otherwise than by the agent's own settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// Instead of `--told-fall`.
    pub fall: Option<u32>,
    /// Instead of `--told-rise`.
    pub rise: Option<u32>,
    /// Instead of `--told-probers`.
    pub probers: Option<usize>,
    /// Instead of `--told-interval`.
    pub interval: Option<Duration>,
}

impl Demands {
    /// Returns the settings that count, where the agent has these.
    #[must_use]
    pub fn over(&self, agents: ToldSettings) -> ToldSettings {
        ToldSettings {
            fall: self.fall.unwrap_or(agents.fall),
            rise: self.rise.unwrap_or(agents.rise),
            interval_ms: self.interval.map(millis).or(agents.interval_ms),
            probers: self.probers.or(agents.probers),
        }
    }
}

/// Whether all who go on asking have been told of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// All of them.
    Yes {
        /// How many they are.
        probers: usize,
    },
    /// Not all, or the node has not turned.
    NotYet {
        /// Why, if it is not for a prober.
        why: Option<String>,
        /// Who has not been told.
        waiting_for: Vec<WaitingFor>,
    },
    /// That can't be said.
    Unknown(Unknown),
}

/// Why it can't be said whether all have been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The agent says nothing of probers.
    OlderAgent,
    /// It has no verdict.
    Misconfigured,
    /// Its verdict may be a guess.
    Stale,
    /// It has not listened for long enough to know who asks.
    Listening {
        /// For how long it has.
        for_ms: u64,
        /// Whether it began again because more asked than it can remember.
        overflown: bool,
    },
    /// These may be balancers or strangers.
    Undecided(Vec<String>),
    /// There are fewer that go on asking than there must be.
    TooFew {
        /// How many there are.
        probers: usize,
        /// How many there must be.
        wanted: usize,
    },
    /// Nobody goes on asking.
    Nobody,
}

/// The word for programs if there is no regular prober.
pub const NOBODY: &str = "nobody";
/// The word for programs if there are fewer regular probers than demanded.
pub const TOO_FEW: &str = "too_few";

impl Unknown {
    /// Returns true if waiting can change it.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::OlderAgent | Self::Misconfigured | Self::Nobody => false,
            Self::Stale | Self::Listening { .. } | Self::Undecided(_) | Self::TooFew { .. } => true,
        }
    }

    /// Returns the word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OlderAgent => "older_agent",
            Self::Misconfigured => "misconfigured",
            Self::Stale => "stale",
            Self::Listening { .. } => "listening",
            Self::Undecided(_) => "undecided",
            Self::TooFew { .. } => TOO_FEW,
            Self::Nobody => NOBODY,
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = Age(LISTENS_FOR.as_millis());
        match self {
            Self::OlderAgent => f.write_str("the agent is of a version that does not say who asks it"),
            Self::Misconfigured => f.write_str("the agent has no verdict: it does not know its node"),
            Self::Stale => f.write_str("the cache is stale: the verdict may be a guess"),
            Self::Listening { for_ms, overflown: false } => {
                write!(
                    f,
                    "the agent has listened for {} of {of}: it does not know yet who asks",
                    Age((*for_ms).into())
                )
            }
            Self::Listening { for_ms, overflown: true } => {
                let ago = Age((*for_ms).into());
                write!(
                    f,
                    "more have asked than can be remembered, {ago} ago: --balancers says whose questions count"
                )
            }
            Self::Undecided(who) => {
                let who = who.join(", ");
                write!(
                    f,
                    "not known yet whether these go on asking: {who}; --balancers says whose questions count"
                )
            }
            Self::TooFew { probers, wanted } => {
                write!(f, "{probers} of {wanted} balancers that there must be go on asking")
            }
            Self::Nobody => f.write_str("no balancer goes on asking this agent"),
        }
    }
}

impl Told {
    /// Yes, no, or not known.
    pub fn is_yes(&self) -> Option<bool> {
        match self {
            Self::Yes { .. } => Some(true),
            Self::NotYet { .. } => Some(false),
            Self::Unknown(_) => None,
        }
    }
}

/// Whether all who go on asking have been told of a turn, as of when the status was read. It is never said of nobody.
pub fn told(status: &Status, turn: PoolChange, demands: &Demands) -> Told {
    if let Some(unknown) = verdict_not_known(status) {
        return Told::Unknown(unknown);
    }
    if status.verdict.map(takes_out) != Some(turn == PoolChange::Out) {
        return Told::NotYet { why: Some(not_turned(status)), waiting_for: Vec::new() };
    }
    let drain = status.drain.as_ref();
    let settings = demands.over(drain.map(|drain| drain.settings).unwrap_or_default());
    if let Some(unknown) = probers_not_known(status, &settings) {
        return Told::Unknown(unknown);
    }
    let since_ms = drain.map_or(0, |drain| drain.since_ms);
    let probers = status.probers.iter().filter(|prober| prober.is_waited_for());
    let waiting_for: Vec<_> = probers
        .clone()
        .filter(|prober| !prober.has_been_told(turn, since_ms, &settings))
        .map(|prober| WaitingFor::new(prober, turn, since_ms, &settings))
        .collect();
    let questions = u64::from(settings.times(turn)).saturating_add(1);
    let after = settings.interval_ms.map(|interval| interval.saturating_mul(questions));
    let why = after.filter(|after| since_ms < *after).map(|after| {
        let (ago, after) = (Age(since_ms.into()), Age(after.into()));
        format!("the node turned {ago} ago: at the interval that is set, balancers behind one address need {after}")
    });
    if why.is_none() && waiting_for.is_empty() {
        return Told::Yes { probers: probers.count() };
    }
    Told::NotYet { why, waiting_for }
}

fn verdict_not_known(status: &Status) -> Option<Unknown> {
    match status.verdict {
        _ if status.drain.is_none() => Some(Unknown::OlderAgent),
        None => Some(Unknown::Misconfigured),
        Some(_) if status.cache.stale => Some(Unknown::Stale),
        Some(_) => None,
    }
}

/// Whether it can't be known who asks.
fn probers_not_known(status: &Status, settings: &ToldSettings) -> Option<Unknown> {
    let drain = status.drain.as_ref()?;
    if drain.listening_ms < millis(LISTENS_FOR) {
        return Some(Unknown::Listening { for_ms: drain.listening_ms, overflown: drain.overflows > 0 });
    }
    let undecided: Vec<_> = status
        .probers
        .iter()
        .filter(|prober| prober.is_undecided(drain.listening_ms))
        .map(ProberRecord::who)
        .collect();
    if !undecided.is_empty() {
        return Some(Unknown::Undecided(undecided));
    }
    let probers = status.probers.iter().filter(|prober| prober.is_waited_for()).count();
    match settings.probers {
        Some(wanted) if probers < wanted => Some(Unknown::TooFew { probers, wanted }),
        _ => (probers == 0).then_some(Unknown::Nobody),
    }
}

fn not_turned(status: &Status) -> String {
    let verdict = status.verdict.map_or("not known", Verdict::title);
    match status.verdict {
        Some(Verdict::Ready) => "the node is Ready: nothing takes it out yet".to_owned(),
        _ => format!("the node is {verdict}: {}", status.why()),
    }
}

/// A prober that has not been told yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingFor {
    /// Who.
    pub prober: String,
    /// What it asks.
    pub question: String,
    /// What it still lacks, in words.
    pub why: String,
}

impl WaitingFor {
    fn new(prober: &ProberRecord, turn: PoolChange, since_ms: u64, settings: &ToldSettings) -> Self {
        let heard = takes_out(prober.verdict) == (turn == PoolChange::Out) && prober.in_a_row_ms <= since_ms;
        let had = if heard { prober.in_a_row } else { 0 };
        let times = settings.times(turn).saturating_add(1);
        let lately = match (prober.standing, prober.interval_ms) {
            (Standing::Silent, _) => format!(", silent for {}", Age(prober.last_ms.into())),
            (_, Some(interval)) => format!(", asks every {}", Age(interval.into())),
            _ => String::new(),
        };
        let why = match prober.row() {
            Some(row) if had >= times => {
                let (row, needs) = (Age(row.into()), Age(prober.row_needs(turn, settings).into()));
                format!("told {had} times within {row}, which takes it {needs} by itself{lately}")
            }
            _ => format!("told {had} of {times} times{lately}"),
        };
        Self { prober: prober.who(), question: prober.question.clone(), why }
    }
}
