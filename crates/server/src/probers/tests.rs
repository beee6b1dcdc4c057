//! Assignment of slots and identity of probers. Time is a number.

mod requests;

use super::*;
use crate::route::Route;
use http::HeaderMap;
use nodegate_agent_api::{DrainStatus, Standing, Status};
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::moment::millis;
use nodegate_readiness::{Catalog, LocalCheck, Policy, StartMode, Verdict};
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

/// The number of slots for probers of the node.
const SLOTS: usize = 256;
const IN: GivenAnswer = GivenAnswer { verdict: Verdict::Ready, code: Some(200) };
const OUT: GivenAnswer = GivenAnswer { verdict: Verdict::Draining, code: Some(503) };

struct Desk {
    probers: Probers,
    board: Arc<Board>,
}

fn at(ms: u64) -> Moment {
    Moment::from_start(Duration::from_millis(ms))
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn request(address: IpAddr, mut headers: HeaderMap, ms: u64) -> Probe {
    Probe::new(Client { address, on_this_node: false }, &mut headers, Route::Health, at(ms))
}

fn http<'a>(path: &'a str, query: &'a str) -> RequestTarget<'a> {
    RequestTarget::Http { path, query, changed: Moment::default() }
}

impl Desk {
    fn new(balancers: &str) -> Self {
        let kubelet =
            LocalCheck { name: "kubelet".to_owned(), timeout: Duration::ZERO, begins: StartMode::default() };
        let service = "shop/web".parse().unwrap();
        let catalog = Catalog::new(vec![kubelet]).with_services(vec![service]);
        let default = [catalog.find(NODE_READY).unwrap()];
        let board = Board::new(Some("n1".to_owned()), Policy::default(), catalog, &default);
        board.open(at(1), SystemTime::UNIX_EPOCH);
        let settings = ProberSettings { balancers: balancers.parse().unwrap(), ..ProberSettings::default() };
        let board = Arc::new(board);
        Self { probers: Probers::new(settings, Arc::clone(&board)), board }
    }

    fn note(&self, address: IpAddr, target: RequestTarget<'_>, given: GivenAnswer, ms: u64) {
        self.probers.note(&request(address, HeaderMap::new(), ms), target, given);
    }

    fn asks(&self, number: u32, path: &str, query: &str, ms: u64) {
        self.note(address(number), http(path, query), OUT, ms);
    }

    /// A HAProxy that sends this state asks for `/health`.
    fn asks_as(&self, number: u32, state: &str, ms: u64) {
        let header = ("x-haproxy-server-state".parse().unwrap(), state.parse().unwrap());
        let request = request(address(number), HeaderMap::from_iter([header]), ms);
        self.probers.note(&request, http("/health", ""), OUT);
    }

    fn agent_check(&self, number: u32, sent: &[u8], ms: u64) {
        self.note(address(number), RequestTarget::AgentCheck { sent }, OUT, ms);
    }

    fn becomes_regular(&self, number: u32, path: &str, query: &str, ms: u64) {
        (0..3).for_each(|n| self.asks(number, path, query, ms + n * 5000));
    }

    fn records(&self, ms: u64) -> Vec<ProberRecord> {
        self.probers.remembered(at(ms)).iter().map(|prober| prober.to_record(at(ms))).collect()
    }

    fn requests(&self, ms: u64) -> Vec<String> {
        self.records(ms).into_iter().map(|record| record.request).collect()
    }

    fn overflows(&self, ms: u64) -> u64 {
        self.probers.listening(true, at(ms)).1
    }

    fn listening_ms(&self, ms: u64) -> u64 {
        millis(at(ms).since(self.probers.listening(true, at(ms)).0))
    }

    fn handover(&self, ms: u64) -> Predecessor {
        let drain = DrainStatus { listening_ms: self.listening_ms(ms), ..DrainStatus::default() };
        let status = Status { probers: self.records(ms), drain, ..Status::default() };
        Predecessor::parse(&serde_json::to_vec(&status).unwrap(), "n1", SystemTime::UNIX_EPOCH).unwrap()
    }

    /// Returns the addresses of the probers that are waited for.
    fn awaited(&self, ms: u64) -> Vec<String> {
        let awaited = self.records(ms).into_iter().filter(ProberRecord::is_waited_for);
        awaited.map(|record| record.address).collect()
    }
}

#[test]
fn backends_that_name_themselves_are_probers_each() {
    let desk = Desk::new("");
    for n in 0..20 {
        desk.asks_as(1, &format!("UP 2/3; name=bck{n}/srv; node=lb1; weight=1/2; scur={n}/22; qcur=0"), 0);
    }
    assert_eq!(desk.records(0).len(), 20);
    let one = |ms| {
        let mut records = desk.records(ms).into_iter();
        let record = records.find(|record| record.who() == "10.0.0.1 lb1 bck7/srv").unwrap();
        let haproxy = record.haproxy.unwrap();
        (record.asked, haproxy.state, haproxy.sessions)
    };
    assert_eq!(one(0), (1, Some("UP".to_owned()), Some(7)));
    desk.asks_as(1, "DOWN; name=bck7/srv; node=lb1", 1000);
    assert_eq!(one(1000), (2, Some("DOWN".to_owned()), None));
    assert_eq!(desk.overflows(1000), 0);
}

#[test]
fn ten_thousand_strangers_push_no_balancer_out() {
    let desk = Desk::new("");
    for balancer in 0..10 {
        desk.becomes_regular(balancer, "/health", "", 0);
    }
    for stranger in 0..10_000 {
        desk.asks(1000 + stranger, "/health", "", 3000 + u64::from(stranger));
    }
    assert_eq!((desk.records(13_000).len(), desk.awaited(13_000).len()), (SLOTS, 10));
    assert!(desk.overflows(13_000) > 0, "one of them may have been a balancer");
    assert!(desk.listening_ms(13_000) < 1000);
    // A balancer that starts later finds a slot.
    desk.becomes_regular(500, "/health", "", 20_000);
    assert!(desk.awaited(30_000).contains(&address(500).to_string()));
    assert_eq!(desk.requests(2_000_000), vec!["/health"; 11], "strangers are forgotten, balancers are gone");
}

/// Returns probe requests whose answer a drain changes.
fn requests(of: usize) -> Vec<String> {
    (0..of).map(|n| format!("check=node_ready,name{n}")).collect()
}

#[test]
fn one_client_has_eight_requests_and_its_surplus_is_its_own_affair() {
    let (desk, names) = (Desk::new(""), requests(20));
    for (n, name) in names.iter().enumerate() {
        desk.asks(1, "/health", name, 0);
        // One host has a whole /64.
        desk.note(format!("2001:db8:0:7:{n:x}::1").parse().unwrap(), http("/health", name), OUT, 0);
    }
    desk.note("2001:db8:0:8::1".parse().unwrap(), http("/health", ""), OUT, 0);
    assert_eq!((desk.overflows(0), desk.records(0).len()), (0, 17));
    let desk = Desk::new("");
    for name in &names[..8] {
        desk.becomes_regular(1, "/health", name, 0);
    }
    desk.asks(1, "/health", &names[8], 10_000);
    assert_eq!((desk.awaited(10_000).len(), desk.records(10_000).len()), (8, 8));
    desk.asks(2, "/health", &names[8], 10_000);
    assert_eq!((desk.overflows(10_000), desk.records(10_000).len()), (0, 9), "another address has its own");
}

/// As nodegate-haproxy does with three Services of `externalTrafficPolicy: Local`, and more.
#[test]
fn a_request_that_no_drain_changes_takes_no_counted_slot() {
    let desk = Desk::new("");
    for name in &requests(8) {
        desk.becomes_regular(1, "/health", name, 0);
    }
    for n in 0..100 {
        desk.becomes_regular(1, "/services/shop/web", &format!("check=ignored{n}"), 0);
        desk.becomes_regular(1, "/health", &format!("check=other{n}"), 0);
    }
    assert_eq!(desk.overflows(10_000), 0);
    let records = desk.records(10_000);
    assert_eq!(records.iter().filter(|record| !record.sees_drains).count(), 9);
    let service = records.iter().find(|record| record.request == "/services/shop/web").unwrap();
    assert_eq!((records.len(), service.sees_drains, service.asked), (17, false, 300));
}

/// Else its first answer would seem to be the rest of a streak that began before the pause.
#[test]
fn the_row_of_a_prober_that_paused_begins_with_the_change_of_its_service() {
    let (desk, path) = (Desk::new(""), "/services/shop/web");
    for second in 0..120 {
        desk.note(address(1), http(path, ""), IN, second * 1000);
    }
    let target = RequestTarget::Http { path, query: "", changed: at(130_000) };
    desk.note(address(1), target, OUT, 132_000);
    let history = desk.probers.remembered(at(132_000))[0].history;
    assert_eq!(at(132_000).since(history.streak_from), Duration::from_secs(2));
}

#[test]
fn named_balancers_may_ask_more_and_no_other_client_counts() {
    let desk = Desk::new("10.0.0.0/29");
    for name in &requests(40) {
        desk.becomes_regular(1, "/health", name, 0);
    }
    for stranger in 8..1000 {
        desk.asks(stranger, "/health", "", 5000);
    }
    assert_eq!((desk.records(10_000).len(), desk.overflows(10_000)), (40, 0));
}

/// Plays a balancer that probes once a second from a pool of addresses, in turn or at random: the addresses of one
/// network with a name are one prober, which has acknowledged after `fall` answers that take it out and one more probe.
#[test]
fn a_pool_of_addresses_with_a_name_is_one_balancer() {
    for (size, at_random) in [(12, false), (64, false), (200, false), (12, true), (64, true), (200, true)] {
        let desk = Desk::new("lb=10.0.0.0/24,10.0.1.1");
        let probe = |second: u32, given| {
            let number = if at_random { second.wrapping_mul(0x9e37_79b9) >> 7 } else { second };
            desk.note(address(number % size), http("/health", ""), given, u64::from(second) * 1000);
        };
        (1..=120).for_each(|second| probe(second, IN));
        (121..=124).for_each(|second| probe(second, OUT));
        let [record] = <[_; 1]>::try_from(desk.records(124_000)).unwrap();
        let shown =
            (record.who(), record.asked, record.longest_interval_ms, record.in_a_row, record.is_waited_for());
        assert_eq!(shown, ("lb".to_owned(), 124, Some(1000), 4, true), "{size} {at_random}");
        // A successor takes it over, unless the name means another client there.
        for (balancers, taken) in
            [("lb=10.0.0.0/24", 1), ("lb=10.3.0.0/24", 1), ("", 0), ("b=10.0.0.0/24", 0)]
        {
            let after = Desk::new(balancers);
            let found = after.probers.take_over(&desk.handover(124_000), at(2));
            assert_eq!(found, taken, "{balancers}");
        }
    }
}

/// A regression: two addresses, each a HAProxy with 128 names, held all slots, and a new balancer was never
/// listed.
#[test]
fn a_crowd_at_few_addresses_leaves_a_slot_to_a_new_balancer() {
    let desk = Desk::new("");
    desk.becomes_regular(1, "/health", "", 0);
    for round in 0..3 {
        for name in 0..128 {
            for (client, name) in [(7, name), (8, name.min(126))] {
                desk.asks_as(client, &format!("UP; name=b{name}/s; node=n"), 20_000 + name + round * 5000);
            }
        }
    }
    assert_eq!((desk.records(31_000).len(), desk.awaited(31_000).len()), (SLOTS, SLOTS));
    let overflows = desk.overflows(31_000);
    desk.becomes_regular(500, "/health", "", 40_000);
    let regular = desk.awaited(50_000);
    let of = |client| regular.iter().filter(|one| **one == address(client).to_string()).count();
    assert_eq!([of(500), of(1), regular.len()], [1, 1, SLOTS], "{regular:?}");
    assert_eq!(desk.overflows(50_000), overflows + 1, "the one that had to go may have been a balancer");
    // The replaced prober is the latest of an address that has many. The probers that have been regular for
    // longest stay, and so do 32 of each address.
    assert!(of(7) >= 126 && of(8) >= 126, "{regular:?}");
}

#[test]
fn a_successor_takes_over_regular_probers() {
    let before = Desk::new("");
    for second in 1..=400 {
        let ms = second * 1000;
        before.asks(1, "/health", "drain=503", ms);
        before.agent_check(2, b"lb 2", ms);
        before.asks_as(3, "UP 2/3; name=app/n1; node=lb1; scur=3/4", ms);
        before.asks(4, "/health", "check=kubelet", ms);
    }
    before.asks(5, "/health", "", 400_000);
    let handover = || before.handover(400_500);
    let after = Desk::new("");
    assert_eq!(after.probers.take_over(&handover(), at(2)), 4);
    let stranger = address(5).to_string();
    let old = before.records(400_500).into_iter().filter(|record| record.address != stranger);
    // The streak starts over, and what HAProxy says of its server comes with the next probe.
    let expected = old.map(|mut record| {
        if let Some(haproxy) = &mut record.haproxy {
            (haproxy.state, haproxy.sessions) = (None, None);
        }
        ProberRecord { in_a_row: 0, ..record }
    });
    assert_eq!(after.records(2), expected.collect::<Vec<_>>());
    assert!(after.listening_ms(2) >= 400_000);
    // The prober is found again when it asks, and keeps its record.
    after.asks(1, "/health", "drain=503", 600);
    let record = after.records(600).remove(0);
    assert_eq!((record.asked, record.standing, record.in_a_row), (401, Standing::Regular, 1));
    assert!((1000..1100).contains(&record.interval_ms.unwrap()), "{record:?}");
    assert_eq!(after.probers.take_over(&handover(), at(700)), 0, "all are there");
    // The successor does not take over the listening time of an agent for which other clients count, or whose
    // probers it can't parse.
    let listened = |balancers: &str, handover: Predecessor| {
        let other = Desk::new(balancers);
        let taken = other.probers.take_over(&handover, at(2));
        (taken, other.listening_ms(2) > 400_000)
    };
    assert_eq!(listened("10.0.0.1,10.0.0.2", handover()), (2, true));
    let of = |balancers: &str| Predecessor { balancers: vec![balancers.to_owned()], ..handover() };
    assert_eq!(listened("", of("10.0.0.1/32")), (4, false));
    assert_eq!(listened("10.0.0.1", of("10.0.0.1/32")), (1, true));
    let mut odd = handover();
    odd.probers[0].request.push('<');
    assert_eq!(listened("", odd), (3, false));
}

#[test]
fn a_full_table_of_regular_probers_takes_no_other_and_slow_strangers_are_no_overflow() {
    let desk = Desk::new("");
    for balancer in 0..300 {
        desk.becomes_regular(balancer, "/health", "", 0);
    }
    assert_eq!([desk.records(3000).len(), desk.awaited(3000).len()], [SLOTS; 2]);
    assert_eq!(desk.overflows(3000), 44 * 3);
    // These probers are gone by now, and leave their slots.
    for stranger in 400..1400 {
        desk.asks(stranger, "/health", "", 600_000 + u64::from(stranger - 400) * 1000);
    }
    assert_eq!((desk.overflows(1_600_000), desk.records(1_600_000).len()), (44 * 3, SLOTS));
}
