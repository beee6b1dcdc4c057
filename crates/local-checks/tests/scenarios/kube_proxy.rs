//! Tests of a kube-proxy that starts, hangs and ends.

use crate::support::{World, checks, fail, log_of, text};
use nodegate_local_checks::HostRoot;
use nodegate_readiness::Outcome;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

const HEALTHY: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
    {\"nodeEligible\":true,\"healthy\":true,\"status\":{\"IPv4\":{\"healthy\":true}}}";

/// Starts a server on kube-proxy's port, which answers or hangs. The port of one that is aborted refuses connections.
async fn open(address: SocketAddr, answers: bool) -> JoinHandle<()> {
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut hanging = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if answers {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(HEALTHY.as_bytes()).await;
            } else {
                hanging.push(stream);
            }
        }
    })
}

async fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap()
}

fn watching(address: SocketAddr, timeout: &str) -> World {
    let setting = format!("kube_proxy:url=http://{address}/healthz,interval=100ms,timeout={timeout}");
    World::start(&checks(&setting, &[], &HostRoot::default()), &Handle::current(), &["kube_proxy"])
}

async fn some_runs_of(world: &World) {
    let at = |world: &World| world.result("kube_proxy").unwrap().at;
    let first = at(world);
    world.until("some more runs", |world| at(world).since(first).as_millis() > 300).await;
}

/// Returns the outcome for a port that was never open, on this machine.
fn never_there() -> Outcome {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    if seconds >= 300.0 {
        return Outcome::Pass;
    }
    fail("NotStarted: nothing listens yet; taken as not deployed once the node has been up for 5m")
}

#[tokio::test]
async fn a_port_that_was_never_open_is_no_kube_proxy_and_one_that_was_is_missed() {
    let (log, _guard) = log_of();
    let address = free_address().await;
    let world = watching(address, "30s");
    world.runner.eager_ready().await;
    assert_eq!(world.outcome("kube_proxy"), Some(never_there()));
    some_runs_of(&world).await;
    assert_eq!(world.outcome("kube_proxy"), Some(never_there()));
    assert_eq!(text(&log).matches("not deployed").count(), 1, "one warning, not one a run");

    let running = open(address, true).await;
    some_runs_of(&world).await;
    assert_eq!(world.outcome("kube_proxy"), Some(Outcome::Pass));
    running.abort();
    world.until("it is missed", |world| world.outcome("kube_proxy") == Some(fail("ConnectionRefused"))).await;
    assert_eq!(text(&log).matches("not deployed").count(), 1);
}

#[tokio::test]
async fn one_that_only_ever_hung_was_there_too() {
    let address = free_address().await;
    let silent = open(address, false).await;
    let world = watching(address, "100ms");
    world.runner.eager_ready().await;
    assert_eq!(world.outcome("kube_proxy"), Some(fail("Timeout after 100ms")));
    silent.abort();
    world.until("it is missed", |world| world.outcome("kube_proxy") == Some(fail("ConnectionRefused"))).await;
}
