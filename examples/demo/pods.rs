//! The programs in the demo's pods, which end when their pod does.
//!
//! On each node, a pod `ingress` listens on the host's network, and hands each request to a pod `web` of its own node,
//! as with `externalTrafficPolicy: Local`. That answers with the name of its node, and ends after its last answer.

use crate::node::{DemoNode, Network};
use crate::screen::Screen;
use nodegate_kube_sim::{PodProgram, RunningPod};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// The path of a large file, which has a random number of parts, with pauses between them.
pub(crate) const LARGE: &str = "/large";

/// A pod's node. Each request in flight holds a clone.
type Serving = Arc<str>;

/// The pods that serve now, by their names. Clones share them.
#[derive(Clone)]
pub(crate) struct Pods {
    serving: Arc<Mutex<BTreeMap<String, Serving>>>,
    nodes: [DemoNode; 3],
    screen: Screen,
}

impl Pods {
    pub(crate) fn new(network: Network, screen: Screen) -> Self {
        Self { serving: Arc::default(), nodes: network.nodes(), screen }
    }

    /// Returns the program of each pod, by its label.
    pub(crate) fn program(&self) -> PodProgram {
        let pods = self.clone();
        PodProgram::new(move |pod| {
            let pods = pods.clone();
            async move {
                if pod.object()["metadata"]["labels"]["app"] == "web" {
                    pods.web(pod).await;
                } else if let Err(error) = pods.ingress(pod).await {
                    pods.screen.line(format!("no ingress: {error}"));
                }
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pods that serve on a node, those with the fewest requests first.
    fn on(&self, node: &str) -> Vec<Serving> {
        let mut here: Vec<_> = self.lock().values().filter(|on| &***on == node).cloned().collect();
        here.sort_by_key(Arc::strong_count);
        here
    }

    /// Returns the number of pods that serve on a node.
    pub(crate) fn count(&self, node: &str) -> usize {
        self.on(node).len()
    }

    async fn web(&self, mut pod: RunningPod) {
        let (node, name) = (pod.node().to_owned(), pod.name().to_owned());
        let serving = Serving::from(node.as_str());
        self.lock().insert(name.clone(), Arc::clone(&serving));
        pod.ready(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.screen.pod(&node, &format!("pod {name} serves"));
        pod.asked_to_end().await;
        self.lock().remove(&name);
        self.screen.pod(&node, &format!("pod {name} is evicted"));
        while Arc::strong_count(&serving) > 1 {
            sleep(Duration::from_millis(50)).await;
        }
        self.screen.pod(&node, &format!("pod {name} has ended"));
    }

    async fn ingress(&self, mut pod: RunningPod) -> io::Result<()> {
        let Some(node) = self.nodes.iter().find(|node| node.name == pod.node()) else { return Ok(()) };
        let listener = TcpListener::bind(node.ingress).await?;
        pod.ready(node.ingress.ip());
        let serve = async {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // Without a pod, it closes the connection. An error of a client's connection is of no interest.
                let Some(pod) = self.on(node.name).into_iter().next() else { continue };
                tokio::spawn(async move { drop(answer(pod, stream).await) });
            }
        };
        tokio::select! {
            () = serve => Ok(()),
            () = pod.asked_to_end() => Ok(()),
        }
    }
}

/// Answers with the node's name. For a large file, dots come first, one after the other.
async fn answer(node: Serving, mut stream: TcpStream) -> io::Result<()> {
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
