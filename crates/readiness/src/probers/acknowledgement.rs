//! Decides whether all regular probers have acknowledged. [`ProberRecord::has_acknowledged`] decides that for
//! one prober; `drain_status.rs` puts both conclusions into the status.

use super::asked::{Standing, takes_out};
use super::record::{ProberRecord, millis};
use super::{FALL, LISTENS_FOR, RISE};
use crate::age::Age;
use crate::check::Verdict;
use crate::reason::Reason;
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The maximum number of clients that are named in a sentence.
const NAMED: usize = 8;

/// A pool change, of which the agent must tell the balancers.
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

/// The conditions for a prober to count as acknowledged, by the agent's settings `--ack-fall`, `--ack-rise`,
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
}

/// The settings of the waiting client, which override the agent's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOverrides {
    /// The value in place of `--ack-fall`.
    pub fall: Option<u32>,
    /// The value in place of `--ack-rise`.
    pub rise: Option<u32>,
    /// The value in place of `--ack-probers`.
    pub probers: Option<usize>,
    /// The value in place of `--ack-interval`.
    pub interval: Option<Duration>,
}

impl AckOverrides {
    /// Returns the effective settings, given those of the agent.
    #[must_use]
    pub fn apply_to(&self, agents: AckSettings) -> AckSettings {
        AckSettings {
            fall: self.fall.unwrap_or(agents.fall),
            rise: self.rise.unwrap_or(agents.rise),
            interval_ms: self.interval.map(millis).or(agents.interval_ms),
            probers: self.probers.or(agents.probers),
        }
    }
}

/// The conclusion whether all regular probers have acknowledged a pool change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// All of them have acknowledged.
    Yes {
        /// The number of these probers.
        probers: usize,
    },
    /// Some of them have not acknowledged, or there was no such pool change.
    NotYet {
        /// The reason, if it is not a prober.
        why: Option<String>,
        /// The probers that have not acknowledged.
        waiting_for: Vec<WaitingFor>,
    },
    /// The agent can't know.
    Unknown(Unknown),
}

/// The reason why it is not known whether all probers have acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The agent is too old to report probers.
    OlderAgent,
    /// The agent has no verdict.
    Misconfigured,
    /// The agent's verdict may be a guess.
    Stale,
    /// The agent has not listened for long enough to know its probers.
    Listening {
        /// The time that it has listened.
        for_ms: u64,
        /// True if it started over because there were more probers than it can remember.
        overflown: bool,
    },
    /// These may be balancers or strangers.
    Undecided(Vec<String>),
    /// There are fewer regular probers than required.
    TooFew {
        /// The number of regular probers.
        probers: usize,
        /// The required number of regular probers.
        wanted: usize,
    },
    /// There is no regular prober whose answer a drain changes.
    NoProbers {
        /// The Service, if its probers are meant.
        of: Option<String>,
        /// The clients that can't see drains.
        cant_see_drains: Vec<String>,
    },
}

/// The word for programs if there is no regular prober.
pub const NO_PROBERS: &str = "no_probers";
/// The word for programs if there are fewer regular probers than demanded.
pub const TOO_FEW: &str = "too_few";

impl Unknown {
    /// Returns true if waiting can change it.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::OlderAgent | Self::Misconfigured | Self::NoProbers { .. } => false,
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
            Self::NoProbers { .. } => NO_PROBERS,
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = Age(LISTENS_FOR.as_millis());
        match self {
            Self::OlderAgent => f.write_str("the agent is of a version that does not report its probers"),
            Self::Misconfigured => f.write_str("the agent has no verdict: it does not know its node"),
            Self::Stale => f.write_str("the cache is stale: the verdict may be a guess"),
            Self::Listening { for_ms, overflown: false } => {
                write!(
                    f,
                    "the agent has listened for {} of {of}: it does not know its probers yet",
                    Age((*for_ms).into())
                )
            }
            Self::Listening { for_ms, overflown: true } => {
                let ago = Age((*for_ms).into());
                write!(
                    f,
                    "the table of probers overflowed {ago} ago; --balancers names the probers that count"
                )
            }
            Self::Undecided(who) => {
                let who = who.join(", ");
                write!(
                    f,
                    "not known yet whether these probe regularly: {who}; --balancers names the probers that count"
                )
            }
            Self::TooFew { probers, wanted } => {
                write!(f, "{probers} of {wanted} required balancers probe regularly")
            }
            Self::NoProbers { of: Some(service), .. } => {
                write!(f, "no balancer probes /services/{service} regularly")
            }
            Self::NoProbers { of: None, cant_see_drains } => match cant_see(cant_see_drains) {
                None => f.write_str("no balancer probes this agent regularly"),
                Some(who) => write!(f, "no balancer sends a probe request that a drain changes; {who}"),
            },
        }
    }
}

