//! `nodegate-haproxy --publish-status` with a real API server: what `helm --wait`, Argo CD and kubectl make of
//! the status, which of two processes writes it, and how soon the other one takes over.

use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{nodegate_haproxy, system};
use nodegate_testbed::real_cluster::{PATIENCE, RealCluster, ServerRoute};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use nodegate_testbed::{http, process};
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/haproxy-kubeconfig");
const ADDRESS: &str = "203.0.113.10";
const NAMESPACE: &str = "publish";

/// HAProxy and nodegate-haproxy on one address of the loopback interface.
struct Balancer {
    directory: TempDir,
    metrics: SocketAddr,
    program: Option<Child>,
    _haproxy: Program,
}

impl Balancer {
    fn start(kubeconfig: &Path, number: u8) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let at = |name: &str| directory.path().join(name);
        let mut command = Command::new(nodegate_haproxy());
        command.env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
        command.arg("--config").arg(at("haproxy.cfg")).arg("--master-socket").arg(at("master.sock"));
        command.args(["--publish-status", ADDRESS]);
        command.arg(format!("--bind=127.0.0.{number}")).arg(format!("--listen={metrics}"));
        let log = fs::File::create(at("program.log")).unwrap();
        let program = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let written = || at("haproxy.cfg").exists().then_some(());
        until_within(PATIENCE, written, || fs::read_to_string(at("program.log")).unwrap_or_default());
        let mut haproxy = system("haproxy");
        haproxy.args(["-W", "-S"]).arg(at("master.sock")).arg("-f").arg(at("haproxy.cfg"));
        let haproxy = Program::start_into(&mut haproxy, &at("haproxy.log"));
        let balancer = Self { directory, metrics, program: Some(program), _haproxy: haproxy };
        let ready = || http::get(metrics, "/readyz").ok().filter(|reply| reply.status == 200).map(drop);
        until_within(PATIENCE, ready, || balancer.log());
        balancer
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("program.log")).unwrap_or_default()
    }

    fn metric(&self, series: &str) -> u64 {
        let page = http::get(self.metrics, "/metrics").map(|page| page.body).unwrap_or_default();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_default()
    }

    fn holds(&self) -> bool {
        self.metric("nodegate_haproxy_lease_held ") > 0
    }

    fn kill(&mut self) {
        let mut program = self.program.take().unwrap();
        process::signal(program.id(), "KILL");
        program.wait().unwrap();
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        if let Some(mut program) = self.program.take() {
            process::signal(program.id(), "TERM");
            let _ = program.wait();
        }
    }
}

/// What the test adds to the cluster; drop removes it.
struct Site<'a> {
    cluster: &'a RealCluster,
    charts: TempDir,
}

impl<'a> Site<'a> {
    fn new(cluster: &'a RealCluster) -> Self {
        cluster.kubectl.must(&["create", "namespace", NAMESPACE]);
        Self { cluster, charts: tempfile::tempdir().unwrap() }
    }

    /// Returns the kubeconfig of an account that may write statuses.
    fn account(&self) -> PathBuf {
        let output = self.script(&["--server", ServerRoute::A.url(), "--publish-status"]);
        let file = self.charts.path().join("kubeconfig");
        fs::write(&file, output).unwrap();
        file
    }

    fn script(&self, arguments: &[&str]) -> Vec<u8> {
        let mut script = Command::new(SCRIPT);
        let output =
            script.args(arguments).env("KUBECONFIG", self.cluster.kubectl.kubeconfig()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Writes a chart with a Service of type `LoadBalancer` alone.
    fn chart(&self, name: &str, port: u16) -> PathBuf {
        let chart = self.charts.path().join(name);
        fs::create_dir_all(chart.join("templates")).unwrap();
        fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n"))
            .unwrap();
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  type: LoadBalancer\n  \
             selector: {{app: {name}}}\n  ports: [{{port: {port}, targetPort: 80}}]\n"
        );
        fs::write(chart.join("templates/service.yaml"), service).unwrap();
        chart
    }

    /// Runs `helm install` and waits as Helm 3 does: Helm 4 by itself (`watcher`) waits for the Service's
    /// `clusterIP` alone. The error is what helm says.
    fn install(&self, name: &str, port: u16, timeout: &str) -> Result<Duration, String> {
        let began = Instant::now();
        let mut helm = system("helm");
        helm.args(["install", name]).arg(self.chart(name, port));
        helm.args(["--namespace", NAMESPACE, "--wait=legacy", "--timeout", timeout]);
        let output = self.in_own_home(&mut helm).output().expect("helm is needed: hack/install-helm");
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        output.status.success().then(|| began.elapsed()).ok_or(error)
    }

    fn in_own_home<'c>(&self, helm: &'c mut Command) -> &'c mut Command {
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(variable, self.charts.path().join("helm"));
        }
        helm.env("KUBECONFIG", self.cluster.kubectl.kubeconfig())
    }

    fn service(&self, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/services/{name}");
        self.cluster.api.get(&path).expect("the Service")
    }

    fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.service(name);
        let entries = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| format!("{} {}", entry["ip"], entry["ipMode"])).collect()
    }

    #[track_caller]
    fn until_published(&self, name: &str, balancers: &[Balancer]) {
        let published = format!("\"{ADDRESS}\" \"VIP\"");
        let is = || (self.addresses(name) == [published.clone()]).then_some(());
        let logs = || balancers.iter().map(Balancer::log).collect::<Vec<_>>().join("---\n");
        until_within(PATIENCE, is, logs);
    }

    /// Returns the column EXTERNAL-IP of `kubectl get service`.
    fn external_ip(&self, name: &str) -> String {
        let words = ["--namespace", NAMESPACE, "get", "service", name, "--no-headers"];
        let line = self.cluster.kubectl.must(&words);
        line.split_whitespace().nth(3).unwrap_or_default().to_owned()
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", NAMESPACE, "--ignore-not-found"];
        for result in [
            self.cluster.kubectl.run(&delete),
            self.cluster.kubectl.run(&[
                "--namespace=nodegate",
                "delete",
                "lease",
                "nodegate-haproxy",
                "--ignore-not-found",
            ]),
        ] {
            if let Err(error) = result {
                eprintln!("publish: {error}");
            }
        }
        self.script(&["--remove"]);
    }
}

