//! The service that is balanced: on each node a server that says the node's name.

use crate::node::DemoNode;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A client that takes longer to send its request is none of ours.
const PATIENCE: Duration = Duration::from_secs(5);

/// The services of all nodes; gone when dropped.
pub(crate) struct Services(#[expect(dead_code, reason = "held so that they run")] JoinSet<()>);

impl Services {
    pub(crate) async fn start(nodes: &[DemoNode]) -> io::Result<Self> {
        let mut services = JoinSet::new();
        for &node in nodes {
            let listener = TcpListener::bind(node.service_address()).await?;
            services.spawn(serve(node, listener));
        }
        Ok(Self(services))
    }
}

async fn serve(node: DemoNode, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(timeout(PATIENCE, answer(node, stream)))),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer(node: DemoNode, mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; 1024];
    // HAProxy's own check connects and sends nothing.
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    let name = node.name;
    let head = format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    stream.write_all(head.as_bytes()).await?;
    stream.shutdown().await
}
