//! Strangers that share a balancer's address and its probe request never hurry the acknowledgement, and a
//! balancer that is alone pays no extra probe for that.

use super::scenario::{Prober, Scenario, balancer};
use nodegate_readiness::probers::{FALL, Standing};
use proptest::prelude::*;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The times of a stranger's probes.
#[derive(Clone, Copy, Debug)]
enum Stranger {
    /// `of` probes at once, every `every` milliseconds.
    Bursts { of: u32, every: u64 },
    /// `times` probes right after each probe of the balancer.
    Echo { times: u32 },
}

impl Stranger {
    /// Lets time pass while the stranger sends probes, too; calls `look` after each probe.
    fn asks_along(self, scenario: &mut Scenario, ms: u64, mut look: impl FnMut(&Scenario)) {
        let end = scenario.now_ms + ms;
        while scenario.now_ms < end {
            let (of, pause) = match self {
                Self::Bursts { of, every } => (of, every),
                Self::Echo { times } => {
                    (times, (scenario.probers[0].next_ms + 1).saturating_sub(scenario.now_ms).max(1))
                }
            };
            scenario.pass(pause.min(end - scenario.now_ms));
            look(scenario);
            for _ in 0..of {
                scenario.ask_as(0);
                look(scenario);
            }
        }
    }
}

fn stranger() -> impl Strategy<Value = Stranger> {
    prop_oneof![
        (1_u32..30, 500_u64..200_000).prop_map(|(of, every)| Stranger::Bursts { of, every }),
        (1_u32..8).prop_map(|times| Stranger::Echo { times }),
    ]
}

fn alone(every_ms: u64, spread: u64) -> Scenario {
    Scenario::new([Prober { spread, ..balancer(1, every_ms) }])
}

/// Asserts that the balancer has had the answer on which it acts if the agent reports acknowledged.
fn is_true(scenario: &Scenario) {
    if scenario.acknowledged() == Some(true) {
        let heard = scenario.probers[0].heard;
        assert!(heard >= FALL, "at {} ms, the balancer has heard it {heard} times", scenario.now_ms);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(36))]

    /// A stranger that was there for an hour does not hurry it either if the interval is set.
    #[test]
    fn none_that_has_come_within_the_hour_hurries_the_acknowledgement(
        every in prop_oneof![Just(1000_u64), Just(2000), Just(5000), Just(30_000), Just(60_000)],
        spread in 0_u64..6,
        alone_for in 5 * MINUTE..20 * MINUTE,
        stranger in stranger(),
        (is_set, present_for) in prop_oneof![
            2 => (Just(false), 0..55 * MINUTE),
            1 => (Just(true), HOUR..2 * HOUR),
        ],
        after in stranger(),
    ) {
        let mut scenario = alone(every, spread);
        if is_set {
            scenario.settings.interval_ms = Some(every + every / 10);
        } else {
            scenario.pass(alone_for);
        }
        stranger.asks_along(&mut scenario, present_for, |_| {});
        scenario.cordon(true);
        for _ in 0..8 {
            scenario.ask_as(0);
            is_true(&scenario);
        }
        after.asks_along(&mut scenario, 12 * every, is_true);
        scenario.pass(6 * every);
        prop_assert_eq!(scenario.acknowledged(), Some(true), "it comes");
    }

    /// It takes the four probes that it takes anyway: neither the jitter nor the phase costs a fifth.
    #[test]
    fn a_balancer_whose_interval_varies_needs_no_answer_more(
        every in prop_oneof![Just(200_u64), Just(2000), Just(10_000), Just(60_000)],
        spread in 0_u64..6,
        alone_for in 5 * MINUTE..90 * MINUTE,
    ) {
        let mut scenario = alone(every, spread);
        scenario.pass(alone_for);
        scenario.cordon(true);
        while scenario.probers[0].heard <= FALL {
            prop_assert_ne!(scenario.acknowledged(), Some(true));
            let next = scenario.probers[0].next_ms - scenario.now_ms;
            scenario.pass(next);
        }
        prop_assert_eq!((scenario.acknowledged(), scenario.probers[0].heard), (Some(true), FALL + 1));
    }
}

/// A flood makes a slow balancer look like a fast one, and its pause like its end.
#[test]
fn no_flood_makes_a_balancer_gone() {
    let mut scenario = Scenario::new([balancer(1, 60_000), balancer(2, 1000)]);
    scenario.pass(10 * MINUTE);
    for _ in 0..1000 {
        scenario.ask_as(0);
    }
    assert!(scenario.records()[0].interval_ms.unwrap() < 1000);
    scenario.stop(0);
    scenario.cordon(true);
    scenario.pass(100_000);
    assert_eq!((scenario.acknowledged(), scenario.standing(0)), (Some(false), Standing::Regular));
}

/// A regression: three requests within a millisecond made a prober that the agent waited for.
#[test]
fn three_probes_at_once_make_no_prober_regular() {
    let mut scenario = Scenario::new([balancer(1, 2000), Prober { next_ms: u64::MAX, ..balancer(9, 1000) }]);
    scenario.pass(3 * MINUTE);
    for _ in 0..50 {
        scenario.pass(150);
        scenario.ask_as(1);
    }
    assert_eq!(scenario.standing(1), Standing::Occasional);
    // Three probes after a long pause don't either.
    scenario.pass(5 * MINUTE);
    for _ in 0..3 {
        scenario.ask_as(1);
    }
    assert_eq!(scenario.standing(1), Standing::Occasional);
    scenario.cordon(true);
    let took = scenario.until_acknowledged();
    assert!(took <= 8000, "{took}");
    scenario.pass(10_000);
    scenario.ask_as(1);
    assert_eq!(scenario.standing(1), Standing::Regular);
}

#[test]
fn after_three_minutes_the_probers_are_known() {
    // Its first probe comes in the last of the 90 seconds, the next ones at the longest pauses of a balancer.
    let mut scenario = Scenario::new([balancer(1, 2000), Prober { next_ms: 89_000, ..balancer(2, 89_500) }]);
    scenario.cordon(true);
    scenario.pass(179_000);
    assert_eq!((scenario.acknowledged(), scenario.standing(1)), (None, Standing::Occasional));
    scenario.pass(1001);
    assert_eq!(
        scenario.acknowledged(),
        Some(true),
        "it may be a balancer yet, and is not waited for until it has shown it"
    );
    scenario.pass(89_000);
    assert_eq!((scenario.acknowledged(), scenario.standing(1)), (Some(false), Standing::Regular));
}

/// A regression: the mean of the first ten minutes went with them, and strangers made the next ones.
#[test]
fn the_first_minutes_of_a_balancer_count_for_an_hour() {
    let mut scenario = alone(60_000, 1);
    scenario.pass(5 * MINUTE);
    Stranger::Echo { times: 2 }.asks_along(&mut scenario, 21 * MINUTE, |_| {});
    scenario.cordon(true);
    Stranger::Echo { times: 1 }.asks_along(&mut scenario, 6 * MINUTE, is_true);
}
