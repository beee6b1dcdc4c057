//! Follows a wait until all probers have acknowledged, for `nodegate wait` and the plugin. It has no clock
//! and no network: the caller passes each status with the time since the start, and prints the lines.

use nodegate_readiness::Age;
use nodegate_readiness::probers::{
    AckOverrides, AckSettings, Acknowledgement, Goal, Standing, Unknown, acknowledged, balancers,
    has_no_sessions,
};
use nodegate_readiness::status::Status;
use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

/// The lower bound of the default timeout.
const AT_LEAST: Duration = Duration::from_mins(2);

/// The time within which the agent must answer for the first time.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The kind of a progress whose sessions can't be counted.
const UNCOUNTED: &str = "uncounted";

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The goal was reached.
    Reached,
    /// The goal was not reached in time.
    TimedOut,
    /// It is not known whether the goal was reached.
    NotKnown,
}

impl WaitEnd {
    /// Returns the exit code for this result.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Reached => 0,
            Self::TimedOut => 1,
            Self::NotKnown => 3,
        }
    }
}

/// The result of one look at the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The news, one log line each.
    pub lines: Vec<String>,
    /// The result, if the wait has ended; the last line gives the reason.
    pub ended: Option<WaitEnd>,
}

/// The wait for one node.
#[derive(Debug)]
pub struct Waiting {
    goal: Goal,
    overrides: AckOverrides,
    /// The agent's settings, with those of the client applied.
    settings: AckSettings,
    timeout: Option<Duration>,
    /// The longest interval of a prober that is waited for.
    longest: Duration,
    heard: bool,
    /// The last word on each prober, and whether it can't see drains.
    probers: BTreeMap<(String, String), (&'static str, bool)>,
    kind: Option<Kind>,
}

/// The kind of a progress. A number that only grows is no news.
type Kind = (&'static str, Option<Discriminant<Unknown>>);

/// The progress as a whole.
struct WaitState {
    kind: Kind,
    /// The line for a progress of a new kind.
    news: Option<String>,
    /// The progress as the last line has it.
    words: String,
    /// The result, if this is the end whatever time is left.
    ended: Option<WaitEnd>,
    /// The result if it does not change in time.
    late: WaitEnd,
}

impl WaitState {
    /// Creates the state of a goal that is not reached yet.
    fn not_yet(kind: &'static str, news: Option<String>, words: String) -> Self {
        Self { kind: (kind, None), news, words, ended: None, late: WaitEnd::TimedOut }
    }

    fn reached(words: String) -> Self {
        Self { ended: Some(WaitEnd::Reached), ..Self::not_yet("reached", None, words) }
    }
}

impl Waiting {
    /// Creates a wait. Without a timeout it takes two minutes, or as long as the slowest prober needs.
    pub fn new(goal: Goal, overrides: AckOverrides, timeout: Option<Duration>) -> Self {
        Self {
            goal,
            overrides,
            settings: overrides.apply_to(AckSettings::default()),
            timeout,
            longest: Duration::ZERO,
            heard: false,
            probers: BTreeMap::new(),
            kind: None,
        }
    }

    /// Returns the time after which the wait ends unsuccessfully.
    fn timeout(&self) -> Duration {
        let longest = self.longest.max(Duration::from_millis(self.settings.interval_ms.unwrap_or_default()));
        let needed = longest.saturating_mul(self.settings.times(self.goal.pool_change()).saturating_add(2));
        self.timeout.unwrap_or(needed.max(AT_LEAST))
    }

    /// Takes a status of the agent, or the error, `elapsed` after the start of the wait.
    pub fn step(&mut self, said: Result<&Status, &str>, elapsed: Duration) -> Progress {
        let mut lines = Vec::new();
        let state = match said {
            Ok(status) => self.look(status, &mut lines),
            Err(error) => {
                let words = format!("no answer of the agent: {error}");
                let ended = (!self.heard && elapsed >= FIRST_ANSWER_WITHIN).then_some(WaitEnd::NotKnown);
                let state = WaitState::not_yet("unreachable", Some(words.clone()), words);
                WaitState { ended, late: WaitEnd::NotKnown, ..state }
            }
        };
        if self.kind.replace(state.kind) != Some(state.kind) {
            lines.extend(state.news);
        }
        let ended = state.ended.or((elapsed >= self.timeout()).then_some(state.late));
        let (goal, after, words) = (self.goal.as_str(), Age(elapsed.as_millis()), state.words);
        lines.extend(ended.map(|ended| match ended {
            WaitEnd::Reached => format!("{goal} after {after}: {words}"),
            WaitEnd::TimedOut => format!("not {goal} after {after}: {words}"),
            WaitEnd::NotKnown if state.kind.0 == UNCOUNTED => {
                format!("all acknowledged, but not known whether {goal}: {words}")
            }
            WaitEnd::NotKnown => format!("not known whether {goal}: {words}"),
        }));
        Progress { lines, ended }
    }

    fn look(&mut self, status: &Status, lines: &mut Vec<String>) -> WaitState {
        self.heard = true;
        self.settings =
            self.overrides.apply_to(status.drain.as_ref().map(|drain| drain.settings).unwrap_or_default());
        let waited_for = status.probers.iter().filter(|prober| prober.is_waited_for());
        let longest =
            waited_for.filter_map(|prober| prober.longest_interval_ms.max(prober.interval_ms)).max();
        self.longest = self.longest.max(Duration::from_millis(longest.unwrap_or_default()));

        let acknowledged = acknowledged(status, self.goal.pool_change(), &self.overrides);
        if !matches!(
            acknowledged,
            Acknowledgement::Unknown(Unknown::OlderAgent | Unknown::Misconfigured | Unknown::Stale)
        ) {
            self.report_probers(status, lines);
        }
        let probers = match acknowledged {
            Acknowledgement::Unknown(unknown) => {
                let (ended, kind) =
                    ((!unknown.is_temporary()).then_some(WaitEnd::NotKnown), discriminant(&unknown));
                let state =
                    WaitState::not_yet("", Some(format!("not known yet: {unknown}")), unknown.to_string());
                return WaitState { kind: ("unknown", Some(kind)), ended, late: WaitEnd::NotKnown, ..state };
            }
            Acknowledgement::NotYet { why, waiting_for } => {
                let kind = if why.is_some() { "not out" } else { "not acknowledged" };
                let each =
                    waiting_for.iter().map(|one| format!("{} {} ({})", one.prober, one.request, one.why));
                let words = why.iter().cloned().chain(each).collect::<Vec<_>>().join("; ");
                return WaitState::not_yet(kind, why, words);
            }
            Acknowledgement::Yes { probers } => balancers(probers, &status.cant_see_drains()),
        };
        if self.goal != Goal::Released {
            return WaitState::reached(probers);
        }
        match has_no_sessions(status) {
            Ok(true) => WaitState::reached(format!("no session left; acknowledged: {probers}")),
            Ok(false) => {
                let left = format!("{} sessions are left", status.sessions().unwrap_or_default());
                WaitState::not_yet("sessions", Some(format!("all acknowledged; {left}")), left)
            }
            // A late count may still arrive.
            Err(_) if status.drain.as_ref().is_some_and(|drain| drain.traffic.is_some()) => {
                let words = "the sessions have not been counted lately".to_owned();
                WaitState::not_yet("acknowledged", Some(format!("all acknowledged: {probers}")), words)
            }
            Err(why) => {
                WaitState { ended: Some(WaitEnd::NotKnown), ..WaitState::not_yet(UNCOUNTED, None, why) }
            }
        }
    }

    /// Adds a line for each prober with news.
    fn report_probers(&mut self, status: &Status, lines: &mut Vec<String>) {
        let since_ms = status.drain.as_ref().map_or(0, |drain| drain.since_ms);
        for prober in &status.probers {
            let every = prober.interval_ms.map(|ms| format!(", probes every {}", Age(ms.into())));
            let every = every.unwrap_or_default();
            let silent = || format!(": nothing for {}", Age(prober.last_ms.into()));
            let is_acknowledged = prober.has_acknowledged(self.goal.pool_change(), since_ms, &self.settings);
            let is_blind = prober.misses_drains();
            let (word, more) = match prober.standing {
                Standing::Occasional => continue,
                _ if !prober.drainable => {
                    let cause = if is_blind { "can't see drains, because " } else { "" };
                    ("ignored", format!(": {cause}no drain changes its answer; not waited for"))
                }
                Standing::Gone => ("gone", silent() + "; not waited for"),
                Standing::Regular | Standing::Silent if is_acknowledged => {
                    ("acknowledged", format!(": {} times in a row{every}", prober.in_a_row))
                }
                Standing::Silent => ("silent", silent() + &every),
                Standing::Regular => ("waiting", every),
            };
            let (key, now) = ((prober.who(), prober.request.clone()), (word, is_blind));
            if self.probers.insert(key, now) != Some(now) {
                lines.push(format!("{word:<12}  {} {}{more}", prober.who(), prober.request));
            }
        }
    }
}
