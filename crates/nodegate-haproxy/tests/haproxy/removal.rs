//! The removal limit counts servers, and lets changes pass that only look like a loss.

use crate::Row;
use crate::lab::{Lab, node, node_name};
use crate::statuses::{a_while, ingress, publishing, writes};
use crate::traffic::Traffic;
use serde_json::{Value, json};

fn held(lab: &Lab, kind: &str) -> Option<f64> {
    lab.metric(&format!("nodegate_haproxy_held{{kind=\"{kind}\"}}"))
}

fn config(lab: &Lab) -> String {
    std::fs::read_to_string(&lab.config).unwrap()
}

fn known(lab: &Lab) -> String {
    std::fs::read_to_string(format!("{}.known", lab.config.display())).unwrap_or_default()
}

async fn restart(lab: &mut Lab) {
    lab.kill_program().await;
    lab.start_program();
}

pub(crate) async fn nodes_without_addresses_keep_the_last_ones() -> Row {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let before = config(&lab);
    let traffic = Traffic::start(port);
    for index in 0..3 {
        let mut bare = node(index);
        bare["status"]["addresses"] = json!([{"type": "Hostname", "address": node_name(index)}]);
        lab.sim.apply(bare).unwrap();
    }
    lab.until("the addresses are kept", async || held(&lab, "nodes") == Some(3.0)).await;
    // The same is true after a restart.
    lab.until("they are in a file", async || known(&lab).contains("127.1")).await;
    restart(&mut lab).await;
    lab.until("the addresses are kept again", async || lab.is_ready() && held(&lab, "nodes") == Some(3.0))
        .await;
    let seen = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > seen + 20).await;
    assert_eq!(config(&lab), before, "{}", lab.log());
    lab.until_logged("has vanished at once; keeping it").await;
    lab.until_logged("node-001").await;
    for index in 0..3 {
        lab.add_node(index);
    }
    lab.until("nothing is kept any more", async || held(&lab, "nodes") == Some(0.0)).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("3 addresses kept, over a restart, too; {good} requests, 0 lost");
    Row { what: "all Nodes lose their addresses for a moment", result }
}

/// Loses etcd's data and gets it back: the lists have nothing meanwhile, and no watch has reported a deletion.
pub(crate) async fn an_empty_list_keeps_everything() -> Row {
    let mut lab = publishing(0, &[]).await;
    let empty = lab.sim.back_up_etcd();
    for index in 0..3 {
        lab.add_node(index);
    }
    let port = lab.publish().await;
    lab.until("it has a status", async || ingress(&lab, "web") != Value::Null).await;
    lab.until("it is remembered", async || known(&lab).contains("\"web\"")).await;
    let (before, status, full) = (config(&lab), ingress(&lab, "web"), lab.sim.back_up_etcd());
    let traffic = Traffic::start(port);
    let sim = lab.sim.clone();
    let restored = async |etcd| {
        sim.kill().await;
        sim.restore_etcd(etcd);
        sim.restart(true).await.unwrap();
    };
    restored(&empty).await;
    lab.until("everything is kept", async || held(&lab, "nodes") == Some(3.0)).await;
    restart(&mut lab).await;
    lab.until("everything is kept again", async || held(&lab, "nodes") == Some(3.0)).await;
    lab.until("it is ready", async || lab.is_ready()).await;
    assert_eq!((held(&lab, "services"), config(&lab)), (Some(1.0), before), "{}", lab.log());
    lab.until_metric("nodegate_haproxy_lease_held", 1.0).await;
    a_while(&lab).await;
    restored(&full).await;
    lab.until("nothing is kept any more", async || held(&lab, "services") == Some(0.0)).await;
    lab.until_metric("nodegate_haproxy_lease_held", 1.0).await;
    a_while(&lab).await;
    assert_eq!((writes(&lab), ingress(&lab, "web")), (1, status), "{}", lab.log());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    Row {
        what: "a list that is suddenly empty",
        result: format!("everything is kept, also the Service's status; {good} requests, 0 lost"),
    }
}
