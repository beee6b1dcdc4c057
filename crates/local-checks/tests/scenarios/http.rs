//! Tests of the checks of a URL or a port with real sockets, one for each way in which a server can fail.

use crate::support::{fail, outcome};
use bytes::Bytes;
use http::Response;
use nodegate_kube_follow::{GetError, Peer, get};
use nodegate_readiness::Outcome;
use nodegate_testbed::http::TIMEOUT;
use nodegate_testbed::stub::{StubServer, hang};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const MAX_BODY: usize = 64 * 1024;
const LATE: &str = "timeout=30s";

async fn kubelet(server: &StubServer) -> Outcome {
    outcome("kubelet", &server.url("/healthz"), LATE).await
}

async fn body(server: &StubServer) -> Result<Response<Bytes>, GetError> {
    get(&server.url("/healthz").parse().unwrap(), Peer::Plain, None, MAX_BODY).await
}

fn response(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")
}

#[tokio::test]
async fn a_healthy_component_passes_and_sees_a_well_formed_request() {
    let server = StubServer::saying(response("200 OK"));
    assert_eq!(kubelet(&server).await, Outcome::Pass);
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "GET /healthz HTTP/1.1\r\nuser-agent: nodegate/{version}\r\naccept: */*\r\nconnection: close\r\nhost: {}\r\n\r\n",
        server.address()
    );
    assert_eq!(server.last_request(), expected);
    let old = StubServer::saying("HTTP/1.0 200 OK\r\n\r\nok");
    assert_eq!(kubelet(&old).await, Outcome::Pass);
}

#[tokio::test]
async fn an_own_check_sends_the_header_of_its_setting() {
    let server = StubServer::saying(response("200 OK"));
    for (header, line) in [("Host: app.example", "host: app.example"), ("x-probe:yes", "x-probe: yes")] {
        let settings = format!("{LATE},header={header}");
        assert_eq!(outcome("http:mine", &server.url("/"), &settings).await, Outcome::Pass);
        let request = server.last_request();
        assert_eq!(request.matches(&format!("\r\n{line}\r\n")).count(), 1, "{request}");
    }
}

#[tokio::test]
async fn each_check_has_its_own_idea_of_a_good_status() {
    for (status, is_kubelet, is_router) in [
        ("200 OK", Outcome::Pass, Outcome::Pass),
        ("204 No Content", fail("HTTP 204"), Outcome::Pass),
        ("302 Found", fail("HTTP 302"), fail("HTTP 302")),
        ("503 Service Unavailable", fail("HTTP 503"), fail("HTTP 503")),
    ] {
        let server = StubServer::saying(response(status));
        assert_eq!(kubelet(&server).await, is_kubelet, "{status}");
        for name in ["okd_router_1936", "http:mine"] {
            assert_eq!(outcome(name, &server.url("/"), LATE).await, is_router, "{name} {status}");
        }
    }
}

#[tokio::test]
async fn each_way_to_break_off_has_its_own_reason() {
    let unbound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    assert_eq!(outcome("kubelet", &format!("http://{unbound}/"), LATE).await, fail("ConnectionRefused"));

    let reset = |stream: &mut TcpStream| {
        SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
    };
    assert_eq!(kubelet(&StubServer::start(reset)).await, fail("ConnectionReset"));
    assert_eq!(kubelet(&StubServer::saying("")).await, fail("ConnectionClosed"));
    assert_eq!(kubelet(&StubServer::saying("HTTP/1.1 200 O")).await, fail("ConnectionClosed"));
    assert_eq!(kubelet(&StubServer::saying("SSH-2.0-OpenSSH_9.6\r\n")).await, fail("MalformedResponse"));
    assert_eq!(kubelet(&StubServer::saying([0x15, 3, 1, 0, 2, 2, 0x46])).await, fail("MalformedResponse"));
}

#[tokio::test]
async fn headers_without_end_are_not_read() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(500));
    assert_eq!(kubelet(&StubServer::saying(many)).await, fail("MalformedResponse"));
    let endless = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nX: "));
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
    });
    assert_eq!(kubelet(&endless).await, fail("MalformedResponse"));
}

#[tokio::test]
async fn a_body_is_read_as_far_as_it_is_wanted() {
    let endless = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let slow = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"));
        hang(stream);
    });
    assert_eq!(kubelet(&endless).await, Outcome::Pass);
    assert_eq!(kubelet(&slow).await, Outcome::Pass);

    let reply = body(&StubServer::saying(response("503 Service Unavailable"))).await.unwrap();
    assert_eq!((reply.status().as_u16(), &reply.body()[..]), (503, &b"ok"[..]));
    let reply = body(&endless).await.unwrap();
    assert_eq!(reply.body().len(), MAX_BODY);
    assert!(tokio::time::timeout(Duration::from_millis(100), body(&slow)).await.is_err());

    let kube_proxy = async |server: &StubServer| outcome("kube_proxy", &server.url("/"), LATE).await;
    let cut = StubServer::saying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab");
    assert_eq!(kube_proxy(&cut).await, fail("ConnectionClosed"));
    let garbage = StubServer::saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!(kube_proxy(&garbage).await, fail("MalformedResponse"));
}

#[tokio::test]
async fn a_dropped_request_closes_its_connection() {
    let (tell, closed) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let server = StubServer::start(move |stream| {
        hang(stream);
        tell.lock().unwrap().take().unwrap().send(()).unwrap();
    });
    assert!(tokio::time::timeout(Duration::from_millis(100), body(&server)).await.is_err());
    tokio::time::timeout(TIMEOUT, closed).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_port_that_takes_connections_passes_whatever_it_says() {
    let server = StubServer::start(hang);
    let named = format!("localhost:{}", server.address().port());
    let ipv6 = TcpListener::bind("[::1]:0").unwrap();
    for target in [server.address().to_string(), named, ipv6.local_addr().unwrap().to_string()] {
        assert_eq!(outcome("tcp:mine", &target, LATE).await, Outcome::Pass, "{target}");
    }
}

#[tokio::test]
async fn a_port_that_takes_none_fails_by_how() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    assert_eq!(outcome("tcp:mine", &closed.to_string(), LATE).await, fail("ConnectionRefused"));
    let unresolved = outcome("tcp:mine", "nowhere.invalid:80", LATE);
    let unresolved = tokio::time::timeout(TIMEOUT, unresolved).await.unwrap();
    let reason = unresolved.reason().unwrap().clone();
    assert!(reason.as_str().starts_with("NameNotResolved: nowhere.invalid ("), "{reason}");
    assert_eq!(reason.label(), "NameNotResolved");
    // A full queue drops new connections, as a firewall does.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let waiting: Vec<_> =
        (0..4).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
    assert!(waiting.len() < 4, "the queue is never full");
    assert_eq!(outcome("tcp:mine", &address.to_string(), "timeout=200ms").await, fail("Timeout after 200ms"));
}
