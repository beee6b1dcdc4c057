//! An address in a Service's status that belongs to a node: a kube-proxy on that node must leave it to HAProxy.

use nodegate_testbed::haproxy::{Haproxy, ask};
use nodegate_testbed::http;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::{Program, StoppedProcess};
use nodegate_testbed::programs::{nodegate_haproxy, run};
use nodegate_testbed::real_cluster::{DEADLINE, MERGE, REAL_NODE, REAL_NODE_IP, RealCluster, seen, until_so};
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The address of the balancer's node, between it and the client.
const ADDRESS: &str = "10.21.0.1";
const PORT: u16 = 18080;
const APPLICATION: u16 = 8080;
const SERVICE: &str = "/api/v1/namespaces/default/services/published";
const REQUESTS: u64 = 20;

/// The client is behind no other machine of the cluster.
const NETWORK: &str = "\
link add lb0 type veth peer name eth0 netns {balancer}
-n {balancer} link add eth1 type veth peer name eth0 netns {client}
addr add 10.20.0.1/24 dev lb0
-n {balancer} addr add 10.20.0.2/24 dev eth0
-n {balancer} addr add 10.21.0.1/24 dev eth1
-n {client} addr add 10.21.0.2/24 dev eth0
link set lb0 up
-n {balancer} link set eth0 up
-n {balancer} link set eth1 up
-n {client} link set eth0 up
-n {balancer} route add default via 10.20.0.1
-n {client} route add default via 10.21.0.1";

struct Balancer {
    _programs: [Program; 2],
    program: Program,
    master: PathBuf,
    namespace: Namespace,
}

impl Balancer {
    /// Starts a kube-proxy, nodegate-haproxy and HAProxy on the balancer's node.
    fn start(cluster: &RealCluster, namespace: Namespace) -> Self {
        namespace.shell("echo 1 >/proc/sys/net/ipv4/ip_forward");
        let files = cluster.files.path();
        let proxy = env::var_os("KUBEPROXY").map(PathBuf::from);
        let proxy = proxy.unwrap_or_else(|| Path::new(&env::var_os("KUBEBIN").unwrap()).join("kube-proxy"));
        let mut proxy = namespace.command(proxy);
        proxy.arg("--kubeconfig").arg(cluster.directory().join("proxy-b.kubeconfig"));
        proxy.args(["--proxy-mode=nftables", "--hostname-override=balancer", "--cluster-cidr=10.244.0.0/16"]);
        let untouched = ["max-per-core", "tcp-timeout-established", "tcp-timeout-close-wait"];
        proxy.args(untouched.map(|setting| format!("--conntrack-{setting}=0")));
        let proxy = Program::start_into(&mut proxy, &files.join("kube-proxy.log"));

        let (config, master) = (files.join("balancer.cfg"), files.join("master.sock"));
        let mut program = namespace.command(nodegate_haproxy());
        program.env("KUBECONFIG", cluster.directory().join("admin-b.kubeconfig"));
        program.arg("--config").arg(&config).arg("--master-socket").arg(&master);
        program.args(["--check=tcp", "--bind", ADDRESS, "--publish-status", ADDRESS]);
        let program = Program::start_into(&mut program, &files.join("nodegate-haproxy.log"));
        until_so(|| config.exists(), || read(&files.join("nodegate-haproxy.log")));
        let mut haproxy = namespace.command("haproxy");
        haproxy.arg("-W").arg("-S").arg(&master).arg("-f").arg(&config);
        let haproxy = Program::start_into(&mut haproxy, &files.join("balancer.log"));
        Self { _programs: [proxy, haproxy], program, master, namespace }
    }

    /// Returns the number of connections that HAProxy has taken for the Service.
    fn connections(&self) -> Option<u64> {
        let frontend = format!("nodegate_default_published_{PORT}_frontend");
        let text = ask(&self.master, &format!("@1 show stat {frontend} 1 -1"), DEADLINE)?;
        let row = text.lines().find(|line| line.starts_with(&frontend))?;
        // The column stot.
        row.split(',').nth(7)?.parse().ok()
    }

