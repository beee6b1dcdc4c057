//! The power of the real cluster's node: shutdowns with a real systemd-logind, power cuts and boots
//! (`hack/real-node power`).

use super::RealCluster;
use crate::programs::nodegate_shutdown;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// A node with a system bus and logind, whose kubelet has additional settings. Drop boots the node if it is
/// off, and takes bus, logind and settings away.
pub struct Power<'a> {
    cluster: &'a RealCluster,
    /// The kubelet's configuration without the additional settings.
    configuration: String,
    is_off: bool,
}

impl RealCluster {
    /// Starts a system bus and logind, and restarts the kubelet with these lines in its configuration.
    pub fn power(&self, kubelet: &str) -> Power<'_> {
        let configuration = fs::read_to_string(self.kubelet_configuration()).unwrap();
        let power = Power { cluster: self, configuration, is_off: false };
        power.run(&["off"]);
        power.run(&["on"]);
        power.configure(kubelet);
        power.restart_kubelet().unwrap();
        power
    }

    fn power_script(&self, command: &[&str]) -> Result<String, String> {
        self.script(&[&["power"], command].concat())
    }

    fn kubelet_configuration(&self) -> PathBuf {
        self.directory.join("kubelet.yaml")
    }
}

impl Power<'_> {
    #[track_caller]
    fn run(&self, command: &[&str]) -> String {
        let output = self.cluster.power_script(command);
        output.unwrap_or_else(|error| panic!("power {command:?}: {error}"))
    }

    /// Writes the kubelet's configuration with these lines more. The next kubelet reads it.
    fn configure(&self, kubelet: &str) {
        fs::write(self.cluster.kubelet_configuration(), format!("{}{kubelet}\n", self.configuration))
            .unwrap();
    }

    fn restart_kubelet(&self) -> Result<String, String> {
        self.cluster.script(&["end", "kubelet"])?;
        self.cluster.script(&["start", "kubelet"])
    }

    /// Returns the table of the programs that delay a shutdown.
    pub fn inhibitors(&self) -> String {
        self.run(&["inhibitors"])
    }

    /// Starts `nodegate-shutdown` on the node, and returns when it holds its lock.
    pub fn start_nodegate_shutdown(&self) {
        self.run(&["delay", nodegate_shutdown().to_str().unwrap()]);
    }

    /// Asks logind for a reboot. Programs that delay it get the signal, and the node runs on until
    /// [`Power::reached`].
    pub fn reboot(&self) {
        self.run(&["reboot"]);
    }

    /// Returns the time since 1970 at which logind let systemd end everything, once it has.
    pub fn reached(&self) -> Option<Duration> {
        let line = self.run(&["reached"]);
        let (when, target) = line.trim().split_once(' ')?;
        assert_eq!(target, "reboot.target");
        Some(Duration::from_secs_f64(when.parse().unwrap()))
    }

    /// Ends everything that the node runs, as systemd does in a shutdown.
    pub fn end(&mut self) {
        self.is_off = true;
        self.run(&["end"]);
    }

    /// Ends everything that the node runs at once. Nothing answers at its address from now on.
    pub fn cut(&mut self) {
        self.is_off = true;
        self.run(&["cut"]);
    }

    /// Boots the node again.
    pub fn boot(&mut self) {
        self.run(&["boot"]);
        self.is_off = false;
    }
}

/// Returns the time since 1970.
pub fn now() -> Duration {
    UNIX_EPOCH.elapsed().unwrap()
}

impl Drop for Power<'_> {
    fn drop(&mut self) {
        self.configure("");
        let off = self.cluster.power_script(&["off"]);
        // A test that has failed may have left the node off.
        let on = if self.is_off { self.cluster.power_script(&["boot"]) } else { self.restart_kubelet() };
        if let Err(error) = off.and(on) {
            eprintln!("the node is not as it was: {error}");
        }
    }
}
