//! Waits until all probers are told: prints progress lines and the result. This module has no clock and no
//! network: the caller passes each status with the time since the start, and prints the lines.

use super::asked::Standing;
use super::drain_status::{cant_see, is_free};
use super::record::ProberRecord;
use super::told::{Demands, PoolChange, Told, ToldSettings, Unknown, WaitingFor, told};
use crate::age::Age;
use crate::status::Status;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::time::Duration;

/// The lower bound of the default timeout.
const AT_LEAST: Duration = Duration::from_mins(2);

/// The time within which the agent must answer for the first time.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Every balancer has been told that the node is out.
    Told,
    /// Every balancer has been told that the node is out, and no session is left.
    Released,
    /// Every balancer has been told that the node is ready.
    Ready,
}

impl Goal {
    /// Returns the word of `--for`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Released => "released",
            Self::Ready => "ready",
        }
    }

    pub(super) fn turn(self) -> PoolChange {
        match self {
            Self::Told | Self::Released => PoolChange::Out,
            Self::Ready => PoolChange::Ready,
        }
    }
}

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
    /// The current progress in one line, which may overwrite the previous one.
    pub now: String,
    /// The result, if the wait has ended; the last line gives the reason.
    pub ended: Option<WaitEnd>,
}

/// The wait for one node.
#[derive(Debug)]
pub struct Waiting {
    goal: Goal,
    demands: Demands,
    /// The agent's settings, with those of the client applied.
    settings: ToldSettings,
    timeout: Option<Duration>,
    /// The longest interval of a prober that is waited for.
    longest: Duration,
    heard: bool,
    probers: BTreeMap<(String, String), Reported>,
    stands: Option<Stands>,
    sessions: Option<u64>,
    cant_see_drains: Vec<String>,
    all_told: bool,
}

/// The state of a prober that was last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    WaitedFor,
    Silent,
    Told,
    Gone,
    NotDrainable,
    CantSeeDrains,
}

/// The progress as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stands {
    Unreachable(String),
    Unknown(Unknown),
    NotYet { why: Option<String>, waiting_for: Vec<WaitingFor> },
    Told { probers: usize },
    SessionsLeft(u64),
    SessionsNotKnown(String),
    Reached { probers: usize },
}

impl Stands {
    /// Returns true if this is news compared to `before`. A number that only grows is no news.
    fn is_new_after(&self, before: Option<&Self>) -> bool {
        match (self, before) {
            (Self::Unknown(now), Some(Self::Unknown(before))) => discriminant(now) != discriminant(before),
            (Self::NotYet { why: now, .. }, Some(Self::NotYet { why: before, .. })) => {
                now.is_some() && before.is_none()
            }
            (now, Some(before)) => discriminant(now) != discriminant(before),
            (_, None) => true,
        }
    }

    fn is_not_known(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unknown(_) | Self::SessionsNotKnown(_))
    }
}

impl Waiting {
    /// Creates a wait. Without a timeout it takes two minutes, or as long as the slowest prober needs.
    pub fn new(goal: Goal, demands: Demands, timeout: Option<Duration>) -> Self {
        Self {
            goal,
            demands,
            settings: demands.over(ToldSettings::default()),
            timeout,
            longest: Duration::ZERO,
            heard: false,
            probers: BTreeMap::new(),
            stands: None,
            sessions: None,
            cant_see_drains: Vec::new(),
            all_told: false,
        }
    }

    /// Returns the timeout.
    pub fn timeout(&self) -> Duration {
        let longest = self.longest.max(Duration::from_millis(self.settings.interval_ms.unwrap_or_default()));
        let needed = longest.saturating_mul(self.settings.times(self.goal.turn()).saturating_add(2));
        self.timeout.unwrap_or(needed.max(AT_LEAST))
    }

