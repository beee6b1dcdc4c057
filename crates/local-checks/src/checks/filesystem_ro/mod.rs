//! `filesystem_ro`: no disk of this node has become read-only while in use.

mod ext4;
mod fault;

use self::fault::{FilesystemFault, Finding};
use crate::check::{Check, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::definition::Definition;
use crate::host_root::HostRoot;
use crate::mounts::{Device, Mount, MountTable};
use crate::options::OptionKey;
use crate::paths::Paths;
use crate::timing::Timing;
use nodegate_readiness::{AddressFamilies, Outcome, Reason};
use rustix::fs::fstat;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

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
        let set = context.options.get::<Paths>(PATHS.name()).map(|Paths(paths)| paths);
        let watch = Watch {
            host: context.host.clone(),
            usual: set.is_none(),
            paths: set.unwrap_or_else(|| WATCHED.iter().map(PathBuf::from).collect()),
            writable: Mutex::default(),
        };
        Arc::new(FilesystemRo { watch: Arc::new(watch), thread: DedicatedThread::new("filesystem_ro") })
    },
};

struct FilesystemRo {
    watch: Arc<Watch>,
    thread: DedicatedThread,
}

impl Check for FilesystemRo {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        let watch = Arc::clone(&self.watch);
        Box::pin(async {
            self.thread.run(move || watch.look()).await.unwrap_or_else(|why| Outcome::Fail(why.into()))
        })
    }
}

/// The watched filesystems and their history.
struct Watch {
    host: HostRoot,
    paths: Vec<PathBuf>,
    /// True if the paths are the default ones of a host. Configured paths may be mounted one by one, wherever
    /// the host's root is.
    usual: bool,
    /// For each mount of a filesystem: true if it took writes when it was first seen. A filesystem that no
    /// longer does has been made read-only; one that never did is read-only by design.
    writable: Mutex<HashMap<(u32, Device), bool>>,
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
        if mounts.is_empty() {
            // A pass would be wrong.
            return Outcome::Fail(Reason::new("NothingToWatch").detail(format_args!(
                "no disk under the watched paths; is --host-root={} the host's /?",
                self.host.as_path().display()
            )));
        }
        Reason::join(self.findings(&table, &mounts).iter().map(Finding::reason), "; ").into()
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

    fn findings<'a>(&self, table: &MountTable, mounts: &[Mount<'a>]) -> Vec<Finding<'a>> {
        let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
        // A filesystem that is no longer watched, because another one was mounted over it, is dropped.
        writable
            .retain(|(id, device), _| mounts.iter().any(|mount| (mount.id, mount.device) == (*id, *device)));
        let mut findings = Vec::new();
        for mount in mounts {
            let writes = !mount.is_filesystem_read_only();
            let was_writable = *writable.entry((mount.id, mount.device)).or_insert(writes);
            let fault = FilesystemFault::shown_by(mount, table, was_writable)
                .or_else(|| self.io_fault(&mount.point))
                .or_else(|| ext4::has_stopped_silently(&self.host, mount).then_some(FilesystemFault::Error));
            findings.extend(fault.map(|fault| Finding { fault, mount: mount.clone() }));
        }
        findings
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
