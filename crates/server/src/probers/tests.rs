//! Who has a place, and who is noted as whom. Time is a number.

use super::*;
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::{Begins, Catalog, LocalCheck, Policy, Verdict};
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

const OUT: Given = Given { verdict: Verdict::Draining, code: Some(503) };

struct Desk {
    probers: Probers,
    board: Board,
}

fn at(ms: u64) -> Moment {
    Moment::from_start(Duration::from_millis(ms))
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn http<'a>(peer: IpAddr, path: &'a str, query: &'a str) -> Question<'a> {
    Question { peer, asks: Asks::Http { path, query }, server_state: None }
}

impl Desk {
    fn new() -> Self {
        let kubelet =
            LocalCheck { name: "kubelet".to_owned(), timeout: Duration::ZERO, begins: Begins::default() };
        let service = "shop/web".parse().unwrap();
        let catalog = Catalog::new(vec![kubelet]).with_services(vec![service]);
        let default = [catalog.find(NODE_READY).unwrap()];
        let board = Board::new(Some("n1".to_owned()), Policy::default(), catalog, &default, Box::new(|_| {}));
        board.open(at(1), SystemTime::UNIX_EPOCH);
        Self { probers: Probers::default(), board }
    }

    fn note(&self, question: &Question<'_>, ms: u64) {
        self.probers.note(question, OUT, &self.board, at(ms));
    }

    fn asks(&self, number: u32, path: &str, query: &str, ms: u64) {
        self.note(&http(address(number), path, query), ms);
    }

    fn records(&self, ms: u64) -> Vec<ProberRecord> {
        self.probers.records(at(ms))
    }

    fn questions(&self, ms: u64) -> Vec<String> {
        self.records(ms).into_iter().map(|record| record.question).collect()
    }

    fn overflows(&self, ms: u64) -> u64 {
        self.probers.drain(&self.board, at(ms)).overflows
    }

    /// Asks thrice, a second apart.
    fn becomes_regular(&self, number: u32, path: &str, query: &str, ms: u64) {
        (0..3).for_each(|n| self.asks(number, path, query, ms + n * 1000));
    }
}

#[test]
fn the_same_question_in_other_words_is_the_same() {
    let desk = Desk::new();
    for (n, query) in [
        "drain=503&check=node_ready",
        "check=node_ready&drain=503",
        "check=node%5Fready,,node_ready&t=17&drain=404&drain=%3503",
    ]
    .into_iter()
    .cycle()
    .take(9)
    .enumerate()
    {
        desk.asks(1, "/health", query, 1000 + n as u64 * 1000);
    }
    let records = desk.records(9000);
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!(record.question, "/health?check=node_ready&drain=503");
    assert_eq!((record.asked, record.in_a_row, record.standing), (9, 9, Standing::Regular));
    assert_eq!((record.code, record.verdict), (Some(503), Verdict::Draining));
    assert!((900..=1000).contains(&record.interval_ms.unwrap()));
}

#[test]
fn questions_are_told_apart_and_shown_in_harmless_characters() {
    let desk = Desk::new();
    for (path, query) in [
        ("/health", ""),
        ("/nodecheck", ""),
        ("*", ""),
        ("/services/shop/web", "drain=503&check=ignored"),
        ("/health", "check=%3Cscript%3E\u{202e}%22,\n"),
    ] {
        desk.asks(1, path, query, 0);
    }
    let agent = |sent: &'static [u8]| Question {
        peer: address(2),
        asks: Asks::AgentCheck { sent },
        server_state: None,
    };
    desk.note(&agent(b""), 0);
    desk.note(&agent(b"lb1 \"a\"\r\nmore"), 0);
    let seen = desk.questions(0);
    assert_eq!(
        seen,
        [
            "/health",
            "/health?check=%3Cscript%3E%E2%80%AE%22",
            "/nodecheck",
            "/services/shop/web?drain=503",
            "OPTIONS /",
            "agent-check",
            "agent-check lb1%20%22a%22",
        ]
    );
}

#[test]
fn what_a_drain_can_change_is_known() {
    let desk = Desk::new();
    for ((path, query, drainable), n) in [
        ("/health", "", true),
        ("/health", "drain=200", true),
        ("/health", "check=kubelet", false),
        ("/health", "check=kubelet,node_ready", true),
        ("/nodecheck", "check=bogus", false),
        ("/services/shop/web", "", false),
        ("/services/shop/web", "drain=404", true),
    ]
    .into_iter()
    .zip(0_u32..)
    {
        desk.asks(n, path, query, 0);
        assert_eq!(desk.records(0).last().unwrap().drainable, drainable, "{path}?{query}");
    }
}

#[test]
fn a_check_counts_as_named_while_somebody_goes_on_asking() {
    let desk = Desk::new();
    let kubelet = desk.board.catalog().find("kubelet").unwrap();
    desk.asks(1, "/health", "check=kubelet", 0);
    assert!(!desk.probers.name(kubelet, at(0)), "a stranger's single question");
    desk.becomes_regular(1, "/health", "check=kubelet", 1000);
    assert!(desk.probers.name(kubelet, at(3000)));
    assert!(!desk.probers.name(kubelet, at(100_000)), "gone");
}

#[test]
fn an_ipv4_client_of_a_dual_stack_socket_is_an_ipv4_client() {
    let desk = Desk::new();
    desk.note(&http("::ffff:10.0.0.1".parse().unwrap(), "/health", ""), 0);
    desk.note(&http("10.0.0.1".parse().unwrap(), "/health", ""), 1000);
    assert_eq!(desk.records(0).len(), 1);
    assert_eq!(desk.records(0)[0].who(), "10.0.0.1");
}

