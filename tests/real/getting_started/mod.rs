//! docs/getting-started.md, as a reader follows it: the blocks of the page in their order and word by word, in one shell that
//! begins in an empty directory, for a cluster with two nodes and a Service behind two load balancers, while clients send requests.

mod machine;

use crate::daemonset::TIMEOUT;
use crate::pages::{Page, Step, matches};
use crate::rollout::ingress::{Hook, make_image, service, workload};
use crate::scenario::{POOL, Pods};
use machine::{Balancer, Machine, registry, reuse_builds};
use nodegate_testbed::haproxy::LiveServer;
use nodegate_testbed::prober::Probe;
use nodegate_testbed::real_cluster::{DEADLINE, REAL_NODE, REAL_NODE_IP, RealCluster, SECOND_NODE_IP, seen};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

const PAGE: &str = "docs/getting-started.md";

/// What a reader replaces: words of the page, and those of this cluster. It has two nodes.
const READERS_OWN: [(&str, &str); 7] = [
    ("worker-1 worker-2 worker-3", "real-node real-node-b"),
    ("    server worker-3 10.0.0.13:30443\n", ""),
    ("3 nodes: ", "2 nodes: "),
    ("worker-1", REAL_NODE),
    ("10.0.0.11", REAL_NODE_IP),
    ("worker-2", "real-node-b"),
    ("10.0.0.12", SECOND_NODE_IP),
];
const BALANCERS: [&str; 2] = ["10.0.0.5", "10.0.0.6"];
const NODE_PORT: u16 = 30_443;
const REMOVE: &str = "helm uninstall nodegate --namespace nodegate";

#[test]
#[ignore = "make real-cluster-test"]
fn with_images_on_the_nodes_and_helm_4() {
    walk(false, "images on the nodes, Helm 4");
}

#[test]
#[ignore = "make real-cluster-test"]
fn with_a_registry_and_helm_3() {
    walk(true, "a registry, Helm 3");
}

/// Follows the page. The images come to the nodes from a registry, or by hand.
fn walk(with_registry: bool, what: &str) {
    let cluster = RealCluster::take();
    cluster.remove_agents();
    let second = cluster.second_node();
    let _registry = with_registry.then(|| registry(&cluster, &second));
    let _service = start_service(&cluster);
    let mut machine = Machine::new(&cluster, with_registry);
    let page = Page::read(PAGE);
    let (began, mut commands, mut balancers) = (Instant::now(), 0, Vec::new());
    let of_the_other_way = if with_registry { "images import" } else { "make push" };
    for block in page.blocks.iter().filter(|block| !block.body.contains(of_the_other_way)) {
        match block.language.as_str() {
            "console" => {
                for step in block.steps() {
                    take(&mut machine, &step, &balancers);
                    commands += 1;
                }
            }
            "yaml" => write_values(&machine.directory.join("nodegate/values.yaml"), &block.body),
            "haproxy" => {
                let backend = for_this_cluster(&block.body);
                balancers = BALANCERS.map(|address| Balancer::start(&cluster, address, &backend)).into();
            }
            other => panic!("{PAGE}:{}: it is not known what to do with {other}", block.line),
        }
    }
    assert!(page.prose.contains(REMOVE) && !balancers.is_empty());
    let mut requests = 0;
    for balancer in &mut balancers {
        balancer.clients.stop();
        let failed: Vec<_> = balancer.clients.failed().iter().map(Probe::result).collect();
        assert!(failed.is_empty(), "{failed:?}");
        requests += balancer.clients.probes().len();
    }
    drop(balancers);
    run(&mut machine, &Step { command: REMOVE.to_owned(), ..Step::default() });
    let took = began.elapsed();
    seen(what, format!("{commands} commands in {took:.0?}, 0 stumbles; 0 of {requests} requests lost"));
    drop(machine);
    cluster.remove_agents();
}

/// Starts the Service that the page's HAProxy forwards to, with a pod on each node that ends as it should.
fn start_service(cluster: &RealCluster) -> Pods<'_> {
    make_image(cluster);
    let removed_at_the_end = Pods(cluster);
    let pods = workload("Deployment", "replicas: 2", Hook::Sleep(5));
    cluster.apply(&[POOL, &service(NODE_PORT), &pods].join("---\n"));
    cluster.kubectl.must(&["--namespace=pool", "rollout", "status", "deployment/ingress", TIMEOUT]);
    removed_at_the_end
}

fn for_this_cluster(text: &str) -> String {
    READERS_OWN.iter().fold(text.to_owned(), |text, (page, own)| text.replace(page, own))
}

/// Takes a step of the page, and looks whether the balancers do what the page says.
fn take(machine: &mut Machine, step: &Step, balancers: &[Balancer]) {
    run(machine, step);
    if step.command.starts_with("git clone ") {
        reuse_builds(&machine.directory.join("nodegate"));
    }
    for balancer in balancers {
        if step.prints == "503\n" {
            balancer.haproxy.wait_server(REAL_NODE, "draining", LiveServer::is_draining);
        }
        if step.command.starts_with("kubectl uncordon ") {
            balancer.haproxy.wait_server(REAL_NODE, "back", LiveServer::is_ready);
        }
    }
}

/// Runs a command until it prints what the page shows; one without output runs once.
fn run(machine: &mut Machine, step: &Step) {
    let (command, prints) = (for_this_cluster(&step.command), for_this_cluster(&step.prints));
    let began = Instant::now();
    let mut runs = 1;
    loop {
        let ended = machine.shell.env("READERS_COMMAND", &command).output().unwrap();
        let [said, errors] =
            [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if ended.status.success() && (prints.is_empty() || matches(&prints, &said)) {
            let again = if runs == 1 { String::new() } else { format!(", {runs} runs") };
            seen(&format!("$ {command}"), format!("{:.1?}{again}", began.elapsed()));
            return;
        }
        assert!(
            !prints.is_empty() && began.elapsed() < DEADLINE,
            "a stumble: $ {command}\n{said}{errors}\nexpected:\n{prints}"
        );
        runs += 1;
        thread::sleep(Duration::from_millis(500));
    }
}

/// Puts the block into values.yaml, without the parts that the file has already.
fn write_values(file: &Path, block: &str) {
    let mut text = fs::read_to_string(file).unwrap_or_default();
    let has: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut is_new = true;
    for line in block.lines() {
        if !line.starts_with(' ') {
            is_new = !has.iter().any(|own| own == line);
        }
        if is_new {
            text.extend([line, "\n"]);
        }
    }
    fs::write(file, text).unwrap();
}