impl Acknowledgement {
    /// Returns true for [`Acknowledgement::Yes`], false for [`Acknowledgement::NotYet`], `None` for
    /// [`Acknowledgement::Unknown`].
    pub fn is_yes(&self) -> Option<bool> {
        match self {
            Self::Yes { .. } => Some(true),
            Self::NotYet { .. } => Some(false),
            Self::Unknown(_) => None,
        }
    }
}

/// Returns whether all regular probers have acknowledged a pool change, as of the time of the status. Without
/// a regular prober the result is never [`Acknowledgement::Yes`].
pub fn acknowledged(status: &Status, change: PoolChange, overrides: &AckOverrides) -> Acknowledgement {
    if let Some(unknown) = verdict_not_known(status) {
        return Acknowledgement::Unknown(unknown);
    }
    if status.verdict.map(takes_out) != Some(change == PoolChange::Out) {
        return Acknowledgement::NotYet { why: Some(not_turned(status)), waiting_for: Vec::new() };
    }
    let drain = status.drain.as_ref();
    let settings = overrides.apply_to(drain.map(|drain| drain.settings).unwrap_or_default());
    if let Some(unknown) = probers_not_known(status, &settings) {
        return Acknowledgement::Unknown(unknown);
    }
    let since_ms = drain.map_or(0, |drain| drain.since_ms);
    let probers = status.awaited(change);
    let waiting_for: Vec<_> = probers
        .clone()
        .filter(|prober| !prober.has_acknowledged(change, since_ms, &settings))
        .map(|prober| WaitingFor::new(prober, change, since_ms, &settings))
        .collect();
    let answers = u64::from(settings.times(change)).saturating_add(1);
    let after = settings.interval_ms.map(|interval| interval.saturating_mul(answers));
    let why = after.filter(|after| since_ms < *after).map(|after| {
        let (ago, after) = (Age(since_ms.into()), Age(after.into()));
        format!("the verdict changed {ago} ago: at the interval that is set, balancers behind one address need {after}")
    });
    if why.is_none() && waiting_for.is_empty() {
        return Acknowledgement::Yes { probers: probers.count() };
    }
    Acknowledgement::NotYet { why, waiting_for }
}

fn verdict_not_known(status: &Status) -> Option<Unknown> {
    match status.verdict {
        _ if status.drain.is_none() => Some(Unknown::OlderAgent),
        None => Some(Unknown::Misconfigured),
        Some(_) if status.rests_on_stale_cache() => Some(Unknown::Stale),
        Some(_) => None,
    }
}

/// Returns the reason why the probers are not known, or `None` if they are.
fn probers_not_known(status: &Status, settings: &AckSettings) -> Option<Unknown> {
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
        _ => (probers == 0).then(|| Unknown::NoProbers {
            of: status.about.clone(),
            cant_see_drains: status.cant_see_drains(),
        }),
    }
}

fn not_turned(status: &Status) -> String {
    let verdict = status.verdict.map_or("not known", Verdict::title);
    let who = status.about.as_deref().unwrap_or("the node");
    match status.verdict {
        Some(Verdict::Ready) => format!("{who} is Ready: nothing takes it out yet"),
        _ => format!("{who} is {verdict}: {}", status.reason.as_ref().map_or("", Reason::as_str)),
    }
}

/// A prober that has not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingFor {
    /// The name of the prober.
    pub prober: String,
    /// The probe request of the prober.
    #[serde(rename = "question")]
    pub request: String,
    /// The condition that it does not meet yet, in words.
    pub why: String,
}

impl WaitingFor {
    fn new(prober: &ProberRecord, change: PoolChange, since_ms: u64, settings: &AckSettings) -> Self {
        let heard =
            takes_out(prober.verdict) == (change == PoolChange::Out) && prober.in_a_row_ms <= since_ms;
        let had = if heard { prober.in_a_row } else { 0 };
        let times = settings.times(change).saturating_add(1);
        let lately = match (prober.standing, prober.interval_ms) {
            (Standing::Silent, _) => format!(", silent for {}", Age(prober.last_ms.into())),
            (_, Some(interval)) => format!(", probes every {}", Age(interval.into())),
            _ => String::new(),
        };
        let why = match prober.row() {
            Some(row) if had >= times => {
                let (row, needs) = (Age(row.into()), Age(prober.row_needs(change, settings).into()));
                format!("got it {had} times within {row}, which takes it {needs} by itself{lately}")
            }
            _ => format!("got it {had} of {times} times{lately}"),
        };
        Self { prober: prober.who(), request: prober.request.clone(), why }
    }
}

/// Says of clients that they can't see drains; `None` if there are none.
pub fn cant_see(cant_see_drains: &[String]) -> Option<String> {
    let named = cant_see_drains.get(..NAMED).unwrap_or(cant_see_drains);
    let more = match cant_see_drains.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!named.is_empty()).then(|| format!("{}{more} can't see drains", named.join(", ")))
}
