//! Watches what the agent answers, with the times.

use crate::{Agent, ProbeReply, until_or};
use std::time::{Duration, Instant};

/// An answer that was waited for.
#[derive(Debug)]
pub struct Seen {
    /// The answer.
    pub reply: ProbeReply,
    /// When the first answer as wanted had come.
    pub at: Instant,
    /// When the last probe was sent whose answer was not yet as wanted.
    pub last_other: Option<Instant>,
}

impl Seen {
    /// Time from then to the answer, for people.
    pub fn after(&self, since: Instant) -> String {
        let elapsed = self.at.saturating_duration_since(since);
        match elapsed.as_millis() {
            millis @ 0..1000 => format!("{millis} ms"),
            _ => format!("{:.1} s", elapsed.as_secs_f64()),
        }
    }

    /// Nobody who asked later than `limit` after `since` got another answer. What a busy machine adds to the time until
    /// the next question does not count.
    pub fn assert_within(&self, since: Instant, limit: Duration, agent: &Agent) {
        let late = self.last_other.map(|asked| asked.saturating_duration_since(since));
        assert!(
            late.is_none_or(|late| late <= limit),
            "still not so when asked {late:?} later, which is more than {limit:?}; then: {}\n{}",
            self.reply.body,
            agent.log_text()
        );
    }
}

/// What tests wait for.
pub trait Watching {
    /// Asks `/health` until the answer is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> Seen;

    /// Asks until a 503 with this reason comes that is not stale.
    fn until_reason(&self, reason: &str) -> Seen;

    /// Asks until a 200 comes that is not stale.
    fn until_ready(&self) -> Seen;

    /// Waits until something is true of the agent.
    fn until_so(&self, what: &str, so: impl Fn(&Agent) -> bool);

    /// What an operator would want to see when something did not come.
    fn all_it_says(&self, missing: &str) -> String;
}

impl Watching for Agent {
    fn until(&self, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> Seen {
        let mut last_other = None;
        let attempt = || {
            let asked = Instant::now();
            let reply = self.health();
            if wanted(&reply) {
                return Some(Seen { reply, at: Instant::now(), last_other });
            }
            last_other = Some(asked);
            None
        };
        until_or(attempt, || self.all_it_says(what))
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
        until_or(|| so(self).then_some(()), || self.all_it_says(what));
    }

    fn all_it_says(&self, missing: &str) -> String {
        let (answer, status, log) = (self.health(), self.get("/status.json"), self.log_text());
        format!(
            "waited for {missing}\nlast answer: {} {}\nstatus: {}\nlog:\n{log}",
            answer.status, answer.body, status.body
        )
    }
}

/// Prints what was seen of a rule.
pub fn seen(rule: &str, what: &str) {
    println!("{rule:<36} {what}");
}