    /// Takes a status of the agent, or the error, `elapsed` after the start of the wait.
    pub fn step(&mut self, said: Result<&Status, &str>, elapsed: Duration) -> Progress {
        let mut lines = Vec::new();
        let stands = match said {
            Ok(status) => {
                self.heard = true;
                self.settings =
                    self.demands.over(status.drain.as_ref().map(|drain| drain.settings).unwrap_or_default());
                self.note_intervals(status);
                let stands = self.look(status);
                self.report_probers(status, &stands, &mut lines);
                stands
            }
            Err(error) => Stands::Unreachable(error.to_owned()),
        };
        if stands.is_new_after(self.stands.as_ref()) {
            lines.extend(self.news(&stands));
        }
        let ended = self.end(&stands, elapsed);
        if let Some(ended) = ended {
            lines.push(self.last_line(ended, &stands, elapsed));
        }
        let now = self.in_one_line(&stands, elapsed);
        self.stands = Some(stands);
        Progress { lines, now, ended }
    }

    fn note_intervals(&mut self, status: &Status) {
        let waited_for = status.probers.iter().filter(|prober| prober.is_waited_for());
        let longest =
            waited_for.filter_map(|prober| prober.longest_interval_ms.max(prober.interval_ms)).max();
        let longest = longest.unwrap_or_default();
        self.longest = self.longest.max(Duration::from_millis(longest));
    }

    fn look(&mut self, status: &Status) -> Stands {
        self.sessions = status.sessions();
        self.cant_see_drains = status.cant_see_drains();
        let told = told(status, self.goal.turn(), &self.demands);
        self.all_told = told.is_yes() == Some(true);
        match told {
            Told::Unknown(unknown) => Stands::Unknown(unknown),
            Told::NotYet { why, waiting_for } => Stands::NotYet { why, waiting_for },
            Told::Yes { probers } if self.goal != Goal::Released => Stands::Reached { probers },
            Told::Yes { probers } => match is_free(status) {
                Ok(true) => Stands::Reached { probers },
                Ok(false) => Stands::SessionsLeft(self.sessions.unwrap_or_default()),
                // A late count may still arrive.
                Err(_) if status.drain.as_ref().is_some_and(|drain| drain.traffic.is_some()) => {
                    Stands::Told { probers }
                }
                Err(why) => Stands::SessionsNotKnown(why),
            },
        }
    }

    /// Adds a line for each prober with news.
    fn report_probers(&mut self, status: &Status, stands: &Stands, lines: &mut Vec<String>) {
        let since_ms = status.drain.as_ref().map_or(0, |drain| drain.since_ms);
        if matches!(stands, Stands::Unknown(Unknown::OlderAgent | Unknown::Misconfigured | Unknown::Stale)) {
            return;
        }
        for prober in &status.probers {
            let told = prober.has_been_told(self.goal.turn(), since_ms, &self.settings);
            let now = match prober.standing {
                Standing::Occasional => continue,
                _ if prober.misses_drains() => Reported::CantSeeDrains,
                _ if !prober.drainable => Reported::NotDrainable,
                Standing::Gone => Reported::Gone,
                Standing::Regular | Standing::Silent if told => Reported::Told,
                Standing::Silent => Reported::Silent,
                Standing::Regular => Reported::WaitedFor,
            };
            let key = (prober.who(), prober.question.clone());
            let before = self.probers.insert(key, now);
            if before != Some(now) {
                lines.push(line(prober, now));
            }
        }
    }

    fn end(&self, stands: &Stands, elapsed: Duration) -> Option<WaitEnd> {
        match stands {
            Stands::Reached { .. } => Some(WaitEnd::Reached),
            Stands::SessionsNotKnown(_) => Some(WaitEnd::NotKnown),
            Stands::Unknown(unknown) if !unknown.may_pass() => Some(WaitEnd::NotKnown),
            Stands::Unreachable(_) if !self.heard && elapsed >= FIRST_ANSWER_WITHIN => {
                Some(WaitEnd::NotKnown)
            }
            _ if elapsed < self.timeout() => None,
            stands if stands.is_not_known() => Some(WaitEnd::NotKnown),
            _ => Some(WaitEnd::TimedOut),
        }
    }