    /// Waits until a request is answered, through HAProxy or past it.
    fn until_answered(&self, client: &Namespace, through_haproxy: bool) {
        let is_so = || {
            let before = self.connections();
            let (answered, after) = (asks(client).is_some(), self.connections());
            answered && before.is_some() && after.is_some() && (after > before) == through_haproxy
        };
        until_so(is_so, || self.namespace.run("nft list ruleset"));
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// Sends a request to the published address. Returns the application's answer.
fn asks(client: &Namespace) -> Option<String> {
    let to = SocketAddr::new(ADDRESS.parse().unwrap(), PORT);
    let reply = client.act(|| http::get(to, "/")).ok()?;
    (reply.status == 200).then_some(reply.body)
}

fn ingress(cluster: &RealCluster) -> Value {
    cluster.api.get(SERVICE).unwrap_or_default()["status"]["loadBalancer"]["ingress"].clone()
}

fn application(cluster: &RealCluster) -> Haproxy {
    let answer = "http-request return status 200 content-type text/plain string application";
    let frontend = format!("frontend all\n  bind {REAL_NODE_IP}:{APPLICATION}\n  {answer}\n");
    let text = format!("defaults\n  mode http\n  timeout client 5s\n{frontend}");
    Haproxy::with(&cluster.files.path().join("application"), &text)
}

fn objects() -> String {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "published", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": PORT, "targetPort": APPLICATION}]},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "published", "namespace": "default", "labels": {"kubernetes.io/service-name": "published"},
        },
        "ports": [{"name": "http", "port": APPLICATION}],
        "endpoints": [{"addresses": [REAL_NODE_IP], "nodeName": REAL_NODE, "conditions": {"ready": true}}],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [service, slice]}).to_string()
}

#[test]
#[ignore = "make real-cluster-test"]
fn a_kube_proxy_on_the_balancer_s_node_leaves_the_published_address_to_haproxy() {
    let cluster = RealCluster::take();
    let (namespace, client) = (Namespace::new("balancer"), Namespace::new("client"));
    for line in NETWORK.lines() {
        let line = line.replace("{balancer}", namespace.name()).replace("{client}", client.name());
        run(&format!("ip {line}"));
    }
    let member = cluster.member("balancer");
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}});
    cluster.api.patch(&format!("{}/status", member.path()), MERGE, &addresses).unwrap();
    let _application = application(&cluster);
    cluster.apply(&objects());
    let balancer = Balancer::start(&cluster, namespace);
    let published = json!([{"ip": ADDRESS, "ipMode": "Proxy"}]);
    let is_published = || ingress(&cluster) == published;
    let log = || read(&cluster.files.path().join("nodegate-haproxy.log"));
    until_so(is_published, log);
    balancer.until_answered(&client, true);

    // With the other mode, this kube-proxy takes the address for its own.
    let stopped = StoppedProcess::new(balancer.program.pid());
    let by_hand = json!({"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS, "ipMode": "VIP"}]}}});
    let status = format!("{SERVICE}/status?fieldManager=nodegate-haproxy");
    cluster.api.patch(&status, MERGE, &by_hand).unwrap();
    balancer.until_answered(&client, false);
    drop(stopped);

    until_so(is_published, log);
    balancer.until_answered(&client, true);
    let before = balancer.connections().unwrap();
    let answered = (0..REQUESTS).filter_map(|_| asks(&client)).filter(|body| body == "application").count();
    let through = balancer.connections().unwrap() - before;
    cluster.kubectl.must(&["delete", "service", "published"]);
    cluster.kubectl.must(&["delete", "endpointslice", "published", "--ignore-not-found"]);
    assert_eq!((answered as u64, through), (REQUESTS, REQUESTS));
    let what = format!("{answered} of {REQUESTS} answered, {through} through HAProxy");
    seen("published address", format!("{ADDRESS} of a node, kube-proxy with nftables: {what}"));
}
