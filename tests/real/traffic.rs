//! Requests through HAProxy while kubelets are silent. The agent keeps the node in the pool, but the
//! controllers mark its pods not ready, and kube-proxy removes them from a Service. The documents say which
//! requests survive that.

use crate::kubelet::is_unconfirmed;
use nodegate_testbed::Agent;
use nodegate_testbed::haproxy::{Haproxy, LiveServer};
use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Probe, Prober, Saw, exchange};
use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, REAL_NODE_IP, RealCluster, ServerRoute};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::{Watching as _, seen};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Enough to show a gap of a tenth of a second, and little load for a busy machine.
const REQUESTS_A_SECOND: u32 = 20;
const CLIENTS: u32 = 4;
/// The time after which a request that a dead server delays is lost.
const A_REQUEST: Duration = Duration::from_secs(10);
/// The time for which requests continue after the controllers' last change.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// The answer to a request that arrives.
const FROM_THE_POD: &str = "from the pod";

/// The ways into the cluster: the names of HAProxy's backends.
const WAYS: [&str; 3] = [SERVICE, NOT_READY_TOO, INGRESS];
/// A `NodePort` of a Service. `Haproxy` reads the states of the backend with this name.
const SERVICE: &str = "nodes";
/// The same with `publishNotReadyAddresses`.
const NOT_READY_TOO: &str = "not-ready-too";
/// A pod on the host's network, which sends to the other pod by its address.
const INGRESS: &str = "ingress";
const INGRESS_PORT: u16 = 8081;

/// A pod with an address of its own and two Services for it.
const BACKEND: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: traffic}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: backend, namespace: traffic}
data:
  haproxy.cfg: |
    global
      maxconn 100
    defaults
      mode http
      timeout connect 5s
      timeout client 5s
      timeout server 5s
    frontend all
      bind :8080
      http-request return status 200 content-type text/plain string "from the pod"
---
apiVersion: v1
kind: Pod
metadata: {name: backend, namespace: traffic, labels: {app: backend}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: haproxy
    image: real-cluster/haproxy:1
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    volumeMounts: [{name: configuration, mountPath: /configuration}]
  volumes: [{name: configuration, configMap: {name: backend}}]
---
apiVersion: v1
kind: Service
metadata: {name: nodes, namespace: traffic}
spec: {type: NodePort, selector: {app: backend}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: not-ready-too, namespace: traffic}
spec: {type: NodePort, publishNotReadyAddresses: true, selector: {app: backend}, ports: [{port: 8080}]}
"#;

/// An ingress with a fixed backend.
const ON_THE_HOST: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: ingress, namespace: traffic}
data:
  haproxy.cfg: |
    global
      maxconn 100
    defaults
      mode http
      timeout connect 5s
      timeout client 5s
      timeout server 5s
    listen all
      bind HOST:PORT
      server pod POD:8080
---
apiVersion: v1
kind: Pod
metadata: {name: ingress, namespace: traffic}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: haproxy
    image: real-cluster/haproxy:1
    volumeMounts: [{name: configuration, mountPath: /configuration}]
  volumes: [{name: configuration, configMap: {name: ingress}}]
";

fn ask(to: SocketAddr) -> Saw {
    exchange(to, "GET / HTTP/1.0\r\nhost: x\r\n\r\n", A_REQUEST, |text| {
        let reply = ProbeReply::parse(text)?;
        let arrived = reply.status == 200 && reply.body == FROM_THE_POD;
        Some(if arrived { Saw::Answer(200, reply.body) } else { Saw::Failed(format!("{}", reply.status)) })
    })
}

/// The objects on a node, and the balancer with its clients in front of it; dropping it removes them.
struct Site<'a> {
    cluster: &'a RealCluster,
    agent: Agent,
    balancer: Haproxy,
    clients: Vec<(&'static str, Prober)>,
}

