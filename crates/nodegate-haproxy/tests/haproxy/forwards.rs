//! Forwards: ports of the nodes themselves, without a Service.

use crate::Row;
use crate::lab::{Lab, get, node_address, node_name};
use crate::servers::{Asked, serve_paths};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn a_forward_leads_to_the_chosen_nodes_and_asks_for_the_named_checks() -> Row {
    let (router, plain) = (ports::free(), ports::free());
    let mut lab = Lab::new(3).await;
    let asked: Asked = Arc::default();
    lab.check_port = serve_paths(asked.clone()).await;
    lab.sim.label(&node_name(1), "role", Some("infra"));
    let forwards =
        format!("router={router}:{0}@role=infra?node_ready,okd_router_1936;plain={plain}:{0}", lab.node_port);
    lab.arguments = vec![format!("--forward={forwards}")];
    // A Service can't have a Forward's port.
    lab.sim.apply(lab.service("thief", plain, &json!({}))).unwrap();
    lab.start(&[router, plain]).await;
    assert_eq!((lab.reached(router), lab.reached(plain)), (vec![1], vec![0, 1, 2]));
    let path = "/health?check=node_ready,okd_router_1936&drain=404".to_owned();
    lab.until("the named checks are asked for", async || {
        asked.lock().unwrap().contains_key(&(node_address(1), path.clone()))
    })
    .await;
    assert!(
        !asked.lock().unwrap().contains_key(&(node_address(0), path.clone())),
        "of the chosen nodes alone"
    );
    lab.until_metric("nodegate_haproxy_problems{kind=\"conflict\"}", 1.0).await;
    lab.drain("nodegate_forward_plain", 0).await;
    assert_eq!(lab.reached(plain), [1, 2]);
    assert!(lab.explain().contains("forward router"), "{}", lab.explain());
    assert!(get(router).is_ok());
    Row {
        what: "--forward",
        result: "the chosen nodes, with the named checks; a cordon is obeyed".to_owned(),
    }
}
