//! One program owns the file, the states of servers and what counts as applied. While HAProxy runs something else than the
//! file, nothing counts as applied, and no status is written.

use crate::lab::Lab;
use crate::servers::{Traffic, get, node_name, serve_requests};
use crate::statuses::{a_while, ingress, publishing, writes};
use nodegate_testbed::network::ports;
use nodegate_testbed::process::signal;
use nodegate_testbed::programs::{needs_root, nodegate_haproxy, system, try_run};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn reloads_and_hangups_keep_states_that_an_operator_sets_and_no_second_process_shares_a_port() {
    let mut lab = Lab::new(2);
    let port = lab.publish();
    let set = |lab: &Lab, state| lab.ask(&format!("set server nodegate_nodes/node-000 state {state}"));
    set(&lab, "maint");
    let (before, traffic) = (lab.reloads(), Traffic::start(port));
    lab.change(0);
    lab.until_reloaded(before);
    let before = lab.reloads();
    signal(lab.program.as_ref().unwrap().id(), "HUP");
    lab.until_reloaded(before);
    let second = system("haproxy").arg("-db").arg("-f").arg(&lab.config).output().unwrap();
    assert!(!second.status.success(), "{second:?}");
    traffic.none_lost(&lab);
    let state = |lab: &Lab| lab.status("nodegate_nodes", "node-000");
    assert_eq!(state(&lab), "MAINT", "{}", lab.log());
    set(&lab, "ready");
    lab.until("it is up", || state(&lab) == "UP");
    // A restart brings no old states back.
    lab.stop_haproxy();
    lab.start_haproxy();
    lab.until_reached(port, &[0, 1]);
    assert_eq!(state(&lab), "UP");
}

#[test]
fn the_last_good_file_stays_while_haproxy_is_away_and_nothing_can_check_another() {
    let mut lab = Lab::new(2);
    lab.arguments = vec!["--haproxy=none".to_owned()];
    let port = lab.publish();
    let good = lab.written();
    lab.stop_haproxy();
    std::fs::write(&lab.template, "global\n  no-such-keyword\n").unwrap();
    lab.until_logged("HAProxy is not running");
    lab.kill_program();
    lab.start_program();
    lab.until_metric("nodegate_haproxy_pending", 1.0);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(lab.written(), good, "{}", lab.log());
    lab.start_haproxy();
    lab.until("it serves", || get(port).is_ok());
    lab.until_logged("HAProxy refuses the reload");
    assert_eq!(lab.written(), good);
    let before = lab.reloads();
    std::fs::write(&lab.template, "global\n  maxconn 1999\n").unwrap();
    lab.until_reloaded(before);
    lab.until("it serves", || get(port).is_ok());
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let mut lab = Lab::new(2);
    lab.publish();
    a_while(&lab);
    let applied = || {
        let data = std::fs::metadata(lab.file("haproxy.cfg.applied")).unwrap();
        (data.ino(), data.mtime_nsec())
    };
    let before = applied();
    for round in 0..200 {
        lab.sim.label(&node_name(round % 2), "unused", Some(&round.to_string()));
    }
    std::fs::write(&lab.template, "global\n  no-such-keyword\n").unwrap();
    lab.until_logged("no-such-keyword");
    std::fs::write(&lab.template, crate::lab::TEMPLATE).unwrap();
    a_while(&lab);
    assert_eq!(applied(), before, "no reload");
    assert_eq!(lab.left_behind(), ["haproxy.cfg.applied", "haproxy.cfg.states"]);
}

#[test]
fn the_first_file_needs_no_api_server_and_the_api_server_may_be_behind_it() {
    let own = ports::free();
    let mut lab = Lab::new(1);
    let template = format!(
        "listen own\n  mode http\n  bind 127.0.0.1:{own}\n  timeout client 5s\n  http-request return status 200\n"
    );
    std::fs::write(&lab.template, &template).unwrap();
    lab.cluster.kill_api();
    lab.start_program();
    lab.until("the file is written", || lab.config.exists());
    lab.start_haproxy();
    lab.until("the template's part serves", || get(own).is_ok());
    assert!(!lab.is_ready());
    lab.cluster.wait(lab.sim.restart(true)).unwrap();
    let web = lab.add("web", &json!({}));
    lab.until("the Service is served", || get(web).is_ok() && lab.is_ready());
}

