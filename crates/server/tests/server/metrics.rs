//! Compares all of /metrics with a golden file, and checks it with promtool.

use crate::scenario::{Running, Scenario, cordoned, local_result, ready};
use nodegate_readiness::Outcome;
use nodegate_testbed::programs::must_run;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/golden/metrics.txt");

/// Families whose values differ from run to run.
const VOLATILE: [&str; 4] =
    ["process_", "nodegate_cache_age_seconds", "nodegate_check_age_seconds", "nodegate_prober_age_seconds"];

fn scenario() -> Running {
    let server = Scenario { local: vec!["kubelet", "http:a\"b\\c", "idle"], ..Scenario::default() }.serve();
    let catalog = server.board.catalog();
    let (kubelet, odd) = (catalog.find("kubelet").unwrap(), catalog.find("http:a\"b\\c").unwrap());
    let now = server.now();
    server.board.set_local(kubelet, Some(local_result(Outcome::Pass, now)), now, nodegate_clock::wall());
    let fail = Outcome::fail("refused");
    server.board.set_local(odd, Some(local_result(fail, now)), now, nodegate_clock::wall());
    server.set_node(cordoned());
    server.set_node(ready());
    server.set_node(cordoned());
    server
}

/// Masks values that differ from run to run, and sorts the series of each family.
fn masked(text: &str) -> String {
    let mask = |line: &str| match line.rsplit_once(' ') {
        Some((series, _)) if VOLATILE.iter().any(|name| series.starts_with(name)) => format!("{series} #\n"),
        _ => format!("{line}\n"),
    };
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let mut lines: Vec<String> = text.lines().map(mask).collect();
    lines.chunk_by_mut(|a, b| a.starts_with('#') == b.starts_with('#')).for_each(|part| {
        if !part[0].starts_with('#') {
            part.sort_unstable();
        }
    });
    lines.concat()
}

#[test]
fn the_whole_output() {
    let server = scenario();
    // One prober is regular, has acknowledged the verdict and has asked once more.
    for n in 0..4 {
        // At least three times within ten seconds.
        std::thread::sleep(Duration::from_millis(3400) * u32::from(n > 0));
        server.get("/health");
    }
    server.get("/health?drain=418");
    server.get("/bogus/and/more");
    let response = server.get("/metrics");
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    must_run(Command::new("sh").args(["-c", "printf %s \"$0\" | promtool check metrics", &response.body]));
    let found = masked(&response.body);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &found).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert_eq!(found, golden, "if that is meant: UPDATE_GOLDEN=1 cargo test -p nodegate-server metrics");
}

#[test]
fn the_format_is_the_one_that_the_scraper_reads() {
    let server = scenario();
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let open_metrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, expected) in [
        // Prometheus 2.42 and 3.5, and a browser.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            open_metrics,
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            open_metrics,
        ),
        ("text/html,application/xhtml+xml,*/*;q=0.8", text),
        ("Application/OpenMetrics-Text", open_metrics),
        ("application/openmetrics-text; version=\"1.0.0\"", open_metrics),
        ("application/openmetrics-text;version=0.0.1,text/plain;q=0.5", text),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", text),
        ("application/openmetrics-text;q=0,text/plain", text),
        ("application/openmetrics-textual", text),
        ("\"", text),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        let response = server.send(request).response();
        assert_eq!(response.header("content-type"), Some(expected), "{accept}");
        assert_eq!(response.body.ends_with("\n# EOF\n"), expected == open_metrics, "{accept}");
    }
}

/// Requests from any client create no series beyond the closed sets.
#[test]
fn hostile_requests_make_no_series() {
    let server = scenario();
    let before = series(&server.get("/metrics").body);
    for n in 0..40 {
        server.get(&format!("/bogus/{n}?check=x{n}"));
        server.get(&format!("/health?check=bogus{n},http:evil{n}"));
        server.get(&format!("/health?drain={}", 200 + n * 10));
        server.get(&format!("/services/ns{n}/name{n}"));
        server.get(&format!("/metrics?{n}"));
        server.request(&format!("BOGUS{n}"), "/health");
    }
    let after = series(&server.get("/metrics").body);
    let new: Vec<_> = after.difference(&before).collect();
    let counted = ["nodegate_http_requests_total{path=", "nodegate_answers_total{question="];
    assert!(new.iter().all(|name| counted.iter().any(|ours| name.starts_with(ours))), "{new:#?}");
    assert!(!new.iter().any(|name| name.contains("bogus") || name.contains("evil")), "{new:#?}");
    // One series for each kind of answer, far below the hundred of the closed sets.
    assert!((5..=20).contains(&new.len()), "{new:#?}");
}

fn series(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name.to_owned()).collect()
}
