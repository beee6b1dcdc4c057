//! The removal limit counts servers, and lets changes pass that only look like a loss.

use crate::lab::{Lab, node_name};
use crate::servers::Traffic;
use crate::statuses::{a_while, ingress, publishing, writes};
use serde_json::Value;
use std::time::Duration;

fn held(lab: &Lab) -> Option<f64> {
    lab.metric("nodegate_haproxy_problems{kind=\"held\"}")
}

fn config(lab: &Lab) -> String {
    std::fs::read_to_string(&lab.config).unwrap()
}

fn applied(lab: &Lab) -> String {
    std::fs::read_to_string(format!("{}.applied", lab.config.display())).unwrap_or_default()
}

async fn restart(lab: &mut Lab) {
    lab.kill_program().await;
    lab.start_program();
}

/// Each of them alone is within the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_nodes_that_vanish_one_after_the_other_within_a_moment_are_one_removal() {
    let mut lab = Lab::new(10).await;
    lab.publish().await;
    for index in 0..10 {
        assert!(lab.sim.delete("nodes", "", &node_name(index)));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    // On a busy machine, the first half may be one change, and the second half another one.
    lab.until("half of them are kept", async || held(&lab) >= Some(5.0)).await;
    a_while(&lab).await;
    let servers = config(&lab).split_once("backend nodegate_nodes").unwrap().1.matches("  server ").count();
    assert!(servers >= 5, "{}", config(&lab));
}

/// Loses etcd's data and gets it back: the lists have nothing meanwhile, and no watch has reported a deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_keeps_everything() {
    let mut lab = publishing(0, &[]).await;
    let empty = lab.sim.back_up_etcd();
    for index in 0..3 {
        lab.add_node(index);
    }
    let port = lab.publish().await;
    lab.until("it has a status", async || ingress(&lab, "web") != Value::Null).await;
    lab.until("it is remembered", async || applied(&lab).contains("\"web\"")).await;
    let (before, status, full) = (config(&lab), ingress(&lab, "web"), lab.sim.back_up_etcd());
    let traffic = Traffic::start(port);
    let sim = lab.sim.clone();
    let restored = async |etcd| {
        sim.kill().await;
        sim.restore_etcd(etcd);
        sim.restart(true).await.unwrap();
    };
    restored(&empty).await;
    lab.until("everything is kept", async || held(&lab) == Some(4.0)).await;
    restart(&mut lab).await;
    lab.until("everything is kept again", async || held(&lab) == Some(4.0)).await;
    lab.until("it is ready", async || lab.is_ready()).await;
    assert_eq!(config(&lab), before, "{}", lab.log());
    a_while(&lab).await;
    restored(&full).await;
    lab.until("nothing is kept any more", async || held(&lab).is_none()).await;
    a_while(&lab).await;
    assert_eq!((writes(&lab), ingress(&lab, "web")), (1, status), "{}", lab.log());
    traffic.none_lost(&lab);
}
