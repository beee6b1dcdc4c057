//! Tests of the board: answers, flips, and views of one moment.

use crate::scenario::{Scenario, WALL, at, broken, node};
use nodegate_agent_api::Status;
use nodegate_agent_client::sentence::{caveat, last_known};
use nodegate_readiness::board::IDLE;
use nodegate_readiness::{HostSignals, Lookup, Moment, Node, NodeFacts, OnStale, Outcome, Policy, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whatever the API server says, and whether or not it is heard.
#[test]
fn a_host_that_goes_down_drains_until_it_says_otherwise() {
    let shutdown = |shutdown| HostSignals { shutdown, ..HostSignals::default() };
    let nodes = [node(false), node(true), Node::Absent, Node::Unknown, Node::Present(broken())];
    for on_stale in [OnStale::Ready, OnStale::KeepDrain, OnStale::NotReady] {
        for node in &nodes {
            let scenario = Scenario::with(Policy { on_stale, ..Policy::default() }, node.clone());
            let before = [1, 60].map(|second| scenario.text("drain=404", second));
            scenario.board.set_host(shutdown(true), at(2), WALL);
            for second in [2, 60] {
                assert_eq!(
                    scenario.text("drain=404", second),
                    r#"{"status":"draining","checks":[{"name":"node_ready","passed":false,"reason":"NodeShutdown","duration_ms":0}],"total_duration_ms":0}"#
                );
                let status = scenario.status(second);
                assert!(!status.is_based_on_stale_cache() && caveat(&status).is_none(), "{status:?}");
                assert_eq!(status.host, Some(shutdown(true)));
            }
            scenario.board.set_host(shutdown(false), at(61), WALL);
            assert_eq!([1, 60].map(|second| scenario.text("drain=404", second)), before);
        }
    }
}

#[test]
fn staleness_needs_no_timer() {
    let scenario = Scenario::ready();
    scenario.board.set_node(node(true), at(0), WALL);
    assert_eq!(scenario.ask("", 15).status, 503, "at the limit the cache is still believed");
    assert_eq!(
        scenario.text("", 16),
        r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"stale":true,"duration_ms":0}],"total_duration_ms":0}"#
    );
    assert_eq!(scenario.verdicts().len(), 1, "no tick has come yet");
    scenario.board.tick(at(16), WALL);
    assert_eq!(scenario.verdicts()[1], (Verdict::Draining, Verdict::Ready, "CacheStale".to_owned()));
    scenario.board.prove(at(20));
    assert_eq!(scenario.ask("", 20).status, 503, "what was known holds again");
}

#[test]
fn the_last_known_facts_are_shown_while_the_cache_is_stale() {
    let scenario = Scenario::begin(Policy::default(), &["router", "node_ready"]);
    let shown = |second| scenario.board.last_known(at(second)).as_ref().map(last_known);
    assert_eq!(shown(0), None, "nothing is known");
    scenario.board.set_node(node(true), at(0), WALL);
    scenario.board.prove(at(0));
    scenario.check("router", Outcome::fail("down"), 16);
    assert_eq!(shown(15), None, "no guess");
    assert_eq!(shown(16).as_deref(), Some("Draining: cordoned (Unschedulable)"), "of the watch alone");
    let status = scenario.status(256);
    assert_eq!(
        caveat(&status).as_deref(),
        Some(
            "the API server was last heard 4 min ago; before that the node was Draining: cordoned (Unschedulable); the \
             answer fails open"
        )
    );
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["last_known"], serde_json::json!({"verdict": "draining", "reason": "Unschedulable"}));
    scenario.board.set_node(node(false), at(16), WALL);
    assert_eq!(shown(16).as_deref(), Some("Ready"));
    let alone = Scenario::begin(Policy::default(), &["router"]);
    alone.board.set_node(node(true), at(0), WALL);
    assert_eq!(alone.board.last_known(at(16)), None, "no default check depends on the cache");
}

#[test]
fn before_the_first_sync_it_fails_open_and_flips_nothing() {
    let scenario = Scenario::begin(Policy::default(), &["node_ready"]);
    let unknown = scenario.ask("", 0);
    assert!(unknown.status == 200 && !unknown.fails_open, "there are no facts that said less");
    scenario.board.set_node(node(true), at(1), WALL);
    scenario.board.prove(at(1));
    scenario.board.open(at(1), WALL);
    assert_eq!(scenario.ask("", 1).status, 503);
    assert_eq!(scenario.verdicts(), []);
}

