//! `filesystem_ro`: no disk of this node has become read-only while in use.

mod fault;

use self::fault::{FilesystemFault, IO, shown_by, shown_by_counters};
use crate::check::{Check, Context, KnownNode, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::HostRoot;
use crate::mounts::{Mount, MountTable};
use crate::settings::paths;
use nodegate_readiness::{Outcome, Reason};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The paths that the kubelet, the container runtimes and the usual distributions write to. Those on one
/// filesystem count once, and one that does not exist counts with its parent. Volumes of pods are not
/// included.
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

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    let set = context.settings.take("paths", paths);
    let watch = Watch {
        host: context.host.clone(),
        usual: set.is_none(),
        paths: set.unwrap_or_else(|| WATCHED.iter().map(PathBuf::from).collect()),
        writable: Mutex::default(),
        no_disk: Once::new(),
    };
    Arc::new(FilesystemRo { watch: Arc::new(watch), thread: DedicatedThread::new("filesystem_ro") })
}

struct FilesystemRo {
    watch: Arc<Watch>,
    thread: DedicatedThread,
}

impl Check for FilesystemRo {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        let watch = Arc::clone(&self.watch);
        Box::pin(async {
            self.thread.run(move || watch.look()).await.flatten().unwrap_or_else(Outcome::Fail)
        })
    }
}

struct Watch {
    host: HostRoot,
    paths: Vec<PathBuf>,
    /// True for the default paths of a host. Others may be mounted one by one, wherever the host's root is.
    usual: bool,
    /// For each mount: true if it took writes when it was first seen. If it no longer does, it was made
    /// read-only.
    writable: Mutex<HashMap<(u32, String), bool>>,
    /// Logs once that the host has no disk.
    no_disk: Once,
}

impl Watch {
    fn look(&self) -> Result<Outcome, Reason> {
        let table = MountTable::of_host(&self.host, self.usual)?;
        let mounts = self.watched(&table);
        if mounts.is_empty() {
            let passes = self.usual || !table.mounts().any(|mount| mount.is_block_backed());
            return table.without_disk(&self.host, passes, "filesystem_ro", &self.no_disk);
        }
        Ok(Reason::join(self.faults(&table, &mounts), "; ").into())
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
        writable.retain(|(id, device), _| {
            mounts.iter().any(|mount| (mount.id, mount.device) == (*id, device.as_str()))
        });
        let mut faults = Vec::new();
        for mount in mounts {
            let writes = !mount.is_filesystem_read_only();
            let was_writable = *writable.entry((mount.id, mount.device.to_owned())).or_insert(writes);
            let fault = shown_by(mount, table, was_writable)
                .or_else(|| self.io_fault(&mount.point))
                .or_else(|| shown_by_counters(&self.host, mount));
            let (point, source) = (mount.point.display(), mount.source.display());
            let detail = |hint| format!("{point} ({} {source}): {hint}", mount.kind);
            faults.extend(fault.map(|(what, hint)| Reason::new(what).detail(detail(hint))));
        }
        faults
    }

    /// Returns a fault if `stat` fails with an I/O error, as on an XFS that shut down, or where the disk is
    /// gone.
    fn io_fault(&self, point: &Path) -> Option<FilesystemFault> {
        let looked = self.host.locate(point).and_then(|file| Ok(fstat(&file)?));
        let broken = |error: io::Error| Errno::from_io_error(&error) == Some(Errno::IO);
        looked.is_err_and(broken).then_some(IO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CheckSettings, DEFAULT_TIMEOUT};
    use std::fs;

    /// Returns the outcome on a host whose first process has this table, or with only the agent's own.
    async fn outcome(table: Option<&str>, paths: Option<&str>) -> Outcome {
        let directory = tempfile::tempdir().unwrap();
        let host = HostRoot::new(directory.path()).unwrap();
        fs::create_dir_all(host.join("/proc/1")).unwrap();
        if let Some(table) = table {
            fs::write(host.join("/proc/1/mountinfo"), format!("{table}\n")).unwrap();
        }
        let settings = CheckSettings::of(paths.map(|paths| ("paths", paths)).as_slice());
        let mut context = Context { host: &host, settings, timeout: DEFAULT_TIMEOUT };
        new(&mut context).run(&KnownNode::default()).await
    }

    #[tokio::test]
    async fn a_host_without_a_disk_passes_if_its_own_table_says_so() {
        let nfs = "1 0 0:20 / / rw - nfs4 10.0.0.1:/root rw,vers=4.2";
        let in_memory = "1 0 0:20 / / rw - tmpfs tmpfs rw\n2 1 0:21 / /var rw - overlay overlay rw";
        for table in [nfs, in_memory, "1 0 0:20 / / rw - virtiofs root rw"] {
            assert_eq!(outcome(Some(table), None).await, Outcome::Pass, "{table}");
            assert_eq!(outcome(Some(table), Some("/data")).await, Outcome::Pass, "{table}");
        }
        let elsewhere = format!("{nfs}\n9 1 8:1 / /mnt rw - ext4 /dev/sda1 rw");
        assert_eq!(outcome(Some(&elsewhere), None).await, Outcome::Pass);
        let code = |outcome: Outcome| outcome.reason().unwrap().code().to_owned();
        assert_eq!(code(outcome(Some(&elsewhere), Some("/data")).await), "NoDisk");
        assert_eq!(code(outcome(None, Some("/data")).await), "NoDisk");
    }
}