    /// Returns the progress if it is worth a line before the last one.
    fn news(&self, stands: &Stands) -> Option<String> {
        match stands {
            Stands::Unreachable(error) => Some(format!("no answer of the agent: {error}")),
            Stands::Unknown(unknown) => Some(format!("not known yet: {unknown}")),
            Stands::NotYet { why, .. } => why.clone(),
            Stands::Told { probers } => {
                Some(format!("all told: {}", balancers(*probers, &self.cant_see_drains)))
            }
            Stands::SessionsLeft(left) => Some(format!("all told; {left} sessions are left")),
            Stands::SessionsNotKnown(_) | Stands::Reached { .. } => None,
        }
    }

    fn last_line(&self, ended: WaitEnd, stands: &Stands, elapsed: Duration) -> String {
        let (goal, after) = (self.goal.as_str(), Age(elapsed.as_millis()));
        let balancers = |probers: usize| balancers(probers, &self.cant_see_drains);
        match (ended, stands) {
            (WaitEnd::Reached, Stands::Reached { probers }) if self.goal == Goal::Released => {
                format!("released after {after}: no session left; told: {}", balancers(*probers))
            }
            (WaitEnd::Reached, Stands::Reached { probers }) => {
                format!("{goal} after {after}: {}", balancers(*probers))
            }
            (WaitEnd::NotKnown, stands) => {
                let all_told = if self.all_told { "all told, but " } else { "" };
                format!("{all_told}not known whether {goal}: {}", in_words(stands))
            }
            (_, stands) => format!("not {goal} after {after}: {}", in_words(stands)),
        }
    }

    fn in_one_line(&self, stands: &Stands, elapsed: Duration) -> String {
        use Reported::{CantSeeDrains, Gone, NotDrainable};
        let waited_for =
            self.probers.values().filter(|state| !matches!(state, Gone | NotDrainable | CantSeeDrains));
        let told = waited_for.clone().filter(|state| **state == Reported::Told);
        let (told, of) = (told.count(), waited_for.count());
        let sessions = self.sessions.map_or(String::new(), |sessions| format!(", sessions {sessions}"));
        let (after, timeout) = (Age(elapsed.as_millis()), Age(self.timeout().as_millis()));
        format!("told {told}/{of}{sessions}, {after} of {timeout}: {}", in_words(stands))
    }
}

/// Returns the line with the news of a prober.
fn line(prober: &ProberRecord, now: Reported) -> String {
    let who = format!("{} {}", prober.who(), prober.question);
    let every = prober.interval_ms.map_or(String::new(), |ms| format!(", asks every {}", Age(ms.into())));
    match now {
        Reported::WaitedFor => format!("waiting  {who}{every}"),
        Reported::Silent => format!("silent   {who}: nothing for {}{every}", Age(prober.last_ms.into())),
        Reported::Told => format!("told     {who}: {} times in a row{every}", prober.in_a_row),
        Reported::Gone => {
            format!("gone     {who}: nothing for {}; not waited for", Age(prober.last_ms.into()))
        }
        Reported::NotDrainable => {
            format!("ignored  {who}: no drain changes its answer; not waited for")
        }
        Reported::CantSeeDrains => {
            format!("ignored  {who}: can't see drains, because no drain changes its answer; not waited for")
        }
    }
}

fn in_words(stands: &Stands) -> String {
    match stands {
        Stands::Unreachable(error) => format!("no answer of the agent: {error}"),
        Stands::Unknown(unknown) => unknown.to_string(),
        Stands::NotYet { why, waiting_for } => {
            let probers =
                waiting_for.iter().map(|one| format!("{} {} ({})", one.prober, one.question, one.why));
            why.iter().cloned().chain(probers).collect::<Vec<_>>().join("; ")
        }
        Stands::Told { .. } => "the sessions have not been counted lately".to_owned(),
        Stands::SessionsLeft(left) => format!("{left} sessions are left"),
        Stands::SessionsNotKnown(why) => why.clone(),
        Stands::Reached { .. } => "all told".to_owned(),
    }
}

/// Returns the number of balancers in words, and names those that can't see drains.
pub(super) fn balancers(probers: usize, cant_see_drains: &[String]) -> String {
    match cant_see(cant_see_drains) {
        Some(who) => format!("{probers} of {} balancers; {who}", probers + cant_see_drains.len()),
        None if probers == 1 => "the one balancer that asks".to_owned(),
        None => format!("{probers} balancers"),
    }
}
