//! The ports that HAProxy's master may bind, according to the kernel. A reload that fails because of a port
//! pauses all listeners for two seconds.

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// The timeout for a connection to the master. A master that takes longer counts as frozen.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first port that needs no privilege, if nothing else is set.
const DEFAULT_START: u16 = 1024;
/// The file with the kernel's setting for that port.
const START: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// The limits on the ports that HAProxy may bind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rights {
    /// True if HAProxy is known to lack the privilege.
    lacks_low_ports: bool,
    /// The first port that needs no privilege, if it can be read.
    start: Option<u16>,
}

impl Rights {
    /// Asks the kernel for the rights of the process that listens on this master socket; a reload keeps them.
    /// A process that the kernel does not identify counts as having all rights.
    pub(crate) async fn of(socket: &Path) -> Self {
        Self { lacks_low_ports: lacks_low_ports(socket).await == Some(true), start: start() }
    }

    /// Returns true if HAProxy may not bind this port. `denied` is true if nodegate-haproxy may not bind it
    /// either.
    pub(crate) fn forbid(self, port: u16, denied: bool) -> bool {
        let start = self.start.unwrap_or(if denied { DEFAULT_START } else { 0 });
        self.lacks_low_ports && port < start
    }
}

/// Returns true if the listening process lacks the capability. Returns `None` if that is unknown, as for a
/// process in a container.
async fn lacks_low_ports(socket: &Path) -> Option<bool> {
    let connected = tokio::time::timeout(PATIENCE, UnixStream::connect(socket)).await;
    let peer = connected.ok()?.ok()?.peer_cred().ok()?;
    let sets = capabilities(Some(Pid::from_raw(peer.pid()?)?)).ok()?;
    Some(!sets.permitted.contains(CapabilitySet::NET_BIND_SERVICE))
}

fn start() -> Option<u16> {
    std::fs::read_to_string(START).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    #[test]
    fn only_ports_that_take_a_privilege_are_forbidden() {
        let rights = |lacks_low_ports, start| Rights { lacks_low_ports, start };
        for (rights, port, denied, forbidden) in [
            (rights(true, Some(1024)), 1023, false, true),
            (rights(true, Some(1024)), 1024, true, false),
            (rights(false, Some(1024)), 80, true, false),
            // A Pod, in which no port needs a privilege.
            (rights(true, Some(0)), 80, false, false),
            // A unit that hides the setting. A port that nodegate-haproxy can bind without a privilege needs
            // none.
            (rights(true, None), 80, false, false),
            (rights(true, None), 80, true, true),
            (rights(true, None), 8080, true, false),
        ] {
            assert_eq!(rights.forbid(port, denied), forbidden, "{rights:?} {port} {denied}");
        }
    }

    #[tokio::test]
    async fn the_kernel_knows_the_rights_of_who_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(lacks_low_ports(&path).await, None);
        let _listener = UnixListener::bind(&path).unwrap();
        let own = capabilities(None).unwrap().permitted.contains(CapabilitySet::NET_BIND_SERVICE);
        assert_eq!(lacks_low_ports(&path).await, Some(!own));
    }
}
