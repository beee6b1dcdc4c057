//! A known request gets the same answer as a parsed one.

use crate::scenario::{Running, Scenario, cordoned, ready};
use rustix::net::{SendFlags, send};

/// Heads that balancers send; `{}` stands for the part that changes from probe to probe.
const HEADS: [&str; 6] = [
    "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET /nodecheck HTTP/1.0\r\n\r\n",
    "OPTIONS / HTTP/1.0\r\n\r\n",
    "HEAD /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "OPTIONS / HTTP/1.0\r\nX-Haproxy-Server-State: UP 2/3; name=app/a; node=lb1; scur={}/9; qcur=0\r\n\r\n",
    "GET /health HTTP/1.1\r\nConnection: close\r\nX-Haproxy-Server-State: UP {}; name=app/b; node=lb1\r\n\r\n",
];

/// Returns the whole answer except its date.
fn ask(server: &Running, head: &str) -> String {
    let mut client = server.connect();
    client.send(head);
    let answer = client.read_to_close();
    answer.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}

#[test]
fn what_is_known_is_answered_as_what_is_parsed() {
    let server = Scenario::default().serve();
    for (round, facts) in [ready(), cordoned(), ready()].into_iter().enumerate() {
        server.set_node(facts);
        for head in HEADS {
            let parsed = ask(&server, &head.replacen("\r\n", &format!("\r\nX-Round: {round}\r\n"), 1));
            for number in 0..3 {
                assert_eq!(ask(&server, &head.replace("{}", &number.to_string())), parsed, "{head}");
            }
        }
    }
}

#[test]
fn each_is_counted_and_noted() {
    let server = Scenario::default().serve();
    for head in HEADS {
        for number in 0..5 {
            ask(&server, &head.replace("{}", &number.to_string()));
        }
    }
    let metrics = server.get("/metrics").body;
    for count in [
        "nodegate_answers_total{question=\"/health\",verdict=\"ready\"} 25",
        "nodegate_answers_total{question=\"/nodecheck\",verdict=\"ready\"} 5",
        "nodegate_http_requests_total{path=\"/health\",code=\"200\"} 25",
    ] {
        assert!(metrics.lines().any(|line| line == count), "{count}: {metrics}");
    }
    let status: serde_json::Value = serde_json::from_str(&server.get("/status.json").body).unwrap();
    let probers = status["probers"].as_array().unwrap();
    let asked: u64 = probers.iter().map(|prober| prober["asked"].as_u64().unwrap()).sum();
    assert_eq!(asked, 30, "{probers:#?}");
    for server in ["app/a", "app/b"] {
        let named = |prober: &&serde_json::Value| prober["haproxy"]["server"] == server;
        let prober = probers.iter().find(named).unwrap();
        assert_eq!(prober["asked"], 5, "what HAProxy says of its server is read each time");
    }
}

#[test]
fn a_kept_connection_goes_on_whatever_comes() {
    let server = Scenario::default().serve();
    let mut client = server.connect();
    let known = "GET /nodecheck HTTP/1.1\r\nHost: a\r\n\r\n";
    for round in 0..4 {
        server.set_node(if round % 2 == 0 { ready() } else { cordoned() });
        let expected = if round % 2 == 0 { "OK" } else { "Down" };
        for _ in 0..3 {
            client.send(known);
            assert_eq!(client.response().body, expected);
        }
        client.send(known.repeat(3));
        for _ in 0..3 {
            assert_eq!(client.response().body, expected);
        }
        let (begin, end) = known.split_at(20);
        client.send(begin);
        client.send(end);
        assert_eq!(client.response().body, expected);
        client.send(format!("GET /nodename HTTP/1.1\r\nX-Round: {round}\r\n\r\n{begin}"));
        assert_eq!(client.response().body, "Node: \"node-a\"");
        client.send(end);
        assert_eq!(client.response().body, expected);
    }
    client.send(known);
    client.finish_sending();
    assert_eq!(client.last_response().body, "Down");
    // The request arrives in one packet with the client's end, which is not reported separately.
    for _ in 0..5 {
        let mut last = server.connect();
        last.send(known);
        assert_eq!(last.response().body, "Down");
        send(&last.0, known.as_bytes(), SendFlags::MORE).unwrap();
        last.finish_sending();
        assert_eq!(last.last_response().body, "Down");
    }
    // That end was not part of the request.
    let mut other = server.connect();
    for _ in 0..2 {
        other.send(known);
        assert_eq!(other.response().body, "Down");
    }
}

#[test]
fn a_shutdown_ends_what_is_known() {
    let mut server = Scenario::default().serve();
    let mut client = server.connect();
    for _ in 0..3 {
        client.send("GET /nodecheck HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().header("connection"), None);
    }
    server.stop();
    client.send("GET /nodename HTTP/1.1\r\nHost: a\r\n\r\n");
    while client.response().header("connection") != Some("close") {
        client.send("GET /nodecheck HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert!(client.is_closed() && server.ended());
}