/// Returns Argo CD's health of a Service, by Argo CD's own code. `None` without it.
fn argo_health(service: &Value) -> Option<String> {
    let program = std::env::var_os("ARGO_HEALTH")?;
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(service.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
#[ignore = "make real-cluster-test"]
fn a_published_service_is_finished_for_helm_argo_cd_and_kubectl() {
    let cluster = RealCluster::take();
    let site = Site::new(&cluster);
    let (web, next, last) = (ports::free(), ports::free(), ports::free());

    // As it is without --publish-status.
    let refused = site.install("pending", last, "10s").unwrap_err();
    assert_eq!(site.external_ip("pending"), "<pending>");
    let pending = argo_health(&site.service("pending"));
    assert!(pending.as_deref().is_none_or(|health| health == "Progressing"), "{pending:?}");
    cluster.kubectl.must(&["--namespace", NAMESPACE, "delete", "service", "pending"]);

    let kubeconfig = site.account();
    let mut balancers = [1, 2].map(|number| Balancer::start(&kubeconfig, number));
    let waited =
        site.install("web", web, "4m").unwrap_or_else(|error| panic!("{error}\n{}", balancers[0].log()));
    site.until_published("web", &balancers);
    assert_eq!(site.external_ip("web"), ADDRESS);
    seen(
        "helm install --wait=legacy",
        &format!("{:.1} s; without the status: {refused}", waited.as_secs_f64()),
    );
    match argo_health(&site.service("web")) {
        Some(health) => {
            assert_eq!(health, "Healthy");
            seen("Argo CD's health of the Service", "Progressing without the status, Healthy with it");
        }
        None => seen("Argo CD's health of the Service", "NOT TRIED: ARGO_CD is not set (hack/argo-health)"),
    }

    let writes = |balancers: &[Balancer]| -> Vec<u64> {
        let set = "nodegate_haproxy_status_writes_total{kind=\"set\"} ";
        balancers.iter().map(|balancer| balancer.metric(set)).collect()
    };
    let writer = balancers.iter().position(Balancer::holds).expect("one holds the Lease");
    assert!(!balancers[1 - writer].holds());
    let (all, versions) = (writes(&balancers), site.service("web")["metadata"]["resourceVersion"].clone());
    assert_eq!((all[writer], all[1 - writer]), (1, 0), "{}", balancers[writer].log());
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(site.service("web")["metadata"]["resourceVersion"], versions, "written again");

    // The writer is killed.
    balancers[writer].kill();
    let killed = Instant::now();
    let waited = site.install("next", next, "4m").unwrap_or_else(|error| panic!("{error}"));
    site.until_published("next", &balancers);
    let took = killed.elapsed();
    assert!(waited <= took && balancers[1 - writer].holds());
    assert_eq!(writes(&balancers)[1 - writer], 1, "the other one repeats nothing");
    seen(
        "the writer killed",
        &format!("the other one wrote the next status {:.1} s later", took.as_secs_f64()),
    );

    // Events and removal.
    let file = site.chart("young", web).join("templates/service.yaml");
    let young = ["--namespace", NAMESPACE, "apply", "--filename", file.to_str().unwrap()];
    cluster.kubectl.must(&young);
    let events =
        ["--namespace", NAMESPACE, "get", "events", "--field-selector=reason=NotPublished", "--output=json"];
    let event = until_within(
        PATIENCE,
        || {
            let list: Value = serde_json::from_str(&cluster.kubectl.run(&events).ok()?).ok()?;
            list["items"].as_array()?.first().cloned()
        },
        || balancers[1 - writer].log(),
    );
    assert_eq!(event["involvedObject"]["name"], "young");
    seen("an Event on a Service", event["message"].as_str().unwrap());
    let ignore = ["--namespace", NAMESPACE, "annotate", "service", "web", "nodegate.io/haproxy-ignore=true"];
    cluster.kubectl.must(&ignore);
    let removed = || site.addresses("web").is_empty().then_some(());
    until_within(PATIENCE, removed, || balancers[1 - writer].log());
    assert_eq!(site.external_ip("web"), "<pending>");
    // The account may write nothing else.
    let account = Kubectl::new(&kubeconfig, site.charts.path());
    for (question, answer) in [
        ("patch services --subresource=status -A", true),
        ("patch services -n publish", false),
        ("patch nodes --subresource=status", false),
        ("patch leases/nodegate-haproxy -n nodegate", true),
        ("patch leases/real-node -n kube-node-lease", false),
    ] {
        let words = ["auth", "can-i"].into_iter().chain(question.split(' ')).collect::<Vec<_>>();
        assert_eq!(account.run(&words).is_ok(), answer, "{question}");
    }
}
