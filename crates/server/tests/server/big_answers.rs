//! The big answers; a stranger must not get as many as it likes.

use crate::scenario::{Client, Running, Scenario};
use nodegate_server::Activate;
use nodegate_testbed::http::TIMEOUT;
use nodegate_testbed::until;
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Sends a request from this address, for a client with no room for a whole answer.
fn ask(server: &Running, address: [u8; 4], path: &str, header: &str) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::from(address), 0)).into()).unwrap();
    socket.connect(&server.address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut client = Client(stream);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\n\r\n"));
    client
}

/// Makes the answers longer than the kernel's buffers: many probers with long names.
fn make_big(server: &Running) {
    for address in 1..=2 {
        for number in 0..100 {
            let name = format!("{}/s{number}", "b".repeat(100));
            let state = format!("X-Haproxy-Server-State: UP; name={name}; node=lb\r\n");
            ask(server, [127, 8, 0, address], "/health", &state).last_response();
        }
    }
    let length = server.get("/status.json").body.len();
    assert!(length > 60_000, "{length}");
}

#[test]
fn eight_are_sent_at_a_time_and_the_next_is_asked_to_come_again() {
    let server = Scenario::default().serve();
    make_big(&server);
    // For one loopback client the agent keeps an extra slot.
    let mut unresponsive: Vec<_> =
        (1..10).map(|n| ask(&server, [127, 7, n, 1], "/status.json", "")).collect();
    for client in &unresponsive {
        let mut start = [0; 12];
        until("an answer to begin", || (client.0.peek(&mut start).unwrap() == start.len()).then_some(()));
        assert_eq!(start, *b"HTTP/1.1 200");
    }
    let refused = ask(&server, [127, 7, 10, 1], "/status.json", "").last_response();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert!(refused.body.contains("try again"), "{refused:?}");
    // Small answers are not limited.
    assert_eq!([server.get("/health").status, server.get("/readyz").status], [200, 200]);
    // A client that reads gets the whole answer, and frees its slot.
    let whole = unresponsive[0].last_response();
    assert_eq!(whole.header("content-length").unwrap(), whole.body.len().to_string());
    serde_json::from_str::<serde_json::Value>(&whole.body).unwrap();
    until("a slot", || (server.get("/status.json").status == 200).then_some(()));
}

#[test]
fn heads_without_end_delay_no_other_client() {
    // The production value: rendering for each request would take minutes.
    let server = Scenario { render_every: Duration::from_secs(1), ..Scenario::default() }.serve();
    make_big(&server);
    let mut heads = server.connect().0;
    heads.set_nonblocking(true).unwrap();
    let requests = b"HEAD /status.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200);
    let mut kept = server.connect();
    for _ in 0..50 {
        // Sends as much as fits; the answers are not read.
        let _ = heads.write(&requests);
        assert_eq!(server.get("/health").status, 200);
        assert_eq!(kept.ask("/health").status, 200);
    }
}

/// Any number of clients may poll it, and no slot bounds them.
#[test]
fn drain_json_takes_no_thread_of_the_pool() {
    let step = Arc::new(Barrier::new(2));
    let steps = Arc::clone(&step);
    let activate: Activate = Arc::new(move |_| {
        let steps = Arc::clone(&steps);
        Box::pin(async move {
            let takes_the_pool = spawn_blocking(move || [steps.wait(), steps.wait()]);
            takes_the_pool.await.unwrap();
        })
    });
    let server = Scenario { local: vec!["kubelet"], activate, ..Scenario::default() }.serve();
    let mut check = ask(&server, [127, 7, 1, 1], "/health?check=kubelet", "");
    step.wait();
    let mut waits = ask(&server, [127, 7, 1, 2], "/status.json", "");
    assert_eq!(server.get("/drain.json").status, 200);
    step.wait();
    assert_eq!([check.last_response().status, waits.last_response().status], [503, 200]);
}
