//! Forwards: ports of the nodes themselves, without a Service.

use crate::lab::{Lab, get, node_address, node_name};
use crate::servers::serve_requests;
use nodegate_testbed::network::ports;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_leads_to_the_chosen_nodes_and_asks_for_the_named_checks() {
    let (router, plain) = (ports::free(), ports::free());
    let mut lab = Lab::new(3).await;
    let asked = Arc::<Mutex<BTreeSet<_>>>::default();
    let seen = asked.clone();
    lab.check_port = serve_requests(move |at, request| {
        seen.lock().unwrap().insert((at, request.split(' ').nth(1).unwrap_or_default().to_owned()));
        "200 OK"
    })
    .await;
    lab.sim.label(&node_name(1), "role", Some("infra"));
    let forwards =
        format!("router={router}:{0}@role=infra?node_ready,okd_router_1936;plain={plain}:{0}", lab.node_port);
    lab.arguments = vec![format!("--forward={forwards}")];
    // A Service can't have a Forward's port.
    lab.sim.apply(lab.service("thief", plain, &json!({}))).unwrap();
    lab.start(&[router, plain]).await;
    assert_eq!((lab.reached(router), lab.reached(plain)), (vec![1], vec![0, 1, 2]));
    let path = "/health?check=node_ready,okd_router_1936&drain=404".to_owned();
    let is_asked = |node| asked.lock().unwrap().contains(&(node_address(node), path.clone()));
    lab.until("the named checks are asked for", async || is_asked(1)).await;
    assert!(!is_asked(0), "of the chosen nodes alone");
    lab.until_metric("nodegate_haproxy_problems{kind=\"conflict\"}", 1.0).await;
    lab.drain("nodegate_forward_plain", 0).await;
    assert_eq!(lab.reached(plain), [1, 2]);
    assert!(lab.explain().contains("forward router"), "{}", lab.explain());
    assert!(get(router).is_ok());
}
