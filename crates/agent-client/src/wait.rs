//! Follows a wait of an agent's `/wait`, for `nodegate wait` and the plugin. The agent judges. It has no clock and no
//! network: the caller passes each answer with the time since the start, and prints the lines.

use nodegate_agent_api::{Goal, ProberRecord, Standing, WaitReply, WaitState};
use nodegate_program::{choice, duration};
use nodegate_readiness::Age;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The lower bound of the default timeout.
const AT_LEAST: Duration = Duration::from_mins(2);
/// The time within which the agent must answer for the first time.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The range of `--timeout`.
const TIMEOUT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);
/// For how many seconds the agent holds a request: a line is late by no more.
const HELD_SECONDS: u64 = 1;
/// The time that an answer to `/wait` takes at most, besides the way to the agent and back.
pub const WAIT_WITHIN: Duration = Duration::from_secs(2 * HELD_SECONDS);
/// The pause between two requests.
pub const PAUSE: Duration = Duration::from_millis(100);

/// The settings of a wait; when a balancer has acknowledged is a setting of the agent.
#[derive(Clone, Debug, clap::Args)]
pub struct WaitSettings {
    /// State to wait for: acknowledged, every balancer knows that the node is out; released, and no session
    /// is left; ready, every balancer knows that it is back
    #[arg(long = "for", value_name = "acknowledged|released|ready", default_value = "acknowledged")]
    #[arg(value_parser = choice(&[("acknowledged", Goal::Acknowledged), ("released", Goal::Released), ("ready", Goal::Ready)]))]
    pub goal: Goal,

    /// The longest wait.
    #[command(flatten)]
    pub timeout: WaitTimeout,
}

/// The longest wait.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct WaitTimeout {
    /// Longest time to wait; if not set, 2 min, or as long as the slowest balancer needs, from when --max-drained of the
    /// agents no longer keeps the node in the pool
    #[arg(long, value_name = "DURATION", value_parser = duration(TIMEOUT))]
    pub timeout: Option<Duration>,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitEnd {
    /// The goal was reached.
    Reached = 0,
    /// The goal was not reached in time.
    TimedOut = 1,
    /// Whether the goal was reached is not known.
    NotKnown = 3,
}

