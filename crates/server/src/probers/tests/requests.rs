//! Probe requests: which are the same, how they are shown, and what a drain or a check has to do with them.

use super::*;

#[test]
fn the_same_request_in_another_spelling_is_the_same() {
    let desk = Desk::new("");
    let spellings = [
        ("::ffff:10.0.0.1", "drain=503&check=node_ready"),
        ("10.0.0.1", "check=node_ready&drain=503"),
        ("10.0.0.1", "check=node%5Fready,,node_ready&t=17&drain=404&drain=%3503"),
    ];
    for ((client, query), ms) in spellings.into_iter().cycle().zip((1000..).step_by(2000)).take(9) {
        desk.note(client.parse().unwrap(), http("/health", query), OUT, ms);
    }
    let [record] = <[_; 1]>::try_from(desk.records(17_000)).unwrap();
    assert_eq!(
        (record.who(), &*record.request),
        ("10.0.0.1".to_owned(), "/health?check=node_ready&drain=503")
    );
    assert_eq!((record.asked, record.in_a_row, record.standing), (9, 9, Standing::Regular));
    assert_eq!((record.code, record.verdict), (Some(503), Verdict::Draining));
    assert!((1900..=2000).contains(&record.interval_ms.unwrap()));
}

#[test]
fn requests_are_distinguished_and_shown_in_harmless_characters() {
    let desk = Desk::new("");
    for (path, query) in [
        ("/health", ""),
        ("/nodecheck", ""),
        ("*", ""),
        ("/services/shop/web", "drain=503&check=ignored"),
        ("/health", "check=%3Cscript%3E\u{202e}%22,\n"),
    ] {
        desk.asks(1, path, query, 0);
    }
    desk.agent_check(2, b"", 0);
    desk.agent_check(2, b"lb1 \"a\"\r\nmore", 0);
    let seen = [
        "/health",
        "/health?check=%3Cscript%3E%E2%80%AE%22",
        "/nodecheck",
        "/services/shop/web?drain=503",
        "OPTIONS /",
        "agent-check",
        "agent-check lb1%20%22a%22",
    ];
    assert_eq!(desk.requests(0), seen);
    // A long request is cut, and still its own.
    let long = Desk::new("");
    for end in ["a", "b"] {
        long.asks(1, "/health", &format!("check={}{end}", "x".repeat(1000)), 0);
    }
    let seen = long.requests(0);
    assert_eq!(seen.len(), 2);
    assert!(seen[0] != seen[1] && seen.iter().all(|request| request.len() < 220), "{seen:?}");
}

#[test]
fn requests_that_a_drain_changes_are_known() {
    let desk = Desk::new("");
    let requests = [
        ("/health", "", true),
        ("/health", "drain=200", true),
        ("/health", "drain=404&excluded=200", true),
        ("/health", "check=kubelet", false),
        ("/health", "check=kubelet,node_ready", true),
        ("/nodecheck", "check=bogus", false),
        ("/services/shop/web", "", false),
        ("/services/shop/web", "drain=404", true),
    ];
    for ((path, query, sees_drains), n) in requests.into_iter().zip(0..) {
        desk.asks(n, path, query, 0);
        assert_eq!(desk.records(0).last().unwrap().sees_drains, sees_drains, "{path}?{query}");
    }
}

#[test]
fn a_check_counts_as_named_while_a_prober_names_it() {
    let desk = Desk::new("");
    let kubelet = desk.board.catalog().find("kubelet").unwrap();
    desk.asks(1, "/health", "check=kubelet", 0);
    assert!(!desk.probers.is_check_named(kubelet, at(0)), "a stranger's single request");
    desk.becomes_regular(1, "/health", "check=kubelet", 1000);
    assert!(desk.probers.is_check_named(kubelet, at(11_000)));
    assert!(!desk.probers.is_check_named(kubelet, at(100_000)), "gone");
}
