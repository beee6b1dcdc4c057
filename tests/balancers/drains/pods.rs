//! Real servers in the pods: one of each service on every node. A terminating pod accepts no new connections
//! and finishes the open ones.

use super::site::{NODES, address};
use nodegate_kube_sim::{PodProgram, RunningPod, Sim};
use serde_json::json;
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

/// The times at which pods were told to end, with the node of each.
pub(super) type Told = Arc<Mutex<Vec<(Instant, String)>>>;

pub(super) fn ingress_port(node: usize) -> u16 {
    INGRESS_PORT + u16::try_from(node).unwrap()
}

pub(super) fn program(told: Told) -> PodProgram {
    PodProgram::new(move |pod| run(pod, told.clone()))
}

/// Creates as many pods of both services as there are nodes; their ports keep two of one kind from one node.
pub(super) fn make(sim: &Sim) {
    for app in ["local", "ingress"] {
        let container = json!({"name": app, "image": app, "ports": [{"containerPort": 8080, "hostPort": 8080 + app.len()}]});
        sim.apply(json!({
            "kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": {"name": app},
            "spec": {
                "replicas": NODES.len(), "selector": {"matchLabels": {"app": app}},
                "template": {
                    "metadata": {"labels": {"app": app}},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 30},
                },
            },
        }))
        .unwrap();
    }
}

async fn run(pod: RunningPod, told: Told) {
    let node = NODES.iter().position(|node| *node == pod.node()).unwrap();
    let port =
        if pod.object()["metadata"]["labels"]["app"] == "local" { NODE_PORT } else { ingress_port(node) };
    let listener = listen(address(node), port).await;
    pod.ready(address(node));
    let mut requests = JoinSet::new();
    let told_to_end = {
        let mut pod = pod.clone();
        async move { pod.asked_to_end().await }
    };
    tokio::pin!(told_to_end);
    loop {
        tokio::select! {
            () = &mut told_to_end => break,
            Ok((stream, _)) = listener.accept() => drop(requests.spawn(answer(stream))),
            Some(_) = requests.join_next() => {}
        }
    }
    told.lock().unwrap().push((Instant::now(), pod.node().to_owned()));
    drop(listener);
    while requests.join_next().await.is_some() {}
}

/// Waits for the port: the previous pod may not be gone yet.
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
