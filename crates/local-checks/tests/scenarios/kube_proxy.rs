//! Tests of a kube-proxy that starts, hangs and ends.

use crate::support::{World, checks, fail, log_of};
use nodegate_local_checks::HostRoot;
use nodegate_readiness::Outcome;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tokio::runtime::Handle;

const HEALTHY: &str = r#"{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T03:04:05Z","nodeEligible":true,"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true}}}"#;

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A server on kube-proxy's port. After its end the port refuses connections.
struct Port {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Port {
    fn open(address: SocketAddr, answers: bool) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let closing = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&closing);
        let thread = std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                if answers {
                    drop(stream.read(&mut [0; 1024]));
                    drop(stream.write_all(answer("200 OK", HEALTHY).as_bytes()));
                } else {
                    // It reads until the client gives up.
                    drop(std::io::copy(&mut stream, &mut std::io::sink()));
                }
            }
        });
        Self { address, closing, thread }
    }

    fn close(self) {
        self.closing.store(true, Ordering::SeqCst);
        drop(std::net::TcpStream::connect(self.address));
        self.thread.join().unwrap();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn watching(address: SocketAddr, timeout: &str) -> World {
    let setting = format!("kube_proxy:url=http://{address}/healthz,interval=100ms,timeout={timeout}");
    World::start(&checks(&setting, &HostRoot::default()), &Handle::current(), &["kube_proxy"])
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
    let address = free_address();
    let world = watching(address, "30s");
    world.runner.eager_ready().await;
    assert_eq!(world.outcome("kube_proxy"), Some(never_there()));
    some_runs_of(&world).await;
    assert_eq!(world.outcome("kube_proxy"), Some(never_there()));
    assert_eq!(log.lines_with("not deployed"), 1, "one warning, not one a run");

    let running = Port::open(address, true);
    some_runs_of(&world).await;
    assert_eq!(world.outcome("kube_proxy"), Some(Outcome::Pass));
    running.close();
    world.until("it is missed", |world| world.outcome("kube_proxy") == Some(fail("ConnectionRefused"))).await;
    let again = Port::open(address, true);
    world.until("it is back", |world| world.outcome("kube_proxy") == Some(Outcome::Pass)).await;
    again.close();
    world.until("it is missed", |world| world.outcome("kube_proxy") == Some(fail("ConnectionRefused"))).await;
    assert_eq!(log.lines_with("not deployed"), 1);
}

#[tokio::test]
async fn one_that_only_ever_hung_was_there_too() {
    let address = free_address();
    let silent = Port::open(address, false);
    let world = watching(address, "100ms");
    world.runner.eager_ready().await;
    assert_eq!(world.outcome("kube_proxy"), Some(fail("Timeout after 100ms")));
    silent.close();
    world.until("it is missed", |world| world.outcome("kube_proxy") == Some(fail("ConnectionRefused"))).await;
}
