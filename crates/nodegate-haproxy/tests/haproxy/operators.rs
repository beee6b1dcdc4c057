//! The program's output for operators: log lines, pending changes with reasons, and a file that another
//! program has changed.

use crate::Row;
use crate::lab::{Lab, get, node_name};
use crate::servers::agents;
use nodegate_testbed::network::ports;
use serde_json::json;

/// Runs the program with an option that only shows something. Returns its output.
async fn shows(lab: &Lab, what: &str) -> String {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_nodegate-haproxy"));
    command.arg(what).args(lab.places()).env("KUBECONFIG", lab.dir.path().join("kubeconfig"));
    command.args([
        "--check-port",
        &lab.check_port.to_string(),
        "--agent-check-port",
        "0",
        "--check-interval",
        "500ms",
    ]);
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Waits for a line of the log with all these parts.
async fn says(lab: &Lab, line: &str) {
    lab.until(line, async || {
        let log = lab.whole_log();
        log.lines().any(|said| line.split(" … ").all(|part| said.contains(part)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_tells_of_each_drain_and_return_with_the_reason() {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    says(&lab, "INFO … started … version=").await;
    says(&lab, "INFO … read the cluster … nodes=3 ready=3 frontends=1").await;
    lab.sim.cordon(&node_name(0));
    says(&lab, "INFO … is draining; sending no new traffic … node=\"node-000\" … reason=\"Unschedulable\"")
        .await;
    lab.sim.set_ready(&node_name(1), "False", "KubeletNotReady");
    says(
        &lab,
        "INFO … the node is out; sending no traffic to it … node=\"node-001\" … reason=\"KubeletNotReady\"",
    )
    .await;
    let out = "nodegate_haproxy_node_out{node=\"node-000\",state=\"drain\",reason=\"Unschedulable\"}";
    lab.until_metric(out, 1.0).await;
    lab.sim.uncordon(&node_name(0));
    says(&lab, "INFO … the node is back; sending new traffic to it … node=\"node-000\"").await;
    lab.until("it is out no more", async || lab.metric(out).is_none()).await;
    assert!(get(port).is_ok());
    let loaded =
        lab.metrics().lines().filter(|line| line.starts_with("nodegate_haproxy_loaded{hash=")).count();
    assert_eq!(loaded, 1, "{}", lab.metrics());
    let mut program = lab.program.take().unwrap();
    nodegate_testbed::process::signal(program.id().unwrap(), "TERM");
    assert!(program.wait().await.unwrap().success());
    says(&lab, "INFO … shutting down; HAProxy keeps").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_change_and_why_something_is_not_published_can_be_asked() {
    let (web, same) = (ports::free(), ports::free());
    let mut lab = Lab::new(2).await;
    lab.sim.apply(lab.service("web", web, &json!({}))).unwrap();
    lab.once(&[]).await;
    assert_eq!(shows(&lab, "--diff").await, "", "nothing would change");
    lab.sim.cordon(&node_name(1));
    let mut other = lab.service("other", same, &json!({"nodegate.io/haproxy-ignore": "true"}));
    other["spec"]["ports"][0]["nodePort"] = json!(30_999);
    lab.sim.apply(other).unwrap();
    let mut thief = lab.service("young", same, &json!({"nodegate.io/haproxy-port": web.to_string()}));
    thief["spec"]["ports"][0]["nodePort"] = json!(30_998);
    lab.sim.apply(thief).unwrap();
    let explained = shows(&lab, "--explain").await;
    let columns: Vec<Vec<&str>> = explained
        .lines()
        .map(|line| line.split("  ").filter(|word| !word.is_empty()).map(str::trim).collect())
        .collect();
    let (port, node_port) = (web.to_string(), lab.node_port.to_string());
    let binds = format!(":::{web} v4v6");
    let wants = format!("wants port {web}, which default/web has had for longer");
    let tcp = format!("{same}/TCP");
    for row in [
        &["PUBLISHED", "PORT", "LISTENS ON", "NODE PORT", "NODES", "HOW"][..],
        &["default/web", &port, &binds, &node_port, "2", "tcp, roundrobin"],
        &["default/other", "all", "nodegate.io/haproxy-ignore: true"],
        &["default/young", &tcp, &wants],
        &["node-000", "ready", "-", "100", "127.1.0.1"],
        &["node-001", "drain", "Unschedulable", "100", "127.1.0.2"],
    ] {
        assert!(columns.iter().any(|line| line == row), "{row:?} is not in\n{explained}");
    }
    lab.sim.delete("services", "default", "web");
    let diff = shows(&lab, "--diff").await;
    let removed = format!("-frontend nodegate_default_web_{web}_frontend");
    let added = format!("+frontend nodegate_default_young_{same}_frontend");
    assert!(
        diff.starts_with("--- ") && [removed, added].iter().all(|line| diff.lines().any(|l| l == line)),
        "{diff}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_program_has_changed_is_put_right() {
    foreign_change().await;
}

pub(crate) async fn foreign_change() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let ours = std::fs::read_to_string(&lab.config).unwrap();
    // A configuration tool does this: it writes its own version and has HAProxy load it.
    let other = ports::free();
    let theirs = ours.replace(&format!(":::{port} "), &format!(":::{other} "));
    std::fs::write(&lab.config, theirs).unwrap();
    lab.master().reload().await.unwrap();
    assert!(get(port).is_err() && get(other).is_ok());
    // The program looks at the file every 30 s, and at each change.
    lab.sim.apply(lab.service("more", ports::free(), &json!({}))).unwrap();
    let took = lab.until("the port answers again", async || get(port).is_ok()).await;
    lab.until("the other one does not", async || get(other).is_err()).await;
    let counted = async || lab.metric("nodegate_haproxy_foreign_changes_total") == Some(1.0);
    lab.until("it is counted", counted).await;
    lab.until_logged("another program has changed the configuration").await;
    let now = std::fs::read_to_string(&lab.config).unwrap();
    assert!(now.contains(&format!(":::{port} ")) && !now.contains(&format!(":::{other} ")), "{now}");
    let result = format!(
        "named, written anew and loaded: the port answers {} ms after the next event",
        took.as_millis()
    );
    Row { what: "another program changed the file", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_shipped_sections_works_with_agents() {
    copied_sections().await;
}

pub(crate) async fn copied_sections() -> Row {
    let mut lab = Lab::new(3).await;
    lab.agent_port = agents(|_| b"up ready\n").await;
    let template = lab.dir.path().join("own.cfg.j2");
    let head = "defaults\n  timeout connect 2s\n  timeout client 9s\n  timeout server 9s\n";
    std::fs::write(&template, format!("{head}{}", include_str!("../../templates/sections.cfg.j2"))).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    lab.sim.cordon(&node_name(0));
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(0)).await).await;
    let drained = std::net::IpAddr::from([127, 1, 0, 1]);
    let asked = || lab.served.lock().unwrap().get(&drained).copied();
    let before = asked();
    for _ in 0..30 {
        get(port).unwrap();
    }
    assert_eq!(asked(), before, "a drained node was asked\n{}", lab.log());
    lab.sim.uncordon(&node_name(0));
    lab.until("it serves again", async || get(port).is_ok() && asked() != before).await;
    assert_eq!(lab.metric("nodegate_haproxy_failures_total{kind=\"runtime\"}"), None, "{}", lab.log());
    assert_eq!(
        lab.log().matches("does not include \"sections\"").count(),
        2,
        "told once a run\n{}",
        lab.log()
    );
    let result = "drained and back, told of nothing that fails".to_owned();
    Row { what: "template with a copy of the sections", result }
}
