//! A second load balancer, slower than the first, which dies and comes back. Told waits for it until it is
//! gone. `world.rs` runs it, and `balancer.rs` judges by it.

use fastrand::Rng;
use nodegate_readiness::probers::{FALL, MOST_BETWEEN, REGULAR_AFTER};
use std::time::{Duration, Instant};

/// The time that a prober must have probed to be regular.
const REGULAR_FOR: Duration = Duration::from_secs(10);
/// `FALL` of its longest intervals and a half. A pause of up to `MOST_BETWEEN` may be such an interval.
const SPAN: Duration = Duration::from_secs(MOST_BETWEEN.as_secs() * (2 * FALL as u64 + 1) / 2);
/// The time that a prober has, after ten of its intervals, until it is gone.
const GONE: Duration = Duration::from_secs(30);

/// The second load balancer, as the agent knows it.
pub(crate) struct SecondBalancer {
    interval: Duration,
    /// The time of its next probe.
    pub(crate) next: Instant,
    dies: Instant,
    /// The number of its probes to the current agent.
    asked: u32,
    /// The times of its first and its last probe.
    asked_at: Option<(Instant, Instant)>,
    /// The number of answers in a row that take the node out.
    out_in_a_row: u32,
    /// The time since which that is so, and since which it is back: earlier answers may not count.
    out_since: Option<Instant>,
}

impl SecondBalancer {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let now = nodegate_clock::now();
        let interval = Duration::from_millis(random.u64(1000..8000));
        let dies = now + Duration::from_secs(random.u64(60..400));
        Self { interval, next: now, dies, asked: 0, asked_at: None, out_in_a_row: 0, out_since: None }
    }

    /// Notes that another agent answers, which knows no prober.
    pub(crate) fn restarted(&mut self) {
        (self.asked, self.asked_at, self.out_in_a_row, self.out_since) = (0, None, 0, None);
    }

    /// Schedules its next probe. Returns true if it probes now.
    pub(crate) fn schedule_next(&mut self, random: &mut Rng) -> bool {
        let now = nodegate_clock::now();
        if now >= self.dies {
            self.next = now + Duration::from_secs(random.u64(5..150));
            self.out_since = None;
            self.dies = self.next + Duration::from_secs(random.u64(60..400));
            return false;
        }
        self.next = now + self.interval.mul_f64(0.9 + 0.2 * random.f64());
        true
    }

    /// Notes the answer of an agent whose verdict last left Ready, or came back, at `last_pool_change`.
    pub(crate) fn received(&mut self, takes_out: bool, last_pool_change: Instant) {
        let now = nodegate_clock::now();
        self.out_in_a_row = self.told(last_pool_change);
        self.asked += 1;
        self.asked_at = Some((self.asked_at.map_or(now, |(first, _)| first), now));
        self.out_in_a_row = if takes_out { self.out_in_a_row + 1 } else { 0 };
        self.out_since = takes_out.then(|| self.out_since.unwrap_or(now));
    }

    /// Returns the number of answers in a row since `last_pool_change` that take the node out.
    fn told(&self, last_pool_change: Instant) -> u32 {
        let since = self.asked_at.is_some_and(|(_, last)| last >= last_pool_change);
        if since { self.out_in_a_row } else { 0 }
    }

    /// Returns true if the agent must not report told yet because of it.
    pub(crate) fn holds_up(&self, last_pool_change: Instant) -> bool {
        let Some((first, last)) = self.asked_at else { return false };
        let regular = self.asked >= REGULAR_AFTER
            && last.saturating_duration_since(first) > REGULAR_FOR + self.interval;
        // Its interval is the agent's estimate.
        let silent = nodegate_clock::now().saturating_duration_since(last);
        regular && silent < self.interval.mul_f64(8.0) + GONE && self.told(last_pool_change) <= FALL
    }

    /// Returns true if told may have to wait for it: until its answers span `FALL` of its longest intervals
    /// and a half, and while it is silent.
    pub(crate) fn may_hold_up(&self, last_pool_change: Instant) -> bool {
        let Some((_, last)) = self.asked_at else { return false };
        let now = nodegate_clock::now();
        let asks = now.saturating_duration_since(last) < self.interval.mul_f64(1.5);
        let out_for = now.saturating_duration_since(self.out_since.unwrap_or(now).max(last_pool_change));
        !asks || self.told(last_pool_change) <= FALL || out_for < SPAN
    }
}
