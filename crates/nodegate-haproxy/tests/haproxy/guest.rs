//! nodegate-haproxy on a host whose HAProxy is already in use.

use crate::Row;
use crate::host::Host;
use crate::lab::{Lab, get, get_from, node_name};
use crate::servers::{Counts, serve};
use crate::traffic::Traffic;
use nodegate_kube_sim::Rule;
use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::needs_root;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::{Arc, Mutex};

pub(crate) const OWN: &str = "/etc/haproxy/haproxy.cfg";

/// Returns Debian's default configuration with additions by a person: an application, and a `bind` with
/// quotes.
pub(crate) fn hand_written(at: Ipv4Addr, port: u16, application: u16) -> String {
    format!(
        "global\n\tlog /dev/log\tlocal0\n\tchroot /var/lib/haproxy\n\t\
         stats socket /run/haproxy/admin.sock mode 660 level admin\n\tuser haproxy\n\tgroup haproxy\n\tdaemon\n\n\
         defaults\n\tlog\tglobal\n\tmode\thttp\n\toption\thttplog\n\toption\tdontlognull\n        \
         timeout connect 5000\n        timeout client  50000\n        timeout server  50000\n\n\
         frontend intranet\n\tbind \"{at}:{port}\"   # of another team\n\tdefault_backend applications\n\n\
         backend applications\n\tserver one 127.0.0.1:{application} check\n"
    )
}

/// Returns the program's settings on a host with this address besides those of its unit: the lab's ports.
pub(crate) fn settings(lab: &Lab, address: Ipv4Addr) -> String {
    let metrics = SocketAddr::from((address, lab.metrics_port));
    format!(
        "# Of the lab.\nNODEGATE_HAPROXY_BIND={}\nNODEGATE_HAPROXY_CHECK_PORT={}\nNODEGATE_HAPROXY_AGENT_CHECK_PORT=0\n\
         NODEGATE_HAPROXY_CHECK_INTERVAL=500ms\nNODEGATE_HAPROXY_LISTEN={metrics}\n",
        address, lab.check_port
    )
}

pub(crate) fn of_type_load_balancer(mut service: Value) -> Value {
    service["spec"]["type"] = json!("LoadBalancer");
    service
}

/// Returns the identity of haproxy.cfg: its content, inode, mode and time of change.
fn identity(host: &Host) -> (String, u64, u32, i64) {
    let meta = std::fs::metadata(host.path(OWN)).unwrap();
    (host.read(OWN), meta.ino(), meta.mode(), meta.mtime_nsec())
}

