//! HAProxy does not run the configuration that the program expects.

use crate::Row;
use crate::faults::failed;
use crate::lab::{Lab, get, node_name};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const PENDING: &str = "nodegate_haproxy_pending";
const RELOADED: &str = "nodegate_haproxy_applies_total{kind=\"reloaded\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_with_another_configuration_is_not_reloaded_again_and_again() {
    other_configuration().await;
}

pub(crate) async fn other_configuration() -> Row {
    let mut lab = Lab::new(2).await;
    lab.publish().await;
    lab.program.take().unwrap().kill().await.unwrap();
    // HAProxy keeps its own file, and does not load this one.
    lab.config = lab.dir.path().join("other.cfg");
    lab.sim.apply(lab.service("more", ports::free(), &json!({}))).unwrap();
    lab.start_program(&[]);
    lab.until("it is noticed", async || lab.log().contains("HAProxy runs another configuration")).await;
    lab.until("it is loaded again", async || lab.metric(RELOADED) == Some(2.0)).await;
    let look = async || lab.processes().await.map(|now| now.reloads);
    lab.at_rest("the number of reloads", look, Duration::from_secs(2)).await;
    assert_eq!(lab.metric(RELOADED), Some(2.0), "{}", lab.log());
    let result = "named, one more reload, then none".to_owned();
    Row { what: "HAProxy runs another file than --config", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_fails_at_first_is_made_in_the_end() {
    failing_at_first().await;
}

pub(crate) async fn failing_at_first() -> Row {
    let mut lab = Lab::new(2).await;
    let template = lab.dir.path().join("head");
    let head = "defaults\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n";
    std::fs::write(&template, head).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let port = lab.publish().await;
    // HAProxy is started with another version of its file, and at first it can't be reloaded.
    let ours = std::fs::read(&lab.config).unwrap();
    lab.stop_haproxy();
    std::fs::remove_file(&template).unwrap();
    std::fs::write(&lab.config, format!("{head}listen x\n  bind 127.0.0.1:{}\n", ports::free())).unwrap();
    lab.start_haproxy().await;
    std::fs::write(&lab.config, ours).unwrap();
    lab.until("the reload fails", async || failed(&lab, "template").await).await;
    std::fs::write(&template, head).unwrap();
    let took = lab.until("it is made", async || get(port).is_ok()).await;
    let result = format!("port answers {} ms after the template is back", took.as_millis());
    Row { what: "HAProxy restarted with an old file", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_without_a_haproxy_is_not_ready_until_one_has_loaded_its_file() {
    late_haproxy().await;
}

pub(crate) async fn late_haproxy() -> Row {
    let port = ports::free();
    let mut lab = Lab::new(2).await;
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    lab.start_program(&[]);
    let looks = "nodegate_haproxy_applies_total{kind=\"not-running\"}";
    lab.until("it has looked twice", async || lab.metric(looks) >= Some(2.0)).await;
    assert!(!lab.is_ready(), "{}", lab.log());
    lab.until_metric(PENDING, 1.0).await;
    assert_eq!(lab.log().matches("no running HAProxy loads it").count(), 1, "told once\n{}", lab.log());
    lab.start_haproxy().await;
    let took = lab.until("it is ready", async || lab.is_ready()).await;
    assert!(get(port).is_ok(), "{}", lab.log());
    lab.until_metric(RELOADED, 1.0).await;
    let result = format!("not ready before, ready {} ms after HAProxy was", took.as_millis());
    Row { what: "HAProxy starts after the program", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_that_is_down_is_told_of_once() {
    stopped_haproxy().await;
}

pub(crate) async fn stopped_haproxy() -> Row {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    // The program has set states in HAProxy, and has nothing more to set.
    let (backend, node) = (format!("nodegate_default_web_{port}"), node_name(1));
    assert!(lab.sim.cordon(&node));
    lab.until("it drains", async || lab.is_draining(&backend, &node).await).await;
    assert!(lab.sim.uncordon(&node));
    lab.until("it is back", async || lab.is_admin_ready(&backend, &node).await).await;
    lab.stop_haproxy();
    lab.until("it is noticed", async || failed(&lab, "runtime").await).await;
    let quiet = lab.whole_log().lines().count();
    let looks = "nodegate_haproxy_applies_total{kind=\"not-running\"}";
    // All work continues meanwhile: first a change that sets no server state, then changes of nodes and
    // states.
    lab.sim.apply(lab.service("next", ports::free(), &json!({}))).unwrap();
    lab.until("it has looked", async || lab.metric(looks) >= Some(1.0)).await;
    lab.add_node(3);
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("it has looked again and again", async || lab.metric(looks) >= Some(3.0)).await;
    assert!(lab.sim.uncordon(&node_name(0)));
    lab.until("once more", async || lab.metric(looks) >= Some(4.0)).await;
    let log = lab.whole_log();
    // Changes of nodes are logged even if HAProxy does not run.
    let of_nodes = |line: &&str| line.contains("node=\"");
    let since: Vec<&str> = log.lines().skip(quiet).filter(|line| !of_nodes(line)).collect();
    let of = |text: &str| log.matches(text).count();
    assert_eq!(of("setting server states in HAProxy works again"), 0, "{log}");
    assert_eq!(of("can't set server states in HAProxy"), 1, "{log}");
    assert!(since.len() <= 3, "{log}");
    lab.start_haproxy().await;
    let took = lab.until("all is well", async || get(port).is_ok() && lab.metric(PENDING) == Some(0.0)).await;
    let result =
        format!("told once, {} lines more; well {} ms after it is back", since.len(), took.as_millis());
    Row { what: "HAProxy is down for a while", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_that_time_out_keep_their_distance() {
    timed_out().await;
}

pub(crate) async fn timed_out() -> Row {
    let mut lab = Lab::new(1).await;
    let calls = lab.dir.path().join("calls");
    let script = lab.dir.path().join("reload");
    std::fs::write(&script, format!("#!/bin/sh\necho >> {}\nexec sleep 60\n", calls.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_string_lossy().into_owned();
    lab.arguments = ["--reload-timeout", "1s", "--reload-command", &script].map(str::to_owned).to_vec();
    lab.start_program(&[]);
    let (began, mut services) = (Instant::now(), 0);
    // A new Service four times a second, none of which HAProxy ever loads.
    while began.elapsed() < Duration::from_secs(16) {
        services += 1;
        lab.sim.apply(lab.service(&format!("web-{services}"), ports::free(), &json!({}))).unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let calls = std::fs::read_to_string(&calls).unwrap().lines().count();
    assert!((2..=6).contains(&calls), "{calls} reloads in 16 s\n{}", lab.log());
    let result = format!("{services} changes in 16 s, {calls} attempts");
    Row { what: "reloads of which nothing is heard", result }
}
