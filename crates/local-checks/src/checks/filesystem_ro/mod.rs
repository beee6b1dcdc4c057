//! `filesystem_ro`: no disk of this node has become read-only while in use.

mod ext4;
mod fault;

use self::fault::FilesystemFault;
use crate::dedicated_thread::DedicatedThread;
use crate::definition::Definition;
use crate::host_root::HostRoot;
use crate::interface::{Check, KnownNode, Run};
use crate::mounts::{Device, Mount, MountTable};
use crate::options::OptionKey;
use crate::paths::Paths;
use crate::timing::Timing;
use nodegate_readiness::{Outcome, Reason};
use rustix::fs::fstat;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The paths that the kubelet, the container runtimes and the usual distributions of Kubernetes write to.
/// Paths on one filesystem count once, and a path that does not exist counts with its parent. Volumes of pods
/// are not included: a pod with a broken volume is no reason to take the node's other pods out of the pool.
const WATCHED: [&str; 13] = [
    "/",
    "/etc",
    "/var",
    "/var/log",
    "/var/lib",
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/etcd",
    "/var/lib/rancher",
    "/var/lib/k0s",
    "/var/snap",
];

const PATHS: OptionKey = OptionKey::new::<Paths>("paths");

pub(crate) const DEFINITION: Definition = Definition {
    name: "filesystem_ro",
    options: &[PATHS],
    timing: Timing::USUAL,
    new: |context| {
        let set = context.options.get::<Paths>(PATHS).map(|Paths(paths)| paths);
        let watch = Watch {
            host: context.host.clone(),
            usual: set.is_none(),
            paths: set.unwrap_or_else(|| WATCHED.iter().map(PathBuf::from).collect()),
            writable: Mutex::default(),
            no_disk: Once::new(),
        };
        Arc::new(FilesystemRo { watch: Arc::new(watch), thread: DedicatedThread::new("filesystem_ro") })
    },
};

struct FilesystemRo {
    watch: Arc<Watch>,
    thread: DedicatedThread,
}

impl Check for FilesystemRo {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        let watch = Arc::clone(&self.watch);
        Box::pin(async { self.thread.run(move || watch.look()).await.unwrap_or_else(Outcome::Fail) })
    }
}

struct Watch {
    host: HostRoot,
    paths: Vec<PathBuf>,
    /// True if the paths are the default ones of a host. Configured paths may be mounted one by one, wherever
    /// the host's root is.
    usual: bool,
    /// For each mount of a filesystem: true if it took writes when it was first seen. A filesystem that no
    /// longer does has been made read-only; one that never did is read-only by design.
    writable: Mutex<HashMap<(u32, Device), bool>>,
    /// Logs once that the host has no disk.
    no_disk: Once,
}

impl Watch {
    fn look(&self) -> Outcome {
        let table = match MountTable::read(&self.host) {
            Ok(table) => table,
            Err(error) => return Outcome::Fail(Reason::new("NoMountTable").detail(error)),
        };
        if self.usual && !table.is_of_host(&self.host) {
            return Outcome::Fail(self.host.not_mounted());
        }
        let mounts = self.watched(&table);
        let has_disk = || table.mounts().any(|mount| mount.is_block_backed());
        if mounts.is_empty() && table.is_of_first_process() && (self.usual || !has_disk()) {
            self.no_disk.call_once(|| {
                tracing::info!(
                    check = "filesystem_ro",
                    "the host has no disk under the watched paths, by its own mount table; the check passes"
                );
            });
            return Outcome::Pass;
        }
        if mounts.is_empty() {
            return Outcome::Fail(Reason::new("NothingToWatch").detail(format_args!(
                "no disk under the watched paths; is --host-root={} the host's /?",
                self.host.as_path().display()
            )));
        }
        Reason::join(self.faults(&table, &mounts), "; ").into()
    }

