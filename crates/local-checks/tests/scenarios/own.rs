//! Tests of the checks of a URL or a port: each way to fail has the same reason in all of them.

use crate::support::{Healthz, World, fail};
use nodegate_local_checks::{CheckSettings, HostRoot, LocalChecks, OwnChecks};
use nodegate_readiness::Outcome;
use nodegate_testbed::http::PATIENCE;
use nodegate_testbed::stub::{StubServer, hang};
use socket2::{Domain, Socket, Type};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use tokio::runtime::Handle;

async fn outcome(name: &str, url: &str, timeout: &str) -> Outcome {
    let mut own = OwnChecks::default();
    let setting = if let Some(name) = name.strip_prefix("http:") {
        own.add_http(&format!("{name}={url}")).unwrap();
        format!("http:{name}:timeout={timeout}")
    } else {
        format!("{name}:timeout={timeout},url={url}")
    };
    let settings = CheckSettings::parse_with(&[setting], &own).unwrap();
    let checks = LocalChecks::new(&settings, &HostRoot::default()).with_own(&own, &settings);
    let world = World::start(&checks, &Handle::current(), &[]);
    world.activate(name).await;
    world.outcome(name).unwrap()
}

#[tokio::test]
async fn nothing_listens() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for name in ["kubelet", "okd_router_1936", "http:mine"] {
        assert_eq!(
            outcome(name, &format!("http://{address}/"), "30s").await,
            fail("ConnectionRefused"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn an_own_check_takes_any_2xx_and_reads_no_body() {
    let body = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno");
    for status in ["200 OK", "204 No Content", "299 Whatever"] {
        let url = StubServer::saying(body(status)).healthz().to_string();
        assert_eq!(outcome("http:mine", &url, "30s").await, Outcome::Pass, "{status}");
    }
    let endless = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let slow = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"));
        hang(stream);
    });
    for name in ["okd_router_1936", "http:mine"] {
        assert_eq!(outcome(name, &endless.healthz().to_string(), "30s").await, Outcome::Pass, "{name}");
        assert_eq!(outcome(name, &slow.healthz().to_string(), "30s").await, Outcome::Pass, "{name}");
    }
}

async fn tcp(target: &str, timeout: &str) -> Outcome {
    let mut own = OwnChecks::default();
    own.add_tcp(&format!("db={target}")).unwrap();
    let settings = CheckSettings::parse_with(&[format!("tcp:db:timeout={timeout}")], &own).unwrap();
    let world = World::start(&LocalChecks::none().with_own(&own, &settings), &Handle::current(), &[]);
    world.activate("tcp:db").await;
    world.outcome("tcp:db").unwrap()
}

#[tokio::test]
async fn a_port_that_takes_connections_passes_whatever_it_says() {
    let server = StubServer::start(hang);
    assert_eq!(tcp(&server.address().to_string(), "30s").await, Outcome::Pass);
    assert_eq!(tcp(&format!("localhost:{}", server.address().port()), "30s").await, Outcome::Pass);
    let ipv6 = TcpListener::bind("[::1]:0").unwrap();
    assert_eq!(tcp(&ipv6.local_addr().unwrap().to_string(), "30s").await, Outcome::Pass);
}

#[tokio::test]
async fn a_port_that_takes_none_fails_by_how() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    assert_eq!(tcp(&closed.to_string(), "30s").await, fail("ConnectionRefused"));
    let unresolved = tokio::time::timeout(PATIENCE, tcp("nowhere.invalid:80", "30s")).await.unwrap();
    let reason = unresolved.reason().unwrap().clone();
    assert!(reason.as_str().starts_with("NameNotResolved: nowhere.invalid ("), "{reason}");
    // A full queue drops new connections, as a firewall does.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let waiting: Vec<_> =
        (0..4).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
    assert!(waiting.len() < 4, "the queue is never full");
    assert_eq!(tcp(&address.to_string(), "200ms").await, fail("Timeout after 200ms"));
}
