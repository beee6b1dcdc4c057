//! A real HAProxy, a simulated cluster whose nodes are addresses of the loopback interface, and
//! nodegate-haproxy.

pub(crate) use crate::servers::serve;
use crate::servers::{Counts, count};
use nodegate_kube_sim::Sim;
use nodegate_testbed::http;
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::{nodegate_haproxy, system};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

/// The longest wait for one condition. 500 nodes need this long on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Without retries, each request that goes astray is lost.
pub(crate) const TEMPLATE: &str = "global\n  maxconn 2000\n";

pub(crate) struct Lab {
    pub(crate) dir: TempDir,
    pub(crate) sim: Sim,
    pub(crate) config: PathBuf,
    pub(crate) template: PathBuf,
    pub(crate) master: PathBuf,
    /// The arguments of HAProxy. Empty for the file alone.
    pub(crate) haproxy_arguments: Vec<String>,
    pub(crate) check_port: u16,
    pub(crate) node_port: u16,
    other_port: u16,
    pub(crate) metrics_port: u16,
    pub(crate) reload_interval: &'static str,
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
        let sim = Sim::builder().tls(true).start().await.unwrap();
        sim.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let (served, checked) = (Arc::default(), Arc::default());
        let check_port = serve(Arc::clone(&checked), |_| true).await;
        let node_port = serve(Arc::clone(&served), |_| true).await;
        let lab = Self {
            config: dir.path().join("haproxy.cfg"),
            template: dir.path().join("haproxy.cfg.TEMPLATE"),
            master: dir.path().join("master.sock"),
            haproxy_arguments: Vec::new(),
            dir,
            sim,
            check_port,
            node_port,
            other_port: ports::free(),
            metrics_port: ports::free(),
            reload_interval: "300ms",
            served,
            checked,
            program: None,
            haproxy: None,
            arguments: Vec::new(),
            haproxy_by: Vec::new(),
            program_by: Vec::new(),
        };
        std::fs::write(&lab.template, TEMPLATE).unwrap();
        for index in 0..nodes {
            lab.add_node(index);
        }
        lab
    }

    pub(crate) fn add_node(&self, index: usize) {
        self.sim.apply(node(index)).unwrap();
    }

    /// Returns a Service with more fields.
    pub(crate) fn service(name: &str, port: u16, node_port: u16, more: &Value) -> Value {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer", "selector": {"app": name},
                "ports": [{"name": "main", "port": port, "targetPort": 80, "nodePort": node_port, "protocol": "TCP"}],
            },
        });
        merge(&mut service, more);
        service
    }

    /// Creates a Service with more fields, whose port leads to an application on each node. Returns its port.
    pub(crate) async fn add(&self, name: &str, more: Value) -> u16 {
        let port = ports::free();
        self.add_at(port, name, more).await;
        port
    }

    pub(crate) async fn add_at(&self, port: u16, name: &str, more: Value) {
        // The API server gives each node port to one Service only.
        let node_port = serve(self.served.clone(), |_| true).await;
        self.sim.apply(Self::service(name, port, node_port, &more)).unwrap();
    }

    /// Starts both programs, and waits until these ports answer.
    pub(crate) async fn start(&mut self, ports: &[u16]) {
        self.start_program();
        self.until("the file is written", async || self.config.exists()).await;
        if self.haproxy.is_none() {
            self.start_haproxy().await;
        }
        for port in ports {
            self.until(&format!("port {port} answers"), async || get(*port).is_ok()).await;
        }
        self.until("the program is ready", async || self.is_ready()).await;
    }

    /// Starts both programs with one Service. Returns its port.
    pub(crate) async fn publish(&mut self) -> u16 {
        let port = ports::free();
        self.sim.apply(Self::service("web", port, self.node_port, &Value::Null)).unwrap();
        self.start(&[port]).await;
        port
    }

    pub(crate) async fn start_haproxy(&mut self) {
        let log = self.log_file("haproxy.log");
        let mut command = started_by(&self.haproxy_by, system("haproxy"));
        command.arg("-W").arg("-S").arg(&self.master).args(&self.haproxy_arguments);
        if self.haproxy_arguments.is_empty() {
            command.arg("-f").arg(&self.config);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        // HAProxy gets its own process group, so that one signal reaches it and its workers.
        self.haproxy = Some(command.process_group(0).spawn().expect("haproxy runs (hack/install)"));
        // From 3.1 on, the master lists a worker before it serves.
        self.until("HAProxy runs", async || self.ask("show info").await.contains("Pid: ")).await;
    }

    pub(crate) fn start_program(&mut self) {
        let log = self.log_file("program.log");
        let mut command = started_by(&self.program_by, std::process::Command::new(nodegate_haproxy()));
        command.env("KUBECONFIG", self.dir.path().join("kubeconfig")).arg("--config").arg(&self.config);
        command.arg("--master-socket").arg(&self.master);
        command.args(["--listen", &format!("127.0.0.1:{}", self.metrics_port)]);
        command.args(self.settings()).stdin(Stdio::null()).stderr(log).kill_on_drop(true);
        self.program = Some(command.spawn().unwrap());
    }

    /// Returns the arguments, with the lab's own values for settings that they leave out.
    fn settings(&self) -> Vec<String> {
        let own = [
            ("--template", self.template.to_string_lossy().into_owned()),
            ("--check", format!("agent:port={},interval=500ms", self.check_port)),
            ("--reload-interval", self.reload_interval.to_owned()),
            ("--max-drained", "100%".to_owned()),
        ];
        let is_left_out = |flag: &str| !self.arguments.iter().any(|word| word.starts_with(flag));
        let own = own.into_iter().filter(|(flag, _)| is_left_out(flag));
        own.map(|(flag, value)| format!("{flag}={value}")).chain(self.arguments.clone()).collect()
    }

    /// Ends the program as a crash does.
    pub(crate) async fn kill_program(&mut self) {
        self.program.take().unwrap().kill().await.unwrap();
    }

    /// Changes a Service of its own, which takes a reload.
    pub(crate) fn change(&self, round: u64) {
        let more = json!({"spec": {"loadBalancerSourceRanges": [format!("10.0.{}.0/24", round % 250)]}});
        self.sim.apply(Self::service("other", self.other_port, self.other_port, &more)).unwrap();
    }

    /// Returns the names of the files beside `--config` that belong to it.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let own = self.config.file_name().unwrap().to_string_lossy();
        let names = std::fs::read_dir(self.config.parent().unwrap()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names
            .filter(|name| name.starts_with(&format!("{own}.")) && !name.ends_with(".TEMPLATE"))
            .collect();
        names.sort();
        names
    }

    /// Returns the nodes that many requests to a port reach.
    pub(crate) fn reached(&self, port: u16) -> Vec<usize> {
        let before = self.served.lock().unwrap().clone();
        for _ in 0..30 {
            let _ = get(port);
        }
        let now = self.served.lock().unwrap();
        (0..250).filter(|index| now.get(&node_address(*index)) != before.get(&node_address(*index))).collect()
    }

    /// Waits until requests to a port reach these nodes and no other.
    pub(crate) async fn until_reached(&self, port: u16, nodes: &[usize]) {
        self.until(&format!("requests to {port} reach {nodes:?}"), async || self.reached(port) == nodes)
            .await;
    }

    /// Returns the tables of `--explain`.
    pub(crate) fn explain(&self) -> String {
        let mut command = std::process::Command::new(nodegate_haproxy());
        command.env("KUBECONFIG", self.dir.path().join("kubeconfig")).arg("--explain");
        command.arg("--config").arg(&self.config).arg("--master-socket").arg(&self.master);
        let output = command.args(self.settings()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Opens a log for a program's output.
    fn log_file(&self, name: &str) -> std::fs::File {
        let path = self.dir.path().join(name);
        std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// Returns the end of the logs of both programs.
    pub(crate) fn log(&self) -> String {
        let tail = |name: &str, most: usize| {
            let text = self.read(name);
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(most)..].join("\n"))
        };
        tail("program.log", 60) + &tail("haproxy.log", 30)
    }

    /// Returns the master's answer. A master that restarts does not answer.
    pub(crate) async fn ask_master(&self, line: &str) -> Option<String> {
        let answer = async {
            let mut stream = UnixStream::connect(&self.master).await.ok()?;
            stream.write_all(format!("{line}\n").as_bytes()).await.ok()?;
            stream.shutdown().await.ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.ok()?;
            Some(text)
        };
        tokio::time::timeout(Duration::from_secs(2), answer).await.ok()?
    }

    /// Returns the number of reloads since the master started, and that of old workers.
    async fn processes(&self) -> Option<(u64, usize)> {
        let text = self.ask_master("show proc").await?;
        let (now, old) = text.split_once("# old workers").unwrap_or((&text, ""));
        let mut words = now.split_whitespace().skip_while(|word| *word != "master");
        Some((words.nth(1)?.parse().ok()?, old.matches(" worker ").count()))
    }

    pub(crate) async fn reloads(&self) -> u64 {
        self.reloads_and_old_workers().await.0
    }

    pub(crate) async fn reloads_and_old_workers(&self) -> (u64, usize) {
        self.got("an answer of the master", async || self.processes().await).await
    }

    /// Returns the newest worker's answer, or nothing.
    pub(crate) async fn ask(&self, command: &str) -> String {
        self.ask_master(&format!("@1 {command}")).await.unwrap_or_default()
    }

    /// Returns the word for a server on HAProxy's status page.
    pub(crate) async fn status(&self, backend: &str, server: &str) -> String {
        let text = self.ask("show stat -1 4 -1").await;
        let start = format!("{backend},{server},");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        line.split(',').nth(17).unwrap_or_default().to_owned()
    }

    /// Returns the weight of a server.
    pub(crate) async fn weight(&self, backend: &str, server: &str) -> Option<u32> {
        let text = self.ask(&format!("show servers state {backend}")).await;
        let line = text.lines().find(|line| line.split(' ').nth(3) == Some(server))?;
        line.split(' ').nth(7)?.parse().ok()
    }

    /// Cordons a node, and waits until HAProxy gives its server no weight.
    pub(crate) async fn drain(&self, backend: &str, index: usize) {
        assert!(self.sim.cordon(&node_name(index)));
        self.until_weight(backend, index, 0).await;
    }

    /// Uncordons a node, and waits until HAProxy gives its server weight.
    pub(crate) async fn undrain(&self, backend: &str, index: usize) {
        assert!(self.sim.uncordon(&node_name(index)));
        self.until_weight(backend, index, 100).await;
    }

    pub(crate) async fn until_weight(&self, backend: &str, index: usize, weight: u32) {
        let has = async || self.weight(backend, &node_name(index)).await == Some(weight);
        self.until(&format!("node {index} has the weight {weight}"), has).await;
    }

    /// Waits until HAProxy has reloaded since then, and everything is applied.
    pub(crate) async fn until_reloaded(&self, before: u64) {
        let reloaded = async || self.processes().await.is_some_and(|(reloads, _)| reloads > before);
        self.until("HAProxy reloads", reloaded).await;
        self.until_metric("nodegate_haproxy_pending", 0.0).await;
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

    pub(crate) fn is_ready(&self) -> bool {
        http::get(local(self.metrics_port), "/readyz").is_ok_and(|reply| reply.status == 200)
    }

    /// Returns the body of `/readyz` or `/metrics`.
    pub(crate) fn page(&self, path: &str) -> String {
        http::get(local(self.metrics_port), path).map(|reply| reply.body).unwrap_or_default()
    }

    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.page("/metrics");
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until a condition holds, and returns the time that it took. If it does not hold in time, panics with the logs.
    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) -> Duration {
        let began = Instant::now();
        self.got(what, async || holds().await.then_some(())).await;
        began.elapsed()
    }

    /// Waits until the program's log has this text. A metric may change a moment earlier.
    pub(crate) async fn until_logged(&self, text: &str) {
        self.until(&format!("the log says {text:?}"), async || self.read("program.log").contains(text)).await;
    }

    /// Waits until a series has this value. A log line may appear a moment earlier.
    pub(crate) async fn until_metric(&self, series: &str, value: f64) {
        let holds = async || self.metric(series) == Some(value);
        self.until(&format!("{series} is {value}\n{}", self.page("/metrics")), holds).await;
    }

    /// Waits until `look` returns a value. Returns the value.
    pub(crate) async fn got<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop_haproxy();
    }
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.iter().for_each(|(key, more)| merge(into.entry(key).or_insert(Value::Null), more));
        }
        (_, Value::Null) => {}
        (into, more) => *into = more.clone(),
    }
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
    let mut node = nodegate_kube_sim::make_node(&node_name(index), index, 4_000);
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": address}]);
    node
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