fn files(host: &Host) -> Vec<String> {
    let entries = std::fs::read_dir(host.path("/etc/haproxy")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a command of the documentation on a host. Returns its output.
async fn shown(host: &Host, word: &str) -> String {
    let output = host.program(&[word]).stdout(std::process::Stdio::piped()).output().await.unwrap();
    assert!(output.status.success(), "{word}\n{}", host.said());
    String::from_utf8(output.stdout).unwrap()
}

/// The clients' address of the pair, and the host that has it.
struct Shared {
    now: Arc<Mutex<IpAddr>>,
    own: Traffic,
}

impl Shared {
    fn start(at: Ipv4Addr, port: u16) -> Self {
        let now = Arc::new(Mutex::new(IpAddr::V4(at)));
        let follow = now.clone();
        Self { now, own: Traffic::by(move || get_from(SocketAddr::new(*follow.lock().unwrap(), port))) }
    }

    /// Moves the address to a host. When this returns, requests to the other host have ended.
    async fn moves_to(&self, lab: &Lab, host: &Host) {
        *self.now.lock().unwrap() = host.address.into();
        let seen = self.own.answered();
        lab.until("requests arrive at the other host", async || self.own.answered() > seen + 50).await;
    }
}

/// Returns the kubeconfig of the documentation's first step. Its token has the rights of the account's
/// `ClusterRole`.
pub(crate) fn account(lab: &Lab) -> String {
    let admin = lab.dir.path().join("kubeconfig");
    let mut script = nodegate_testbed::programs::system(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../hack/haproxy-kubeconfig"
    ));
    let output = script.env("KUBECONFIG", &admin).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kubeconfig = String::from_utf8(output.stdout).unwrap();
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    let kubectl = Kubectl::new(&admin, lab.dir.path());
    let role: Value =
        serde_json::from_str(&kubectl.must(&["get", "clusterrole", "nodegate-haproxy", "-o", "json"]))
            .unwrap();
    let words = |rule: &Value, key: &str| serde_json::from_value(rule[key].clone()).unwrap();
    let rules = role["rules"].as_array().unwrap().iter().map(|rule| Rule {
        api_groups: words(rule, "apiGroups"),
        resources: words(rule, "resources"),
        verbs: words(rule, "verbs"),
        ..Rule::default()
    });
    lab.sim.service_account(token, "nodegate", "nodegate-haproxy", rules.collect());
    kubeconfig
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_in_use_loses_nothing_by_the_five_steps() {
    five_steps().await;
}

pub(crate) async fn five_steps() -> Row {
    let lab = Lab::new(3).await;
    let (own, web, next) = (ports::free(), ports::free(), ports::free());
    let application = serve(Counts::default(), |_| true).await;
    lab.sim.apply(of_type_load_balancer(lab.service("web", web, &json!({})))).unwrap();
    // This Service wants the port of the other team.
    lab.sim.apply(of_type_load_balancer(lab.service("thief", own, &json!({})))).unwrap();
    let start = async |index| Host::new(index, &lab, |at| hand_written(at, own, application)).await;
    let mut hosts = [start(0).await, start(1).await];
    let before = hosts.each_ref().map(identity);
    let kubeconfig = account(&lab);
    let shared = Shared::start(hosts[0].address, own);
    for (this, other) in [(1, 0), (0, 1)] {
        shared.moves_to(&lab, &hosts[other]).await;
        let host = &mut hosts[this];
        // The kubeconfig and the settings.
        std::fs::write(host.path("/etc/nodegate-haproxy/kubeconfig"), &kubeconfig).unwrap();
        std::fs::write(host.path("/etc/default/nodegate-haproxy"), settings(&lab, host.address)).unwrap();
        // A look, which changes nothing.
        let explained = shown(host, "--explain").await;
        assert!(explained.contains("default/web") && explained.contains("default/thief"), "{explained}");
        let printed = shown(host, "--print").await;
        assert!(printed.contains(&format!("bind {}:{web}", host.address)), "{printed}");
        assert!(!printed.contains("default_thief"), "{printed}");
        assert_eq!(files(host), ["haproxy.cfg"]);
        // HAProxy loads a second file, which is empty.
        host.install_drop_in();
        host.restart_haproxy(&lab).await;
        assert_eq!(host.read("/etc/haproxy/nodegate.cfg"), "");
        host.start_program();
        let at = SocketAddr::from((host.address, web));
        lab.until("the Service answers", async || get_from(at).is_ok()).await;
        // While the master restarts for the reload, no worker is known.
        let status = async || std::fs::read_to_string(format!("/proc/{}/status", host.worker().await?)).ok();
        let status = lab.got("a worker", status).await;
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        assert!(user.split_whitespace().all(|id| id != "0"), "HAProxy's worker is root\n{status}");
    }
    // Both run now. A reload for a new Service does not affect the other team.
    let published = Traffic::to(SocketAddr::from((hosts[1].address, web)));
    lab.sim.apply(of_type_load_balancer(lab.service("next", next, &json!({})))).unwrap();
    for host in &hosts {
        let at = SocketAddr::from((host.address, next));
        lab.until("the next Service answers", async || get_from(at).is_ok()).await;
    }
    shared.moves_to(&lab, &hosts[0]).await;
    let said = || hosts.each_ref().map(Host::said).join("\n---\n");
    let (good, lost) = shared.own.end();
    assert_eq!(lost, Vec::<String>::new(), "of the other team\n{}", said());
    let (_, lost) = published.end();
    assert_eq!(lost, Vec::<String>::new(), "of the Service\n{}", said());
    assert_eq!(hosts.each_ref().map(identity), before, "haproxy.cfg");
    for host in &hosts {
        assert_eq!(files(host), ["haproxy.cfg", "nodegate.cfg"]);
        assert!(host.path("/var/lib/nodegate-haproxy/nodegate.servers").exists());
    }
    let result =
        format!("haproxy.cfg is the same file; {good} requests of its own, 0 lost; 2 hosts, 1 reload each");
    Row { what: "a pair in use, the five steps", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_changed_while_it_is_paused() {
    paused().await;
}

pub(crate) async fn paused() -> Row {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let on = async |paused: f64| {
        lab.until("the pause is known", async || lab.metric("nodegate_haproxy_paused") == Some(paused)).await;
    };
    on(0.0).await;
    let (old, before) = (std::fs::read(&lab.config).unwrap(), lab.processes_now().await);
    let traffic = Traffic::start(port);
    std::fs::write(lab.pause_file(), "").unwrap();
    on(1.0).await;
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.sim.cordon(&node_name(0));
    lab.add_node(3);
    let out = "nodegate_haproxy_nodes{kind=\"drain\"}";
    lab.until("the cordon is known", async || lab.metric(out) == Some(1.0)).await;
    lab.until("it waits", async || lab.metric("nodegate_haproxy_pending") == Some(1.0)).await;
    // Longer than the interval of the loops.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "{}", lab.log());
    assert_eq!(lab.processes_now().await, before, "{}", lab.log());
    assert!(lab.is_admin_ready(&backend, &node_name(0)).await && get(next).is_err(), "{}", lab.log());
    std::fs::remove_file(lab.pause_file()).unwrap();
    let took = lab.until("the next Service answers", async || get(next).is_ok()).await;
    lab.until("the node drains", async || lab.is_draining(&backend, &node_name(0)).await).await;
    on(0.0).await;
    let log = lab.log();
    assert!(
        log.contains("paused (--pause-file); leaving HAProxy and its files")
            && log.contains("no longer paused"),
        "{log}"
    );
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{log}");
    let result = format!(
        "no write, reload or command; all of it {} ms later; {good} requests, 0 lost",
        took.as_millis()
    );
    Row { what: "--pause-file", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_share_one_haproxy() {
    two_clusters().await;
}

pub(crate) async fn two_clusters() -> Row {
    let (mut west, mut east) = (Lab::new(2).await, Lab::new(2).await);
    let (port, other) = (ports::free(), ports::free());
    west.sim.apply(west.service("web", port, &json!({}))).unwrap();
    east.sim.apply(east.service("web", other, &json!({}))).unwrap();
    // Both clusters have this namespace and name, and the port is one that the other cluster has.
    east.sim.apply(east.service("late", port, &json!({}))).unwrap();
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let (first, second) = (west.config.clone(), west.config.with_file_name("east.cfg"));
    east.config.clone_from(&second);
    east.master.clone_from(&west.master);
    east.state_dir.clone_from(&west.state_dir);
    east.arguments = ["--prefix", "east", "--before", &path(&first)].map(str::to_owned).to_vec();
    west.once(&[]).await;
    east.once(&[]).await;
    west.after = vec![second];
    west.start_haproxy().await;
    west.start_program(&[]);
    east.start_program(&[]);
    for (lab, port) in [(&west, port), (&east, other)] {
        lab.until("the port answers", async || get(port).is_ok() && lab.is_ready()).await;
    }
    let traffic = [port, other].map(Traffic::start);
    // Each program drains its own servers, and each reloads both configurations.
    west.sim.cordon(&node_name(0));
    east.sim.cordon(&node_name(1));
    let backends = [format!("nodegate_default_web_{port}"), format!("east_default_web_{other}")];
    for (backend, out, stays) in [(&backends[0], 0, 1), (&backends[1], 1, 0)] {
        west.until("it drains", async || west.is_draining(backend, &node_name(out)).await).await;
        assert!(west.is_admin_ready(backend, &node_name(stays)).await, "{}\n{}", west.log(), east.log());
    }
    let more = [ports::free(), ports::free()];
    for (lab, port) in [&west, &east].into_iter().zip(more) {
        lab.sim.apply(lab.service("more", port, &json!({}))).unwrap();
    }
    for (lab, port) in [&west, &east].into_iter().zip(more) {
        lab.until("the next Service answers", async || get(port).is_ok()).await;
    }
    for (backend, out) in [(&backends[0], 0), (&backends[1], 1)] {
        west.until("it drains still", async || west.is_draining(backend, &node_name(out)).await).await;
    }
    assert!(!std::fs::read_to_string(&east.config).unwrap().contains("east_default_late"), "{}", east.log());
    let mut good = 0;
    for traffic in traffic {
        let (answered, lost) = traffic.end();
        assert_eq!(lost, Vec::<String>::new(), "{}\n{}", west.log(), east.log());
        good += answered;
    }
    let result =
        format!("each drains and publishes its own; {good} requests over the reloads of both, 0 lost");
    Row { what: "two clusters (--prefix), one HAProxy", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_written_file_is_refused_until_its_owner_hands_it_over() {
    refused().await;
}

pub(crate) async fn refused() -> Row {
    let mut lab = Lab::new(2).await;
    let (own, web) = (ports::free(), ports::free());
    let application = serve(Counts::default(), |_| true).await;
    // This HAProxy runs without root.
    let theirs = hand_written(Ipv4Addr::LOCALHOST, own, application).replace("\tdaemon\n", "");
    let theirs =
        theirs.replace("/run/haproxy/admin.sock", &lab.dir.path().join("admin.sock").to_string_lossy());
    std::fs::write(&lab.config, &theirs).unwrap();
    lab.start_haproxy().await;
    lab.until("the other team's port answers", async || get(own).is_ok()).await;
    let traffic = Traffic::start(own);
    lab.sim.apply(of_type_load_balancer(lab.service("web", web, &json!({})))).unwrap();
    lab.start_program(&[]);
    let refused = "nodegate_haproxy_failures_total{kind=\"not-ours\"}";
    lab.until("it is refused twice", async || lab.metric(refused) >= Some(2.0)).await;
    assert_eq!(std::fs::read_to_string(&lab.config).unwrap(), theirs);
    assert!(!lab.is_ready() && get(web).is_err() && !lab.state("original").exists());
    let log = lab.log();
    let line = log.split("(a copy is kept in ").nth(1).and_then(|rest| rest.split("): ").nth(1)).unwrap();
    let line = line.split(" retry_ms=").next().unwrap().trim_end_matches('"').to_owned();
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{log}");
    // The log tells the line to add, and a copy of the former file is kept.
    let handed_over = format!("{line}\n{theirs}");
    std::fs::write(&lab.config, &handed_over).unwrap();
    lab.until("the Service answers", async || get(web).is_ok()).await;
    assert_eq!(std::fs::read_to_string(lab.state("original")).unwrap(), handed_over);
    let result = format!(
        "not a byte changed; {good} requests, 0 lost; handed over by the line in the log, with a copy"
    );
    Row { what: "--config names a hand-written file", result }
}

/// Creates a certificate that only its owner may read, who is not root.
fn private_certificate(dir: &std::path::Path) -> std::path::PathBuf {
    let (key, certificate, both) = (dir.join("key.pem"), dir.join("certificate.pem"), dir.join("both.pem"));
    let mut openssl = nodegate_testbed::programs::system("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=shop.example.com",
    ]);
    let output = openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = [certificate, key].map(|path| std::fs::read(path).unwrap()).concat();
    std::fs::write(&both, text).unwrap();
    std::fs::set_permissions(&both, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&both, Some(12_345), Some(12_345)).unwrap();
    both
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_units_capabilities_certificates_can_be_read_and_without_them_not() {
    certificates().await;
}

pub(crate) async fn certificates() -> Row {
    needs_root("a file of another user's");
    let lab = Lab::new(1).await;
    lab.sim.apply(lab.service("web", ports::free(), &json!({}))).unwrap();
    let certificate = private_certificate(lab.dir.path());
    let template = lab.dir.path().join("head");
    let bind = format!("bind 127.0.0.1:{} ssl crt {}", ports::free(), certificate.display());
    let head = format!(
        "defaults\n  timeout connect 2s\n  timeout client 9s\n  timeout server 9s\nfrontend tls\n  {bind}\n"
    );
    std::fs::write(&template, head).unwrap();
    let unit = include_str!("../../../../packaging/systemd/nodegate-haproxy.service");
    let granted = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_")).unwrap();
    assert!(!granted.contains(' '), "one capability and no more: {granted}");
    let once = async |capabilities: &str| {
        let mut command = tokio::process::Command::new("setpriv");
        command.arg(format!("--bounding-set=-all{capabilities}")).arg(env!("CARGO_BIN_EXE_nodegate-haproxy"));
        command.arg("--once").args(lab.places()).arg("--template").arg(&template);
        command.env("KUBECONFIG", lab.dir.path().join("kubeconfig")).output().await.unwrap()
    };
    let output = once("").await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("both.pem"), "{said}");
    assert!(!lab.config.exists());
    let output = once(&format!(",+{}", granted.to_lowercase())).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(&lab.config).unwrap().contains(&bind));
    Row {
        what: "a certificate of mode 0600, the unit's rights",
        result: "read by haproxy -c with the unit's one capability, refused without it".to_owned(),
    }
}
