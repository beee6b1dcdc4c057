//! A long cable between a load balancer and a node, each in a network namespace of its own: every packet takes its time.
//! Needs root. Not every kernel has netem, but all have TUN devices.

use crate::netns::{in_namespace, run};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tun::Tun;

/// The node's address, as the load balancer knows it.
pub const NODE_IP: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const BALANCER_IP: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

/// More than a packet has.
const MTU: usize = 2048;

/// The cable; gone when dropped.
pub struct Cable {
    name: String,
    _relay: Runtime,
}

impl Cable {
    /// A cable on which a packet takes `delay` to the other end.
    pub fn start(delay: Duration) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ngc{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let relay =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let end = |part: &str, address: Ipv4Addr| {
            let namespace = format!("{name}-{part}");
            run(&format!("ip netns add {namespace}"));
            run(&format!("ip -n {namespace} link set lo up"));
            in_namespace(&namespace, || {
                let _context = relay.enter();
                let mask = Ipv4Addr::new(255, 255, 255, 0);
                let tun = Tun::builder().name("eth0").address(address).netmask(mask).up().close_on_exec();
                Arc::new(tun.build().unwrap().remove(0))
            })
        };
        let (balancer, node) = (end("lb", BALANCER_IP), end("node", NODE_IP));
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
                    // An end that has just gone takes nothing.
                    let _ = to.send(&packet).await;
                }
            });
        }
        Self { name, _relay: relay }
    }

    /// Does something on the node.
    pub fn on_node<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        in_namespace(&format!("{}-node", self.name), act)
    }

    /// Does something where the load balancer is.
    pub fn on_balancer<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        in_namespace(&format!("{}-lb", self.name), act)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for part in ["lb", "node"] {
            run(&format!("ip netns del {}-{part}", self.name));
        }
    }
}
