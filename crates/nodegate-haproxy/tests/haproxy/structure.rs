//! Frontends and servers appear and disappear.

use crate::Row;
use crate::lab::{Lab, get, node, node_name, service};
use crate::servers::serve;
use crate::traffic::Traffic;
use nodegate_testbed::http::PATIENCE;
use nodegate_testbed::network::ports;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_made_with_kubectl_is_a_listening_frontend() {
    appears().await;
}

pub(crate) async fn appears() -> Row {
    let (first, second) = (ports::free(), ports::free());
    let mut lab = Lab::new(2).await;
    lab.sim.apply(lab.service("first", first, &json!({}))).unwrap();
    lab.start(&[first]).await;
    // The API server gives a node port to one Service only.
    let node_port = serve(lab.served.clone(), |_| true).await;
    lab.kubectl_create(&service("second", second, node_port, &json!({})));
    let took = lab.until("the new port answers", async || get(second).is_ok()).await;
    lab.until("a reload is counted", async || {
        lab.metric("nodegate_haproxy_applies_total{kind=\"reloaded\"}") == Some(1.0)
    })
    .await;
    Row { what: "Service made with kubectl -> port answers", result: format!("{} ms", took.as_millis()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_come_and_go_without_a_reload_and_no_request_is_lost() {
    nodes_come_and_go().await;
}

pub(crate) async fn nodes_come_and_go() -> Row {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let before = lab.processes_now().await;
    let traffic = Traffic::start(port);
    lab.kubectl_create(&node(3));
    let began = Instant::now();
    let new = std::net::IpAddr::from([127, 1, 0, 4]);
    lab.until("the new node serves", async || lab.served.lock().unwrap().contains_key(&new)).await;
    let took = began.elapsed();
    let backend = format!("nodegate_default_web_{port}");
    lab.sim.cordon(&node_name(3));
    lab.until("the new node drains", async || lab.is_draining(&backend, &node_name(3)).await).await;
    // Enough connections for each node to have some.
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
    }
    lab.sim.delete_node(&node_name(0));
    let dynamic = "nodegate_haproxy_applies_total{kind=\"dynamic\"}";
    lab.until("the old node is taken out", async || lab.metric(dynamic) == Some(2.0)).await;
    assert!(lab.admin_state(&backend, &node_name(0)).await.is_some(), "deleted with sessions\n{}", lab.log());
    drop(held);
    let gone = async || lab.admin_state(&backend, &node_name(0)).await.is_none();
    let left = lab.until("the old node is gone", gone).await;
    assert!(left < PATIENCE / 2, "its server stayed for {left:?} after its last session\n{}", lab.log());
    lab.until("all is applied", async || lab.metric("nodegate_haproxy_pending") == Some(0.0)).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let after = lab.processes_now().await;
    assert_eq!(before, after, "no reload, the same worker\n{}", lab.log());
    let (took, left) = (took.as_millis(), left.as_millis());
    let result = format!(
        "serves after {took} ms; server gone {left} ms after its sessions; 0 reloads; {good} requests, 0 lost"
    );
    Row { what: "Node made with kubectl; drained; one removed", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_service_keeps_its_port_and_a_hostile_annotation_writes_nothing() {
    conflict_and_hostile_annotations().await;
}

pub(crate) async fn conflict_and_hostile_annotations() -> Row {
    let (port, other) = (ports::free(), ports::free());
    let mut lab = Lab::new(2).await;
    let mut old = lab.service("old", port, &json!({}));
    old["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    lab.sim.apply(old).unwrap();
    lab.start(&[port]).await;
    let wants = json!({"nodegate.io/haproxy-port": port.to_string()});
    lab.sim.apply(lab.service("a-young-one", other, &wants)).unwrap();
    let evil = json!({
        "nodegate.io/haproxy-balance": "roundrobin\n  server evil 192.0.2.1:80",
        "nodegate.io/haproxy-mode": "tcp\nfrontend evil\n  bind :1",
    });
    lab.sim.apply(lab.service("evil", other, &evil)).unwrap();
    lab.until("the other port answers", async || get(other).is_ok()).await;
    let text = std::fs::read_to_string(&lab.config).unwrap();
    assert!(
        !text.contains("evil\n") && !text.contains("192.0.2.1") && !text.contains("a-young-one"),
        "{text}"
    );
    lab.until_metric("nodegate_haproxy_problems{kind=\"conflict\"}", 1.0).await;
    lab.until_metric("nodegate_haproxy_problems{kind=\"annotation\"}", 2.0).await;
    Row {
        what: "port conflict, hostile annotations",
        result: "older keeps the port; 3 problems named; nothing injected".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_does_not_empty_the_pool() {
    the_guard_holds().await;
}

pub(crate) async fn the_guard_holds() -> Row {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    // The API server comes back with an empty store.
    lab.sim.kill().await;
    for index in 0..3 {
        lab.sim.delete_node(&node_name(index));
    }
    lab.sim.delete("services", "default", "web");
    lab.sim.restart(true).await.unwrap();
    let held = |lab: &Lab| {
        ["nodes", "services"].map(|kind| lab.metric(&format!("nodegate_haproxy_held{{kind=\"{kind}\"}}")))
    };
    lab.until("all is held", async || held(&lab) == [Some(3.0), Some(1.0)]).await;
    // The program keeps the same after a restart, from its file. A node that joins serves without an
    // operator's action.
    lab.program.take().unwrap().kill().await.unwrap();
    lab.start_program(&[]);
    lab.until("all is held again", async || held(&lab) == [Some(3.0), Some(1.0)]).await;
    lab.add_node(3);
    lab.until_asked(3).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    Row {
        what: "API comes back empty; program restarted",
        result: format!("all kept, a new node serves; {good} requests, 0 lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_the_template_is_not_given_away_and_print_shows_what_would_be_written() {
    let (stats, port) = (ports::free(), ports::free());
    let mut lab = Lab::new(1).await;
    let template = lab.dir.path().join("own.cfg.j2");
    let own = format!(
        "defaults\n  timeout connect 2s\n  timeout client 9s\n  timeout server 9s\nfrontend stats\n  mode http\n  \
         bind :{stats}\n  stats enable\n  stats uri /\n{{% include \"sections\" %}}"
    );
    std::fs::write(&template, own).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    lab.sim.apply(lab.service("thief", stats, &json!({}))).unwrap();
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    lab.start(&[port]).await;
    let text = std::fs::read_to_string(&lab.config).unwrap();
    assert!(!text.contains("thief"), "{text}");
    lab.until_logged("your own configuration binds port").await;
    let metrics = lab.metrics();
    assert!(metrics.contains("nodegate_haproxy_problems{kind=\"reserved\"} 1\n"), "{metrics}");
    check_metrics(&metrics).await;
    let checks =
        ["--check-port", &lab.check_port.to_string(), "--agent-check-port", "0", "--check-interval", "500ms"];
    let own = ["--template", &template.to_string_lossy()];
    let printed = print(&lab, &[], &[checks.as_slice(), &own].concat()).await;
    assert_eq!(printed, text, "the very bytes that were written");
    let printed = print(&lab, &[], &checks).await;
    let second = printed.lines().nth(1).unwrap_or_default();
    assert!(second.starts_with("# The head that nodegate-haproxy uses"), "{printed}");
}

/// Returns the output of `--print`. `by` holds the words that precede the program.
async fn print(lab: &Lab, by: &[&str], arguments: &[&str]) -> String {
    let places = lab.places();
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let program = env!("CARGO_BIN_EXE_nodegate-haproxy");
    let words = [by, &[program, "--print"], &places, arguments].concat();
    let mut command = tokio::process::Command::new(words[0]);
    command.args(&words[1..]).env("KUBECONFIG", lab.dir.path().join("kubeconfig"));
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_low_port_that_another_program_has_is_left_out_without_the_privilege_to_try_it() {
    let lab = Lab::new(1).await;
    let low =
        (600..1024).find_map(|port| Some((port, std::net::TcpListener::bind(("127.0.0.1", port)).ok()?)));
    let (taken, listener) = low.expect("a low port for a test that runs as root");
    lab.sim.apply(lab.service("busy", taken, &json!({}))).unwrap();
    let free = (taken + 1..1024).find(|port| std::net::TcpListener::bind(("::", *port)).is_ok()).unwrap();
    lab.sim.apply(lab.service("free", free, &json!({}))).unwrap();
    let drop_it = ["setpriv", "--bounding-set=-net_bind_service"];
    let printed = print(&lab, &drop_it, &[]).await;
    assert!(printed.contains(&format!("bind :::{free} v4v6")), "{printed}");
    assert!(!printed.contains("frontend nodegate_default_busy"), "{printed}");
    drop(listener);
    let printed = print(&lab, &drop_it, &[]).await;
    assert!(printed.contains(&format!("bind :::{taken} v4v6")), "{printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_host_without_ipv6_frontends_listen_on_ipv4() {
    let lab = Lab::new(1).await;
    let port = ports::free();
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    // The first socket that the program opens is a test for `IPv6`.
    let refuse = "inject=socket:error=EAFNOSUPPORT:when=1";
    let printed = print(&lab, &["strace", "-f", "-o", "/dev/null", "-e", refuse], &[]).await;
    assert!(printed.contains(&format!("bind 0.0.0.0:{port}")), "{printed}");
    let printed = print(&lab, &[], &[]).await;
    assert!(printed.contains(&format!("bind :::{port} v4v6")), "{printed}");
}

/// Checks that Prometheus's own tool has no complaints.
async fn check_metrics(text: &str) {
    let mut promtool = tokio::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("promtool runs (hack/install-tools)");
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).await.unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().await.unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
}