#[test]
fn a_service_that_no_server_serves_is_named_and_gets_no_status() {
    let mut lab = publishing(2);
    let answer = |is_service| if is_service { "404 Not Found" } else { "200 OK" };
    lab.check_port = serve_requests(move |_, request| answer(request.starts_with("GET /services/")));
    let annotations = json!({"nodegate.io/haproxy-local-check": "agent"});
    let more = json!({"metadata": {"annotations": annotations}, "spec": {"externalTrafficPolicy": "Local"}});
    lab.add("local", &more);
    lab.start(&[]);
    let why = "the agents do not watch it: they need --watch-service default/local";
    lab.until_logged(why);
    lab.until_metric("nodegate_haproxy_service_down{service=\"default/local\"}", 1.0);
    assert!(lab.explain().contains(why), "{}", lab.explain());
    assert_eq!(ingress(&lab, "local"), Value::Null);
    // It writes nothing, so it needs no directory.
    lab.config = lab.file("absent/haproxy.cfg");
    assert!(lab.explain().starts_with("PUBLISHED"));
}

/// Waits until the program says that HAProxy runs another file, and checks that a new Service gets no status.
fn says_so(lab: &Lab, service: &str) {
    let began = Instant::now();
    lab.until("/readyz says so", || lab.page("/readyz").contains("another configuration"));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    lab.until_metric("nodegate_haproxy_applied", 0.0);
    let before = writes(lab);
    lab.add(service, &json!({}));
    lab.until("the change is seen", || lab.metric("nodegate_haproxy_pending") == Some(1.0));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((writes(lab), ingress(lab, service)), (before, Value::Null));
    assert!(!lab.is_ready());
}

#[test]
fn a_haproxy_that_runs_another_file_is_named_and_a_file_of_a_person_is_not_replaced() {
    let mut lab = publishing(2);
    let port = lab.publish();
    // An edit below the marker does not last.
    lab.until_metric("nodegate_haproxy_pending", 0.0);
    let ours = lab.written();
    std::fs::write(&lab.config, ours.replace("balance roundrobin", "balance leastconn")).unwrap();
    lab.until("it is ours again", || lab.written() == ours);
    lab.until("it serves", || get(port).is_ok() && lab.is_ready());
    let counted = "nodegate_haproxy_failures_total{kind=\"foreign\"}";
    lab.until("it is counted", || lab.metric(counted) >= Some(1.0));

    let by_hand = format!(
        "defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
         frontend other\n  bind 127.0.0.1:{}\n  http-request return status 204\n",
        ports::free()
    );
    let beside = lab.file("by-hand");
    std::fs::write(&beside, &by_hand).unwrap();
    std::fs::rename(&beside, &lab.config).unwrap();
    lab.ask_master("reload");
    says_so(&lab, "late");
    lab.until_logged("has no generated part");
    assert_eq!(lab.written(), by_hand, "it is not ours to replace");
    std::fs::remove_file(&lab.config).unwrap();
    lab.until("it serves again", || get(port).is_ok() && lab.is_ready());

    std::fs::write(&beside, &by_hand).unwrap();
    lab.stop_haproxy();
    *lab.haproxy_command.last_mut().unwrap() = beside.to_string_lossy().into_owned();
    lab.start_haproxy();
    says_so(&lab, "later");
}

#[test]
fn a_file_that_is_mounted_by_itself_is_named() {
    needs_root("a mount of its own");
    let mut lab = Lab::new(1);
    lab.add("web", &json!({}));
    std::fs::write(&lab.config, "").unwrap();
    let script =
        format!("mount --bind {0} {0} && exec {1} \"$@\"", lab.config.display(), lab.program_command[0]);
    lab.program_command = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    lab.start_program();
    lab.until_logged("it is mounted by itself; mount its directory instead");
    assert!(!lab.is_ready());
}

#[test]
fn a_second_program_on_one_file_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(dir.path().join(".haproxy.cfg.lock")).unwrap();
    lock.lock().unwrap();
    let config = format!("--config={}", dir.path().join("haproxy.cfg").display());
    let error =
        try_run(Command::new(nodegate_haproxy()).args([&config, "--listen=127.0.0.1:0"])).unwrap_err();
    assert!(error.contains("another nodegate-haproxy writes"), "{error}");
}