impl<'a> Site<'a> {
    fn start(cluster: &'a RealCluster) -> Self {
        cluster.grant_agents();
        cluster.node_script(&["image", "haproxy", "haproxy", "-db", "-f", "/configuration/haproxy.cfg"]);
        cluster.apply(BACKEND);
        cluster.wait_pod("traffic", "backend");
        let pod = cluster.kubectl.must(&[
            "--namespace=traffic",
            "get",
            "pod",
            "backend",
            "--output=jsonpath={.status.podIP}",
        ]);
        let ingress = ON_THE_HOST.replace("HOST", REAL_NODE_IP).replace("PORT", &INGRESS_PORT.to_string());
        cluster.apply(&ingress.replace("POD", &pod));
        cluster.wait_pod("traffic", "ingress");

        let agent = cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", &[]);
        agent.until_ready();
        let ways = WAYS.map(|way| (way, SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()))));
        let balancer = balance(cluster, &agent, &ways);
        for (way, address) in ways {
            let arrives = || matches!(ask(address), Saw::Answer(..)).then_some(());
            until_within(PATIENCE, arrives, || format!("nothing arrives by {way}: {}", ask(address)));
        }
        let clients =
            ways.map(|(way, address)| (way, Prober::start(address, ask, REQUESTS_A_SECOND, CLIENTS)));
        Self { cluster, agent, balancer, clients: clients.into() }
    }

    /// Waits until the node controller has marked the pods, and lets requests continue for a while.
    fn wait_marked(&self) {
        let unconfirmed = || Some(self.agent.health()).filter(is_unconfirmed);
        until_within(PATIENCE, unconfirmed, || self.agent.all_it_says("an unconfirmed answer"));
        until_within(
            PATIENCE,
            || (!self.is_endpoint_ready()).then_some(()),
            || "the backend's endpoint is still ready".to_owned(),
        );
        let marked = Instant::now();
        while marked.elapsed() < AFTERWARDS {
            let reply = self.agent.health();
            assert!(reply.status == 200 && is_unconfirmed(&reply), "{}", reply.body);
            let server = self.balancer.server(REAL_NODE);
            assert!(server.as_ref().is_some_and(LiveServer::is_ready), "the balancer has {server:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Returns true if the API server has the endpoint of the Service without `publishNotReadyAddresses` as
    /// ready.
    fn is_endpoint_ready(&self) -> bool {
        let about =
            ["--namespace=traffic", "get", "endpointslices", "--selector=kubernetes.io/service-name=nodes"];
        let ready = "--output=jsonpath={.items[*].endpoints[*].conditions.ready}";
        self.cluster.kubectl.must(&[&about[..], &[ready]].concat()).trim() == "true"
    }

    fn requests(&self, way: &str, since: Instant) -> Vec<Probe> {
        let (_, prober) = self.clients.iter().find(|(name, _)| *name == way).expect("a way of this name");
        prober.answered_since(since)
    }

    /// Asserts that all requests on this way have arrived.
    #[track_caller]
    fn survived(&self, way: &str, since: Instant) {
        let lost: Vec<String> = self
            .requests(way, since)
            .iter()
            .filter(|request| matches!(request.saw, Saw::Failed(_)))
            .map(Probe::told)
            .collect();
        assert!(lost.is_empty(), "{way}: {} lost: {lost:?}", lost.len());
    }

    /// Waits until requests on this way arrive again, and have for two seconds.
    fn wait_back(&self, way: &str) {
        let all_arrive = || {
            let latest = self.requests(way, Instant::now().checked_sub(Duration::from_secs(2))?);
            (latest.len() > 10 && latest.iter().all(|request| matches!(request.saw, Saw::Answer(..))))
                .then_some(())
        };
        until_within(PATIENCE, all_arrive, || format!("{way} is not back"));
    }

    fn report(&self, rule: &str, since: Instant) {
        let took = since.elapsed().as_secs_f64();
        let mut line = String::new();
        for way in WAYS {
            let requests = self.requests(way, since);
            let mut lost = requests.iter().filter(|request| matches!(request.saw, Saw::Failed(_)));
            write!(line, "{way}: {} of {} lost", lost.clone().count(), requests.len()).unwrap();
            if let Some(first) = lost.next() {
                write!(line, ", from {:.0} s", first.sent.saturating_duration_since(since).as_secs_f64())
                    .unwrap();
            }
            line += "; ";
        }
        seen(rule, &format!("{line}in {took:.0} s"));
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.cluster.kubectl.run(&["delete", "namespace", "traffic", "--timeout=5m"]) {
            eprintln!("the traffic can't be removed: {error}");
        }
    }
}

/// Starts HAProxy with the agent's answer as the only check of each server. It does not retry a failed
/// request elsewhere.
fn balance(cluster: &RealCluster, agent: &Agent, ways: &[(&str, SocketAddr)]) -> Haproxy {
    let mut text = format!(
        "global\n  stats socket {} level admin\ndefaults\n  mode http\n  retries 0\n  timeout connect 2s\n  timeout client 10s\n  \
         timeout server 10s\n  timeout check 2s\n  option httpchk GET /health\n  default-server check inter 500ms fall 2 rise 1 \
         addr {} port {}\n",
        cluster.files.path().join("nodegate.sock").display(),
        agent.address().ip(),
        agent.address().port()
    );
    for (way, address) in ways {
        let port = match *way {
            INGRESS => INGRESS_PORT.to_string(),
            service => {
                let port = "--output=jsonpath={.spec.ports[0].nodePort}";
                cluster.kubectl.must(&["--namespace=traffic", "get", "service", service, port])
            }
        };
        write!(text, "listen {way}\n  bind {address}\n  server {REAL_NODE} {REAL_NODE_IP}:{port}\n").unwrap();
    }
    let file = cluster.files.path().join("haproxy.cfg");
    std::fs::write(&file, text).unwrap();
    Haproxy::start(&file)
}

/// Shows kube-proxy after kubelets are cut off: it learns from the API server that the pods are not ready,
/// and rejects traffic for their Service, though pods, node and agent are healthy. Only the node controller
/// marks pods, and only kube-proxy acts on that.
#[test]
#[ignore = "make real-cluster-test"]
fn requests_while_kubelets_are_cut_off() {
    let cluster = RealCluster::take();
    let site = Site::start(&cluster);
    let began = Instant::now();
    let cut = cluster.cut("kubelet");
    site.wait_marked();
    site.survived(INGRESS, began);
    site.survived(NOT_READY_TOO, began);
    // The documents' statement about a Service; if this changes, they have to change.
    let latest = site.requests(SERVICE, Instant::now().checked_sub(Duration::from_secs(2)).unwrap());
    let failed = latest.iter().all(|request| request.told() == "503");
    assert!(!latest.is_empty() && failed, "a Service whose pods are not ready serves: {latest:?}");
    site.report("kubelets cut", began);
    let mended = cut.mend();
    site.wait_back(SERVICE);
    seen(
        "kubelets cut, then mended",
        &format!("the Service is back after {:.0} s", mended.elapsed().as_secs_f64()),
    );
    site.survived(INGRESS, began);
}

/// Shows a kube-proxy that is cut off, too: the real one keeps its rules for as long as that lasts.
#[test]
#[ignore = "make real-cluster-test"]
fn requests_while_kubelets_and_kube_proxies_are_cut_off() {
    let cluster = RealCluster::take();
    let site = Site::start(&cluster);
    let began = Instant::now();
    let proxy = cluster.cut("proxy");
    let kubelet = cluster.cut("kubelet");
    site.wait_marked();
    for way in WAYS {
        site.survived(way, began);
    }
    site.report("kubelets and kube-proxies cut", began);
    // The kubelet first, so that kube-proxy then learns that the pods are ready.
    kubelet.mend();
    cluster.wait_node("True", REAL_NODE);
    until_within(
        PATIENCE,
        || site.is_endpoint_ready().then_some(()),
        || "the endpoint is not ready again".to_owned(),
    );
    proxy.mend();
    for way in WAYS {
        site.wait_back(way);
        site.survived(way, began);
    }
}
