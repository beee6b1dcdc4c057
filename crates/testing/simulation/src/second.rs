//! A second load balancer, slower than the first, which dies and comes back: told waits for it until it is
//! gone.

use fastrand::Rng;
use nodegate_readiness::probers::{FALL, MOST_BETWEEN, REGULAR_AFTER};
use std::time::{Duration, Instant};

/// A prober that has asked for less than this time is not known to go on asking.
const REGULAR_FOR: Duration = Duration::from_secs(10);
/// `FALL` of its longest intervals and a half. One pause of up to `MOST_BETWEEN` may be such an interval.
const SPAN: Duration = Duration::from_secs(MOST_BETWEEN.as_secs() * (2 * FALL as u64 + 1) / 2);
/// A prober is gone after ten of its intervals and this time.
const GONE: Duration = Duration::from_secs(30);

/// The second balancer.
pub(crate) struct Second {
    interval: Duration,
    /// When it asks next.
    pub(crate) next: Instant,
    dies: Instant,
    /// What it has heard of the agent of now: how often it has asked, first and last, and how many answers in
    /// a row have taken the node out.
    asked: u32,
    asked_at: Option<(Instant, Instant)>,
    out_in_a_row: u32,
    /// Since when, and since it last came back: what it was told before may not count.
    out_since: Option<Instant>,
}

impl Second {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let now = nodegate_clock::now();
        let interval = Duration::from_millis(random.u64(1000..8000));
        let dies = now + Duration::from_secs(random.u64(60..400));
        Self { interval, next: now, dies, asked: 0, asked_at: None, out_in_a_row: 0, out_since: None }
    }

    /// Another agent begins, which knows no prober.
    pub(crate) fn restarted(&mut self) {
        (self.asked, self.asked_at, self.out_in_a_row, self.out_since) = (0, None, 0, None);
    }

    /// Its turn has come. Returns true if it asks.
    pub(crate) fn turn(&mut self, random: &mut Rng) -> bool {
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

    /// It was answered by an agent whose verdict last left Ready, or came back, at `turned`.
    pub(crate) fn heard(&mut self, takes_out: bool, turned: Instant) {
        let now = nodegate_clock::now();
        self.out_in_a_row = self.told(turned);
        self.asked += 1;
        self.asked_at = Some((self.asked_at.map_or(now, |(first, _)| first), now));
        self.out_in_a_row = if takes_out { self.out_in_a_row + 1 } else { 0 };
        self.out_since = takes_out.then(|| self.out_since.unwrap_or(now));
    }

    /// Returns how many answers in a row have taken the node out since `turned`.
    fn told(&self, turned: Instant) -> u32 {
        let since = self.asked_at.is_some_and(|(_, last)| last >= turned);
        if since { self.out_in_a_row } else { 0 }
    }

    /// Returns true if told must not be said yet on its account.
    pub(crate) fn holds_up(&self, turned: Instant) -> bool {
        let Some((first, last)) = self.asked_at else { return false };
        let regular = self.asked >= REGULAR_AFTER
            && last.saturating_duration_since(first) > REGULAR_FOR + self.interval;
        // Its interval is the agent's estimate.
        let silent = nodegate_clock::now().saturating_duration_since(last);
        regular && silent < self.interval.mul_f64(8.0) + GONE && self.told(turned) <= FALL
    }

    /// Returns true if told may have to wait for it: until its answers span `FALL` of its longest
    /// intervals and a half, and while it is silent.
    pub(crate) fn may_hold_up(&self, turned: Instant) -> bool {
        let Some((_, last)) = self.asked_at else { return false };
        let now = nodegate_clock::now();
        let asks = now.saturating_duration_since(last) < self.interval.mul_f64(1.5);
        let out_for = now.saturating_duration_since(self.out_since.unwrap_or(now).max(turned));
        !asks || self.told(turned) <= FALL || out_for < SPAN
    }
}
