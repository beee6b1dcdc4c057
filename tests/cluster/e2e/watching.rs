//! Watching what the agent answers, with the times of it.

use nodegate_testbed::agent::{Agent, Reply};
use std::time::{Duration, Instant};

/// Far more than anything should take, on the slowest machine.
const DEADLINE: Duration = Duration::from_mins(1);
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(5);

/// An answer that was waited for.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) reply: Reply,
    /// When the first answer as wanted had come.
    pub(crate) at: Instant,
    /// When the last question was asked whose answer was not yet as wanted.
    pub(crate) asked_last_in_vain: Option<Instant>,
}

impl Seen {
    /// Time from then to the answer, for people.
    pub(crate) fn after(&self, since: Instant) -> String {
        let elapsed = self.at.saturating_duration_since(since);
        match elapsed.as_millis() {
            millis @ 0..1000 => format!("{millis} ms"),
            _ => format!("{:.1} s", elapsed.as_secs_f64()),
        }
    }

    /// Nobody who asked later than `limit` after `since` got another answer. What a busy machine adds to the time until
    /// the next question does not count.
    pub(crate) fn assert_within(&self, since: Instant, limit: Duration, agent: &Agent) {
        let late = self.asked_last_in_vain.map(|asked| asked.saturating_duration_since(since));
        assert!(
            late.is_none_or(|late| late <= limit),
            "still not so when asked {late:?} later, which is more than {limit:?}; then: {}\n{}",
            self.reply.body,
            agent.log_text()
        );
    }
}

/// What tests wait for.
pub(crate) trait Watching {
    /// Asks `/health` until the answer is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&Reply) -> bool) -> Seen;

    /// Asks until a 503 with this reason comes that is not stale.
    fn until_reason(&self, reason: &str) -> Seen;

    /// Asks until a 200 comes that is not stale.
    fn until_ready(&self) -> Seen;

    /// Waits until something is true of the agent.
    fn until_so(&self, what: &str, so: impl Fn(&Agent) -> bool);

    /// How many requests it has sent to the API server, by its own account.
    fn api_requests(&self) -> u64;

    /// Panics with what an operator would want to see.
    fn fail(&self, what: &str) -> !;
}

impl Watching for Agent {
    fn until(&self, what: &str, wanted: impl Fn(&Reply) -> bool) -> Seen {
        let start = Instant::now();
        let mut asked_last_in_vain = None;
        loop {
            let asked = Instant::now();
            let reply = self.health();
            if wanted(&reply) {
                return Seen { reply, at: Instant::now(), asked_last_in_vain };
            }
            if start.elapsed() > DEADLINE {
                self.fail(&format!("waited {DEADLINE:?} for {what}"));
            }
            asked_last_in_vain = Some(asked);
            std::thread::sleep(PAUSE);
        }
    }

    fn until_reason(&self, reason: &str) -> Seen {
        self.until(reason, |reply| {
            reply.status == 503 && !reply.is_stale() && reply.reason().as_deref() == Some(reason)
        })
    }

    fn until_ready(&self) -> Seen {
        self.until("ready", |reply| reply.status == 200 && !reply.is_stale())
    }

    fn until_so(&self, what: &str, so: impl Fn(&Agent) -> bool) {
        let start = Instant::now();
        while !so(self) {
            if start.elapsed() > DEADLINE {
                self.fail(&format!("waited {DEADLINE:?} for {what}"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn api_requests(&self) -> u64 {
        let text = self.get("/metrics").body;
        let values = text
            .lines()
            .filter_map(|line| line.strip_prefix("nodegate_api_requests_total{")?.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().expect("a counter")).sum()
    }

    fn fail(&self, what: &str) -> ! {
        let (answer, status) = (self.health(), self.get("/status.json"));
        let log = self.log_text();
        panic!(
            "{what}\nlast answer: {} {}\nstatus: {}\nlog:\n{log}",
            answer.status, answer.body, status.body
        );
    }
}

/// Prints what was seen of a rule.
pub(crate) fn seen(rule: &str, what: &str) {
    println!("{rule:<36} {what}");
}
