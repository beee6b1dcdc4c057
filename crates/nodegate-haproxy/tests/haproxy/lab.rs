//! A real HAProxy, a simulated cluster whose nodes are addresses of the loopback interface, and
//! nodegate-haproxy.

pub(crate) use crate::servers::serve;
use crate::servers::{Counts, count};
use nodegate_haproxy::haproxy::master::{Master, Processes};
use nodegate_haproxy::haproxy::socket::Runtime;
use nodegate_kube_sim::Sim;
use nodegate_testbed::http;
use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::system;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The longest wait for one condition. 500 nodes need this long on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Lab {
    pub(crate) dir: TempDir,
    pub(crate) sim: Sim,
    pub(crate) config: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// HAProxy's master socket. `after` holds the files that HAProxy loads after `config`.
    pub(crate) master: PathBuf,
    pub(crate) after: Vec<PathBuf>,
    pub(crate) check_port: u16,
    pub(crate) node_port: u16,
    /// The port of agents that always answer "up ready". 0 for none.
    pub(crate) agent_port: u16,
    pub(crate) metrics_port: u16,
    pub(crate) check_interval: &'static str,
    /// Requests to the application, by the node that they reached. `checked` counts health checks likewise.
    pub(crate) served: Counts,
    pub(crate) checked: Counts,
    pub(crate) program: Option<Child>,
    pub(crate) haproxy: Option<Child>,
    pub(crate) arguments: Vec<String>,
    /// The words that precede HAProxy's command. `program_by` holds those that precede the program's.
    pub(crate) haproxy_by: Vec<String>,
    pub(crate) program_by: Vec<String>,
}

impl Lab {
    /// Starts a cluster with this number of nodes and nothing else. Neither program runs yet.
    pub(crate) async fn new(nodes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::in_dir(nodes, dir.path().to_owned(), dir).await
    }

    /// Starts the same cluster, with the configuration in another directory.
    pub(crate) async fn in_dir(nodes: usize, config_dir: PathBuf, dir: TempDir) -> Self {
        let sim = Sim::builder().tls(true).start().await.unwrap();
        sim.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let (served, checked) = (Arc::default(), Arc::default());
        let check_port = serve(Arc::clone(&checked), |_| true).await;
        let node_port = serve(Arc::clone(&served), |_| true).await;
        let lab = Self {
            config: config_dir.join("haproxy.cfg"),
            state_dir: config_dir.join("state"),
            master: dir.path().join("master.sock"),
            after: Vec::new(),
            dir,
            sim,
            check_port,
            node_port,
            agent_port: 0,
            metrics_port: ports::free(),
            check_interval: "500ms",
            served,
            checked,
            program: None,
            haproxy: None,
            arguments: Vec::new(),
            haproxy_by: Vec::new(),
            program_by: Vec::new(),
        };
        for index in 0..nodes {
            lab.add_node(index);
        }
        lab
    }

    pub(crate) fn add_node(&self, index: usize) {
        self.sim.apply(node(index)).unwrap();
    }

    /// Returns a Service whose ports all lead to the nodes' one application.
    pub(crate) fn service(&self, name: &str, port: u16, annotations: &Value) -> Value {
        service(name, port, self.node_port, annotations)
    }

    /// Starts both programs, and waits until these ports answer.
    pub(crate) async fn start(&mut self, ports: &[u16]) {
        self.once(&[]).await;
        self.start_haproxy().await;
        self.start_program(&[]);
        for port in ports {
            self.until(&format!("port {port} answers"), async || get(*port).is_ok()).await;
        }
        self.until("the program is ready", async || self.is_ready()).await;
    }

    /// Applies the cluster's state once with the program.
    pub(crate) async fn once(&mut self, more: &[&str]) {
        self.start_program(&[&["--once"], more].concat());
        let status = self.program.take().unwrap().wait().await.unwrap();
        assert!(status.success(), "{}", self.log());
    }

    /// Starts both programs with one Service. Returns its port.
    pub(crate) async fn publish(&mut self) -> u16 {
        let port = ports::free();
        self.sim.apply(self.service("web", port, &json!({}))).unwrap();
        self.start(&[port]).await;
        port
    }