#[test]
fn a_local_check_is_awaited_then_answered_and_distrusted_when_its_run_is_overdue() {
    let scenario = Scenario::ready();
    let Lookup::Miss(query) = scenario.board.lookup("check=node_ready,router", at(1)) else { panic!() };
    let router = scenario.board.catalog().find("router").unwrap();
    assert_eq!(scenario.board.pending(&query, at(1)), [router]);
    scenario.check("router", Outcome::Pass, 1);
    assert_eq!(scenario.board.pending(&query, at(1)), []);
    assert_eq!(
        scenario.text("check=node_ready,router", 1),
        r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0},{"name":"router","passed":true,"duration_ms":7}],"total_duration_ms":7}"#
    );
    assert_eq!(scenario.board.last_requested(router), Some(at(1)));
    let rendered_ahead = scenario.board.lookup("check=node_ready,router", at(2));
    assert!(matches!(rendered_ahead, Lookup::Hit(_)));
    scenario.board.prove(at(12));
    assert!(scenario.text("check=router", 12).contains(r#""reason":"NoRecentResult""#));
    scenario.check("router", Outcome::fail("HTTP 500"), 12);
    assert!(scenario.text("check=router", 12).contains(r#""reason":"HTTP 500""#));
}

#[test]
fn invented_queries_are_answered_but_only_so_many_are_kept_and_idle_ones_go() {
    let scenario = Scenario::ready();
    let rendered = |second| {
        (0..100)
            .filter(|n| matches!(scenario.board.lookup(&format!("x={n}"), at(second)), Lookup::Hit(_)))
            .count()
    };
    for n in 0..100 {
        assert_eq!(scenario.ask(&format!("x={n}"), 1).status, 200);
    }
    assert_eq!(rendered(2), 64);
    let router = scenario.board.catalog().find("router").unwrap();
    scenario.check("router", Outcome::Pass, 2);
    scenario.ask("check=router", 2);
    assert!(matches!(scenario.board.lookup("check=router", at(3)), Lookup::Miss(_)), "it is not kept");
    scenario.ask("check=router", 4);
    assert_eq!(scenario.board.last_requested(router), Some(at(4)), "its check still counts as in use");
    // Its reason is bounded.
    let bogus = "b".repeat(256);
    let text = scenario.text(&format!("check={bogus}"), 2);
    assert!(text.contains(&bogus) && !text.contains(&format!("check: {bogus}")), "{text}");
    scenario.ask("check=bogus", 2);
    assert!(matches!(scenario.board.lookup("check=bogus", at(2)), Lookup::Miss(_)), "no check has this name");
    let later = 3 + IDLE.as_secs();
    scenario.board.tick(at(later), WALL);
    assert_eq!(rendered(later), 0);
}

/// A balancer takes both for out, so its row of answers goes on.
#[test]
fn a_flip_between_two_verdicts_that_are_out_is_no_pool_change() {
    let scenario = Scenario::ready();
    scenario.board.set_node(node(true), at(5), WALL);
    scenario.board.set_node(Node::Present(NodeFacts::default()), at(9), WALL);
    assert_eq!((scenario.board.last_pool_change(), scenario.board.flipped()), (at(5), at(9)));
}

/// The wall clock is set between the flip and the reading, as it may be at any time.
#[test]
fn the_age_of_a_flip_is_by_the_agents_own_clock() {
    let scenario = Scenario::ready();
    let day = Duration::from_hours(24);
    scenario.board.set_node(node(true), at(2), WALL + day);
    for wall in [WALL, WALL + day * 2] {
        let status = scenario.board.read(at(5), wall, Status::of);
        assert_eq!((status.flips[0].age_ms, status.flips[0].at_unix_ms), (3000, 24 * 3_600_000));
    }
}

#[test]
fn the_last_fifty_flips_and_the_last_reason_are_kept() {
    let scenario = Scenario::ready();
    for n in 0..60 {
        scenario.board.set_node(node(n % 2 == 0), at(0), WALL);
    }
    scenario.board.prove(at(2));
    let status = serde_json::to_value(scenario.status(3)).unwrap();
    assert_eq!(status["flips"].as_array().unwrap().len(), 50);
    assert_eq!(status["verdict"], "ready");
    assert_eq!(status["checks"][0]["last_reason"], "Unschedulable");
    assert_eq!(status["checks"][2]["active"], false);
    assert_eq!(status["cache"]["age_ms"], 1000);
}

/// A request at the end of an outage gets an answer that says that it is stale, or the proven facts.
#[test]
fn an_answer_from_before_the_proof_is_never_fresh() {
    for _ in 0..1000 {
        let scenario = Scenario::ready();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                scenario.board.set_node(node(true), at(100), WALL);
                scenario.board.prove(at(100));
            });
            while scenario.ask("", 100).status == 200 {
                let reply = scenario.ask("", 100);
                let is_stale = String::from_utf8_lossy(&reply.body).contains("\"stale\":true");
                assert!(reply.status == 503 || is_stale, "{reply:?}");
            }
        });
    }
}

/// A reader never combines the Node of one moment with the verdict, the flips or the time of another.
#[test]
fn a_view_has_no_change_in_it() {
    let (scenario, stop) = (Scenario::ready(), AtomicBool::new(false));
    let ms = |n| Duration::from_millis(n);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for n in 1..14_000 {
                let Node::Present(mut facts) = node(n % 2 == 1) else { unreachable!() };
                facts.uid = Some(n.to_string());
                scenario.board.set_node(Node::Present(facts), Moment::from_start(ms(n)), WALL + ms(n));
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            let (status, since) = scenario
                .board
                .read(at(0), WALL, |board| (Status::of(board), board.now.since(board.last_pool_change())));
            let Some(n) = status.uid.as_deref().and_then(|uid| uid.parse::<u64>().ok()) else { continue };
            let verdict = if n % 2 == 1 { Verdict::Draining } else { Verdict::Ready };
            assert_eq!(status.verdict, Some(verdict), "{n}");
            assert_eq!((status.flips[0].at_unix_ms, status.flips[0].to), (n, verdict));
            assert_eq!(status.facts.unwrap().unschedulable, verdict == Verdict::Draining);
            assert_eq!(since, Duration::ZERO, "its latest change is this one");
        }
    });
}

/// Time alone, then proof alone has changed the verdict, and no tick has come.
#[test]
fn a_view_records_the_flip_that_it_shows() {
    let scenario = Scenario::ready();
    scenario.board.set_node(node(true), at(1), WALL);
    for (second, verdict, stale) in [(16, Verdict::Ready, true), (17, Verdict::Draining, false)] {
        if !stale {
            scenario.board.prove(at(second));
        }
        scenario.board.read(at(second), WALL, |board| {
            let status = Status::of(board);
            assert_eq!((status.verdict, status.cache.stale), (Some(verdict), stale));
            assert_eq!((status.flips[0].to, board.last_pool_change()), (verdict, at(second)));
        });
    }
}
