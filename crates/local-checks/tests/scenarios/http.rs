//! Tests of the HTTP checks with real sockets, one for each way in which a server can fail.

use crate::support::{Healthz, check, fail};
use nodegate_local_checks::http_get::{HttpError, HttpGet};
use nodegate_readiness::{Outcome, Reason};
use nodegate_testbed::http::PATIENCE;
use nodegate_testbed::stub::{StubServer, hang};
use socket2::SockRef;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

async fn kubelet(server: &StubServer) -> Outcome {
    check("kubelet", &server.healthz(), "30s").await
}

fn response(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")
}

#[tokio::test]
async fn a_healthy_component_passes_and_sees_a_well_formed_request() {
    let server = StubServer::saying(response("200 OK"));
    assert_eq!(kubelet(&server).await, Outcome::Pass);
    let version = env!("CARGO_PKG_VERSION");
    let request = server.last_request();
    let expected = format!(
        "GET /healthz HTTP/1.1\r\nhost: {}\r\nuser-agent: nodegate/{version}\r\naccept: */*\r\nconnection: close\r\n\r\n",
        server.address()
    );
    assert_eq!(request, expected);
    let old = StubServer::saying("HTTP/1.0 200 OK\r\n\r\nok");
    assert_eq!(kubelet(&old).await, Outcome::Pass);
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
        assert_eq!(check("okd_router_1936", &server.healthz(), "30s").await, is_router, "{status}");
    }
}

#[tokio::test]
async fn each_way_to_break_off_has_its_own_reason() {
    let unbound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let url = format!("http://{unbound}/").parse().unwrap();
    assert_eq!(check("kubelet", &url, "30s").await, fail("ConnectionRefused"));

    let reset = |stream: &mut std::net::TcpStream| {
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
    let mut long = "HTTP/1.1 200 OK\r\n".to_owned();
    for n in 0..20 {
        write!(long, "X-{n}: {}\r\n", "a".repeat(1000)).unwrap();
    }
    long.push_str("\r\n");
    assert_eq!(kubelet(&StubServer::saying(long)).await, fail("HeadersTooLarge"));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(500));
    assert_eq!(kubelet(&StubServer::saying(many)).await, fail("HeadersTooLarge"));
    let endless = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nX: "));
        while stream.write_all(&[b'a'; 4096]).is_ok() {}
    });
    assert_eq!(kubelet(&endless).await, fail("HeadersTooLarge"));
}

#[tokio::test]
async fn a_server_that_never_answers_fails_by_the_timeout() {
    let silent = StubServer::start(hang);
    assert_eq!(check("kubelet", &silent.healthz(), "100ms").await, fail("Timeout after 100ms"));
    let slow_head = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200"));
        hang(stream);
    });
    assert_eq!(check("kubelet", &slow_head.healthz(), "100ms").await, fail("Timeout after 100ms"));
}

fn endless() -> StubServer {
    StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    })
}

fn slow_body() -> StubServer {
    StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"));
        hang(stream);
    })
}

#[tokio::test]
async fn an_unneeded_body_is_not_waited_for() {
    assert_eq!(kubelet(&endless()).await, Outcome::Pass);
    assert_eq!(kubelet(&slow_body()).await, Outcome::Pass);
}

#[tokio::test]
async fn a_body_is_read_as_far_as_it_is_wanted() {
    let get = HttpGet::new(StubServer::saying(response("503 Service Unavailable")).healthz());
    let reply = get.reply().await.unwrap();
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (503, &b"ok"[..]));

    let reply = HttpGet::new(endless().healthz()).reply().await.unwrap();
    assert_eq!(reply.body.len(), 64 * 1024);

    let slow = HttpGet::new(slow_body().healthz());
    assert!(tokio::time::timeout(Duration::from_millis(100), slow.reply()).await.is_err());

    let cut = StubServer::saying("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab");
    assert!(matches!(HttpGet::new(cut.healthz()).reply().await, Err(HttpError::Closed)));
    let garbage = StubServer::saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert!(matches!(HttpGet::new(garbage.healthz()).reply().await, Err(HttpError::Malformed)));
    let reset = StubServer::start(|stream| {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"));
        SockRef::from(&*stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let error = HttpGet::new(reset.healthz()).reply().await.unwrap_err();
    assert!(matches!(error, HttpError::Reset), "{error:?}");
}

#[tokio::test]
async fn names_are_resolved_and_a_bad_one_is_named() {
    let server = StubServer::saying(response("200 OK"));
    let url = format!("http://localhost:{}/", server.address().port()).parse().unwrap();
    assert_eq!(check("kubelet", &url, "30s").await, Outcome::Pass);
    let bad = HttpGet::new("http://nowhere.invalid/".parse().unwrap());
    let outcome = tokio::time::timeout(PATIENCE, bad.status()).await.unwrap();
    let reason = Reason::from(outcome.unwrap_err());
    assert!(reason.as_str().starts_with("NameNotResolved: nowhere.invalid ("), "{reason:?}");
    assert_eq!(reason.label(), "NameNotResolved");
}

#[tokio::test]
async fn a_dropped_request_closes_its_connection() {
    let (tell, closed) = tokio::sync::oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let server = StubServer::start(move |stream| {
        hang(stream);
        tell.lock().unwrap().take().unwrap().send(()).unwrap();
    });
    let get = HttpGet::new(server.healthz());
    assert!(tokio::time::timeout(Duration::from_millis(100), get.status()).await.is_err());
    tokio::time::timeout(PATIENCE, closed).await.unwrap().unwrap();
}
