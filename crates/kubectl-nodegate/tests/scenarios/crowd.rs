//! A large number of simulated agents. One server answers for each of a thousand agents, by the address of
//! the connection.
//!
//! A thousand processes would be a load of their own. Each agent has an address of this machine's loopback,
//! 127.0.0.0/8. All have the same port, and one listener accepts the connections of all.

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
const PATIENCE: Duration = Duration::from_mins(1);

/// An agent's answer to `/status.json`.
#[derive(Clone)]
pub(crate) enum Manner {
    /// The result of this function, each time.
    Says(Arc<dyn Fn() -> String + Send + Sync>),
    /// These bytes, valid or not.
    Bytes(Arc<Vec<u8>>),
    /// No answer on an accepted connection.
    Hangs,
    /// No answer: the agent closes the accepted connection.
    Closes,
    /// A body that never ends.
    Endless,
}

impl Manner {
    /// Returns an agent that always sends this JSON.
    pub(crate) fn saying(json: String) -> Self {
        Self::Says(Arc::new(move || json.clone()))
    }

    /// Returns an agent that sends the result of `make`.
    pub(crate) fn making(make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self::Says(Arc::new(make))
    }

    /// Returns an agent that sends these bytes, which may be an invalid answer.
    pub(crate) fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(Arc::new(bytes.into()))
    }
}

/// The agents. Drop removes them.
pub(crate) struct Crowd {
    port: u16,
    nodes: Vec<(String, IpAddr)>,
    manners: Manners,
    runtime: Option<Runtime>,
}

type Manners = Arc<Mutex<HashMap<IpAddr, Manner>>>;

impl Crowd {
    /// Starts agents for these nodes.
    pub(crate) fn start(agents: impl IntoIterator<Item = (String, Manner)>) -> Self {
        let mut manners = HashMap::new();
        let mut nodes = Vec::new();
        for (number, (node, manner)) in agents.into_iter().enumerate() {
            let address = address(number);
            manners.insert(address, manner);
            nodes.push((node, address));
        }
        let manners: Manners = Arc::new(Mutex::new(manners));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(accept(listener, manners.clone()));
        Self { port, nodes, manners, runtime: Some(runtime) }
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
    pub(crate) fn now(&self, node: &str, manner: Manner) {
        let address = self.nodes().find(|(name, _)| *name == node).unwrap().1;
        self.manners.lock().unwrap().insert(address, manner);
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

async fn accept(listener: TcpListener, manners: Manners) {
    loop {
        // The process is most likely out of descriptors. The client gets no connection, and reports that.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let to = stream.local_addr().map(|address| address.ip());
        let manner = to.ok().and_then(|to| manners.lock().unwrap().get(&to).cloned());
        let Some(manner) = manner else { continue };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, answer(stream, manner)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, manner: Manner) -> std::io::Result<()> {
    if matches!(manner, Manner::Closes) {
        return Ok(());
    }
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part).await? {
            0 => return Ok(()),
            length => request.extend(&part[..length]),
        }
    }
    match manner {
        Manner::Says(make) => {
            let body = make();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await
        }
        Manner::Bytes(bytes) => stream.write_all(&bytes).await,
        Manner::Hangs => std::future::pending().await,
        Manner::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n[").await?;
            loop {
                stream.write_all(&[b' '; 1 << 14]).await?;
            }
        }
        Manner::Closes => Ok(()),
    }
}
