//! The acknowledgement for one Service, by the answers that its probers got. Time is a number here.

use crate::scenario::{Scenario, cordoned, ready};
use futures::FutureExt;
use http::Request;
use nodegate_agent_api::{Standing, Status};
use nodegate_readiness::{Board, Moment, Node, NodeFacts};
use nodegate_server::App;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const WALL: SystemTime = SystemTime::UNIX_EPOCH;
const SERVICE: &str = "shop/web";

/// A balancer that probes the Service, and what it heard.
struct Balancer {
    every_ms: u64,
    target: &'static str,
    next_ms: u64,
    /// Each answer: true if it takes the Service out.
    heard: Vec<bool>,
}

struct Rollout {
    board: Arc<Board>,
    app: Arc<App>,
    balancers: Vec<Balancer>,
    now_ms: u64,
    proof: bool,
}

impl Rollout {
    /// Starts an agent that knows one ready endpoint, and that these clients probe at such intervals.
    fn start(balancers: &[(u64, &'static str)]) -> Self {
        let (board, app) = Scenario { services: vec![(SERVICE, 1)], ..Scenario::default() }.build();
        let balancers = balancers.iter().map(|&(every_ms, target)| Balancer {
            every_ms,
            target,
            next_ms: every_ms / 3,
            heard: Vec::new(),
        });
        Self { board, app, balancers: balancers.collect(), now_ms: 0, proof: true }
    }

    fn now(&self) -> Moment {
        let opened = self.board.opened().unwrap();
        opened.plus(Duration::from_mins(1) + Duration::from_millis(self.now_ms))
    }

    fn endpoints(&self, local_endpoints: usize) {
        self.board.set_service(0, local_endpoints, self.now(), WALL);
    }

    fn node(&self, facts: NodeFacts) {
        self.board.set_node(Node::Present(facts), self.now(), WALL);
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            let probes = self.balancers.iter().map(|balancer| balancer.next_ms);
            // Each second the API server sends proof, and the timers of the agent run.
            let beat = self.now_ms - self.now_ms % 1000 + 1000;
            self.now_ms = probes.min().unwrap_or(beat).max(self.now_ms).min(beat).min(until);
            if self.now_ms == beat {
                if self.proof {
                    self.board.prove(self.now());
                }
                self.board.tick(self.now(), WALL);
            }
            for n in 0..self.balancers.len() {
                if self.balancers[n].next_ms <= self.now_ms {
                    self.probe(n);
                }
            }
        }
    }

    fn probe(&mut self, n: usize) {
        let (address, now) = (Ipv4Addr::from(0x0a00_0001 + u32::try_from(n).unwrap()), self.now());
        let balancer = &mut self.balancers[n];
        let request = Request::get(balancer.target).body(String::new()).unwrap();
        let answer = self.app.respond_to(request, now, IpAddr::from(address));
        let response = answer.now_or_never().unwrap();
        balancer.heard.push(response.status() != 200);
        balancer.next_ms = self.now_ms + balancer.every_ms;
    }

    fn status(&self) -> Status {
        self.app.status(self.now())
    }

    fn acknowledged(&self) -> Option<bool> {
        let status = self.status();
        let service = status.services.iter().find(|service| service.service == SERVICE).unwrap();
        service.drain.acknowledged
    }

    /// Returns the time until the Service is acknowledged.
    fn until_acknowledged(&mut self) -> u64 {
        let began = self.now_ms;
        while self.acknowledged() != Some(true) {
            assert!(self.now_ms - began < 300_000, "not acknowledged: {:?}", self.status().services);
            self.pass(100);
        }
        self.now_ms - began
    }
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u64),
    Endpoints(usize),
    Cordon(bool),
    Proof(bool),
    Stop(usize),
    Begin(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1_u64..20_000).prop_map(Event::Pass),
        1 => (60_000_u64..200_000).prop_map(Event::Pass),
        4 => (0_usize..2).prop_map(Event::Endpoints),
        2 => any::<bool>().prop_map(Event::Cordon),
        1 => any::<bool>().prop_map(Event::Proof),
        1 => (0_usize..3).prop_map(Event::Stop),
        1 => (0_usize..3).prop_map(Event::Begin),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_service_is_acknowledged_only_when_every_regular_prober_of_its_path_is(
        balancers in prop::collection::vec(
            (
                prop_oneof![Just(500_u64), Just(2000), Just(10_000), Just(60_000)],
                prop_oneof![Just("/services/shop/web"), Just("/services/shop/web?drain=404")],
            ),
            3,
        ),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut rollout = Rollout::start(&balancers);
        let mut endpoints = 1;
        for event in events {
            match event {
                Event::Pass(ms) => rollout.pass(ms),
                Event::Endpoints(count) => {
                    endpoints = count;
                    rollout.endpoints(count);
                }
                Event::Cordon(true) => rollout.node(cordoned()),
                Event::Cordon(false) => rollout.node(ready()),
                Event::Proof(proof) => rollout.proof = proof,
                Event::Stop(n) => rollout.balancers[n].next_ms = u64::MAX,
                Event::Begin(n) => rollout.balancers[n].next_ms = rollout.now_ms,
            }
            if rollout.acknowledged() == Some(true) {
                let status = rollout.status();
                prop_assert!(endpoints == 0 && !status.cache.stale);
                // By all that they heard.
                let mut probers = status.probers;
                probers.retain(|prober| !matches!(prober.standing, Standing::Gone | Standing::Occasional));
                let heard: Vec<_> = probers.iter().map(|prober| {
                    let address: Ipv4Addr = prober.address.parse().unwrap();
                    &rollout.balancers[usize::from(address.octets()[3]) - 1].heard
                }).collect();
                let acknowledged = heard.iter().all(|heard| heard.ends_with(&[true; 4]));
                prop_assert!(!heard.is_empty() && acknowledged, "{heard:?}");
            }
        }
    }
}

