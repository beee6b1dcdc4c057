//! Real servers in the pods: one of each service on every node. A terminating pod accepts no new connections
//! and finishes the open ones.

use super::site::{NODES, address};
use nodegate_testbed::pods::RunningPod;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The NodePort of a Service with `externalTrafficPolicy: Local`. A node without its pod has no listener
/// there.
pub(super) const NODE_PORT: u16 = 30_080;
/// The port of an ingress on the host's network. Here all nodes share one network, in which the agent counts
/// sockets by port, so each node has a port of its own.
const INGRESS_PORT: u16 = 8_081;
/// One request in this number is slow.
const SLOW_ONE_IN: u32 = 25;
const SLOW: Duration = Duration::from_millis(1_500);
/// The timeout of a read: a balancer's own check connects and sends nothing.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The times at which pods were asked to end, with the node of each.
pub(super) type PodEnds = Arc<Mutex<Vec<(Instant, String)>>>;

pub(super) fn ingress_port(node: usize) -> u16 {
    INGRESS_PORT + u16::try_from(node).unwrap()
}

/// The pods of both services.
pub(super) const APPS: [&str; 2] = ["local", "ingress"];

pub(super) async fn run(mut pod: RunningPod, ends: PodEnds) {
    let node = NODES.iter().position(|node| *node == pod.node).unwrap();
    let port = if pod.app == APPS[0] { NODE_PORT } else { ingress_port(node) };
    let listener = listen(address(node), port).await;
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut pod.evicted => break,
            Ok((stream, _)) = listener.accept() => drop(requests.spawn(answer(stream))),
            Some(_) = requests.join_next() => {}
        }
    }
    ends.lock().unwrap().push((Instant::now(), pod.node));
    drop(listener);
    while requests.join_next().await.is_some() {}
}

/// Waits for the port: the program of the previous pod may not have closed it yet.
async fn listen(address: IpAddr, port: u16) -> TcpListener {
    loop {
        match TcpListener::bind(SocketAddr::new(address, port)).await {
            Ok(listener) => return listener,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; 1024];
    if timeout(TIMEOUT, stream.read(&mut request)).await?? == 0 {
        return Ok(());
    }
    if fastrand::u32(..SLOW_ONE_IN) == 0 {
        sleep(SLOW).await;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await?;
    stream.shutdown().await
}
