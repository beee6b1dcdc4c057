//! The programs in the demo's pods, which end when their pod does.

// The ingress of each node hands each request to a pod of its own node, as with `externalTrafficPolicy: Local`. The pod
// answers with the name of its node, and ends after its last answer.

use crate::screen::Screen;
use nodegate_kube_sim::Sim;
use nodegate_testbed::pods::{RunningPod, keep};
use std::collections::BTreeMap;
use std::io;
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
    screen: Screen,
}

impl Pods {
    pub(crate) fn new(screen: Screen) -> Self {
        Self { serving: Arc::default(), screen }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pods that serve on a node.
    pub(crate) fn count(&self, node: &str) -> usize {
        self.lock().values().filter(|on| &***on == node).count()
    }

    /// Keeps two pods on each node. A node that is back gets them before the balancers know of it.
    pub(crate) async fn keep(self, sim: Sim) {
        let run = |pod| {
            let pods = self.clone();
            async move { pods.run(pod).await }
        };
        keep(sim, &["web", "shop"], run).await;
    }

    async fn run(&self, RunningPod { name, node, evicted, .. }: RunningPod) {
        let serving = Serving::from(node.as_str());
        self.lock().insert(name.clone(), Arc::clone(&serving));
        self.screen.pod(&node, &format!("pod {name} serves"));
        let _ = evicted.await;
        self.lock().remove(&name);
        self.screen.pod(&node, &format!("pod {name} is evicted"));
        while Arc::strong_count(&serving) > 1 {
            sleep(Duration::from_millis(50)).await;
        }
        self.screen.pod(&node, &format!("pod {name} has ended"));
    }

    /// Accepts the requests of a node, and gives each to the pod there with the fewest requests.
    pub(crate) async fn ingress(self, node: &'static str, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let here = self
                .lock()
                .values()
                .filter(|on| &***on == node)
                .min_by_key(|on| Arc::strong_count(on))
                .cloned();
            // Without a pod, it closes the connection. An error of a client's connection is of no interest.
            let Some(pod) = here else { continue };
            tokio::spawn(async move { drop(answer(pod, stream).await) });
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
