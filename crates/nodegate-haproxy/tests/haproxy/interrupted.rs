//! The program is killed during a reload, or can't save its state.

use crate::Row;
use crate::faults::failed;
use crate::lab::{Lab, get, node_name};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::signal;
use nodegate_testbed::programs::needs_root;
use serde_json::json;
use tokio::process::Child;

fn is_unloaded(lab: &Lab) -> bool {
    lab.state("unloaded").exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_in_the_middle_of_a_reload_is_made_good_by_the_next_start() {
    killed_in_a_reload().await;
}

/// Stops the master, so that the reload has begun and can't end. The master may or may not read the command
/// later, so the next run of the program can't know what HAProxy has loaded.
pub(crate) async fn killed_in_a_reload() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let master = lab.haproxy.as_ref().and_then(Child::id).unwrap();
    let mut next = Vec::new();
    for round in 0..2 {
        signal(master, "STOP");
        let more = ports::free();
        lab.sim.apply(lab.service(&format!("next-{round}"), more, &json!({}))).unwrap();
        let written =
            || std::fs::read_to_string(&lab.config).is_ok_and(|text| text.contains(&more.to_string()));
        lab.until("the reload has begun", async || written() && is_unloaded(&lab)).await;
        lab.program.take().unwrap().kill().await.unwrap();
        assert!(is_unloaded(&lab), "{}", lab.log());
        signal(master, "CONT");
        lab.start_program(&[]);
        next.push(more);
        for port in &next {
            lab.until("the Service is served", async || get(*port).is_ok()).await;
        }
        lab.until("what is written is loaded", async || !is_unloaded(&lab) && lab.is_ready()).await;
    }
    let backend = format!("nodegate_default_web_{port}");
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("a cordon arrives", async || lab.is_draining(&backend, &node_name(0)).await).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("the next start loads what was written; {good} requests, 0 lost");
    Row { what: "kill -9 in the middle of a reload", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_that_cannot_be_written_is_named_and_servers_still_drain() {
    unwritable_state().await;
}

/// Uses a read-only filesystem that only the program sees, because root may write everywhere else.
pub(crate) async fn unwritable_state() -> Row {
    needs_root("a mount of its own");
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    lab.program.take().unwrap().kill().await.unwrap();
    let old = std::fs::read(&lab.config).unwrap();
    let traffic = Traffic::start(port);
    let state = lab.state_dir.display().to_string();
    let read_only = format!(
        "mount --bind '{state}' '{state}' && mount -o remount,bind,ro '{state}' && exec \"$0\" \"$@\""
    );
    lab.program_by = ["unshare", "--mount", "sh", "-c", &read_only].map(str::to_owned).to_vec();
    lab.start_program(&[]);
    let told = || lab.log().contains("can't write to --state-dir") && lab.log().contains(&state);
    lab.until("it is named", async || told()).await;
    let backend = format!("nodegate_default_web_{port}");
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("a cordon arrives", async || lab.is_draining(&backend, &node_name(0)).await).await;
    lab.until_spared(0).await;
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.until("the failure is counted", async || failed(&lab, "file").await).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "{}", lab.log());
    lab.program.take().unwrap().kill().await.unwrap();
    lab.program_by.clear();
    lab.start_program(&[]);
    lab.until("the Service is served", async || get(next).is_ok()).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("named; old file stays, a cordon works; {good} requests, 0 lost");
    Row { what: "a --state-dir that can't be written", result }
}
