//! Tests of container runtimes, and of other servers behind a runtime's socket. A real containerd is in
//! `tests/real`.

use crate::support::{checks, fail, first_outcome};
use bytes::Bytes;
use h2::server::{SendResponse, handshake};
use http::{HeaderMap, HeaderValue, Response};
use nodegate_local_checks::HostRoot;
use nodegate_readiness::Outcome;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use std::fs;
use std::future::pending;
use std::os::unix::fs::symlink;
use std::os::unix::net as blocking;
use std::path::Path;
use tempfile::TempDir;
use tokio::net::UnixListener;

/// `RuntimeReady` and `NetworkReady` as containerd writes them, in a frame.
const READY: &[u8] =
    b"\0\0\0\0\x26\x0a\x24\x0a\x10\x0a\x0cRuntimeReady\x10\x01\x0a\x10\x0a\x0cNetworkReady\x10\x01";

type Act = fn(SendResponse<Bytes>);

fn ready(mut call: SendResponse<Bytes>) {
    let mut stream = call.send_response(Response::new(()), false).unwrap();
    stream.send_data(Bytes::from_static(READY), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers).unwrap();
}

fn speaks(path: &Path, act: Act) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = handshake(stream).await.unwrap();
                while let Some(Ok((request, call))) = connection.accept().await {
                    assert_eq!(request.uri().path(), "/runtime.v1.RuntimeService/Status");
                    assert_eq!(request.headers()["content-type"], "application/grpc");
                    assert_eq!(request.headers()["te"], "trailers");
                    act(call);
                }
            });
        }
    });
}

async fn on(host: &TempDir, settings: &str) -> Outcome {
    let setting = format!("container_runtime:{settings}");
    first_outcome("container_runtime", &checks(&setting, &[], &HostRoot::new(host.path()).unwrap())).await
}

async fn of(act: Act) -> Outcome {
    let host = tempfile::tempdir().unwrap();
    speaks(&host.path().join("cri.sock"), act);
    on(&host, "socket=/cri.sock,timeout=30s").await
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_it() {
    let endless: Act = |mut call| {
        let mut stream = call.send_response(Response::new(()), false).unwrap();
        tokio::spawn(async move {
            loop {
                stream.reserve_capacity(4096);
                match std::future::poll_fn(|context| stream.poll_capacity(context)).await {
                    Some(Ok(room)) => drop(stream.send_data(vec![0; room].into(), false)),
                    _ => return,
                }
            }
        });
    };
    assert_eq!(of(endless).await, fail("AnswerTooLarge: /cri.sock"));
}

#[tokio::test]
async fn connections_that_end_early() {
    let host = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(host.path().join("cri.sock")).unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    assert_eq!(on(&host, "socket=/cri.sock,timeout=30s").await, fail("ConnectionClosed: /cri.sock"));
    let reset = of(|mut call| call.send_reset(h2::Reason::INTERNAL_ERROR)).await;
    assert_eq!(reset, fail("ConnectionReset: /cri.sock"));
}

#[tokio::test]
async fn a_runtime_that_takes_calls_and_connections_but_never_answers() {
    let host = tempfile::tempdir().unwrap();
    let silent: Act = |call| {
        tokio::spawn(async move {
            pending::<()>().await;
            drop(call);
        });
    };
    speaks(&host.path().join("cri.sock"), silent);
    assert_eq!(on(&host, "socket=/cri.sock,timeout=200ms").await, fail("Timeout after 200ms"));

    let frozen = host.path().join("frozen.sock");
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&frozen).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let _first = blocking::UnixStream::connect(&frozen).unwrap();
    assert_eq!(on(&host, "socket=/frozen.sock,timeout=30s").await, fail("NotAccepting: /frozen.sock"));
}

#[tokio::test]
async fn sockets_are_found_where_the_runtimes_have_them() {
    for place in [
        "run/containerd/containerd.sock",
        "run/crio/crio.sock",
        "run/k3s/containerd/containerd.sock",
        "run/k0s/containerd.sock",
        "run/cri-dockerd.sock",
        "var/run/crio/crio.sock",
        "var/snap/microk8s/common/run/containerd.sock",
    ] {
        let host = tempfile::tempdir().unwrap();
        speaks(&host.path().join(place), ready);
        assert_eq!(on(&host, "timeout=30s").await, Outcome::Pass, "{place}");
    }
    let host = tempfile::tempdir().unwrap();
    assert_eq!(on(&host, "timeout=30s").await, fail("NoSocket: at none of the usual paths"));
    speaks(&host.path().join("run/crio/crio.sock"), ready);
    fs::create_dir(host.path().join("var")).unwrap();
    symlink("/run", host.path().join("var/run")).unwrap();
    assert_eq!(on(&host, "socket=unix:///var/run/crio/crio.sock,timeout=30s").await, Outcome::Pass);
    let missing = on(&host, "socket=/var/run/none.sock,timeout=30s").await;
    assert_eq!(missing, fail("NoSocket: /var/run/none.sock"));
}

#[tokio::test]
async fn a_containerd_that_serves_docker_alone_is_passed_over_and_a_socket_without_a_listener_is_not() {
    let host = tempfile::tempdir().unwrap();
    let not_cri: Act = |mut call| {
        let unimplemented = Response::builder().header("grpc-status", "12").body(()).unwrap();
        call.send_response(unimplemented, true).unwrap();
    };
    speaks(&host.path().join("run/crio/crio.sock"), not_cri);
    assert_eq!(on(&host, "timeout=30s").await, fail("NotCRIv1: /run/crio/crio.sock"));
    speaks(&host.path().join("run/containerd/containerd.sock"), ready);
    assert_eq!(on(&host, "timeout=30s").await, Outcome::Pass);
    fs::remove_file(host.path().join("run/crio/crio.sock")).unwrap();
    drop(blocking::UnixListener::bind(host.path().join("run/crio/crio.sock")).unwrap());
    assert_eq!(on(&host, "timeout=30s").await, fail("ConnectionRefused: /run/crio/crio.sock"));
}