#[test]
fn a_service_is_acknowledged_whatever_the_node_s_verdict_is() {
    let mut rollout = Rollout::start(&[(2000, "/services/shop/web"), (2000, "/services/shop/web?drain=404")]);
    rollout.pass(200_000);
    assert_eq!(rollout.acknowledged(), Some(false), "an endpoint is ready");
    rollout.endpoints(0);
    assert!((6000..=8100).contains(&rollout.until_acknowledged()));
    rollout.endpoints(1);
    rollout.node(cordoned());
    rollout.pass(10_000);
    assert_eq!(rollout.acknowledged(), Some(false));
    let of_the_node = rollout.status().drain.acknowledged;
    assert_eq!(of_the_node, Some(true), "only the one that sees drains is waited for");
    rollout.endpoints(0);
    assert!((6000..=8100).contains(&rollout.until_acknowledged()));
    assert_eq!(rollout.status().drain.acknowledged, Some(true), "a Service that goes does not undo that");
}

/// Most nodes have no endpoint of a small Service.
#[test]
fn a_node_comes_back_without_the_probers_of_services_that_have_no_endpoint_here() {
    let mut rollout = Rollout::start(&[(2000, "/services/shop/web?drain=404"), (2000, "/health")]);
    rollout.endpoints(0);
    rollout.node(cordoned());
    rollout.pass(200_000);
    assert_eq!(rollout.status().drain.acknowledged, Some(true));
    rollout.node(ready());
    rollout.pass(10_000);
    let drain = rollout.status().drain;
    assert_eq!((drain.acknowledged_probers, drain.probers, drain.acknowledged_ready), (1, 1, Some(true)));
}

#[test]
fn a_service_comes_back_when_kube_proxy_has_had_time_for_its_rules() {
    let mut rollout = Rollout::start(&[(500, "/services/shop/web")]);
    rollout.pass(1000);
    rollout.endpoints(0);
    rollout.pass(1000);
    rollout.endpoints(1);
    rollout.pass(3000);
    assert_eq!(rollout.balancers[0].heard, [[false; 2].as_slice(), &[true; 6], &[false; 2]].concat());
}

#[test]
fn sixteen_services_of_a_balancer_and_an_overflow_of_theirs_leave_the_node_alone() {
    let names: Vec<&'static str> =
        (0..16).map(|n| &*Box::leak(format!("shop/web{n}").into_boxed_str())).collect();
    let services = names.iter().map(|name| (*name, 1)).collect();
    let (board, app) = Scenario { services, ..Scenario::default() }.build();
    let at = |seconds| board.opened().unwrap().plus(Duration::from_secs(seconds));
    let ask = |peer: u32, target: &str, seconds: u64| {
        let request = Request::get(target).body(String::new()).unwrap();
        let peer = IpAddr::from(Ipv4Addr::from(0x0a00_0000 + peer));
        app.respond_to(request, at(seconds), peer).now_or_never().unwrap();
    };
    for second in [1, 6, 11] {
        ask(1, "/health", second);
        for name in &names {
            for query in ["?drain=404", "?drain=200"] {
                ask(1, &format!("/services/{name}{query}"), second);
            }
        }
    }
    let status = app.status(at(11));
    let overflows = |status: &Status| (status.drain.overflows, status.services[0].drain.overflows);
    assert_eq!((overflows(&status), status.probers.len()), ((0, 0), 33));
    for peer in 2..202 {
        ask(peer, "/services/shop/web0", 12);
    }
    let (of_node, of_services) = overflows(&app.status(at(12)));
    assert!(of_node == 0 && of_services > 0);
}
