//! What HAProxy's master may bind, by the kernel's word. A reload that fails over a port pauses all listeners for two seconds.

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// A master that does not take a connection for this long is frozen.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first port that takes no privilege where nothing else is set.
const DEFAULT_START: u16 = 1024;
/// Where the kernel has that setting.
const START: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

/// What keeps HAProxy from low ports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rights {
    /// HAProxy is known to lack the privilege.
    lacks_low_ports: bool,
    /// The first port that takes no privilege, if it can be read.
    start: Option<u16>,
}

impl Rights {
    /// Asks the kernel for the rights of the process that listens on this master socket: a reload keeps them. One that can't
    /// be asked for is taken to have all rights.
    pub(crate) async fn of(socket: &Path) -> Self {
        Self { lacks_low_ports: lacks_low_ports(socket).await == Some(true), start: start() }
    }

    /// Returns true if HAProxy may not bind this port. `denied`: we may not, either.
    pub(crate) fn forbid(self, port: u16, denied: bool) -> bool {
        let start = self.start.unwrap_or(if denied { DEFAULT_START } else { 0 });
        self.lacks_low_ports && port < start
    }
}

/// Returns true if the listening process lacks the capability; none if that is not known, as of one in a container.
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
            // A Pod, where no port takes one.
            (rights(true, Some(0)), 80, false, false),
            // A unit that hides the setting: what we may bind without a privilege takes none.
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
