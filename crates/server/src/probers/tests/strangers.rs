//! With `--balancers`, other clients do not change `told`.

use super::*;
use nodegate_readiness::{Condition, ConditionStatus, Node, NodeFacts};
use proptest::prelude::*;

const MINUTE: u64 = 60_000;

/// The time of a probe request, and the request with its client.
type Visit = (u64, Asking);

#[derive(Clone, Debug)]
struct Asking {
    peer: u32,
    request: String,
}

fn node(unschedulable: bool) -> Node {
    let (kind, reason) = ("Ready".to_owned(), "KubeletReady".to_owned());
    let ready = Condition { kind, status: ConditionStatus::True, reason };
    Node::Present(NodeFacts { conditions: vec![ready], unschedulable, ..NodeFacts::default() })
}

/// Plays these visits with a cordon. Returns the text of `/status.json` every 500 ms, and its `told`.
fn play(mut visits: Vec<Visit>, cordon_ms: u64, until_ms: u64) -> Vec<(String, Option<bool>)> {
    let desk = Desk::new();
    let balancers = "10.0.0.0/29".parse().unwrap();
    desk.probers.set(ProberSettings { balancers, ..ProberSettings::default() });
    desk.board.set_node(node(false), at(1), SystemTime::UNIX_EPOCH);
    visits.sort_by_key(|(ms, _)| *ms);
    let mut visits = visits.into_iter().peekable();
    let mut said = Vec::new();
    for now in (0..until_ms).step_by(500) {
        while let Some((ms, Asking { peer, request })) = visits.next_if(|(ms, _)| *ms <= now) {
            let verdict = if ms < cordon_ms { Verdict::Ready } else { Verdict::Draining };
            let code = Some(if ms < cordon_ms { 200 } else { 503 });
            let asked = http(address(peer), "/health", &request);
            desk.probers.note(&asked, Given { verdict, code }, &desk.board, at(ms));
        }
        if now == cordon_ms {
            desk.board.set_node(node(true), at(now), SystemTime::UNIX_EPOCH);
        }
        desk.board.prove(at(now));
        if now + 2000 < cordon_ms {
            continue;
        }
        let (status, _) = desk.probers.status(&desk.board, "", at(now));
        said.push((serde_json::to_string(&status).unwrap(), status.drain.unwrap().told));
    }
    said
}

fn balancer(peer: u32) -> impl Strategy<Value = Vec<Visit>> {
    let every = prop_oneof![Just(500_u64), Just(2000), Just(5000)];
    (every, 0..500_u64).prop_map(move |(every, phase)| {
        let asking = Asking { peer, request: String::new() };
        (0..5 * MINUTE / every).map(|n| (1 + phase + n * every, asking.clone())).collect()
    })
}

/// One or many clients outside the balancers' network, with the requests of a balancer or with unusual ones.
fn stranger() -> impl Strategy<Value = Vec<Visit>> {
    let many = prop_oneof![Just(1_u32), 1..100_u32];
    let request = prop_oneof![Just(String::new()), "check=[a-z]{1,8}", "drain=503&x=[0-9]{1,3}"];
    (8..100_000_u32, many, request, 0..5 * MINUTE, 1..20_000_u64, 1..40_u64).prop_map(
        |(first, many, request, from, every, times)| {
            (0..times)
                .flat_map(|n| {
                    let request = request.clone();
                    (first..first + many)
                        .map(move |peer| (1 + from + n * every, Asking { peer, request: request.clone() }))
                })
                .collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn strangers_change_nothing_where_balancers_are_named(
        balancers in (balancer(1), balancer(2)),
        strangers in prop::collection::vec(stranger(), 1..6),
        cordon_s in 100_u64..220,
    ) {
        let (cordon, until) = (cordon_s * 1000, 5 * MINUTE);
        let alone = [balancers.0, balancers.1].concat();
        let among = [alone.clone(), strangers.concat()].concat();
        let [alone, among] = [alone, among].map(|visits| play(visits, cordon, until));
        prop_assert_eq!(&among, &alone);
        let told: Vec<_> = alone.into_iter().map(|(_, told)| told).collect();
        prop_assert!(told.contains(&Some(false)) && told.last() == Some(&Some(true)), "{:?}", told);
    }
}
