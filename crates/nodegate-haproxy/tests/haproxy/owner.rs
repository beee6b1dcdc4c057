//! One program owns the file, the states of servers and what counts as applied. While HAProxy runs something else than the
//! file, nothing counts as applied, and no status is written.

use crate::scenario::Scenario;
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
    let mut scenario = Scenario::new(2);
    let port = scenario.publish();
    let set = |of: &Scenario, state| of.ask(&format!("set server nodegate_nodes/node-000 state {state}"));
    set(&scenario, "maint");
    let (before, traffic) = (scenario.reloads(), Traffic::start(port));
    scenario.change(0);
    scenario.until_reloaded(before);
    let before = scenario.reloads();
    signal(scenario.program.as_ref().unwrap().id(), "HUP");
    scenario.until_reloaded(before);
    let second = system("haproxy").arg("-db").arg("-f").arg(&scenario.config).output().unwrap();
    assert!(!second.status.success(), "{second:?}");
    traffic.none_lost(&scenario);
    let state = |scenario: &Scenario| scenario.status("nodegate_nodes", "node-000");
    assert_eq!(state(&scenario), "MAINT", "{}", scenario.log());
    set(&scenario, "ready");
    scenario.until("it is up", || state(&scenario) == "UP");
    // A restart brings no old states back.
    scenario.stop_haproxy();
    scenario.start_haproxy();
    scenario.until_reached(port, &[0, 1]);
    assert_eq!(state(&scenario), "UP");
}

#[test]
fn the_last_good_file_stays_while_haproxy_is_away_and_nothing_can_check_another() {
    let mut scenario = Scenario::new(2);
    scenario.arguments = vec!["--haproxy=none".to_owned()];
    let port = scenario.publish();
    let good = scenario.written();
    scenario.stop_haproxy();
    std::fs::write(&scenario.template, "global\n  no-such-keyword\n").unwrap();
    scenario.until_logged("HAProxy is not running");
    scenario.kill_program();
    scenario.start_program();
    scenario.until_metric("nodegate_haproxy_pending", 1.0);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(scenario.written(), good, "{}", scenario.log());
    scenario.start_haproxy();
    scenario.until("it serves", || get(port).is_ok());
    scenario.until_logged("HAProxy refuses the reload");
    assert_eq!(scenario.written(), good);
    let before = scenario.reloads();
    std::fs::write(&scenario.template, "global\n  maxconn 1999\n").unwrap();
    scenario.until_reloaded(before);
    scenario.until("it serves", || get(port).is_ok());
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let mut scenario = Scenario::new(2);
    scenario.publish();
    a_while(&scenario);
    let applied = || {
        let data = std::fs::metadata(scenario.file("haproxy.cfg.applied")).unwrap();
        (data.ino(), data.mtime_nsec())
    };
    let before = applied();
    for round in 0..200 {
        scenario.sim.label(&node_name(round % 2), "unused", Some(&round.to_string()));
    }
    std::fs::write(&scenario.template, "global\n  no-such-keyword\n").unwrap();
    scenario.until_logged("no-such-keyword");
    std::fs::write(&scenario.template, crate::scenario::TEMPLATE).unwrap();
    a_while(&scenario);
    assert_eq!(applied(), before, "no reload");
    assert_eq!(scenario.left_behind(), ["haproxy.cfg.applied", "haproxy.cfg.states"]);
}

#[test]
fn the_first_file_needs_no_api_server_and_the_api_server_may_be_behind_it() {
    let own = ports::free();
    let mut scenario = Scenario::new(1);
    let template = format!(
        "listen own\n  mode http\n  bind 127.0.0.1:{own}\n  timeout client 5s\n  http-request return status 200\n"
    );
    std::fs::write(&scenario.template, &template).unwrap();
    scenario.kill_api();
    scenario.start_program();
    scenario.until("the file is written", || scenario.config.exists());
    scenario.start_haproxy();
    scenario.until("the template's part serves", || get(own).is_ok());
    assert!(!scenario.is_ready());
    scenario.wait(scenario.sim.restart(true)).unwrap();
    let web = scenario.add("web", &json!({}));
    scenario.until("the Service is served", || get(web).is_ok() && scenario.is_ready());
}

