//! One client must not cost another anything.

use crate::scenario::{Client, Scenario, cordoned, ready};
use nodegate_readiness::Node;
use nodegate_server::{Activate, Limits};
use nodegate_testbed::http::TIMEOUT;
use nodegate_testbed::until;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

#[test]
fn connections_are_kept_and_closed_as_asked() {
    let server = Scenario::default().serve();
    let mut kept = server.connect();
    for _ in 0..3 {
        let response = kept.ask("/health");
        assert_eq!((response.status, response.version()), (200, "HTTP/1.1"));
    }
    kept.send("GET /nodecheck HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(kept.last_response().header("connection"), Some("close"));

    let mut old = server.connect();
    for _ in 0..2 {
        old.send("GET /nodecheck HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = old.response();
        assert_eq!((response.version(), response.header("connection")), ("HTTP/1.0", Some("keep-alive")));
    }
    old.send("GET /nodecheck HTTP/1.0\r\n\r\n");
    assert!(old.read_to_close().ends_with("OK"));
}

/// The default monitors of some appliances send such requests, and take a head for part of the body.
#[test]
fn a_request_without_a_version_gets_the_body_alone() {
    let server = Scenario::default().serve();
    let ask = |request: &str| server.send(request).read_to_close();
    for (facts, body) in [(ready(), "OK"), (cordoned(), "Down")] {
        server.set_node(facts);
        for request in ["GET /\r\n", "GET /nodecheck\n", "PROXY UNKNOWN\r\nGET /nodecheck\r\n\r\n"] {
            assert_eq!(ask(request), body, "{request:?}");
        }
        let json = ask("GET /health?check=node_ready\r\nHost: a\r\n\r\n");
        assert!(json.starts_with("{\"status\":") && json.ends_with('}'), "{json}");
    }
    assert!(ask("GET /metrics\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_body_is_not_read() {
    let limits = Limits { header_timeout: Duration::from_secs(1), ..Limits::default() };
    let server = Scenario::default().serve_within(limits);
    let head = |more| format!("POST /health HTTP/1.1\r\nHost: a\r\n{more}Content-Length: 1000000000\r\n\r\n");
    // The last client neither ends nor sends: without a bound the server would wait for it.
    for (more, sends) in [("", true), ("Expect: 100-continue\r\n", true), ("", false)] {
        let mut client = server.send(head(more));
        if sends {
            client.send(vec![b'x'; 64 * 1024]);
        }
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (405, Some("close")));
        if sends {
            client.finish_sending();
        }
        assert!(client.is_closed());
    }
    let chunked = "GET /nodecheck HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    assert!(server.exchange(chunked).ends_with("OK"));
    // Bytes after the last request do not cost its answer.
    let mut request = b"GET /nodecheck HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec();
    request.resize(10_000, b'x');
    for _ in 0..20 {
        assert!(server.send(&request).read_to_close().ends_with("OK"));
    }
}

#[test]
fn heads_are_limited() {
    let server = Scenario::default().serve();
    for request in [
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(9000)),
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(9000)),
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(100_000)),
        format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(500)),
    ] {
        let answer = server.exchange(&request);
        assert!(answer.starts_with("HTTP/1.1 431 "), "{}: {answer}", &request[..20]);
    }
    let fits = format!("GET /nodecheck HTTP/1.0\r\nX: {}\r\n\r\n", "a".repeat(8000));
    assert!(server.exchange(fits).ends_with("OK"));
}

#[test]
fn garbage_ends_its_own_connection_and_no_other() {
    let server = Scenario::default().serve();
    let mut witness = server.connect();
    let garbage: [&[u8]; 8] = [
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x5c\x1f\r\n\r\n",
        &[0; 512],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"GET /x\r\n\r\n",
        b"\r\n\r\n\r\n\xff\xfe",
        b"GET /h\x00ealth HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"",
    ];
    for bytes in garbage {
        let answer = server.exchange(bytes);
        let refused = answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.0 400 ");
        assert!(refused || answer.is_empty(), "{bytes:?}: {answer}");
        assert_eq!(witness.ask("/nodecheck").body, "OK");
    }
}

