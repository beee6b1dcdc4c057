//! A HAProxy that runs something else than the file: nothing counts as applied, and no status is written.

use crate::lab::{Lab, get};
use crate::statuses::{ingress, publishing, writes};
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::needs_root;
use serde_json::Value;
use std::time::Duration;

/// The longest time until `/readyz` says so.
const SAYS_SO: Duration = Duration::from_secs(10);

fn other_configuration(port: u16) -> String {
    format!(
        "defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
         frontend other\n  bind 127.0.0.1:{port}\n  http-request return status 204\n"
    )
}

fn changed_by_another(lab: &Lab) -> bool {
    lab.metric("nodegate_haproxy_failures_total{kind=\"foreign\"}") >= Some(1.0)
}

/// Waits until the program says that HAProxy runs something else, and checks that a Service which appears then
/// gets no status.
async fn says_so(lab: &Lab, service: &str) {
    let took =
        lab.until("/readyz says so", async || lab.page("/readyz").contains("another configuration")).await;
    assert!(took < SAYS_SO, "{took:?}");
    lab.until_metric("nodegate_haproxy_applied", 0.0).await;
    let before = writes(lab);
    lab.add(service, Value::Null).await;
    lab.until("the change is seen", async || lab.metric("nodegate_haproxy_pending") == Some(1.0)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((writes(lab), ingress(lab, service)), (before, Value::Null));
    assert!(!lab.is_ready());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_that_runs_another_file_is_named_and_a_file_of_a_person_is_not_replaced() {
    let mut lab = publishing(2, &[]).await;
    let port = lab.publish().await;
    // An edit below the marker does not last.
    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    let ours = std::fs::read_to_string(&lab.config).unwrap();
    std::fs::write(&lab.config, ours.replace("balance roundrobin", "balance leastconn")).unwrap();
    let is_ours = async || std::fs::read_to_string(&lab.config).is_ok_and(|now| now == ours);
    lab.until("it is ours again", is_ours).await;
    lab.until("it serves", async || get(port).is_ok() && lab.is_ready()).await;
    lab.until("it is counted", async || changed_by_another(&lab)).await;

    let by_hand = other_configuration(ports::free());
    let beside = lab.dir.path().join("by-hand");
    std::fs::write(&beside, &by_hand).unwrap();
    std::fs::rename(&beside, &lab.config).unwrap();
    lab.ask_master("reload").await;
    says_so(&lab, "late").await;
    lab.until_logged("has no generated part").await;
    assert_eq!(std::fs::read_to_string(&lab.config).unwrap(), by_hand, "it is not ours to replace");
    std::fs::remove_file(&lab.config).unwrap();
    lab.until("it serves again", async || get(port).is_ok() && lab.is_ready()).await;

    std::fs::write(&beside, &by_hand).unwrap();
    lab.stop_haproxy();
    lab.haproxy_arguments = vec!["-f".to_owned(), beside.to_string_lossy().into_owned()];
    lab.start_haproxy().await;
    says_so(&lab, "later").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_mounted_by_itself_is_named() {
    needs_root("a mount of its own");
    let mut lab = Lab::new(1).await;
    lab.add("web", Value::Null).await;
    std::fs::write(&lab.config, "").unwrap();
    let mount = format!("mount --bind {0} {0} && exec \"$@\"", lab.config.display());
    lab.program_by = ["unshare", "--mount", "sh", "-c", &mount, "sh"].map(str::to_owned).to_vec();
    lab.start_program();
    lab.until_logged("it is mounted by itself; mount its directory instead").await;
    assert!(!lab.is_ready());
}