impl WaitEnd {
    /// Returns the exit code for this result.
    pub fn exit_code(self) -> u8 {
        self as u8
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

/// The wait for one node or Service.
#[derive(Debug)]
pub struct Waiting {
    goal: Goal,
    timeout: Option<Duration>,
    /// The longest time that an answer has asked for.
    needed: Duration,
    /// The time until which the node was kept in the pool. Without a timeout, its turn comes first.
    kept_until: Duration,
    has_answered: bool,
    /// The last word on each prober by its name, and on the whole without one. A number that only grows is no news.
    said: BTreeMap<String, String>,
}

impl Waiting {
    /// Creates a wait. Without a timeout it takes two minutes, or as long as the slowest prober needs.
    pub fn new(goal: Goal, timeout: WaitTimeout) -> Self {
        let (needed, kept_until, has_answered, said) = Default::default();
        Self { goal, timeout: timeout.timeout, needed, kept_until, has_answered, said }
    }

    /// Returns the path of one request. Its answer comes when the wait is over, and after a second at the latest.
    pub fn path(&self, service: Option<&str>) -> String {
        let service = service.map_or(String::new(), |service| format!("&service={service}"));
        let goal = self.goal.as_str();
        format!("/wait?for={goal}&timeout={HELD_SECONDS}&settle={HELD_SECONDS}&format=json{service}")
    }

    /// Takes an answer of the agent, or the error, `elapsed` after the start of the wait.
    pub fn step(&mut self, reply: Result<&WaitReply, &str>, elapsed: Duration) -> Progress {
        let mut lines = Vec::new();
        let (state, words) = match reply {
            Ok(reply) => {
                self.has_answered = true;
                self.look(reply, &mut lines);
                (reply.state, reply.why.clone())
            }
            Err(error) => {
                let words = format!("no answer of the agent: {error}");
                lines.extend(self.news("", "no answer", words.clone()));
                (WaitState::NotKnown, words)
            }
        };
        if state == WaitState::Kept {
            self.kept_until = elapsed;
        }
        let least = self.kept_until.saturating_add(self.needed.max(AT_LEAST));
        let is_late = elapsed >= self.timeout.unwrap_or(least);
        let is_silent = !self.has_answered && elapsed >= FIRST_ANSWER_WITHIN;
        let ended = match state {
            WaitState::Reached | WaitState::NotReadyForLong => Some(WaitEnd::Reached),
            WaitState::NoProbers | WaitState::SessionsNotCounted => Some(WaitEnd::NotKnown),
            WaitState::NotKnown => (is_late || is_silent).then_some(WaitEnd::NotKnown),
            WaitState::InService | WaitState::Kept | WaitState::Waiting => {
                is_late.then_some(WaitEnd::TimedOut)
            }
        };
        let (goal, after) = (self.goal.as_str(), Age::from(elapsed));
        lines.extend(ended.map(|ended| match (ended, state) {
            (WaitEnd::Reached, WaitState::NotReadyForLong) => format!("nothing to wait for: {words}"),
            (WaitEnd::Reached, _) => format!("{goal} after {after}: {words}"),
            (WaitEnd::TimedOut, _) => format!("not {goal} after {after}: {words}"),
            (WaitEnd::NotKnown, WaitState::SessionsNotCounted) => {
                format!("all acknowledged, but not known whether {goal}: {words}")
            }
            (WaitEnd::NotKnown, _) => format!("not known whether {goal}: {words}"),
        }));
        Progress { lines, ended }
    }

    /// Adds the news of an answer.
    fn look(&mut self, reply: &WaitReply, lines: &mut Vec<String>) {
        let times = match self.goal {
            Goal::Ready => reply.drain.settings.rise,
            Goal::Acknowledged | Goal::Released => reply.drain.settings.fall,
        };
        let interval = Duration::from_millis(reply.interval_ms.unwrap_or_default());
        self.needed = self.needed.max(interval.saturating_mul(times.saturating_add(2)));
        for prober in reply.probers.iter().filter(|_| !reply.drain.stale) {
            let (who, (word, more)) = (format!("{} {}", prober.who(), prober.request), progress_of(prober));
            lines.extend(self.news(&who, word, format!("{word:<12}  {who}{more}")));
        }
        let state =
            format!("{:?} {}", reply.state, reply.drain.not_known_code.as_deref().unwrap_or_default());
        let line = match reply.state {
            WaitState::NotKnown => format!("not known yet: {}", reply.why),
            // Each prober has a line of its own.
            WaitState::Waiting if !reply.drain.waiting_for.is_empty() => return,
            WaitState::Waiting | WaitState::InService | WaitState::Kept => reply.why.clone(),
            _ => return,
        };
        lines.extend(self.news("", &state, line));
    }

    /// Returns the line, if the word is another one than the last about this.
    fn news(&mut self, about: &str, word: &str, line: String) -> Option<String> {
        let last = self.said.insert(about.to_owned(), word.to_owned());
        (last.as_deref() != Some(word)).then_some(line)
    }
}

/// Returns the word for a prober, and what is said after its name.
fn progress_of(prober: &ProberRecord) -> (&'static str, String) {
    let every = prober.interval_ms.map(|ms| format!(", probes every {}", Age(ms)));
    let every = every.unwrap_or_default();
    let silent = || format!(": nothing for {}", Age(prober.last_ms));
    match prober.standing {
        _ if !prober.sees_drains => {
            let cause = if prober.misses_drains() { "can't see drains, because " } else { "" };
            ("ignored", format!(": {cause}no drain changes its answer; not waited for"))
        }
        Standing::Gone => ("gone", silent() + "; not waited for"),
        Standing::Regular | Standing::Silent if prober.acknowledged == Some(true) => {
            ("acknowledged", format!(": {} times in a row{every}", prober.in_a_row))
        }
        Standing::Silent => ("silent", silent() + &every),
        Standing::Regular | Standing::Occasional => ("waiting", every),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_agent_api::{DrainSummary, Status};
    use serde_json::json;

    /// Returns an answer with two probers, of which so many have acknowledged.
    fn reply(state: WaitState, why: &str, acknowledged: usize) -> WaitReply {
        let probers = [1, 2].map(|number| {
            serde_json::from_value(json!({
                "address": format!("10.0.0.{number}"), "question": "/health", "standing": "regular", "sees_drains": true,
                "asked": 9, "first_ms": 60_000, "last_ms": 300, "interval_ms": 2000, "verdict": "draining", "in_a_row": 4,
                "acknowledged": number <= acknowledged,
            }))
            .unwrap()
        });
        let mut drain = DrainSummary::of(&Status::default(), None);
        drain.waiting_for = (acknowledged + 1..=2).map(|number| format!("10.0.0.{number} /health")).collect();
        let (goal, why, probers) = (Goal::Acknowledged, why.to_owned(), probers.into());
        WaitReply { goal, service: None, state, why, interval_ms: Some(50_000), drain, probers }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_balancer_has_a_line_when_it_gets_there() {
        let mut waiting = Waiting::new(Goal::Acknowledged, WaitTimeout::default());
        let first =
            waiting.step(Ok(&reply(WaitState::InService, "the node is not going out", 0)), seconds(0));
        assert_eq!(
            first.lines,
            [
                "waiting       10.0.0.1 /health, probes every 2 s",
                "waiting       10.0.0.2 /health, probes every 2 s",
                "the node is not going out",
            ]
        );
        let half = waiting.step(Ok(&reply(WaitState::Waiting, "10.0.0.2", 1)), seconds(7));
        assert_eq!(half.lines, ["acknowledged  10.0.0.1 /health: 4 times in a row, probes every 2 s"]);
        assert_eq!(waiting.step(Err("refused"), seconds(8)).lines, ["no answer of the agent: refused"]);
        let end = waiting.step(Ok(&reply(WaitState::Reached, "2 balancers", 2)), seconds(9));
        assert_eq!(
            (end.ended, end.lines.last().unwrap().as_str()),
            (Some(WaitEnd::Reached), "acknowledged after 9 s: 2 balancers")
        );
    }

    #[test]
    fn each_state_has_its_end_and_the_slowest_balancer_its_time() {
        use WaitState::{
            InService, NoProbers, NotKnown, NotReadyForLong, Reached, SessionsNotCounted, Waiting as Missing,
        };
        let end = |state, elapsed| {
            let timeout = WaitTimeout { timeout: Some(seconds(5)) };
            let progress =
                Waiting::new(Goal::Acknowledged, timeout).step(Ok(&reply(state, "why", 1)), seconds(elapsed));
            progress.ended.map(WaitEnd::exit_code)
        };
        let states = [Reached, NotReadyForLong, NoProbers, SessionsNotCounted, NotKnown, InService, Missing];
        assert_eq!(states.map(|state| end(state, 4)), [Some(0), Some(0), Some(3), Some(3), None, None, None]);
        assert_eq!([NotKnown, InService, Missing].map(|state| end(state, 5)), [Some(3), Some(1), Some(1)]);
        let mut slow = Waiting::new(Goal::Acknowledged, WaitTimeout::default());
        let mut step = |elapsed| slow.step(Ok(&reply(Missing, "why", 1)), seconds(elapsed)).ended;
        assert_eq!(
            [step(0), step(249), step(250)],
            [None, None, Some(WaitEnd::TimedOut)],
            "five intervals of 50 s"
        );
        let mut silent = Waiting::new(Goal::Acknowledged, WaitTimeout::default());
        assert_eq!(silent.step(Err("refused"), seconds(9)).ended, None);
        assert_eq!(silent.step(Err("refused"), seconds(10)).ended, Some(WaitEnd::NotKnown));
    }
}