/// What follows a head is never taken for another request: the connection ends with the one answer.
#[test]
fn no_request_is_smuggled_in_a_body() {
    let server = Scenario::default().serve();
    let inner = "GET /nodename HTTP/1.1\r\nHost: a\r\n\r\n";
    for (headers, before, status) in [
        ("Content-Length: 36", "", 405),
        ("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\n", 405),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4", "5c\r\n", 405),
        ("Transfer-Encoding: xchunked", "", 400),
        ("Content-Length: 0\r\nContent-Length: 36", "", 400),
        ("Content-Length: +0", "", 400),
        ("Expect: 100-continue\r\nContent-Length: 36", "", 405),
        ("Transfer-Encoding: chunked", "zz\r\n", 405),
    ] {
        let request = format!("POST /livez HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n{before}{inner}");
        let answer = server.exchange(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{headers}: {answer}");
    }
}

/// Returns a server whose check hangs until the test adds a permit.
fn gated() -> (Arc<Semaphore>, Scenario) {
    let gate = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let activate: Activate = Arc::new(move |_| {
        let gate = Arc::clone(&waits);
        Box::pin(async move { drop(gate.acquire().await) })
    });
    (gate, Scenario { local: vec!["kubelet"], activate, ..Scenario::default() })
}

fn until_connections(observer: &mut Client, count: u64) {
    let line = format!("\nnodegate_connections {count}\n");
    until("connections", || observer.ask("/metrics").body.contains(&line).then_some(()));
}

#[test]
fn a_panic_costs_its_own_connection_and_no_other() {
    let activate: Activate = Arc::new(|_| panic!("as the test wants it"));
    let server = Scenario { local: vec!["kubelet"], activate, ..Scenario::default() }.serve();
    let mut kept = server.connect();
    assert_eq!(kept.ask("/nodecheck").body, "OK");
    for _ in 0..3 {
        assert!(server.send("GET /health?check=kubelet HTTP/1.1\r\nHost: a\r\n\r\n").is_closed());
    }
    until_connections(&mut kept, 1);
    kept.send("GET /health?check=kubelet HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(kept.is_closed());
    until_connections(&mut server.connect(), 1);
}

#[test]
fn a_held_request_ends_with_its_client() {
    let server = Scenario { node: Node::Present(cordoned()), ..Scenario::default() }.serve();
    let mut observer = server.connect();
    // Its end is not seen behind what the agent does not read.
    for more in [0, 100, 20_000] {
        let mut hook = server.send("GET /wait?timeout=600 HTTP/1.1\r\nHost: a\r\n\r\n");
        until_connections(&mut observer, 2);
        hook.0.set_nonblocking(true).unwrap();
        let _ = hook.0.write(&vec![b'x'; more]);
        drop(hook);
        until_connections(&mut observer, 1);
    }
}

#[test]
fn a_request_that_came_while_another_waited_is_answered_after_it() {
    let server = Scenario { node: Node::Present(cordoned()), ..Scenario::default() }.serve();
    let mut client = server.send("GET /wait?timeout=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(300));
    client.send("GET /nodecheck?");
    std::thread::sleep(Duration::from_millis(100));
    client.send(format!("{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1500)));
    assert_eq!(client.response().status, 504);
    assert_eq!(client.response().body, "Down");
}

#[test]
fn a_quarter_of_the_connections_may_wait() {
    let (gate, mut scenario) = gated();
    let waiting = Arc::new(AtomicUsize::new(0));
    let (count, activate) = (Arc::clone(&waiting), scenario.activate);
    scenario.activate = Arc::new(move |checks| {
        let (count, result) = (Arc::clone(&count), activate(checks));
        Box::pin(async move {
            count.fetch_add(1, Ordering::Relaxed);
            result.await;
        })
    });
    let server = scenario.serve_within(Limits { connections: 16, ..Limits::default() });
    let ask = || {
        let client = server.send("GET /health?check=kubelet HTTP/1.0\r\n\r\n");
        client.0.set_nonblocking(true).unwrap();
        client
    };
    let clients: Vec<Client> = (0..6).map(|_| ask()).collect();
    let answered = || clients.iter().filter(|client| client.0.peek(&mut [0]).is_ok()).count();
    until("all but four to be answered: four of sixteen connections may wait", || {
        (answered() == 2).then_some(())
    });
    gate.add_permits(1);
    until("all to be answered", || (answered() == 6).then_some(()));
    assert_eq!(waiting.load(Ordering::Relaxed), 4, "the others did not wait for their timeouts");
}

/// Limits that no test on a slow machine reaches.
const PATIENT: Limits = Limits {
    connections: 1024,
    known: None,
    header_timeout: TIMEOUT,
    write_timeout: TIMEOUT,
    idle_timeout: TIMEOUT,
    drain_timeout: Duration::from_mins(1),
};

#[test]
fn a_shutdown_lets_requests_finish_and_tells_kept_connections_to_close() {
    let (gate, scenario) = gated();
    let mut server = scenario.serve_within(PATIENT);
    let mut kept = server.connect();
    assert_eq!(kept.ask("/readyz").status, 200);
    let mut busy = server.send("GET /health?check=kubelet HTTP/1.1\r\nHost: a\r\n\r\n");
    until_connections(&mut kept, 2);
    server.stop();
    until("new connections to be refused", || std::net::TcpStream::connect(server.address).err());
    let last = kept.ask("/readyz");
    assert_eq!((last.status, last.header("connection")), (503, Some("close")));
    assert!(kept.is_closed());
    gate.add_permits(1);
    let last = busy.response();
    assert_eq!((last.status, last.header("connection")), (503, Some("close")));
    assert!(server.ended());
}

#[test]
fn a_shutdown_takes_what_the_kernel_has_accepted_already() {
    let mut server = Scenario::default().serve_within(PATIENT);
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    server.stop();
    for client in &mut clients {
        client.send("GET /nodecheck HTTP/1.0\r\n\r\n");
        assert!(client.read_to_close().ends_with("OK"));
    }
    assert!(server.ended());
}

#[test]
fn a_shutdown_is_bounded() {
    let (_gate, scenario) = gated();
    let mut server =
        scenario.serve_within(Limits { drain_timeout: Duration::from_millis(200), ..Limits::default() });
    let mut hanging = server.send("GET /health?check=kubelet HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut idle = server.connect();
    assert_eq!(idle.ask("/nodecheck").body, "OK");
    server.stop();
    assert!(server.ended());
    assert!(idle.is_closed() && hanging.is_closed());
}
