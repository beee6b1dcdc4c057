//! Strangers that share a balancer's address and its probe request never hurry the acknowledgement, and a
//! balancer that is alone pays no extra probe for that.

use super::world::{Prober, World, balancer};
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
    fn asks_along(self, world: &mut World, ms: u64, mut look: impl FnMut(&World)) {
        let end = world.now_ms + ms;
        while world.now_ms < end {
            let (of, pause) = match self {
                Self::Bursts { of, every } => (of, every),
                Self::Echo { times } => {
                    (times, (world.probers[0].next_ms + 1).saturating_sub(world.now_ms).max(1))
                }
            };
            world.pass(pause.min(end - world.now_ms));
            look(world);
            for _ in 0..of {
                world.ask_as(0);
                look(world);
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

fn alone(every_ms: u64, spread: u64) -> World {
    World::new([Prober { spread, ..balancer(1, every_ms) }])
}

/// Asserts that the balancer has had the answer on which it acts if the agent reports acknowledged.
fn is_true(world: &World) {
    if world.acknowledged() == Some(true) {
        let heard = world.probers[0].heard;
        assert!(heard >= FALL, "at {} ms, the balancer has heard it {heard} times", world.now_ms);
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
        let mut world = alone(every, spread);
        if is_set {
            world.settings.interval_ms = Some(every + every / 10);
        } else {
            world.pass(alone_for);
        }
        stranger.asks_along(&mut world, present_for, |_| {});
        world.cordon(true);
        for _ in 0..8 {
            world.ask_as(0);
            is_true(&world);
        }
        after.asks_along(&mut world, 12 * every, is_true);
        world.pass(6 * every);
        prop_assert_eq!(world.acknowledged(), Some(true), "it comes");
    }

    /// It takes the four probes that it takes anyway: neither the jitter nor the phase costs a fifth.
    #[test]
    fn a_balancer_whose_interval_varies_needs_no_answer_more(
        every in prop_oneof![Just(200_u64), Just(2000), Just(10_000), Just(60_000)],
        spread in 0_u64..6,
        alone_for in 5 * MINUTE..90 * MINUTE,
    ) {
        let mut world = alone(every, spread);
        world.pass(alone_for);
        world.cordon(true);
        while world.probers[0].heard <= FALL {
            prop_assert_ne!(world.acknowledged(), Some(true));
            let next = world.probers[0].next_ms - world.now_ms;
            world.pass(next);
        }
        prop_assert_eq!((world.acknowledged(), world.probers[0].heard), (Some(true), FALL + 1));
    }
}

/// A flood makes a slow balancer look like a fast one, and its pause like its end.
#[test]
fn no_flood_makes_a_balancer_gone() {
    let mut world = World::new([balancer(1, 60_000), balancer(2, 1000)]);
    world.pass(10 * MINUTE);
    for _ in 0..1000 {
        world.ask_as(0);
    }
    assert!(world.records()[0].interval_ms.unwrap() < 1000);
    world.stop(0);
    world.cordon(true);
    world.pass(100_000);
    assert_eq!((world.acknowledged(), world.standing(0)), (Some(false), Standing::Regular));
}

/// A regression: three requests within a millisecond made a prober that the agent waited for.
#[test]
fn three_probes_at_once_make_no_prober_regular() {
    let mut world = World::new([balancer(1, 2000), Prober { next_ms: u64::MAX, ..balancer(9, 1000) }]);
    world.pass(3 * MINUTE);
    for _ in 0..50 {
        world.pass(150);
        world.ask_as(1);
    }
    assert_eq!(world.standing(1), Standing::Occasional);
    // Three probes after a long pause don't either.
    world.pass(5 * MINUTE);
    for _ in 0..3 {
        world.ask_as(1);
    }
    assert_eq!(world.standing(1), Standing::Occasional);
    world.cordon(true);
    let took = world.until_acknowledged();
    assert!(took <= 8000, "{took}");
    world.pass(10_000);
    world.ask_as(1);
    assert_eq!(world.standing(1), Standing::Regular);
}

#[test]
fn after_three_minutes_the_probers_are_known() {
    // Its first probe comes in the last of the 90 seconds, the next ones at the longest pauses of a balancer.
    let mut world = World::new([balancer(1, 2000), Prober { next_ms: 89_000, ..balancer(2, 89_500) }]);
    world.cordon(true);
    world.pass(179_000);
    assert_eq!((world.acknowledged(), world.standing(1)), (None, Standing::Occasional));
    world.pass(1001);
    assert_eq!(
        world.acknowledged(),
        Some(true),
        "it may be a balancer yet, and is not waited for until it has shown it"
    );
    world.pass(89_000);
    assert_eq!((world.acknowledged(), world.standing(1)), (Some(false), Standing::Regular));
}

/// A regression: the mean of the first ten minutes went with them, and strangers made the next ones.
#[test]
fn the_first_minutes_of_a_balancer_count_for_an_hour() {
    let mut world = alone(60_000, 1);
    world.pass(5 * MINUTE);
    Stranger::Echo { times: 2 }.asks_along(&mut world, 21 * MINUTE, |_| {});
    world.cordon(true);
    Stranger::Echo { times: 1 }.asks_along(&mut world, 6 * MINUTE, is_true);
}
