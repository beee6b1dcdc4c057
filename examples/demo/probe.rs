//! Probes of an agent, as a load balancer sends them.

use crate::answer::Answer;
use crate::node::DemoNode;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The interval of probes.
pub(crate) const EVERY: Duration = Duration::from_millis(10);
/// The probe timeout.
const PATIENCE: Duration = Duration::from_secs(1);
/// The path of a probe. A draining node answers 200, so the body must tell the three states apart.
const PATH: &str = "/health?drain=200";

type Failure = Box<dyn Error + Send + Sync>;

/// A kept connection to one agent.
struct Connection(SendRequest<Empty<Bytes>>);

impl Connection {
    async fn open(node: DemoNode) -> Result<Self, Failure> {
        let stream = TcpStream::connect(node.agent()).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the sender. The request gets the connection's errors.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    async fn get(&mut self, path: &str) -> Result<(u16, Bytes), Failure> {
        let request = Request::get(path).header("host", "localhost").body(Empty::new())?;
        self.0.ready().await?;
        let response = self.0.send_request(request).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

/// Sends one GET on a new connection.
pub(crate) async fn get(node: DemoNode, path: &str) -> Result<(u16, Bytes), Failure> {
    timeout(PATIENCE, async { Connection::open(node).await?.get(path).await }).await?
}

/// Probes forever. Calls `take` with each answer and the time at which it was complete.
pub(crate) async fn follow(node: DemoNode, mut take: impl FnMut(Answer, Instant)) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut kept = None;
    loop {
        ticks.tick().await;
        let asked = timeout(PATIENCE, async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => Connection::open(node).await?,
            };
            let (_, body) = connection.get(PATH).await?;
            Ok::<_, Failure>((connection, body))
        });
        match asked.await {
            Ok(Ok((connection, body))) => {
                let at = Instant::now();
                kept = Some(connection);
                take(Answer::parse(&body), at);
            }
            Ok(Err(_)) | Err(_) => take(Answer::SILENT, Instant::now()),
        }
    }
}
