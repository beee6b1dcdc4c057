//! Probers, as seen over sockets.

use crate::scenario::Scenario;
use futures::FutureExt;
use http::Request;
use serde_json::Value;
use std::time::Duration;

#[test]
fn only_questions_for_the_verdict_count() {
    let server = Scenario { services: vec![("shop/web", 1)], ..Scenario::default() }.serve();
    for target in
        ["/", "/metrics", "/livez", "/readyz", "/nodename", "/status.json", "/bogus", "/health?drain=x"]
    {
        server.get(target);
    }
    server.get("/services/shop/other");
    assert!(server.probers().is_empty());
    for target in ["/health", "/nodecheck", "/services/shop/web?drain=503", "/health?check=bogus"] {
        server.get(target);
    }
    server.request("OPTIONS", "/");
    server.request("OPTIONS", "*");
    server.request("HEAD", "/health");
    let expected = [
        ("/health", 2),
        ("/health?check=bogus", 1),
        ("/nodecheck", 1),
        ("/services/shop/web?drain=503", 1),
        ("OPTIONS /", 2),
    ];
    assert_eq!(server.probers(), expected.map(|(request, asked)| (request.to_owned(), asked)));
}

#[test]
fn a_balancer_that_asks_the_wrong_question_is_named_and_people_prometheus_and_this_node_are_none() {
    let custom = "/health?check=custom_conditions";
    // The client, its request, a header, and its name.
    let clients = [
        ["10.0.0.1", "GET", "/", "", "10.0.0.1 GET /"],
        ["10.0.0.2", "HEAD", "/", "user-agent: HTTP-Monitor/1.1", "10.0.0.2 HEAD /"],
        ["10.0.0.3", "GET", custom, "", "10.0.0.3 /health?check=custom_conditions"],
        ["10.0.0.4", "GET", "/health", "", ""],
        ["10.0.0.5", "OPTIONS", "/", "", ""],
        ["10.0.0.6", "GET", "/healthz?a", "", "10.0.0.6 GET /healthz"],
        ["10.0.0.7", "POST", "/health", "", "10.0.0.7 POST /health"],
        ["10.0.0.8", "GET", "/health%20", "", "10.0.0.8 GET /health%20"],
        ["10.0.1.1", "GET", "/", "accept: text/HTML,application/xhtml+xml;q=0.9", ""],
        ["10.0.1.2", "GET", "/", "user-agent: kube-probe/1.36", ""],
        ["10.0.1.3", "HEAD", "/", "user-agent: Prometheus/3.5.0", ""],
        ["127.0.0.1", "GET", "/", "", ""],
        ["127.0.0.1", "GET", custom, "", ""],
        ["10.0.1.4", "GET", "/livez", "", ""],
        ["10.0.1.4", "GET", "/readyz", "", ""],
        ["10.0.1.4", "GET", "/metrics", "", ""],
        ["10.0.1.4", "GET", "/status.json", "", ""],
        ["10.0.1.5", "GET", "/favicon.ico", "accept: text/html", ""],
        ["127.0.0.1", "GET", "/healthz", "", ""],
    ];
    let (_, app) = Scenario::default().build();
    let now = app.now();
    let at = |n| now.plus(Duration::from_secs(5) * n);
    for n in 0..4 {
        for [peer, method, target, header, _] in &clients {
            let mut request = Request::builder().method(*method).uri(*target);
            if let Some((name, value)) = header.split_once(": ") {
                request = request.header(name, value);
            }
            let request = request.body(String::new()).unwrap();
            let answered = app.respond_to(request, at(n), peer.parse().unwrap());
            let response = answered.now_or_never().unwrap();
            assert!(matches!(response.status().as_u16(), 200 | 404 | 405), "{peer} {target}");
        }
    }
    let named: Vec<_> = clients.iter().map(|row| row[4]).filter(|name| !name.is_empty()).collect();
    assert_eq!(app.status(at(4)).drain.cant_see_drains, named);
}

#[test]
fn what_is_no_http_is_counted_by_kind() {
    let server = Scenario::default().serve();
    for start in [
        "\u{16}\u{3}\u{1}\u{2}",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /health  HTTP/1.1\r\n\r\n",
        "PROXY x\r\n",
    ] {
        server.exchange(start);
    }
    drop(server.connect());
    server.request("POST", "/health");
    server.get("/health/");
    let count = |kind: &str, body: &str| {
        let series = format!("nodegate_stray_requests_total{{kind=\"{kind}\"}} ");
        body.lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned))
    };
    nodegate_testbed::waiting::until("each kind", || {
        let body = server.get("/metrics").body;
        let counted = ["tls", "http2", "malformed", "method", "path"].map(|kind| count(kind, &body));
        (counted == ["1", "1", "2", "1", "1"].map(|times| Some(times.to_owned()))).then_some(())
    });
    assert!(server.probers().is_empty(), "this node is no load balancer");
}

/// Eight addresses with the longest names and probe requests that are accepted.
#[test]
fn drain_json_is_short_for_any_probers() {
    let server = Scenario::default().serve();
    for client in 1..=8 {
        let (node, name) = ("n".repeat(64), format!("{}/{}", "s".repeat(64), "t".repeat(63)));
        let state = format!("X-Haproxy-Server-State: UP 2/3; name={name}; node={node}{client}");
        let target = format!("/health?check=node_ready,{}", "%1b%22".repeat(300));
        server.exchange(format!("GET {target} HTTP/1.0\r\n{state}\r\n\r\n"));
    }
    assert_eq!(server.probers().len(), 8);
    let answer = server.get("/drain.json");
    assert!(answer.body.len() < 2048, "{}", answer.body.len());
    let drain: Value = serde_json::from_str(&answer.body).unwrap();
    let status: Value = serde_json::from_str(&server.get("/status.json").body).unwrap();
    for key in ["node", "start_id", "verdict"] {
        assert_eq!(drain[key], status[key], "{key}");
        assert!(!drain[key].is_null(), "{key}");
    }
    for key in ["acknowledged", "acknowledged_ready", "released", "settings"] {
        assert_eq!(drain[key], status["drain"][key], "{key}");
    }
    assert!(drain["not_known"].as_str().unwrap().contains("has listened for"), "{drain}");
    assert_eq!((&drain["not_known_code"], &drain["balancers"]), (&"listening".into(), &false.into()));
    assert_eq!(drain["settings"], serde_json::json!({"fall":3,"rise":2,"interval_ms":null,"probers":null}));
    assert_eq!((&drain["probers"], &drain["stale"]), (&0.into(), &false.into()));
}

#[test]
fn agent_checks_are_probers_by_what_they_send() {
    let server = Scenario::default().serve_agent_check();
    // The string changes no answer, however long it is.
    for send in ["", "lb1\n", "lb2 <b>\n", &"lb3\n".repeat(1000)] {
        let mut client = server.send(send);
        assert_eq!(client.read_to_close(), "up ready\n");
        // HAProxy ends its connections like this.
        socket2::SockRef::from(&client.0).set_linger(Some(Duration::ZERO)).unwrap();
    }
    let expected = ["agent-check", "agent-check lb1", "agent-check lb2%20%3Cb%3E", "agent-check lb3"];
    let expected = expected.map(|request| (request.to_owned(), 1));
    nodegate_testbed::until("all to be noted", || (server.probers() == expected).then_some(()));
    assert!(server.app.status(server.now()).probers.iter().all(|prober| prober.code.is_none()));
}
