//! The cables of the real cluster. Tests cut and mend them.

use super::RealCluster;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A timeout longer than a handshake on loopback takes on a busy machine.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// The listener at the other end of each cable, which tells whether the cable works.
const ENDS: [(&str, &str); 5] = [
    ("etcd-a", "10.10.1.1:2379"),
    ("etcd-b", "10.10.1.2:2379"),
    ("kubelet", "10.10.2.1:6443"),
    ("proxy", "10.10.2.2:6443"),
    ("agent", "10.10.3.2:6443"),
];

/// A cut cable. Drop mends it.
#[must_use = "the cable is mended as soon as this is dropped"]
pub struct CutCable<'a> {
    cluster: &'a RealCluster,
    cable: &'static str,
    /// The time since which every packet has been dropped.
    pub since: Instant,
}

impl RealCluster {
    /// Cuts a cable: every packet is dropped. Checks that connecting is possible before, and impossible after it.
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
    /// Mends the cable, and returns the time of that.
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
