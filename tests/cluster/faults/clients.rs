//! Clients that are not load balancers.

use super::scene::{FRESH, Scene};
use super::table::Row;
use nodegate_testbed::Agent;
use nodegate_testbed::http;
use nodegate_testbed::process::allow_descriptors;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Holds idle connections, as many as this process's descriptors allow.
pub(crate) fn ten_thousand_idle_clients() -> Row {
    const CLIENTS: u64 = 10_000;
    /// The descriptors that all other tests need.
    const OTHERS: u64 = 2_000;
    const MAX_CONNECTIONS: f64 = 1024.0;
    let mut scene = Scene::patient();
    let clients = CLIENTS.min(allow_descriptors(CLIENTS + OTHERS).saturating_sub(OTHERS));
    assert!(
        clients > 2 * 1024,
        "the limit of descriptors is too low for this: ulimit -n {}",
        CLIENTS + OTHERS
    );
    let (address, lines) = (scene.agent.address(), log_lines(&scene.agent));
    let held: Vec<TcpStream> = scene.fault(|scene| {
        let come = |number: u64| {
            // Not faster than the agent accepts in a debug build: when the accept queue is full, the kernel
            // resets connections.
            if number.is_multiple_of(100) {
                scene.prober.wait(1);
            }
            TcpStream::connect(address).unwrap()
        };
        (0..clients).map(come).collect()
    });
    #[expect(clippy::cast_precision_loss, reason = "thousands")]
    let evicted = clients as f64 - MAX_CONNECTIONS;
    let counter = "nodegate_connections_evicted_total";
    scene.notices_itself("evictions", |agent| agent.metric(counter).filter(|count| *count >= evicted));
    // One more for the metrics request itself, which the agent answers at once.
    assert!(scene.agent.metric("nodegate_connections") <= Some(MAX_CONNECTIONS + 1.0));
    scene.heal(|_| drop(held));
    assert_eq!(log_lines(&scene.agent), lines, "{}", scene.agent.log_text());
    scene.never_stale();
    scene.goes_on();
    let mut row = scene.row(&[FRESH]);
    row.trail.push(format!("({clients} clients)"));
    row
}

/// Sends requests byte by byte; the agent closes these connections five to seven seconds after their start.
pub(crate) fn slow_loris_clients() -> Row {
    let mut scene = Scene::patient();
    let (address, lines) = (scene.agent.address(), log_lines(&scene.agent));
    let mut clients: Vec<TcpStream> =
        scene.fault(|_| (0..500).map(|_| TcpStream::connect(address).unwrap()).collect());
    let mut request = b"GET /health HTTP/1.1\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'a'));
    scene.notices_itself("slow clients to be cut", |_| {
        std::thread::sleep(Duration::from_millis(200));
        let byte = *request.next().unwrap();
        clients.retain_mut(|client| !http::is_closed(client) && client.write_all(&[byte]).is_ok());
        clients.is_empty().then_some(())
    });
    scene.heal(|_| {});
    assert_eq!(log_lines(&scene.agent), lines, "{}", scene.agent.log_text());
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

pub(crate) fn garbage_requests() -> Row {
    const TLS_HELLO: &[u8] = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x5c\x1f\r\n\r\n";
    const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00";
    let kinds =
        [TLS_HELLO, HTTP2, &[0; 512], &[0xff; 64], b"GET /\r\n\r\n", b"GET /h\x00ealth HTTP/1.1\r\n\r\n"];
    bad_requests(&kinds.map(<[u8]>::to_vec), "400")
}

pub(crate) fn oversized_requests() -> Row {
    let megabyte = "a".repeat(1 << 20);
    let kinds =
        [format!("GET /{megabyte} HTTP/1.1\r\n\r\n"), format!("GET / HTTP/1.1\r\nX: {megabyte}\r\n\r\n")];
    bad_requests(&kinds.map(String::into_bytes), "431")
}

/// Sends a hundred of each kind. The client gets this status or none, the log stays empty, and the agent
/// keeps no state.
fn bad_requests(kinds: &[Vec<u8>], status: &str) -> Row {
    let mut scene = Scene::patient();
    let (address, lines) = (scene.agent.address(), log_lines(&scene.agent));
    scene.fault(|_| {
        for request in kinds.iter().cycle().take(100 * kinds.len()) {
            let answer = http::ask(address, request);
            let code = answer.split(' ').nth(1);
            assert!(code.is_none_or(|code| code == status), "{answer}");
        }
    });
    scene.heal(|_| {});
    assert_eq!(log_lines(&scene.agent), lines, "{}", scene.agent.log_text());
    assert!(scene.agent.metric("nodegate_connections") <= Some(3.0));
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

fn log_lines(agent: &Agent) -> usize {
    agent.logged("")
}
