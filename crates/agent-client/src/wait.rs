//! Follows a wait until all probers are told, for `nodegate wait` and the plugin. It has no clock and no network: the
//! caller passes each status with the time since the start, and prints the lines.

use nodegate_readiness::Age;
use nodegate_readiness::probers::{
    Goal, ProberRecord, Standing, Told, ToldOverrides, ToldSettings, Unknown, WaitingFor, balancers, is_free,
    told,
};
use nodegate_readiness::status::Status;
use std::collections::BTreeMap;
use std::mem::discriminant;
use std::time::Duration;

/// The lower bound of the default timeout.
const AT_LEAST: Duration = Duration::from_mins(2);

/// The time within which the agent must answer for the first time.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(10);

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
    overrides: ToldOverrides,
    /// The agent's settings, with those of the client applied.
    settings: ToldSettings,
    timeout: Option<Duration>,
    /// The longest interval of a prober that is waited for.
    longest: Duration,
    heard: bool,
    probers: BTreeMap<(String, String), ProberState>,
    state: Option<WaitState>,
    sessions: Option<u64>,
    cant_see_drains: Vec<String>,
    all_told: bool,
}

/// The state of a prober that was last reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProberState {
    WaitedFor,
    Silent,
    Told,
    Gone,
    NotDrainable,
    CantSeeDrains,
}

/// The progress as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitState {
    Unreachable(String),
    Unknown(Unknown),
    NotYet { why: Option<String>, waiting_for: Vec<WaitingFor> },
    Told { probers: usize },
    SessionsLeft(u64),
    SessionsNotKnown(String),
    Reached { probers: usize },
}

impl WaitState {
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
    pub fn new(goal: Goal, overrides: ToldOverrides, timeout: Option<Duration>) -> Self {
        Self {
            goal,
            overrides,
            settings: overrides.apply_to(ToldSettings::default()),
            timeout,
            longest: Duration::ZERO,
            heard: false,
            probers: BTreeMap::new(),
            state: None,
            sessions: None,
            cant_see_drains: Vec::new(),
            all_told: false,
        }
    }

    /// Returns the time after which the wait ends unsuccessfully.
    pub fn timeout(&self) -> Duration {
        let longest = self.longest.max(Duration::from_millis(self.settings.interval_ms.unwrap_or_default()));
        let needed = longest.saturating_mul(self.settings.times(self.goal.pool_change()).saturating_add(2));
        self.timeout.unwrap_or(needed.max(AT_LEAST))
    }

    /// Takes a status of the agent, or the error, `elapsed` after the start of the wait.
    pub fn step(&mut self, said: Result<&Status, &str>, elapsed: Duration) -> Progress {
        let mut lines = Vec::new();
        let state = match said {
            Ok(status) => {
                self.heard = true;
                self.settings = self
                    .overrides
                    .apply_to(status.drain.as_ref().map(|drain| drain.settings).unwrap_or_default());
                self.note_intervals(status);
                let state = self.look(status);
                self.report_probers(status, &state, &mut lines);
                state
            }
            Err(error) => WaitState::Unreachable(error.to_owned()),
        };
        if state.is_new_after(self.state.as_ref()) {
            lines.extend(self.news(&state));
        }
        let ended = self.end(&state, elapsed);
        if let Some(ended) = ended {
            lines.push(self.last_line(ended, &state, elapsed));
        }
        let now = self.in_one_line(&state, elapsed);
        self.state = Some(state);
        Progress { lines, now, ended }
    }

    fn note_intervals(&mut self, status: &Status) {
        let waited_for = status.probers.iter().filter(|prober| prober.is_waited_for());
        let longest =
            waited_for.filter_map(|prober| prober.longest_interval_ms.max(prober.interval_ms)).max();
        let longest = longest.unwrap_or_default();
        self.longest = self.longest.max(Duration::from_millis(longest));
    }

    fn look(&mut self, status: &Status) -> WaitState {
        self.sessions = status.sessions();
        self.cant_see_drains = status.cant_see_drains();
        let told = told(status, self.goal.pool_change(), &self.overrides);
        self.all_told = told.is_yes() == Some(true);
        match told {
            Told::Unknown(unknown) => WaitState::Unknown(unknown),
            Told::NotYet { why, waiting_for } => WaitState::NotYet { why, waiting_for },
            Told::Yes { probers } if self.goal != Goal::Released => WaitState::Reached { probers },
            Told::Yes { probers } => match is_free(status) {
                Ok(true) => WaitState::Reached { probers },
                Ok(false) => WaitState::SessionsLeft(self.sessions.unwrap_or_default()),
                // A late count may still arrive.
                Err(_) if status.drain.as_ref().is_some_and(|drain| drain.traffic.is_some()) => {
                    WaitState::Told { probers }
                }
                Err(why) => WaitState::SessionsNotKnown(why),
            },
        }
    }

