//! The service that is balanced: on each node a server that says the node's name.

use crate::place::Place;
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
    pub(crate) async fn start(places: &[Place]) -> io::Result<Self> {
        let mut services = JoinSet::new();
        for &place in places {
            let listener = TcpListener::bind(place.service_address()).await?;
            services.spawn(serve(place, listener));
        }
        Ok(Self(services))
    }
}

async fn serve(place: Place, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(timeout(PATIENCE, answer(place, stream)))),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer(place: Place, mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; 1024];
    // HAProxy's own check connects and sends nothing.
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    let name = place.node;
    let head = format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    stream.write_all(head.as_bytes()).await?;
    stream.shutdown().await
}
