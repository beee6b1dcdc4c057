//! A long cable between a load balancer and a node, each in its own network namespace. Every packet takes a
//! set time. Needs root. The cable uses TUN devices: all kernels have them, but not all have netem.

use crate::network::namespaces::Namespace;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tun::Tun;

/// The node's address for the load balancer.
pub const NODE_IP: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const BALANCER_IP: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// A buffer size larger than any packet.
const MTU: usize = 2048;

/// The cable. Drop removes it.
pub struct Cable {
    pub balancer: Namespace,
    pub node: Namespace,
    _relay: Runtime,
}

impl Cable {
    /// Returns a cable on which a packet takes `delay` to the other end.
    pub fn start(delay: Duration) -> Self {
        let relay =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (balancer_side, node_side) = (Namespace::new("balancer"), Namespace::new("node"));
        let end = |namespace: &Namespace, address: Ipv4Addr| {
            namespace.act(|| {
                let _context = relay.enter();
                let mask = Ipv4Addr::new(255, 255, 255, 0);
                let tun = Tun::builder().name("eth0").address(address).netmask(mask).up().close_on_exec();
                Arc::new(tun.build().unwrap().remove(0))
            })
        };
        let (balancer, node) = (end(&balancer_side, BALANCER_IP), end(&node_side, NODE_IP));
        for (from, to) in [(balancer.clone(), node.clone()), (node, balancer)] {
            let (enter, mut leave) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
            relay.spawn(async move {
                let mut packet = [0; MTU];
                while let Ok(size) = from.recv(&mut packet).await {
                    let _ = enter.send((Instant::now() + delay, packet[..size].to_vec()));
                }
            });
            relay.spawn(async move {
                while let Some((due, packet)) = leave.recv().await {
                    sleep_until(due).await;
                    // A closed end takes no packets.
                    let _ = to.send(&packet).await;
                }
            });
        }
        Self { balancer: balancer_side, node: node_side, _relay: relay }
    }
}
