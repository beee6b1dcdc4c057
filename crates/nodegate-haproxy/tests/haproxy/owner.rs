//! One program owns the file, the states of servers and what counts as applied.

use crate::lab::{Lab, get, node_name};
use crate::servers::{Traffic, serve_requests};
use crate::statuses::{a_while, ingress, publishing};
use nodegate_testbed::network::ports;
use nodegate_testbed::process::signal;
use nodegate_testbed::programs::system;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;

const NODES: &str = "nodegate_nodes";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_that_an_operator_sets_last_over_reloads_and_no_restart_brings_old_ones_back() {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let set = async |lab: &Lab, state: &str| {
        lab.ask(&format!("set server {NODES}/{} state {state}", node_name(0))).await;
    };
    set(&lab, "maint").await;
    let before = lab.reloads().await;
    lab.change(0);
    lab.until_reloaded(before).await;
    let state = async |lab: &Lab| lab.status(NODES, &node_name(0)).await;
    assert_eq!(state(&lab).await, "MAINT", "{}", lab.log());
    set(&lab, "ready").await;
    lab.until("it is up", async || state(&lab).await == "UP").await;
    lab.stop_haproxy();
    lab.start_haproxy().await;
    lab.until_reached(port, &[0, 1]).await;
    assert_eq!(state(&lab).await, "UP");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_good_file_stays_while_haproxy_is_away_and_nothing_can_check_another() {
    let mut lab = Lab::new(2).await;
    lab.arguments = vec!["--haproxy=none".to_owned()];
    let port = lab.publish().await;
    let good = std::fs::read(&lab.config).unwrap();
    lab.stop_haproxy();
    std::fs::write(&lab.template, "global\n  no-such-keyword\n").unwrap();
    lab.until_logged("HAProxy is not running").await;
    lab.kill_program().await;
    lab.start_program();
    lab.until_metric("nodegate_haproxy_pending", 1.0).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), good, "{}", lab.log());
    lab.start_haproxy().await;
    lab.until("it serves", async || get(port).is_ok()).await;
    lab.until_logged("HAProxy refuses the reload").await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), good);
    let before = lab.reloads().await;
    std::fs::write(&lab.template, "global\n  maxconn 1999\n").unwrap();
    lab.until_reloaded(before).await;
    lab.until("it serves", async || get(port).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_nothing_writes_nothing() {
    let mut lab = Lab::new(2).await;
    lab.publish().await;
    a_while(&lab).await;
    let files = || {
        let names = lab.left_behind().into_iter().chain(["haproxy.cfg".to_owned()]);
        let version = |name: String| {
            let data = std::fs::metadata(lab.dir.path().join(&name)).unwrap();
            (name, data.ino(), data.mtime_nsec())
        };
        names.map(version).collect::<Vec<_>>()
    };
    let before = files();
    for round in 0..200 {
        lab.sim.label(&node_name(round % 2), "unused", Some(&round.to_string()));
    }
    std::fs::write(&lab.template, "global\n  no-such-keyword\n").unwrap();
    lab.until_logged("no-such-keyword").await;
    std::fs::write(&lab.template, crate::lab::TEMPLATE).unwrap();
    a_while(&lab).await;
    let after = files();
    let names =
        |files: &[(String, u64, i64)]| files.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    assert_eq!(names(&after), ["haproxy.cfg.applied", "haproxy.cfg.states", "haproxy.cfg"]);
    assert_eq!(after[0], before[0], "no reload");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_file_needs_no_api_server_and_the_api_server_may_be_behind_it() {
    let own = ports::free();
    let mut lab = Lab::new(1).await;
    let template = format!(
        "listen own\n  mode http\n  bind 127.0.0.1:{own}\n  timeout client 5s\n  http-request return status 200\n"
    );
    std::fs::write(&lab.template, &template).unwrap();
    lab.sim.kill().await;
    lab.start_program();
    lab.until("the file is written", async || lab.config.exists()).await;
    lab.start_haproxy().await;
    lab.until("the template's part serves", async || get(own).is_ok()).await;
    assert!(!lab.is_ready());
    lab.sim.restart(true).await.unwrap();
    let web = lab.add("web", Value::Null).await;
    lab.until("the Service is served", async || get(web).is_ok() && lab.is_ready()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_no_server_serves_is_named_and_gets_no_status() {
    let mut lab = publishing(2, &[]).await;
    lab.check_port =
        serve_requests(
            |_, request| {
                if request.starts_with("GET /services/") { "404 Not Found" } else { "200 OK" }
            },
        )
        .await;
    let annotations = json!({"nodegate.io/haproxy-local-check": "agent"});
    let more = json!({"metadata": {"annotations": annotations}, "spec": {"externalTrafficPolicy": "Local"}});
    lab.add("local", more).await;
    lab.start(&[]).await;
    let why = "the agents do not watch it: they need --watch-service default/local";
    lab.until_logged(why).await;
    lab.until_metric("nodegate_haproxy_service_down{service=\"default/local\"}", 1.0).await;
    assert!(lab.explain().contains(why), "{}", lab.explain());
    assert_eq!(ingress(&lab, "local"), Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_loads_other_files_again_and_a_second_process_never_shares_a_port() {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let (before, traffic) = (lab.reloads().await, Traffic::start(port));
    signal(lab.program.as_ref().and_then(tokio::process::Child::id).unwrap(), "HUP");
    lab.until_reloaded(before).await;
    let output = system("haproxy").arg("-db").arg("-f").arg(&lab.config).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    traffic.none_lost(&lab);
}
