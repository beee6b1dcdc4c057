//! The programs in the demo's pods, which end when their pod does.

// The ingress of each node hands each request to a pod of its own node, as with `externalTrafficPolicy: Local`. The pod
// answers with the name of its node, and ends after its last answer.

use crate::node::DemoNode;
use crate::screen::Screen;
use nodegate_kube_sim::Sim;
use nodegate_testbed::pods::{RunningPod, keep};
use nodegate_testbed::stub::StubServer;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::time::sleep;

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

    /// Serves the requests of a node, each by the pod there with the fewest requests.
    pub(crate) fn ingress(&self, node: DemoNode) {
        let pods = self.clone();
        StubServer::start_at(node.ingress, move |request, stream| {
            let serving = pods.lock();
            let here =
                serving.values().filter(|on| &***on == node.name).min_by_key(|on| Arc::strong_count(on));
            let here = here.cloned();
            drop(serving);
            // A balancer's own check connects and sends nothing. Without a pod, the connection is closed, too.
            if let Some(pod) = here.filter(|_| !request.is_empty()) {
                // An error of a client's connection is of no interest.
                let _ = answer(&pod, request, stream);
            }
        });
    }
}

/// Answers with the node's name. For a large file, dots come first, one after the other.
fn answer(node: &str, request: &str, stream: &mut TcpStream) -> io::Result<()> {
    let large = request.starts_with(&format!("GET {LARGE} "));
    let parts = if large { fastrand::usize(5..25) } else { 0 };
    write!(stream, "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n", node.len() + parts)?;
    for _ in 0..parts {
        thread::sleep(Duration::from_millis(200));
        stream.write_all(b".")?;
    }
    stream.write_all(node.as_bytes())
}
