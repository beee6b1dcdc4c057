//! The settings of a Service take effect. The tests look at connections.

use crate::lab::Lab;
use crate::servers::{answers, get_from, local};
use nodegate_testbed::http::{TIMEOUT, connect_from};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::net::SocketAddr;

fn asks(client: [u8; 4], port: u16) -> bool {
    connect_from(client, local(port), TIMEOUT).is_ok_and(answers)
}

#[test]
fn only_clients_in_the_source_ranges_are_served() {
    let mut lab = Lab::new(2);
    let ranges = json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "127.0.0.0/30", "nonsense"]});
    let port = lab.add("web", &json!({"spec": ranges}));
    let range = json!({"service.beta.kubernetes.io/load-balancer-source-ranges": "127.0.0.1/32,fd00::/8"});
    let older = lab.add("older", &json!({"metadata": {"annotations": range}}));
    lab.start(&[port, older]);
    assert!(asks([127, 0, 0, 3], port) && asks([127, 0, 0, 1], older), "{}", lab.log());
    let before = lab.served.lock().unwrap().clone();
    assert!(!asks([127, 0, 0, 4], port) && !asks([127, 0, 0, 2], older), "{}", lab.log());
    assert_eq!(*lab.served.lock().unwrap(), before);
    lab.until_metric("nodegate_haproxy_problems{kind=\"source-ranges\"}", 1.0);
}

#[test]
fn two_services_have_one_port_on_two_addresses() {
    let port = ports::free();
    let mut lab = Lab::new(1);
    lab.arguments = vec!["--bind=127.0.0.1,127.0.0.2".to_owned()];
    lab.add_at(port, "plain", &json!({}));
    for (name, address) in [("web", "127.0.0.2"), ("nowhere", "127.0.0.3")] {
        lab.add_at(port, name, &json!({"spec": {"loadBalancerIP": address}}));
    }
    lab.start(&[port]);
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    lab.until("the other address answers", || get_from(there).is_ok());
    lab.until_metric("nodegate_haproxy_problems{kind=\"address\"}", 1.0);
}
