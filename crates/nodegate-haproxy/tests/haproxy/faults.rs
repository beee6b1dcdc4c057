//! Failures of the programs, of the disk and of the API server.

use crate::lab::{Lab, get, node_name};
use crate::servers::Traffic;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::signal;
use nodegate_testbed::programs::{needs_root, system};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn failed(lab: &Lab, kind: &str) -> bool {
    lab.metric(&format!("nodegate_haproxy_failures_total{{kind=\"{kind}\"}}")).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_programs_are_killed_at_random_and_come_back() {
    are_killed(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn both_programs_are_killed_a_hundred_times_and_come_back() {
    are_killed(100).await;
}

/// Kills either program at a random moment of a change, which is a reload or a few weights.
async fn are_killed(rounds: u64) {
    let mut lab = Lab::new(2).await;
    lab.reload_interval = "0s";
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    for round in 0..rounds {
        lab.set_share(0, 10 + round);
        if round % 3 != 0 {
            lab.change(round);
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..600))).await;
        if fastrand::bool() {
            lab.kill_program().await;
            let mut check = system("haproxy");
            let valid = check.arg("-c").arg("-f").arg(&lab.config).output().unwrap();
            assert!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
            lab.start_program();
        }
        if fastrand::bool() {
            lab.stop_haproxy();
            lab.start_haproxy().await;
        }
        let expected = u32::try_from(10 + round).ok();
        lab.until("the change is applied", async || lab.weight(&backend, &node_name(0)).await == expected)
            .await;
        lab.until("it is ready", async || lab.is_ready()).await;
        get(port).unwrap_or_else(|error| panic!("round {round}: {error}\n{}", lab.log()));
    }
    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    // A reload may be under way.
    let files = ["haproxy.cfg.applied", "haproxy.cfg.states"];
    lab.until("no other file is left", async || lab.left_behind() == files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_changes_nothing() {
    needs_root("a small disk");
    let mut lab = Lab::new(2).await;
    let small = lab.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let _mounted = Tmpfs::mount(&small);
    lab.config = small.join("haproxy.cfg");
    let port = lab.publish().await;
    let old = std::fs::read(&lab.config).unwrap();
    let traffic = Traffic::start(port);
    let filler = small.join("filler");
    let _ = std::fs::write(&filler, vec![0; 4 << 20]);
    let next = ports::free();
    lab.sim.apply(lab.distinct(lab.service("next", next, &json!({}))).await).unwrap();
    lab.until("it fails", async || failed(&lab, "write")).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "the old file stays\n{}", lab.log());
    std::fs::remove_file(&filler).unwrap();
    lab.until("the retry succeeds", async || get(next).is_ok()).await;
    traffic.none_lost(&lab);
}

struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(at: &Path) -> Self {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(at);
        assert!(mount.status().is_ok_and(|status| status.success()));
        Self(at.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_templates_a_frozen_master_and_an_api_outage_change_nothing() {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let old = std::fs::read(&lab.config).unwrap();
    let traffic = Traffic::start(port);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy =
        format!("listen own\n  mode http\n  timeout client 5s\n  bind {}\n", taken.local_addr().unwrap());
    for (template, says) in [
        // `haproxy -c` finds nothing wrong with these two.
        ("global\n  stats socket /nowhere/at/all.sock\n", "in a directory that does not exist"),
        (&busy, "HAProxy can't listen as --template has it: another program has port"),
        ("global\n  no-such-keyword\n", "no-such-keyword"),
        ("defaults nodegate\n", "which the generated part has"),
        ("global\n  zero-warning\n", "it has zero-warning"),
        (
            "backend own\n  server a 127.0.0.1:1 track nodegate_nodes/node-000\n",
            "it has nodegate_nodes/node-000",
        ),
        (".if defined(NO)\nglobal\n", ".if"),
    ] {
        std::fs::write(&lab.template, template).unwrap();
        lab.until_logged(says).await;
        lab.until("the old file is back", async || std::fs::read(&lab.config).unwrap() == old).await;
        lab.until("it is ready", async || lab.is_ready()).await;
    }
    // A broken template keeps no cordon from the running HAProxy and its file.
    lab.drain(&backend, 1).await;
    let cordoned = async || std::fs::read_to_string(&lab.config).unwrap().contains(" weight 0");
    lab.until("the file has the cordon", cordoned).await;
    lab.undrain(&backend, 1).await;
    let before = lab.reloads().await;
    std::fs::write(&lab.template, "global\n  maxconn 1999").unwrap();
    lab.until_reloaded(before).await;

    let master = lab.haproxy.as_ref().and_then(tokio::process::Child::id).unwrap();
    signal(master, "STOP");
    lab.set_share(0, 7);
    lab.until("/readyz says so", async || lab.page("/readyz").contains("does not answer")).await;
    signal(master, "CONT");
    lab.until("it is applied", async || lab.weight(&backend, &node_name(0)).await == Some(7)).await;

    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    let old = std::fs::read(&lab.config).unwrap();
    let watching = async || lab.metric("nodegate_haproxy_watching");
    lab.sim.kill().await;
    lab.until("the outage is seen", async || watching().await == Some(0.0)).await;
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    lab.until("it is ready", async || lab.is_ready()).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "{}", lab.log());
    lab.sim.restart(true).await.unwrap();
    lab.until("it watches again", async || watching().await == Some(1.0)).await;
    lab.drain(&backend, 0).await;
    traffic.none_lost(&lab);
}