#[test]
fn a_service_that_no_server_serves_is_named_and_gets_no_status() {
    let mut scenario = publishing(2);
    let answer = |is_service| if is_service { "404 Not Found" } else { "200 OK" };
    scenario.check_port = serve_requests(move |_, request| answer(request.starts_with("GET /services/")));
    let annotations = json!({"nodegate.io/haproxy-local-check": "agent"});
    let more = json!({"metadata": {"annotations": annotations}, "spec": {"externalTrafficPolicy": "Local"}});
    scenario.add("local", &more);
    scenario.start(&[]);
    let why = "the agents do not watch it: they need --watch-service default/local";
    scenario.until_logged(why);
    scenario.until_metric("nodegate_haproxy_service_down{service=\"default/local\"}", 1.0);
    scenario.until("--explain says so", || scenario.explain().contains(why));
    assert_eq!(ingress(&scenario, "local"), Value::Null);
    // It writes nothing, so it needs no directory.
    scenario.config = scenario.file("absent/haproxy.cfg");
    assert!(scenario.explain().starts_with("PUBLISHED"));
}

/// Waits until the program says that HAProxy runs another file, and checks that a new Service gets no status.
fn says_so(scenario: &Scenario, service: &str) {
    let began = Instant::now();
    scenario.until("/readyz says so", || scenario.page("/readyz").contains("another configuration"));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    scenario.until_metric("nodegate_haproxy_applied", 0.0);
    let before = writes(scenario);
    scenario.add(service, &json!({}));
    scenario.until("the change is seen", || scenario.metric("nodegate_haproxy_pending") == Some(1.0));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((writes(scenario), ingress(scenario, service)), (before, Value::Null));
    assert!(!scenario.is_ready());
}

#[test]
fn a_haproxy_that_runs_another_file_is_named_and_a_file_of_a_person_is_not_replaced() {
    let mut scenario = publishing(2);
    let port = scenario.publish();
    // An edit below the marker does not last.
    scenario.until_metric("nodegate_haproxy_pending", 0.0);
    let ours = scenario.written();
    std::fs::write(&scenario.config, ours.replace("balance roundrobin", "balance leastconn")).unwrap();
    scenario.until("it is ours again", || scenario.written() == ours);
    scenario.until("it serves", || get(port).is_ok() && scenario.is_ready());
    let counted = "nodegate_haproxy_failures_total{kind=\"foreign\"}";
    scenario.until("it is counted", || scenario.metric(counted) >= Some(1.0));
    // Nor does one that HAProxy has loaded.
    let before = scenario.reloads();
    std::fs::write(&scenario.config, ours.replace("balance roundrobin", "balance leastconn")).unwrap();
    scenario.ask_master("reload");
    scenario.until("HAProxy loads ours again", || scenario.reloads() >= before + 2);
    scenario.until("it serves", || scenario.written() == ours && get(port).is_ok() && scenario.is_ready());

    let by_hand = format!(
        "defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
         frontend other\n  bind 127.0.0.1:{}\n  http-request return status 204\n",
        ports::free()
    );
    let beside = scenario.file("by-hand");
    std::fs::write(&beside, &by_hand).unwrap();
    std::fs::rename(&beside, &scenario.config).unwrap();
    scenario.ask_master("reload");
    says_so(&scenario, "late");
    scenario.until_logged("has no generated part");
    assert_eq!(scenario.written(), by_hand, "it is not ours to replace");
    std::fs::remove_file(&scenario.config).unwrap();
    scenario.until("it serves again", || get(port).is_ok() && scenario.is_ready());

    std::fs::write(&beside, &by_hand).unwrap();
    scenario.stop_haproxy();
    *scenario.haproxy_command.last_mut().unwrap() = beside.to_string_lossy().into_owned();
    scenario.start_haproxy();
    says_so(&scenario, "later");
}

#[test]
fn a_file_that_is_mounted_by_itself_is_named() {
    needs_root("a mount of its own");
    let mut scenario = Scenario::new(1);
    scenario.add("web", &json!({}));
    std::fs::write(&scenario.config, "").unwrap();
    let (file, program) = (scenario.config.display(), &scenario.program_command[0]);
    let script = format!("mount --bind {file} {file} && exec {program} \"$@\"");
    scenario.program_command = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    scenario.start_program();
    scenario.until_logged("it is mounted by itself; mount its directory instead");
    assert!(!scenario.is_ready());
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
