//! The agent never reports the acknowledgement too early, whatever happens.

use super::world::{World, balancer};
use nodegate_readiness::Verdict;
use nodegate_readiness::probers::Standing;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Cordon(bool),
    Proof(bool),
    Stop(usize),
    Begin(usize),
    Overflow,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1_u64..20_000).prop_map(Event::Pass),
        1 => (60_000_u64..200_000).prop_map(Event::Pass),
        3 => any::<bool>().prop_map(Event::Cordon),
        1 => any::<bool>().prop_map(Event::Proof),
        1 => (0_usize..3).prop_map(Event::Stop),
        1 => (0_usize..3).prop_map(Event::Begin),
        1 => Just(Event::Overflow),
    ]
}

/// Checks the conclusion against the full history of all answers.
fn is_truly_acknowledged(world: &World, history: &[Vec<(u64, bool)>]) -> Result<(), String> {
    let mut waited_for = 0;
    for (n, answers) in history.iter().enumerate() {
        let regular = answers.len() >= 3;
        if !regular || matches!(world.standing(n), Standing::Gone | Standing::Occasional) {
            continue;
        }
        waited_for += 1;
        if answers.iter().rev().take(4).filter(|(_, out)| *out).count() < 4 {
            return Err(format!("{n} has not acknowledged: {answers:?}"));
        }
    }
    if waited_for == 0 { Err("acknowledged without a prober".to_owned()) } else { Ok(()) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_acknowledgement_holds_for_every_regular_prober(
        every in prop::collection::vec(prop_oneof![Just(100_u64), Just(2000), Just(10_000), Just(60_000)], 3),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let probers = every.iter().zip(1..).map(|(every, number)| balancer(number, *every));
        let mut world = World::new(probers);
        let mut history = vec![Vec::new(); every.len()];
        for event in events {
            match event {
                Event::Pass(ms) => {
                    // Between two events each prober always gets the same verdict, so a sample of its answers
                    // is enough.
                    let end = world.now_ms + ms;
                    while world.now_ms < end {
                        world.pass((end - world.now_ms).min(100));
                        for (n, prober) in world.probers.iter().enumerate() {
                            let Some(asked) = prober.asked else { continue };
                            if history[n].len() < asked.times as usize {
                                history[n].push((world.now_ms, asked.given.verdict != Verdict::Ready));
                            }
                        }
                    }
                }
                Event::Cordon(out) => world.cordon(out),
                Event::Proof(proof) => world.proof = proof,
                Event::Stop(n) => world.stop(n),
                Event::Begin(n) => world.begin(n),
                Event::Overflow => world.overflown_ms = Some(world.now_ms),
            }
            if world.acknowledged() == Some(true) {
                prop_assert_eq!(world.verdict(), Verdict::Draining);
                prop_assert!(world.now_ms - world.overflown_ms.unwrap_or(0) >= 90_000);
                prop_assert_eq!(is_truly_acknowledged(&world, &history), Ok(()));
            }
        }
    }
}