    pub(crate) async fn start_haproxy(&mut self) {
        let log = std::fs::File::create(self.dir.path().join("haproxy.log")).unwrap();
        let mut command = started_by(&self.haproxy_by, system("haproxy"));
        command.arg("-W").arg("-S").arg(self.master_socket()).arg("-f").arg(&self.config);
        command.args(self.after.iter().flat_map(|file| [Path::new("-f"), file]));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        // HAProxy gets its own process group, so that one signal reaches it and its workers.
        self.haproxy = Some(command.process_group(0).spawn().expect("haproxy runs (hack/install-tools)"));
        self.until("HAProxy runs", async || {
            // From 3.1 on, the master lists a worker before it serves.
            self.runtime().worker_pid().await.is_ok_and(|pid| pid.is_some())
        })
        .await;
    }

    pub(crate) fn start_program(&mut self, more: &[&str]) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path()).unwrap();
        let program = std::process::Command::new(program());
        let mut command = started_by(&self.program_by, program);
        command
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .args(self.places())
            .args([
                "--check-port",
                &self.check_port.to_string(),
                "--agent-check-port",
                &self.agent_port.to_string(),
            ])
            .args(["--check-interval", self.check_interval])
            .args(["--listen", &format!("127.0.0.1:{}", self.metrics_port)])
            .args(&self.arguments)
            .args(more)
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        // Before HAProxy runs for the first time, the program has no HAProxy to reload.
        let another_way = self.arguments.iter().any(|word| word == "--reload-command");
        if !more.contains(&"--once") && !another_way {
            command.arg("--master-socket").arg(self.master_socket());
        }
        self.program = Some(command.spawn().unwrap());
    }

    /// Creates an object as a user does.
    pub(crate) fn kubectl_create(&self, object: &Value) {
        let file = self.dir.path().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let kubectl = Kubectl::new(&self.dir.path().join("kubeconfig"), self.dir.path());
        kubectl.must(&["create", "-f", file.to_str().unwrap()]);
    }

    pub(crate) fn master_socket(&self) -> PathBuf {
        self.master.clone()
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.path().join("program.log")
    }

    /// Returns the whole log of the program.
    pub(crate) fn whole_log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Returns the end of the logs of both programs.
    pub(crate) fn log(&self) -> String {
        let read = |name: &Path| std::fs::read_to_string(name).unwrap_or_default();
        let haproxy = read(&self.dir.path().join("haproxy.log"));
        let tail = |text: &str, most: usize| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(most)..].join("\n")
        };
        format!("--- program\n{}\n--- haproxy\n{}", tail(&self.whole_log(), 60), tail(&haproxy, 30))
    }

    pub(crate) fn master(&self) -> Master {
        Master { socket: self.master_socket(), patience: PATIENCE }
    }

    pub(crate) async fn processes(&self) -> Option<Processes> {
        self.master().processes().await.ok()
    }

    /// Returns the processes once the master answers. A master that restarts does not answer.
    pub(crate) async fn processes_now(&self) -> Processes {
        let began = Instant::now();
        loop {
            if let Some(processes) = self.processes().await {
                return processes;
            }
            assert!(began.elapsed() < PATIENCE, "the master does not answer\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn runtime(&self) -> Runtime {
        Runtime::Master(self.master_socket())
    }

    /// Returns a number from `show servers state`.
    async fn column(&self, backend: &str, server: &str, at: usize) -> Option<u32> {
        let text = self.runtime().ask(&format!("show servers state {backend}")).await.ok()?;
        let line = text.lines().find(|line| line.split(' ').nth(3) == Some(server))?;
        line.split(' ').nth(at)?.parse().ok()
    }

    /// Returns the administrative state of a server, including the state that it inherits from a tracked one.
    pub(crate) async fn admin_state(&self, backend: &str, server: &str) -> Option<u32> {
        self.column(backend, server, 6).await
    }

    /// Returns the word for a server on HAProxy's status page.
    pub(crate) async fn status(&self, backend: &str, server: &str) -> String {
        let text = self.runtime().ask("show stat -1 4 -1").await.unwrap_or_default();
        let start = format!("{backend},{server},");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        line.split(',').nth(17).unwrap_or_default().to_owned()
    }

    pub(crate) async fn weight(&self, backend: &str, server: &str) -> Option<u32> {
        self.column(backend, server, 7).await
    }

    /// Kills HAProxy with all its processes.
    pub(crate) fn stop_haproxy(&mut self) {
        if let Some(pid) = self.haproxy.as_ref().and_then(Child::id)
            && let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed())
        {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::CONT);
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        self.haproxy = None;
    }

    pub(crate) async fn is_draining(&self, backend: &str, server: &str) -> bool {
        self.admin_state(backend, server).await.is_some_and(|state| state & 0x18 != 0)
    }

    pub(crate) async fn is_admin_ready(&self, backend: &str, server: &str) -> bool {
        self.admin_state(backend, server).await == Some(0)
    }

    pub(crate) fn is_ready(&self) -> bool {
        http::get(local(self.metrics_port), "/readyz").is_ok_and(|reply| reply.status == 200)
    }

    pub(crate) fn metrics(&self) -> String {
        http::get(local(self.metrics_port), "/metrics").map(|reply| reply.body).unwrap_or_default()
    }

    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.metrics();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until a condition holds. Returns the time that it took, to the millisecond, because tables show
    /// it. If the condition does not hold in time, panics with the logs.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) -> Duration {
        let began = Instant::now();
        while !holds().await {
            assert!(began.elapsed() < PATIENCE, "waited in vain until {what}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    }

    /// Waits until the program's log has this text. A metric may change a moment earlier.
    pub(crate) async fn until_logged(&self, text: &str) {
        self.until(&format!("the log says {text:?}"), async || self.whole_log().contains(text)).await;
    }

    /// Waits until a series has this value. A log line may appear a moment earlier.
    pub(crate) async fn until_metric(&self, series: &str, value: f64) {
        let holds = async || self.metric(series) == Some(value);
        self.until(&format!("{series} is {value}\n{}", self.metrics()), holds).await;
    }

    /// Waits until `look` returns a value. Returns the value.
    pub(crate) async fn got<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until a value has not changed for this time. Returns the value.
    pub(crate) async fn at_rest<T: PartialEq>(
        &self,
        what: &str,
        look: impl AsyncFn() -> T,
        long: Duration,
    ) -> T {
        let (began, mut now) = (Instant::now(), look().await);
        let mut since = began;
        while since.elapsed() < long {
            assert!(began.elapsed() < PATIENCE, "{what} changes all the time\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
            let next = look().await;
            if next != now {
                (since, now) = (Instant::now(), next);
            }
        }
        now
    }

    /// Waits until requests reach only other nodes.
    pub(crate) async fn until_spared(&self, index: usize) {
        let all = || self.served.lock().unwrap().values().sum::<u64>();
        self.until(&format!("node {index} is spared"), async || {
            let (before, others) = (count(&self.served, index), all());
            self.until("requests", async || all() >= others + 20).await;
            count(&self.served, index) == before
        })
        .await;
    }

    /// Waits until a request reaches a node.
    pub(crate) async fn until_asked(&self, index: usize) {
        let before = count(&self.served, index);
        self.until(&format!("node {index} is asked"), async || count(&self.served, index) > before).await;
    }

    /// Returns the memory of the program in KiB: the current resident size, and its maximum.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let pid = self.program.as_ref().and_then(Child::id).unwrap_or_default();
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        (field("VmRSS:").unwrap_or_default(), field("VmHWM:").unwrap_or_default())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop_haproxy();
    }
}

/// Returns the program that cargo built, or the one that `NODEGATE_HAPROXY` names, such as a release.
pub(crate) fn program() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_nodegate-haproxy"));
    std::env::var_os("NODEGATE_HAPROXY").map_or_else(built, PathBuf::from)
}

/// Returns a command that starts a program behind these words.
fn started_by(words: &[String], program: std::process::Command) -> Command {
    let Some((by, words)) = words.split_first() else { return Command::from(program) };
    let mut command = Command::new(by);
    command.args(words).arg(program.get_program());
    command
}

pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index:03}")
}

pub(crate) fn node_address(index: usize) -> IpAddr {
    let byte = |number| u8::try_from(number).unwrap();
    IpAddr::from([127, 1, byte(index / 250), byte(index % 250 + 1)])
}

pub(crate) fn node(index: usize) -> Value {
    let address = node_address(index);
    let mut node =
        nodegate_kube_sim::make_node(&node_name(index), index, &nodegate_kube_sim::NodeShape::default());
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": address}]);
    node
}

pub(crate) fn service(name: &str, port: u16, node_port: u16, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": name},
            "ports": [{"name": "main", "port": port, "targetPort": 80, "nodePort": node_port, "protocol": "TCP"}],
        },
    })
}

/// Sends one request on a connection of its own.
pub(crate) fn get(port: u16) -> Result<(), String> {
    get_from(local(port))
}

pub(crate) fn get_from(address: SocketAddr) -> Result<(), String> {
    match http::get(address, "/") {
        Ok(reply) if reply.status == 200 => Ok(()),
        Ok(reply) => Err(format!("status {}", reply.status)),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
