//! The rules of the Lease, with time as a value.

// No two clocks are compared. To other processes, the Lease has expired when it has not changed for its
// duration by their own clock. The holder counts from its last renewal, and gives up before that.

use std::time::{Duration, Instant};

pub(crate) const DURATION: Duration = Duration::from_secs(10);
/// The time for which a renewal entitles to write. What is left of [`DURATION`] is for a last request in flight.
pub(crate) const HOLD: Duration = Duration::from_millis(7500);
/// The longest time for one request. [`HOLD`] and one request end before [`DURATION`].
pub(crate) const REQUEST: Duration = Duration::from_secs(2);
pub(crate) const RENEW: Duration = Duration::from_secs(3);
/// The interval of looks at the Lease of another process. With [`DURATION`], it bounds the takeover.
pub(crate) const LOOK: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseState {
    /// The identity of the holder; empty if it was released.
    pub(crate) holder: String,
    pub(crate) duration: Duration,
    pub(crate) version: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) identity: String,
    /// The last version that it has seen, and the time at which it saw that first.
    seen: Option<(String, Instant)>,
    /// The time at which the last renewal that succeeded was sent.
    renewed: Option<Instant>,
}

impl Candidate {
    pub(crate) fn new(identity: String) -> Self {
        Self { identity, seen: None, renewed: None }
    }

    pub(crate) fn holds(&self, now: Instant) -> bool {
        self.renewed.is_some_and(|renewed| now.saturating_duration_since(renewed) < HOLD)
    }

    /// Decides about a Lease that was read just now. The error is the wait before the next look, if this process may
    /// not write over that version.
    pub(crate) fn look(&mut self, lease: &LeaseState, now: Instant) -> Result<(), Duration> {
        let since = match &self.seen {
            Some((version, since)) if *version == lease.version => *since,
            _ => {
                self.seen = Some((lease.version.clone(), now));
                now
            }
        };
        let ours = lease.holder == self.identity;
        if !ours {
            self.lost();
        }
        let unchanged = now.saturating_duration_since(since);
        if !ours && !lease.holder.is_empty() && unchanged < lease.duration {
            return Err(LOOK.min(lease.duration.saturating_sub(unchanged)));
        }
        Ok(())
    }

    /// Records that the API server accepted a write of the Lease that was sent at this time.
    pub(crate) fn written(&mut self, sent: Instant) {
        self.renewed = Some(sent);
    }

    /// Records that this process does not hold the Lease: another one has it, or it was released.
    pub(crate) fn lost(&mut self) {
        self.renewed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lease(holder: &str, version: u64) -> LeaseState {
        LeaseState { holder: holder.to_owned(), duration: DURATION, version: version.to_string() }
    }

    fn seconds(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_lease_of_another_is_taken_when_it_has_not_changed_for_its_duration() {
        let (mut candidate, start) = (Candidate::new("b".to_owned()), nodegate_clock::now());
        let at = |time| seconds(start, time);
        assert_eq!(candidate.look(&lease("a", 1), at(0.0)), Err(LOOK));
        assert_eq!(candidate.look(&lease("a", 2), at(9.0)), Err(LOOK));
        assert_eq!(candidate.look(&lease("a", 2), at(18.0)), Err(Duration::from_secs(1)));
        assert_eq!(candidate.look(&lease("a", 2), at(19.0)), Ok(()));
        assert!(!candidate.holds(at(19.0)), "the API server has not accepted it yet");
        candidate.written(at(19.0));
        assert!(candidate.holds(at(26.4)) && !candidate.holds(at(26.6)));
        assert_eq!(candidate.look(&lease("b", 7), at(30.0)), Ok(()));
        candidate.lost();
        assert!(!candidate.holds(at(19.0)));
        assert_eq!(candidate.look(&lease("", 8), at(31.0)), Ok(()), "one that was released");
    }

    #[test]
    fn a_last_request_ends_before_the_lease_does() {
        assert!(HOLD + REQUEST < DURATION && RENEW + REQUEST < HOLD);
        // The holder dies right after a renewal that the other one sees at its next look.
        assert!(LOOK + DURATION + REQUEST < Duration::from_secs(15));
    }

    /// What happens at one moment: a process acts, or is frozen for a while, or loses its connection.
    #[derive(Clone, Debug)]
    enum Act {
        Look(usize),
        /// The write is accepted, but its answer is lost.
        Lost(usize),
        Pass(u64),
    }

    proptest! {
        #[test]
        fn at_most_one_process_may_write(acts in prop::collection::vec(prop_oneof![
            (0..3_usize).prop_map(Act::Look), (0..3_usize).prop_map(Act::Lost), (0..6_000_u64).prop_map(Act::Pass),
        ], 1..200)) {
            let start = nodegate_clock::now();
            let mut now = start;
            let mut server = LeaseState { duration: DURATION, ..lease("", 1) };
            let mut all: Vec<_> = ["a", "b", "c"].map(|name| Candidate::new(name.to_owned())).into();
            for act in acts {
                let (index, answered) = match act {
                    Act::Pass(ms) => {
                        now += Duration::from_millis(ms);
                        continue;
                    }
                    Act::Look(index) => (index, true),
                    Act::Lost(index) => (index, false),
                };
                let candidate = &mut all[index];
                if let Err(time) = candidate.look(&server, now) {
                    prop_assert!(time <= LOOK && !time.is_zero());
                } else {
                    let next = server.version.parse::<u64>().unwrap() + 1;
                    let holder = candidate.identity.clone();
                    server = LeaseState { holder, duration: DURATION, version: next.to_string() };
                    if answered {
                        candidate.written(now);
                    }
                }
                prop_assert!(all.iter().filter(|candidate| candidate.holds(now)).count() <= 1);
            }
        }
    }
}
