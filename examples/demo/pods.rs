//! The programs in the demo's pods: real servers, which end when their pod does.
//!
//! The pods `web` answer with the name of their node. On each node, a pod `ingress` listens on the host's network,
//! and passes connections on to the pods of its own node, as with `externalTrafficPolicy: Local`.

use crate::node::{DemoNode, Network};
use crate::screen::Screen;
use nodegate_kube_sim::{PodProgram, RunningPod};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The time for which an ending pod still accepts connections that were on their way.
const LAST_CALL: Duration = Duration::from_millis(300);
/// The path of a large file, which has a random number of parts, with pauses between them.
pub(crate) const LARGE: &str = "/large";

/// The pods that serve now. Clones share them.
#[derive(Clone)]
pub(crate) struct Pods {
    serving: Arc<Mutex<Serving>>,
    nodes: [DemoNode; 3],
    screen: Screen,
}

struct Serving {
    /// The node and the address by the pod's name.
    pods: BTreeMap<String, (String, SocketAddr)>,
    addresses: Box<dyn Iterator<Item = SocketAddr> + Send>,
    turn: usize,
}

impl Pods {
    pub(crate) fn new(network: Network, screen: Screen) -> Self {
        let serving = Serving { pods: BTreeMap::new(), addresses: Box::new(network.pods()), turn: 0 };
        Self { serving: Arc::new(Mutex::new(serving)), nodes: network.nodes(), screen }
    }

    /// Returns the program of each pod, by its label.
    pub(crate) fn program(&self) -> PodProgram {
        let pods = self.clone();
        PodProgram::new(move |pod| {
            let pods = pods.clone();
            async move {
                if pod.object()["metadata"]["labels"]["app"] == "web" {
                    pods.web(pod).await;
                } else {
                    pods.ingress(pod).await;
                }
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pods that serve on a node.
    pub(crate) fn count(&self, node: &str) -> usize {
        self.lock().pods.values().filter(|(on, _)| on == node).count()
    }

    /// Returns a pod that serves on this node: each in turn.
    fn next(&self, node: &str) -> Option<SocketAddr> {
        let mut serving = self.lock();
        serving.turn = serving.turn.wrapping_add(1);
        let here: Vec<_> = serving.pods.values().filter(|(on, _)| on == node).collect();
        here.get(serving.turn.checked_rem(here.len())?).map(|(_, address)| *address)
    }

    async fn bind(&self) -> Option<TcpListener> {
        loop {
            let address = self.lock().addresses.next()?;
            if let Ok(listener) = TcpListener::bind(address).await {
                return Some(listener);
            }
            // Another process has the address.
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn web(self, mut pod: RunningPod) {
        let Some(listener) = self.bind().await else { return };
        let Ok(address) = listener.local_addr() else { return };
        let (node, name) = (pod.node().to_owned(), pod.name().to_owned());
        let mut requests = JoinSet::new();
        self.lock().pods.insert(name.clone(), (node.clone(), address));
        pod.ready(address.ip());
        self.screen.pod(&node, &format!("pod {name} serves"));
        let serves = |stream| answer(node.clone(), stream);
        tokio::select! {
            () = serve(&listener, &mut requests, serves) => {}
            () = pod.asked_to_end() => {}
        }
        // Connections that were already sent here are served, as with a preStop hook that sleeps. Then the pod
        // finishes its open requests.
        self.lock().pods.remove(&name);
        self.screen.pod(&node, &format!("pod {name} is evicted"));
        let _ = timeout(LAST_CALL, serve(&listener, &mut requests, serves)).await;
        drop(listener);
        while requests.join_next().await.is_some() {}
        self.screen.pod(&node, &format!("pod {name} has ended"));
    }

    async fn ingress(self, mut pod: RunningPod) {
        let Some(node) = self.nodes.iter().find(|node| node.name == pod.node()) else { return };
        let listener = match TcpListener::bind(node.ingress).await {
            Ok(listener) => listener,
            Err(error) => return self.screen.pod(node.name, &format!("no ingress: {error}")),
        };
        pod.ready(node.ingress.ip());
        let mut requests = JoinSet::new();
        // Without a pod, it closes the connection.
        let pass = |mut client: TcpStream| {
            let pod = self.next(node.name);
            async move {
                let Some(pod) = pod else { return Ok(()) };
                copy_bidirectional(&mut client, &mut TcpStream::connect(pod).await?).await.map(drop)
            }
        };
        tokio::select! {
            () = serve(&listener, &mut requests, pass) => {}
            () = pod.asked_to_end() => {}
        }
    }
}

async fn serve<F>(listener: &TcpListener, requests: &mut JoinSet<()>, answer: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let answer = answer(stream);
                    // Errors of a client's connection are of no interest.
                    requests.spawn(async move { drop(answer.await) });
                }
                Err(_) => sleep(Duration::from_millis(10)).await,
            },
            Some(_) = requests.join_next() => {}
        }
    }
}

/// Answers with the node's name. For a large file, dots come first, one after the other.
async fn answer(node: String, mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; 1024];
    // A balancer's own check connects and sends nothing.
    let read = timeout(Duration::from_secs(5), stream.read(&mut request)).await??;
    if read == 0 {
        return Ok(());
    }
    let large = request.starts_with(format!("GET {LARGE} ").as_bytes());
    let parts = if large { fastrand::usize(5..25) } else { 0 };
    let length = node.len() + parts;
    stream.write_all(format!("HTTP/1.0 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes()).await?;
    for _ in 0..parts {
        sleep(Duration::from_millis(200)).await;
        stream.write_all(b".").await?;
    }
    stream.write_all(node.as_bytes()).await?;
    stream.shutdown().await
}
