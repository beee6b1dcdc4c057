//! After any failure, the old configuration stays in effect.

use crate::Row;
use crate::lab::{Lab, get, node_name};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::signal;
use serde_json::json;
use std::path::Path;

const FAILED: &str = "nodegate_haproxy_failures_total";

pub(crate) async fn failed(lab: &Lab, kind: &str) -> bool {
    lab.metric(&format!("{FAILED}{{kind=\"{kind}\"}}")).is_some()
}

/// Checks that traffic and the file are unharmed.
async fn unharmed(lab: &Lab, traffic: Traffic, old: &[u8]) -> usize {
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "the old file stays\n{}", lab.log());
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    good
}

/// Starts a lab with one published port that serves. Returns its port and its file.
async fn serving(mut lab: Lab) -> (Lab, u16, Vec<u8>) {
    let port = lab.publish().await;
    let old = std::fs::read(&lab.config).unwrap();
    (lab, port, old)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_template_changes_nothing() {
    broken_template().await;
}

pub(crate) async fn broken_template() -> Row {
    let mut lab = Lab::new(2).await;
    let template = lab.dir.path().join("haproxy.cfg.TEMPLATE");
    let head = "global\n  maxconn 1000\ndefaults\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n  \
        # {{ not ours }} {% nor this\n";
    std::fs::write(&template, head).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let (lab, port, old) = serving(lab).await;
    let below_the_marker = old.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
    assert!(below_the_marker.starts_with(head.as_bytes()), "the head is kept to the byte");
    let traffic = Traffic::start(port);
    std::fs::write(&template, "global\n  no-such-keyword\n").unwrap();
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.until("it is refused", async || failed(&lab, "validate").await).await;
    let good = unharmed(&lab, traffic, &old).await;
    std::fs::write(&template, head).unwrap();
    lab.until("the retry succeeds", async || get(next).is_ok()).await;
    Row {
        what: "broken template",
        result: format!("refused, old file stays, retried; {good} requests, 0 lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_changes_nothing() {
    full_disk().await;
}

pub(crate) async fn full_disk() -> Row {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let Some(_mounted) = Tmpfs::mount(&small) else {
        return Row {
            what: "full disk",
            result: "not tried: mounting a tmpfs is not allowed here".to_owned(),
        };
    };
    let (lab, port, old) = serving(Lab::in_dir(2, small.clone(), dir).await).await;
    let traffic = Traffic::start(port);
    let filler = small.join("filler");
    let _ = std::fs::write(&filler, vec![0; 4 << 20]);
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.until("it fails", async || failed(&lab, "file").await).await;
    lab.sim.cordon(&node_name(0));
    let backend = format!("nodegate_default_web_{port}");
    lab.until("a cordon still works", async || lab.is_draining(&backend, &node_name(0)).await).await;
    let good = unharmed(&lab, traffic, &old).await;
    std::fs::remove_file(&filler).unwrap();
    lab.until("the retry succeeds", async || get(next).is_ok()).await;
    Row {
        what: "full disk",
        result: format!("old file whole, cordon works, retried; {good} requests, 0 lost"),
    }
}

struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(at: &Path) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(at);
        mount.status().is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_reload_changes_nothing() {
    refused_reload().await;
}

pub(crate) async fn refused_reload() -> Row {
    let mut lab = Lab::new(2).await;
    let template = lab.dir.path().join("head");
    let head = "defaults\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n";
    std::fs::write(&template, head).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let (lab, port, old) = serving(lab).await;
    // `haproxy -c` binds no sockets, so it finds nothing wrong with this.
    let bad = format!("global\n  stats socket /nowhere/at/all.sock\n{head}");
    std::fs::write(&template, bad).unwrap();
    let traffic = Traffic::start(port);
    let serving = async || lab.runtime().worker_pid().await.unwrap();
    let before = serving().await;
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.until("the reload is refused", async || failed(&lab, "reload").await).await;
    // HAProxy 3.1 and later list this worker among the old ones.
    assert!(before.is_some() && serving().await == before, "{}", lab.log());
    let good = unharmed(&lab, traffic, &old).await;
    std::fs::write(&template, head).unwrap();
    lab.until("the retry succeeds", async || get(next).is_ok()).await;
    // A port that another program has is left out before HAProxy fails on it.
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    lab.sim.apply(lab.service("busy", taken.local_addr().unwrap().port(), &json!({}))).unwrap();
    lab.until("it is named", async || lab.whole_log().contains("another program listens")).await;
    lab.until_metric("nodegate_haproxy_problems{kind=\"busy\"}", 1.0).await;
    let result = format!(
        "same worker, old file back, retried; {good} requests, 0 lost; busy port left out beforehand"
    );
    Row { what: "refused reload", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_worker_is_survived() {
    frozen_worker().await;
}

pub(crate) async fn frozen_worker() -> Row {
    let (lab, port, old) = serving(Lab::new(3).await).await;
    let traffic = Traffic::start(port);
    let worker = lab.processes_now().await.workers[0];
    signal(worker, "STOP");
    lab.sim.cordon(&node_name(0));
    lab.until("it is told", async || failed(&lab, "runtime").await).await;
    assert!(lab.is_ready(), "{}", lab.log());
    signal(worker, "CONT");
    let backend = format!("nodegate_default_web_{port}");
    let took = lab.until("the cordon arrives", async || lab.is_draining(&backend, &node_name(0)).await).await;
    let good = unharmed(&lab, traffic, &old).await;
    let took = took.as_millis();
    Row {
        what: "frozen HAProxy worker",
        result: format!("cordon {took} ms after it thawed; {good} requests, 0 lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_survived() {
    frozen_master().await;
}

pub(crate) async fn frozen_master() -> Row {
    let (lab, port, old) = serving(Lab::new(3).await).await;
    let traffic = Traffic::start(port);
    let master = lab.haproxy.as_ref().and_then(tokio::process::Child::id).unwrap();
    signal(master, "STOP");
    let next = ports::free();
    lab.sim.apply(lab.service("next", next, &json!({}))).unwrap();
    lab.until("the reload fails", async || failed(&lab, "reload").await).await;
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "the old file is back\n{}", lab.log());
    signal(master, "CONT");
    lab.until("the retry succeeds", async || get(next).is_ok()).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    Row {
        what: "frozen HAProxy master",
        result: format!("old file back, retried when it thawed; {good} requests, 0 lost"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_outage_is_survived() {
    api_outage().await;
}

pub(crate) async fn api_outage() -> Row {
    let (lab, port, old) = serving(Lab::new(3).await).await;
    let traffic = Traffic::start(port);
    let watching = async || lab.metric("nodegate_haproxy_watching");
    lab.sim.kill().await;
    lab.until("the outage is seen", async || watching().await == Some(0.0)).await;
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    assert!(lab.is_ready());
    lab.sim.restart(true).await.unwrap();
    lab.until("it watches again", async || watching().await == Some(1.0)).await;
    let backend = format!("nodegate_default_web_{port}");
    lab.sim.cordon(&node_name(0));
    lab.until("a cordon arrives", async || lab.is_draining(&backend, &node_name(0)).await).await;
    lab.sim.uncordon(&node_name(0));
    lab.until("so does its end", async || lab.is_admin_ready(&backend, &node_name(0)).await).await;
    let good = unharmed(&lab, traffic, &old).await;
    Row {
        what: "API killed and restarted",
        result: format!("file untouched, watches resumed; {good} requests, 0 lost"),
    }
}