    /// Returns the block-backed filesystems of the watched paths, each once.
    fn watched<'a>(&self, table: &'a MountTable) -> Vec<Mount<'a>> {
        let mut mounts: Vec<Mount<'a>> = Vec::new();
        for path in &self.paths {
            let real = self.host.locate(path).and_then(|file| self.host.real_path(&file));
            let holder = table.holder(real.as_deref().unwrap_or(path)).filter(Mount::is_block_backed);
            let new = holder.filter(|holder| mounts.iter().all(|mount| mount.device != holder.device));
            mounts.extend(new);
        }
        mounts
    }

    fn faults(&self, table: &MountTable, mounts: &[Mount<'_>]) -> Vec<Reason> {
        let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        // A filesystem that is no longer watched, because another one was mounted over it, is dropped.
        writable
            .retain(|(id, device), _| mounts.iter().any(|mount| (mount.id, mount.device) == (*id, *device)));
        let mut faults = Vec::new();
        for mount in mounts {
            let writes = !mount.is_filesystem_read_only();
            let was_writable = *writable.entry((mount.id, mount.device)).or_insert(writes);
            let fault = FilesystemFault::shown_by(mount, table, was_writable)
                .or_else(|| self.io_fault(&mount.point))
                .or_else(|| ext4::has_stopped_silently(&self.host, mount).then_some(FilesystemFault::Error));
            faults.extend(fault.map(|fault| fault.reason(mount)));
        }
        faults
    }

    /// Returns a fault if `stat` fails with an I/O error. XFS does not show a shutdown in the mount table,
    /// but answers every request with that error. So does a filesystem whose disk is gone, as far as it has
    /// to read from it.
    fn io_fault(&self, point: &Path) -> Option<FilesystemFault> {
        let looked = self.host.locate(point).and_then(|file| Ok(fstat(&file)?));
        let broken = |error: &io::Error| error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
        looked.is_err_and(|error| broken(&error)).then_some(FilesystemFault::Io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Context;
    use crate::options::Options;
    use std::fs;
    use std::time::Duration;

    const NO_DISK: [&str; 5] = [
        "1 0 0:20 / / rw - nfs4 10.0.0.1:/root rw,vers=4.2",
        "1 0 0:2 / / rw - rootfs none rw",
        "1 0 0:20 / / rw - tmpfs tmpfs rw\n2 1 0:21 / /var rw - overlay overlay rw,upperdir=/run/up",
        "1 0 0:20 / / rw - 9p host rw,trans=virtio",
        "1 0 0:20 / / rw - virtiofs root rw",
    ];

    /// Returns the outcome on a host whose first process has this table, or with only the agent's own.
    async fn outcome(table: Option<&str>, paths: Option<&str>) -> Outcome {
        let directory = tempfile::tempdir().unwrap();
        let host = HostRoot::new(directory.path()).unwrap();
        fs::create_dir_all(host.join("/proc/1")).unwrap();
        if let Some(table) = table {
            fs::write(host.join("/proc/1/mountinfo"), format!("{table}\n")).unwrap();
        }
        let mut options = Options::default();
        if let Some(paths) = paths {
            options.set(&[PATHS], PATHS.name(), paths).unwrap();
        }
        let context = Context { host: &host, options: &options, timeout: Duration::from_mins(1) };
        (DEFINITION.new)(&context).run(&KnownNode::default()).await
    }

    #[tokio::test]
    async fn a_host_without_a_disk_passes_if_its_own_table_says_so() {
        for table in NO_DISK {
            assert_eq!(outcome(Some(table), None).await, Outcome::Pass, "{table}");
            assert_eq!(outcome(Some(table), Some("/data")).await, Outcome::Pass, "{table}");
        }
        let elsewhere = format!("{}\n9 1 8:1 / /mnt rw - ext4 /dev/sda1 rw", NO_DISK[0]);
        assert_eq!(outcome(Some(&elsewhere), None).await, Outcome::Pass);
        let code = |outcome: Outcome| outcome.reason().unwrap().code().to_owned();
        assert_eq!(code(outcome(Some(&elsewhere), Some("/data")).await), "NothingToWatch");
        assert_eq!(code(outcome(None, Some("/data")).await), "NothingToWatch");
    }
}
