//! Observation of the agent's answers, with times.

use crate::{Agent, ProbeReply, until_or};
use std::time::{Duration, Instant};

/// An answer that a test has waited for.
#[derive(Debug)]
pub struct Seen {
    /// The answer that was awaited.
    pub reply: ProbeReply,
    /// The time at which the first wanted answer arrived.
    pub at: Instant,
    /// The time at which the last probe with another answer was sent.
    pub last_other: Option<Instant>,
}

impl Seen {
    /// Returns the time from `since` to the answer, as text for people.
    pub fn after(&self, since: Instant) -> String {
        let elapsed = self.at.saturating_duration_since(since);
        match elapsed.as_millis() {
            millis @ 0..1000 => format!("{millis} ms"),
            _ => format!("{:.1} s", elapsed.as_secs_f64()),
        }
    }

    /// Panics if a probe sent later than `limit` after `since` got another answer. The delay that a busy
    /// machine adds before the next probe does not count.
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

impl Agent {
    /// Asks `/health` until the answer is as wanted.
    pub fn until(&self, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> Seen {
        self.until_at("/health", what, wanted)
    }

    /// Asks at this path until the answer is as wanted.
    pub fn until_at(&self, path: &str, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> Seen {
        let (mut last_other, last) = (None, std::cell::RefCell::new(None));
        let attempt = || {
            let asked = Instant::now();
            let reply = self.get(path);
            if wanted(&reply) {
                return Some(Seen { reply, at: Instant::now(), last_other });
            }
            last_other = Some(asked);
            last.replace(Some(reply));
            None
        };
        until_or(attempt, || format!("the last answer was {:?}\n{}", last.borrow(), self.all_it_says(what)))
    }

    /// Asks until the answer is a 503 with this reason that is not stale.
    pub fn until_reason(&self, reason: &str) -> Seen {
        self.until(reason, |reply| {
            reply.status == 503 && !reply.is_stale() && reply.reason().as_deref() == Some(reason)
        })
    }

    /// Asks until the answer is a 200 that is not stale.
    pub fn until_ready(&self) -> Seen {
        self.until("ready", |reply| reply.status == 200 && !reply.is_stale())
    }

    /// Waits until a condition of the agent is true.
    pub fn until_so(&self, what: &str, so: impl Fn(&Agent) -> bool) {
        until_or(|| so(self).then_some(()), || self.all_it_says(what));
    }

    /// Returns the details that an operator needs when an expected event has not come.
    pub fn all_it_says(&self, missing: &str) -> String {
        let (status, log) = (self.get("/status.json").body, self.log_text());
        format!("waited for {missing}\nstatus: {status}\nlog:\n{log}")
    }
}

/// Prints the observation for a rule.
pub fn seen(rule: &str, what: &str) {
    println!("{rule:<36} {what}");
}
