//! A real HAProxy, a simulated cluster whose nodes are addresses of the loopback interface, and nodegate-haproxy.

use crate::servers::{Counts, Statuses, count, get, local, node_address, node_name, serve};
use nodegate_kube_sim::{Sim, make_node};
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::{must_run, nodegate_haproxy, system};
use nodegate_testbed::{haproxy, http, until_or};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Without retries, each request that goes astray is lost.
pub(crate) const TEMPLATE: &str = "global\n  maxconn 2000\n";

pub(crate) struct Scenario {
    pub(crate) cluster: nodegate_testbed::Scenario,
    pub(crate) config: PathBuf,
    pub(crate) template: PathBuf,
    master: PathBuf,
    /// HAProxy's command, and the program's without its arguments.
    pub(crate) haproxy_command: Vec<String>,
    pub(crate) program_command: Vec<String>,
    pub(crate) check_port: u16,
    pub(crate) node_port: u16,
    other_port: u16,
    pub(crate) listen: SocketAddr,
    pub(crate) reload_interval: &'static str,
    /// Requests to the application, by the node that they reached.
    pub(crate) served: Counts,
    pub(crate) program: Option<Child>,
    pub(crate) haproxy: Option<Child>,
    pub(crate) arguments: Vec<String>,
}

impl Deref for Scenario {
    type Target = nodegate_testbed::Scenario;

    fn deref(&self) -> &Self::Target {
        &self.cluster
    }
}

impl Scenario {
    /// Starts a cluster with this number of nodes and nothing else. Neither program runs yet.
    pub(crate) fn new(nodes: usize) -> Self {
        let cluster = nodegate_testbed::Scenario::of(Sim::builder().tls(true));
        cluster.sim.write_kubeconfig(&cluster.kubeconfig()).unwrap();
        let file = |name| cluster.file(name);
        let [config, template, master] = ["haproxy.cfg", "haproxy.cfg.TEMPLATE", "master.sock"].map(file);
        std::fs::write(&template, TEMPLATE).unwrap();
        let haproxy = ["haproxy", "-W", "-S", master.to_str().unwrap(), "-f", config.to_str().unwrap()];
        let served = Counts::default();
        let scenario = Self {
            haproxy_command: haproxy.map(str::to_owned).to_vec(),
            program_command: vec![nodegate_haproxy().display().to_string()],
            check_port: serve(&Counts::default(), &Statuses::default()),
            node_port: serve(&served, &Statuses::default()),
            other_port: ports::free(),
            listen: local(ports::free()),
            reload_interval: "300ms",
            program: None,
            haproxy: None,
            arguments: Vec::new(),
            cluster,
            config,
            template,
            master,
            served,
        };
        (0..nodes).for_each(|index| scenario.add_node(index));
        scenario
    }

    pub(crate) fn add_node(&self, index: usize) {
        let mut node = make_node(&node_name(index), index, 4_000);
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": node_address(index)}]);
        self.sim.apply(node).unwrap();
    }

