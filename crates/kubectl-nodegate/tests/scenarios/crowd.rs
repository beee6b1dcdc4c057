//! Up to a thousand agents with canned answers: one listener accepts the connections of all, and answers by the
//! loopback address of each.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// The largest number of agents that have addresses.
const MOST: usize = 250 * 250;
/// The time limit for a client's request.
const TIMEOUT: Duration = Duration::from_mins(1);

/// An agent's answer to `/status.json`.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Answers with the result of this function, each time.
    Says(Arc<dyn Fn() -> String + Send + Sync>),
    /// Sends these bytes, valid or not.
    Sends(Vec<u8>),
    /// Does not answer on an accepted connection.
    Hangs,
    /// Closes the accepted connection without an answer.
    Closes,
    /// Sends a body that never ends.
    Endless,
}

/// The agents. Drop removes them.
pub(crate) struct Crowd {
    port: u16,
    nodes: Vec<(String, IpAddr)>,
    behaviours: Behaviours,
    runtime: Option<Runtime>,
}

type Behaviours = Arc<Mutex<HashMap<IpAddr, Behaviour>>>;

impl Crowd {
    /// Starts agents for these nodes.
    pub(crate) fn start(agents: impl IntoIterator<Item = (String, Behaviour)>) -> Self {
        let mut behaviours = HashMap::new();
        let mut nodes = Vec::new();
        for (number, (node, behaviour)) in agents.into_iter().enumerate() {
            let address = address(number);
            behaviours.insert(address, behaviour);
            nodes.push((node, address));
        }
        let behaviours: Behaviours = Arc::new(Mutex::new(behaviours));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(accept(listener, behaviours.clone()));
        Self { port, nodes, behaviours, runtime: Some(runtime) }
    }

    /// Returns the port of all agents.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the nodes with their addresses.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.nodes.iter().map(|(node, address)| (node.as_str(), *address))
    }

    /// Changes the answer of this node's agent from now on.
    pub(crate) fn now(&self, node: &str, behaviour: Behaviour) {
        let address = self.nodes().find(|(name, _)| *name == node).unwrap().1;
        self.behaviours.lock().unwrap().insert(address, behaviour);
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Some of the tasks never end, so this does not wait for them.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the address of an agent. It is never in 127.0, which everything else uses.
fn address(number: usize) -> IpAddr {
    assert!(number < MOST, "there are no more addresses");
    let byte = |number: usize| u8::try_from(number % 250 + 1).unwrap();
    Ipv4Addr::new(127, 100, byte(number / 250), byte(number)).into()
}

async fn accept(listener: TcpListener, behaviours: Behaviours) {
    loop {
        // The process is most likely out of descriptors. The client gets no connection, and reports that.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let to = stream.local_addr().map(|address| address.ip());
        let behaviour = to.ok().and_then(|to| behaviours.lock().unwrap().get(&to).cloned());
        let Some(behaviour) = behaviour else { continue };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(TIMEOUT, answer(stream, behaviour)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    if matches!(behaviour, Behaviour::Closes) {
        return Ok(());
    }
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part).await? {
            0 => return Ok(()),
            length => request.extend(&part[..length]),
        }
    }
    match behaviour {
        Behaviour::Says(make) => {
            let body = make();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await
        }
        Behaviour::Sends(bytes) => stream.write_all(&bytes).await,
        Behaviour::Hangs => std::future::pending().await,
        Behaviour::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[").await?;
            loop {
                stream.write_all(&[b' '; 1 << 14]).await?;
            }
        }
        Behaviour::Closes => Ok(()),
    }
}