    /// Adds a line for each prober with news.
    fn report_probers(&mut self, status: &Status, state: &WaitState, lines: &mut Vec<String>) {
        let since_ms = status.drain.as_ref().map_or(0, |drain| drain.since_ms);
        if matches!(state, WaitState::Unknown(Unknown::OlderAgent | Unknown::Misconfigured | Unknown::Stale))
        {
            return;
        }
        for prober in &status.probers {
            let told = prober.has_been_told(self.goal.pool_change(), since_ms, &self.settings);
            let now = match prober.standing {
                Standing::Occasional => continue,
                _ if prober.misses_drains() => ProberState::CantSeeDrains,
                _ if !prober.drainable => ProberState::NotDrainable,
                Standing::Gone => ProberState::Gone,
                Standing::Regular | Standing::Silent if told => ProberState::Told,
                Standing::Silent => ProberState::Silent,
                Standing::Regular => ProberState::WaitedFor,
            };
            let key = (prober.who(), prober.request.clone());
            let before = self.probers.insert(key, now);
            if before != Some(now) {
                lines.push(line(prober, now));
            }
        }
    }

    fn end(&self, state: &WaitState, elapsed: Duration) -> Option<WaitEnd> {
        match state {
            WaitState::Reached { .. } => Some(WaitEnd::Reached),
            WaitState::SessionsNotKnown(_) => Some(WaitEnd::NotKnown),
            WaitState::Unknown(unknown) if !unknown.may_pass() => Some(WaitEnd::NotKnown),
            WaitState::Unreachable(_) if !self.heard && elapsed >= FIRST_ANSWER_WITHIN => {
                Some(WaitEnd::NotKnown)
            }
            _ if elapsed < self.timeout() => None,
            state if state.is_not_known() => Some(WaitEnd::NotKnown),
            _ => Some(WaitEnd::TimedOut),
        }
    }

    /// Returns the progress if it is worth a line before the last one.
    fn news(&self, state: &WaitState) -> Option<String> {
        match state {
            WaitState::Unreachable(error) => Some(format!("no answer of the agent: {error}")),
            WaitState::Unknown(unknown) => Some(format!("not known yet: {unknown}")),
            WaitState::NotYet { why, .. } => why.clone(),
            WaitState::Told { probers } => {
                Some(format!("all told: {}", balancers(*probers, &self.cant_see_drains)))
            }
            WaitState::SessionsLeft(left) => Some(format!("all told; {left} sessions are left")),
            WaitState::SessionsNotKnown(_) | WaitState::Reached { .. } => None,
        }
    }

    fn last_line(&self, ended: WaitEnd, state: &WaitState, elapsed: Duration) -> String {
        let (goal, after) = (self.goal.as_str(), Age(elapsed.as_millis()));
        let balancers = |probers: usize| balancers(probers, &self.cant_see_drains);
        match (ended, state) {
            (WaitEnd::Reached, WaitState::Reached { probers }) if self.goal == Goal::Released => {
                format!("released after {after}: no session left; told: {}", balancers(*probers))
            }
            (WaitEnd::Reached, WaitState::Reached { probers }) => {
                format!("{goal} after {after}: {}", balancers(*probers))
            }
            (WaitEnd::NotKnown, state) => {
                let all_told = if self.all_told { "all told, but " } else { "" };
                format!("{all_told}not known whether {goal}: {}", in_words(state))
            }
            (_, state) => format!("not {goal} after {after}: {}", in_words(state)),
        }
    }

    fn in_one_line(&self, state: &WaitState, elapsed: Duration) -> String {
        use ProberState::{CantSeeDrains, Gone, NotDrainable};
        let waited_for =
            self.probers.values().filter(|state| !matches!(state, Gone | NotDrainable | CantSeeDrains));
        let told = waited_for.clone().filter(|state| **state == ProberState::Told);
        let (told, of) = (told.count(), waited_for.count());
        let sessions = self.sessions.map_or(String::new(), |sessions| format!(", sessions {sessions}"));
        let (after, timeout) = (Age(elapsed.as_millis()), Age(self.timeout().as_millis()));
        format!("told {told}/{of}{sessions}, {after} of {timeout}: {}", in_words(state))
    }
}

/// Returns the line with the news of a prober.
fn line(prober: &ProberRecord, now: ProberState) -> String {
    let who = format!("{} {}", prober.who(), prober.request);
    let every = prober.interval_ms.map_or(String::new(), |ms| format!(", probes every {}", Age(ms.into())));
    match now {
        ProberState::WaitedFor => format!("waiting  {who}{every}"),
        ProberState::Silent => format!("silent   {who}: nothing for {}{every}", Age(prober.last_ms.into())),
        ProberState::Told => format!("told     {who}: {} times in a row{every}", prober.in_a_row),
        ProberState::Gone => {
            format!("gone     {who}: nothing for {}; not waited for", Age(prober.last_ms.into()))
        }
        ProberState::NotDrainable => {
            format!("ignored  {who}: no drain changes its answer; not waited for")
        }
        ProberState::CantSeeDrains => {
            format!("ignored  {who}: can't see drains, because no drain changes its answer; not waited for")
        }
    }
}

fn in_words(state: &WaitState) -> String {
    match state {
        WaitState::Unreachable(error) => format!("no answer of the agent: {error}"),
        WaitState::Unknown(unknown) => unknown.to_string(),
        WaitState::NotYet { why, waiting_for } => {
            let probers =
                waiting_for.iter().map(|one| format!("{} {} ({})", one.prober, one.request, one.why));
            why.iter().cloned().chain(probers).collect::<Vec<_>>().join("; ")
        }
        WaitState::Told { .. } => "the sessions have not been counted lately".to_owned(),
        WaitState::SessionsLeft(left) => format!("{left} sessions are left"),
        WaitState::SessionsNotKnown(why) => why.clone(),
        WaitState::Reached { .. } => "all told".to_owned(),
    }
}
