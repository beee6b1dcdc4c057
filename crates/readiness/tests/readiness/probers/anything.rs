//! The agent never reports the acknowledgement too early, whatever happens.

use super::scenario::{Scenario, balancer};
use nodegate_readiness::Verdict;
use nodegate_readiness::probers::{FALL, Standing};
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens, each prober that is waited for has had the answer on which it acts, and has asked again.
    #[test]
    fn the_acknowledgement_holds_for_every_regular_prober(
        every in prop::collection::vec(prop_oneof![Just(100_u64), Just(2000), Just(10_000), Just(60_000)], 3),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let probers = every.iter().zip(1..).map(|(every, number)| balancer(number, *every));
        let mut scenario = Scenario::new(probers);
        for event in events {
            match event {
                Event::Pass(ms) => scenario.pass(ms),
                Event::Cordon(out) => scenario.cordon(out),
                Event::Proof(proof) => scenario.proof = proof,
                Event::Stop(n) => scenario.stop(n),
                Event::Begin(n) => scenario.begin(n),
                Event::Overflow => scenario.overflown_ms = Some(scenario.now_ms),
            }
            if scenario.acknowledged() == Some(true) {
                prop_assert_eq!(scenario.verdict(), Verdict::Draining);
                prop_assert!(scenario.now_ms - scenario.overflown_ms.unwrap_or(0) >= 90_000);
                let is_regular = |n: &usize| {
                    scenario.probers[*n].asked.is_some_and(|asked| asked.times >= 3)
                        && !matches!(scenario.standing(*n), Standing::Gone | Standing::Occasional)
                };
                let heard: Vec<_> = (0..3).filter(is_regular).map(|n| scenario.probers[n].heard).collect();
                prop_assert!(!heard.is_empty() && heard.iter().all(|heard| *heard > FALL), "{heard:?}");
            }
        }
    }
}
