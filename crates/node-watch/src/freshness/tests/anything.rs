//! Tests of arbitrary events in any order: the state machine proves nothing without evidence, and neither
//! oversleeps nor spins. `PROPTEST_CASES=20000` tries more.

use super::scenario::{STALE_AFTER, elsewhere, here, node};
use crate::freshness::{Action, Check, FreshnessMonitor, Input, Refusal};
use crate::stream::{LEASE, NODE, StreamId, service};
use nodegate_readiness::Moment;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A random event, and the milliseconds before it.
#[derive(Clone, Debug)]
struct Happens {
    what: u8,
    stream: StreamId,
    version: u32,
    ago: u64,
    here: bool,
    later: u64,
}

fn happens() -> impl Strategy<Value = Happens> {
    let stream = prop_oneof![4 => Just(NODE), 2 => Just(LEASE), 1 => (0..3_usize).prop_map(service)];
    let later = prop_oneof![Just(0), 0..50_u64, 0..3000_u64, 0..100_000_u64];
    (0..10_u8, stream, 0..4_u32, 0..20_000_u64, any::<bool>(), later).prop_map(
        |(what, stream, version, ago, here, later)| Happens { what, stream, version, ago, here, later },
    )
}

impl Happens {
    fn input(&self, now: Moment, number: u64) -> Input {
        let Self { stream, ago, .. } = *self;
        let ago = Duration::from_millis(ago);
        let connection = if self.here { here() } else { elsewhere() };
        let state = node(self.version);
        let wall = SystemTime::UNIX_EPOCH + now.since(Moment::default());
        match self.what {
            0 => Input::Began(stream),
            1 => Input::Listed { asked_at: now.before(ago), node: state },
            2 => Input::Accepted(stream, connection),
            3 => Input::Bytes(stream),
            4 => Input::Changed(state),
            5 => Input::Renewed { at: self.here.then_some(wall - ago), wall },
            6 => Input::Closed(stream),
            7 => Input::Answered { number, node: state, connection },
            8 => {
                let retry_after = self.here.then_some(ago);
                Input::Unanswered { number, refusal: Refusal::Refused, retry_after }
            }
            // The wall clock shows any time.
            _ => Input::Woke { wall: wall + ago * u32::from(self.here) },
        }
    }
}

#[derive(Default)]
struct Witnesses {
    dates: Vec<Moment>,
    asked: Vec<(u64, Moment)>,
}

impl Witnesses {
    fn hear(&mut self, input: &Input, now: Moment) {
        match input {
            Input::Listed { asked_at, .. } => self.dates.push(*asked_at),
            Input::Changed { .. } => self.dates.push(now),
            // An answer that does not match the cache yet may match while it waits.
            Input::Answered { number, .. } => {
                let asked = self.asked.iter().filter(|(asked, _)| asked == number);
                self.dates.extend(asked.map(|(_, at)| *at));
            }
            Input::Renewed { at: Some(at), .. } => {
                let age = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
                self.dates.push(Moment::from_start(age));
            }
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn no_proof_is_without_a_witness(seed: u64, scenario in proptest::collection::vec(happens(), 0..200)) {
        let mut machine = FreshnessMonitor::new(STALE_AFTER, 2, fastrand::Rng::with_seed(seed), Arc::default());
        let mut now = Moment::from_start(Duration::from_secs(100));
        let (mut witnesses, mut watched) = (Witnesses::default(), false);
        for happens in scenario {
            let next = now.plus(Duration::from_millis(happens.later));
            // The state machine is woken at its wake-up time.
            while let Some(wakes) = machine.wake_at().filter(|at| *at <= next) {
                prop_assert!(wakes > now, "woken again at once");
                now = wakes;
                let wall = SystemTime::UNIX_EPOCH + now.since(Moment::default());
                check(machine.step(Input::Woke { wall }, now), now, &mut witnesses, watched)?;
            }
            now = next;
            let number = witnesses.asked.last().map_or(0, |(number, _)| *number);
            let input = happens.input(now, number);
            witnesses.hear(&input, now);
            match input {
                Input::Accepted(NODE, _) => watched = true,
                Input::Began(NODE) | Input::Closed(NODE) => watched = false,
                _ => {}
            }
            check(machine.step(input, now), now, &mut witnesses, watched)?;
        }
    }
}

fn check(
    actions: Vec<Action>,
    now: Moment,
    witnesses: &mut Witnesses,
    watched: bool,
) -> Result<(), TestCaseError> {
    for action in actions {
        match action {
            Action::Prove { at, .. } => {
                prop_assert!(at <= now, "proof from the future");
                prop_assert!(witnesses.dates.contains(&at), "{at:?} at {now:?}: no witness has this date");
            }
            Action::Check(Check { number, .. }) => {
                prop_assert!(watched, "a check without an open watch");
                let last = witnesses.asked.last().map_or(0, |(number, _)| *number);
                prop_assert_eq!(number, last + 1);
                witnesses.asked.push((number, now));
            }
            _ => {}
        }
    }
    Ok(())
}
