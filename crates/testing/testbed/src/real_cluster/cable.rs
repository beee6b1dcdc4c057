//! The cables of the real cluster, cut and mended.

use super::RealCluster;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longer than a handshake on loopback takes on a busy machine.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// Where the listener at the other end of a cable is asked whether it answers.
const ENDS: [(&str, &str); 5] = [
    ("etcd-a", "10.10.1.1:2379"),
    ("etcd-b", "10.10.1.2:2379"),
    ("kubelet", "10.10.2.1:6443"),
    ("proxy", "10.10.2.2:6443"),
    ("agent", "10.10.3.2:6443"),
];

/// A cable that is cut; mended when dropped.
#[must_use = "the cable is mended as soon as this is dropped"]
pub struct CutCable<'a> {
    cluster: &'a RealCluster,
    cable: &'static str,
    /// When every packet was dropped at the latest.
    pub since: Instant,
}

impl RealCluster {
    /// Cuts a cable: every packet on it is dropped, and nothing is refused. Verifies that a connection could be made before,
    /// and none can be made afterwards.
    #[track_caller]
    pub fn cut(&self, cable: &'static str) -> CutCable<'_> {
        let (_, end) = ENDS.iter().find(|(name, _)| *name == cable).expect("a cable of this name");
        let end: SocketAddr = end.parse().unwrap();
        let before = TcpStream::connect_timeout(&end, HANDSHAKE);
        assert!(
            before.is_ok(),
            "nothing answers at {end}, so the cable {cable} can't be shown to be cut: {before:?}"
        );
        self.node_script(&["cut", cable]);
        let since = Instant::now();
        let cut = CutCable { cluster: self, cable, since };
        let after = TcpStream::connect_timeout(&end, HANDSHAKE).map(drop).map_err(|error| error.kind());
        assert_eq!(after, Err(ErrorKind::TimedOut), "the cable {cable} is cut, and yet {end} answers");
        cut
    }
}

impl CutCable<'_> {
    /// Mends it; returns when that was done.
    pub fn mend(self) -> Instant {
        drop(self);
        Instant::now()
    }
}

impl Drop for CutCable<'_> {
    fn drop(&mut self) {
        self.cluster.node_script(&["mend", self.cable]);
    }
}