#[test]
fn backends_that_name_themselves_are_probers_each() {
    let desk = Desk::new();
    let states: Vec<_> = (0..20)
        .map(|n| format!("UP 2/3; name=bck{n}/srv; node=lb1; weight=1/2; scur={n}/22; qcur=0"))
        .collect();
    for state in &states {
        let server_state = Some(state.as_bytes());
        desk.note(&Question { server_state, ..http(address(1), "/health", "") }, 0);
    }
    let records = desk.records(0);
    assert_eq!(records.len(), 20);
    let one = records.iter().find(|record| record.who() == "10.0.0.1 lb1 bck7/srv").unwrap();
    let haproxy = one.haproxy.as_ref().unwrap();
    assert_eq!((haproxy.state.as_deref(), haproxy.sessions), (Some("UP 2/3"), Some(7)));
    desk.note(
        &Question { server_state: Some(b"DOWN; name=bck7/srv; node=lb1"), ..http(address(1), "/health", "") },
        1000,
    );
    let records = desk.records(1000);
    let one = records.iter().find(|record| record.who() == "10.0.0.1 lb1 bck7/srv").unwrap();
    let haproxy = one.haproxy.as_ref().unwrap();
    assert_eq!((one.asked, haproxy.state.as_deref(), haproxy.sessions), (2, Some("DOWN"), None));
    assert_eq!(desk.overflows(1000), 0);
}

#[test]
fn ten_thousand_strangers_push_no_balancer_out() {
    let desk = Desk::new();
    for balancer in 0..10 {
        desk.becomes_regular(balancer, "/health", "", 0);
    }
    for stranger in 0..10_000 {
        desk.asks(1000 + stranger, "/health", "", 3000 + u64::from(stranger));
    }
    let records = desk.records(13_000);
    assert_eq!(records.len(), PLACES);
    let regular = records.iter().filter(|record| record.standing != Standing::Occasional);
    assert_eq!(regular.count(), 10);
    assert!(desk.overflows(13_000) > 0, "one of them may have been a balancer");
    let drain = desk.probers.drain(&desk.board, at(13_000));
    assert!(drain.listening_ms < 1000);
    // A balancer that begins after them finds a place.
    desk.becomes_regular(500, "/health", "", 20_000);
    assert!(
        desk.records(22_000)
            .iter()
            .any(|record| record.standing == Standing::Regular && record.address == address(500))
    );
    assert_eq!(desk.questions(2_000_000), vec!["/health"; 11], "strangers are forgotten, balancers are gone");
}

#[test]
fn strangers_who_come_slowly_are_no_overflow() {
    let desk = Desk::new();
    for stranger in 0..1000 {
        desk.asks(stranger, "/health", "", u64::from(stranger) * 1000);
    }
    assert_eq!((desk.overflows(1_000_000), desk.records(1_000_000).len()), (0, PLACES));
}

#[test]
fn one_address_has_eight_questions() {
    let desk = Desk::new();
    let names: Vec<_> = (0..20).map(|n| format!("check=name{n}")).collect();
    for name in &names {
        desk.asks(1, "/health", name, 0);
    }
    assert_eq!(desk.records(0).len(), 8);
    let desk = Desk::new();
    for name in &names[..8] {
        desk.becomes_regular(1, "/health", name, 0);
    }
    assert_eq!(desk.overflows(3000), 0);
    desk.asks(1, "/health", &names[8], 3000);
    assert_eq!((desk.overflows(3000), desk.records(3000).len()), (1, 8));
    assert!(desk.records(3000).iter().all(|record| record.standing == Standing::Regular));
    desk.asks(2, "/health", &names[8], 3000);
    assert_eq!(desk.overflows(3000), 1, "another address has questions of its own");
}

#[test]
fn when_all_who_are_remembered_go_on_asking_nobody_else_is() {
    let desk = Desk::new();
    for balancer in 0..300 {
        desk.becomes_regular(balancer, "/health", "", 0);
    }
    let records = desk.records(3000);
    assert!(records.len() == PLACES && records.iter().all(|record| record.standing == Standing::Regular));
    assert_eq!(desk.overflows(3000), 44 * 3);
    // They have gone by now, and make room.
    desk.asks(400, "/health", "", 600_000);
    assert_eq!(desk.overflows(600_000), 44 * 3);
    assert!(desk.records(600_000).iter().any(|record| record.address == address(400)));
}

#[test]
fn only_the_questions_of_balancers_count_where_they_are_named() {
    let desk = Desk::new();
    let balancers = "10.0.0.0/29".parse().unwrap();
    desk.probers.set(ProberSettings { balancers, traffic: None });
    for number in 0..10_000 {
        desk.asks(number, "/health", "", 0);
    }
    assert_eq!((desk.records(0).len(), desk.overflows(0)), (8, 0));
}

#[test]
fn a_long_question_is_cut_and_still_its_own() {
    let desk = Desk::new();
    let long = |end: &str| format!("check={}{end}", "x".repeat(1000));
    for end in ["a", "b"] {
        desk.asks(1, "/health", &long(end), 0);
    }
    let seen = desk.questions(0);
    assert_eq!(seen.len(), 2);
    assert!(seen[0] != seen[1] && seen.iter().all(|question| question.len() < 220), "{seen:?}");
}