    pub(crate) fn service(name: &str, port: u16, node_port: u16, more: &Value) -> Value {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer", "selector": {"app": name},
                "ports": [{"name": "main", "port": port, "targetPort": 80, "nodePort": node_port, "protocol": "TCP"}],
            },
        });
        json_patch::merge(&mut service, more);
        service
    }

    /// Creates a Service with more fields, whose port leads to an application on each node. Returns its port.
    pub(crate) fn add(&self, name: &str, more: &Value) -> u16 {
        let port = ports::free();
        self.add_at(port, name, more);
        port
    }

    pub(crate) fn add_at(&self, port: u16, name: &str, more: &Value) {
        // The API server gives each node port to one Service only.
        let node_port = serve(&self.served, &Statuses::default());
        self.sim.apply(Self::service(name, port, node_port, more)).unwrap();
    }

    /// Starts both programs, and waits until these ports answer.
    pub(crate) fn start(&mut self, ports: &[u16]) {
        self.start_program();
        self.until("the file is written", || self.config.exists());
        self.start_haproxy();
        for port in ports {
            self.until(&format!("port {port} answers"), || get(*port).is_ok());
        }
        self.until("the program is ready", || self.is_ready());
    }

    /// Starts both programs with one Service. Returns its port.
    pub(crate) fn publish(&mut self) -> u16 {
        let port = ports::free();
        self.sim.apply(Self::service("web", port, self.node_port, &json!({}))).unwrap();
        self.start(&[port]);
        port
    }

    pub(crate) fn start_haproxy(&mut self) {
        let mut command = system(&self.haproxy_command[0]);
        command.args(&self.haproxy_command[1..]);
        self.haproxy = Some(self.spawn(command, "haproxy.log"));
        // From 3.1 on, the master lists a worker before it serves.
        self.until("HAProxy runs", || self.ask("show info").contains("Pid: "));
    }

    pub(crate) fn start_program(&mut self) {
        let mut command = self.command();
        command.args(["--listen", &self.listen.to_string()]);
        self.program = Some(self.spawn(command, "program.log"));
    }

    /// Starts a program with a process group of its own: one signal reaches HAProxy and its workers.
    fn spawn(&self, mut command: Command, log: &str) -> Child {
        let log = OpenOptions::new().create(true).append(true).open(self.file(log)).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        command.spawn().expect("the program runs (hack/install)")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program_command[0]);
        command.args(&self.program_command[1..]).arg("--config").arg(&self.config);
        command.arg("--master-socket").arg(&self.master).args(&self.arguments);
        // An argument counts before its variable.
        command.env("NODEGATE_HAPROXY_TEMPLATE", &self.template);
        command.env("NODEGATE_HAPROXY_CHECK", format!("agent:port={},interval=500ms", self.check_port));
        command.env("NODEGATE_HAPROXY_RELOAD_INTERVAL", self.reload_interval);
        command.env("NODEGATE_HAPROXY_MAX_DRAINED", "100%").env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Ends the program as a crash does.
    pub(crate) fn kill_program(&mut self) {
        kill(self.program.take());
    }

    /// Kills HAProxy with all its processes.
    pub(crate) fn stop_haproxy(&mut self) {
        kill(self.haproxy.take());
    }

    /// Changes a Service of its own, which takes a reload.
    pub(crate) fn change(&self, round: u64) {
        let more = json!({"spec": {"loadBalancerSourceRanges": [format!("10.0.{}.0/24", round % 250)]}});
        self.sim.apply(Self::service("other", self.other_port, self.other_port, &more)).unwrap();
    }

    /// Returns the names of the files beside `--config` that belong to it.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let names = self.dir.path().read_dir().unwrap().flatten().map(|entry| entry.file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let is_beside = |name: &String| name.starts_with("haproxy.cfg.") && !name.ends_with(".TEMPLATE");
        let mut names: Vec<String> = names.filter(is_beside).collect();
        names.sort();
        names
    }

    pub(crate) fn written(&self) -> String {
        self.read("haproxy.cfg")
    }

    pub(crate) fn reached(&self, port: u16) -> Vec<usize> {
        let before = self.served.lock().unwrap().clone();
        for _ in 0..30 {
            let _ = get(port);
        }
        let now = self.served.lock().unwrap();
        (0..250).filter(|index| now.get(&node_address(*index)) != before.get(&node_address(*index))).collect()
    }

    pub(crate) fn until_reached(&self, port: u16, nodes: &[usize]) {
        self.until(&format!("requests to {port} reach {nodes:?}"), || self.reached(port) == nodes);
    }

    pub(crate) fn explain(&self) -> String {
        must_run(self.command().arg("--explain"))
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        ["program.log", "haproxy.log"].map(|name| format!("--- {name}\n{}\n", self.read(name))).concat()
    }

    /// Returns the master's answer. A master that restarts does not answer.
    pub(crate) fn ask_master(&self, line: &str) -> Option<String> {
        haproxy::ask(&self.master, line, Duration::from_secs(2))
    }

    /// Returns the number of reloads since the master started, and that of old workers.
    pub(crate) fn processes(&self) -> Option<(u64, usize)> {
        let text = self.ask_master("show proc")?;
        let (now, old) = text.split_once("# old workers").unwrap_or((&text, ""));
        let mut words = now.split_whitespace().skip_while(|word| *word != "master");
        Some((words.nth(1)?.parse().ok()?, old.matches(" worker ").count()))
    }

    pub(crate) fn reloads(&self) -> u64 {
        self.got("an answer of the master", || self.processes()).0
    }

    pub(crate) fn ask(&self, command: &str) -> String {
        self.ask_master(&format!("@1 {command}")).unwrap_or_default()
    }

    /// Returns the word for a server on HAProxy's status page.
    pub(crate) fn status(&self, backend: &str, server: &str) -> String {
        let text = self.ask("show stat -1 4 -1");
        let start = format!("{backend},{server},");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        line.split(',').nth(17).unwrap_or_default().to_owned()
    }

    fn weight(&self, port: u16, server: &str) -> Option<u32> {
        let text = self.ask(&format!("show servers state nodegate_default_web_{port}"));
        let line = text.lines().find(|line| line.split(' ').nth(3) == Some(server))?;
        line.split(' ').nth(7)?.parse().ok()
    }

    /// Cordons a node, and waits until HAProxy gives it no weight among the servers of the published Service.
    pub(crate) fn drain(&self, port: u16, index: usize) {
        assert!(self.sim.cordon(&node_name(index)));
        self.until_weight(port, index, 0);
    }

    /// Uncordons a node, and waits until HAProxy gives it weight.
    pub(crate) fn undrain(&self, port: u16, index: usize) {
        assert!(self.sim.uncordon(&node_name(index)));
        self.until_weight(port, index, 100);
    }

    pub(crate) fn until_weight(&self, port: u16, index: usize, weight: u32) {
        let has = || self.weight(port, &node_name(index)) == Some(weight);
        self.until(&format!("node {index} has the weight {weight}"), has);
    }

    pub(crate) fn until_reloaded(&self, before: u64) {
        self.until("HAProxy reloads", || self.processes().is_some_and(|(reloads, _)| reloads > before));
        self.until_metric("nodegate_haproxy_pending", 0.0);
    }

    pub(crate) fn is_ready(&self) -> bool {
        http::get(self.listen, "/readyz").is_ok_and(|reply| reply.status == 200)
    }

    pub(crate) fn page(&self, path: &str) -> String {
        http::get(self.listen, path).map(|reply| reply.body).unwrap_or_default()
    }

    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.page("/metrics");
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until a condition holds. If it does not hold in time, panics with the logs.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        self.got(what, || holds().then_some(()));
    }

    /// Waits until the program's log has this text. A metric may change a moment earlier.
    pub(crate) fn until_logged(&self, text: &str) {
        self.until(&format!("the log says {text:?}"), || self.read("program.log").contains(text));
    }

    /// Waits until a series has this value. A log line may appear a moment earlier.
    pub(crate) fn until_metric(&self, series: &str, value: f64) {
        let what = format!("{series} is {value}\n{}", self.page("/metrics"));
        self.until(&what, || self.metric(series) == Some(value));
    }

    pub(crate) fn got<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        until_or(look, || format!("{what}: not in time\n{}", self.log()))
    }

    pub(crate) fn until_spared(&self, index: usize) {
        let all = || self.served.lock().unwrap().values().sum::<u64>();
        self.until(&format!("node {index} is spared"), || {
            let (before, others) = (count(&self.served, index), all());
            self.until("requests", || all() >= others + 20);
            count(&self.served, index) == before
        });
    }

    pub(crate) fn until_asked(&self, index: usize) {
        let before = count(&self.served, index);
        self.until(&format!("node {index} is asked"), || count(&self.served, index) > before);
    }
}

fn kill(program: Option<Child>) {
    if let Some(mut program) = program {
        let group = Pid::from_raw(program.id().cast_signed()).unwrap();
        let _ = kill_process_group(group, Signal::KILL);
        let _ = program.wait();
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        self.kill_program();
        self.stop_haproxy();
    }
}

/// Returns how often a test does the same: more often in `make haproxy-test`, which sets `HAPROXY_ROUNDS=many`.
pub(crate) fn rounds<N>(few: N, many: N) -> N {
    if std::env::var("HAPROXY_ROUNDS").is_ok_and(|word| word == "many") { many } else { few }
}
