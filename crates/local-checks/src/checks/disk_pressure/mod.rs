//! `disk_pressure`: the disks of this node have enough free space.

mod free_space;

use self::free_space::{
    FreeSpace, IMAGES, MinimumFree, NODE, RANCHER, Shortage, free_space, parse_limits, shortages,
};
use crate::check::{Check, Context, KnownNode, Run, timeout_reason};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::{HostRoot, is_absence};
use crate::mounts::{Mount, MountTable};
use crate::settings::paths;
use futures::future::join_all;
use nodegate_readiness::{Outcome, Reason};
use rustix::fs::fstatvfs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::time::timeout;

/// The paths of the kubelet, and of all programs without a disk of their own.
const OF_NODE: [&str; 2] = ["/", "/var/lib/kubelet"];

/// The image directories of containerd, CRI-O, Docker, k3s and RKE2, k0s and `MicroK8s`, as deep as all may
/// read.
const OF_IMAGES: [&str; 6] = [
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/rancher",
    "/var/lib/k0s",
    "/var/snap/microk8s",
];

/// The files that tell of a distribution with thresholds of its own: k3s' and RKE2's directories, which an
/// operator may move, and the one that both have on every node.
const DISTRIBUTIONS: [(&str, &str); 3] = [
    ("/var/lib/rancher/k3s/agent", "k3s"),
    ("/var/lib/rancher/rke2/agent", "RKE2"),
    ("/etc/rancher/node", "k3s or RKE2"),
];

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    Arc::new(DiskPressure::new(context))
}

struct DiskPressure {
    host: HostRoot,
    table: DedicatedThread,
    paths: Vec<MeasuredPath>,
    /// True for the default paths of a host. Others may be mounted one by one, wherever the host's root is.
    usual: bool,
    /// Logs once that the check passes because the host runs in memory.
    only_overlays: Once,
    /// The time limit of the filesystems, shorter than that of a run, so that the reason names the one that
    /// hangs.
    time_limit: Duration,
}

struct MeasuredPath {
    path: PathBuf,
    set: Option<MinimumFree>,
    /// The thread of this path alone, so that a filesystem that hangs does not block the others.
    thread: DedicatedThread,
}

/// A path with its free space and the target of its links, or with the reason why it could not be measured.
type Measured<'a> = (&'a MeasuredPath, Result<(FreeSpace, PathBuf), Reason>);

impl Check for DiskPressure {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.look().await.unwrap_or_else(Outcome::Fail) })
    }
}

impl DiskPressure {
    fn new(context: &mut Context<'_>) -> Self {
        let set = context.settings.take("paths", paths);
        let limits = context.settings.take("limits", parse_limits).unwrap_or_default();
        Self {
            host: context.host.clone(),
            table: DedicatedThread::new("disk_pressure"),
            usual: set.is_none(),
            paths: measured_paths(set, &limits),
            only_overlays: Once::new(),
            time_limit: context.timeout * 3 / 4,
        }
    }

    async fn look(&self) -> Result<Outcome, Reason> {
        let (host, usual) = (self.host.clone(), self.usual);
        let read = move || MountTable::of_host(&host, usual).map(|mounts| (mounts, distribution(&host)));
        let (mounts, distribution) = self.table.run(read).await??;
        let seen = join_all(self.paths.iter().map(|path| path.measure(&self.host, self.time_limit)));
        let mut seen: Vec<Measured<'_>> = seen.await.into_iter().flatten().collect();
        let found = seen.len();
        seen.retain(|seen| !is_overlay(&mounts, seen));
        if seen.is_empty() {
            return mounts.without_disk(&self.host, found > 0, "disk_pressure", &self.only_overlays);
        }
        Ok(verdict(&mounts, distribution, &seen))
    }
}

/// Returns the configured or default paths, and those that have a limit of their own, each with that limit.
fn measured_paths(set: Option<Vec<PathBuf>>, limits: &BTreeMap<PathBuf, MinimumFree>) -> Vec<MeasuredPath> {
    let usual = || OF_NODE.iter().chain(&OF_IMAGES).map(PathBuf::from).collect();
    let paths: BTreeSet<_> = set.unwrap_or_else(usual).into_iter().chain(limits.keys().cloned()).collect();
    let measured = |path: PathBuf| {
        let set = limits.get(&path).copied();
        MeasuredPath { path, set, thread: DedicatedThread::new("disk_pressure") }
    };
    paths.into_iter().map(measured).collect()
}

/// Returns the distribution of this host, if it is one that sets limits of its own.
fn distribution(host: &HostRoot) -> Option<&'static str> {
    DISTRIBUTIONS.iter().find(|(path, _)| host.locate(path).is_ok()).map(|(_, name)| *name)
}

/// Measures one path; `None` if it does not exist.
fn measure(host: &HostRoot, path: &Path) -> Result<Option<(FreeSpace, PathBuf)>, Reason> {
    let located = host.locate(path);
    if located.as_ref().is_err_and(is_absence) {
        return Ok(None);
    }
    let measured = located.and_then(|file| {
        let real = host.real_path(&file).unwrap_or_else(|_| path.to_owned());
        Ok((free_space(&fstatvfs(&file)?), real))
    });
    measured.map(Some).map_err(|error| Reason::new(error.to_string()))
}

/// Returns true if the path is on an overlay, a container's own root or that of a live image. Its space is
/// that of another directory.
fn is_overlay(table: &MountTable, (_, found): &Measured<'_>) -> bool {
    let holder = found.as_ref().ok().and_then(|(_, real)| table.holder(real));
    holder.is_some_and(|mount| mount.kind == "overlay")
}

fn verdict(mounts: &MountTable, distribution: Option<&'static str>, seen: &[Measured<'_>]) -> Outcome {
    let mut texts = Vec::new();
    // Of several paths on one filesystem, the one with the highest minimum. The total distinguishes two quotas.
    let mut worst = BTreeMap::<_, (u64, String)>::new();
    for (path, found) in seen {
        let name = path.path.display();
        let (space, real) = match found {
            Ok(found) => found,
            Err(why) => {
                texts.push(format!("{name}: {why}"));
                continue;
            }
        };
        let mount = mounts.holder(real);
        // An operating system image is full from its creation on. `statvfs` reports the flags of the container's mount.
        let is_image = |mount: &Mount<'_>| mount.is_read_only_by_nature() || mount.is_filesystem_read_only();
        if mount.as_ref().is_some_and(is_image) {
            continue;
        }
        let (device, (limits, source)) = (mount.map(|mount| mount.device), path.limits(distribution));
        for Shortage { kind, total, needs, text } in shortages(*space, limits) {
            let known = worst.entry((device, kind, total)).or_default();
            if needs > known.0 {
                *known = (needs, format!("{name}: {text} ({source})"));
            }
        }
    }
    let code = if worst.is_empty() { "NotMeasured" } else { "DiskPressure" };
    texts.extend(worst.into_values().map(|(_, text)| text));
    let reason = (!texts.is_empty()).then(|| Reason::new(code).detail(texts.join("; ")));
    reason.into()
}

impl MeasuredPath {
    /// Measures this path within the limit; `None` if it does not exist.
    async fn measure(&self, host: &HostRoot, limit: Duration) -> Option<Measured<'_>> {
        let (host, path) = (host.clone(), self.path.clone());
        let found = timeout(limit, self.thread.run(move || measure(&host, &path))).await;
        let found = found.map_err(|_| timeout_reason(limit)).flatten().flatten();
        found.transpose().map(|found| (self, found))
    }

    fn limits(&self, distribution: Option<&'static str>) -> (MinimumFree, &'static str) {
        let of_images = OF_IMAGES.iter().any(|images| self.path.starts_with(images));
        match (self.set, distribution) {
            (Some(set), _) => (set, "limits="),
            (None, Some(distribution)) => (RANCHER, distribution),
            (None, None) => (if of_images { IMAGES } else { NODE }, "kubelet's default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::free_space::Minimum;
    use super::*;
    use crate::settings::CheckSettings;

    const TABLE: &str = "\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 / /var/lib ro - xfs /dev/sda2 rw
3 1 7:0 / /usr rw - squashfs /dev/loop0 ro
4 1 0:30 / /os ro - overlay composefs ro
";

    /// Returns the reason for these paths, each with its free bytes and inodes out of a hundred.
    fn reason(distribution: Option<&'static str>, limits: &str, seen: &[(&str, u64, u64)]) -> String {
        let limits = free_space::parse_limits(limits).unwrap_or_default();
        let paths = seen.iter().map(|(path, ..)| PathBuf::from(path)).collect();
        let paths = measured_paths(Some(paths), &limits);
        let seen = seen.iter().zip(&paths).map(|((_, bytes, inodes), path)| {
            (path, Ok(([(*bytes, 100), (*inodes, 100)], path.path.clone())))
        });
        let outcome = verdict(&MountTable::of(TABLE), distribution, &seen.collect::<Vec<_>>());
        outcome.reason().map_or_else(String::new, ToString::to_string)
    }

    #[test]
    fn a_shortage_is_named_with_its_path_limit_and_source() {
        for (distribution, limits, seen, text) in [
            (None, "", &[("/", 10, 5), ("/var/lib/containerd/x", 15, 5)][..], ""),
            (
                None,
                "",
                &[("/", 9, 4), ("/var/lib/kubelet", 9, 5)],
                "DiskPressure: /: 9 % of bytes free, needs 10 % (kubelet's default); \
                 /: 4 % of inodes free, needs 5 % (kubelet's default); \
                 /var/lib/kubelet: 9 % of bytes free, needs 10 % (kubelet's default)",
            ),
            (Some("k3s"), "", &[("/var/lib/rancher", 5, 0)], ""),
            (
                Some("k3s"),
                "",
                &[("/var/lib/rancher", 4, 0)],
                "DiskPressure: /var/lib/rancher: 4 % of bytes free, needs 5 % (k3s)",
            ),
            (Some("k3s"), "/=40/0%", &[("/", 39, 0)], "DiskPressure: /: 39 bytes free, needs 40 (limits=)"),
            // A filesystem is named once, by the path that needs most.
            (
                None,
                "",
                &[("/var/lib/kubelet", 4, 50), ("/var/lib/containerd", 4, 50), ("/var/lib/docker", 4, 50)],
                "DiskPressure: /var/lib/containerd: 4 % of bytes free, needs 15 % (kubelet's default)",
            ),
            // A read-only filesystem is full by design; a read-only mount of a writable one is not.
            (None, "", &[("/usr", 0, 0), ("/os", 0, 0)], ""),
            (
                None,
                "",
                &[("/var/lib/x", 0, 99)],
                "DiskPressure: /var/lib/x: 0 % of bytes free, needs 10 % (kubelet's default)",
            ),
        ] {
            assert_eq!(reason(distribution, limits, seen), text, "{seen:?}");
        }
    }

    #[test]
    fn a_distribution_is_found_by_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let host = HostRoot::new(directory.path()).unwrap();
        assert_eq!(distribution(&host), None);
        for (path, name) in DISTRIBUTIONS.iter().rev() {
            std::fs::create_dir_all(host.join(path)).unwrap();
            assert_eq!(distribution(&host), Some(*name));
        }
    }

    #[test]
    fn limits_replace_what_is_usual_and_add_paths() {
        let limits = free_space::parse_limits("/var/lib/docker=1%/0%:/data=20%").unwrap();
        let all = measured_paths(None, &limits);
        assert_eq!(all.len(), OF_NODE.len() + OF_IMAGES.len() + 1);
        let bytes =
            |path: &str| all.iter().find(|known| known.path == Path::new(path)).unwrap().limits(None).0[0];
        let found = ["/", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker", "/data"].map(bytes);
        assert_eq!(found, [10.0, 10.0, 15.0, 1.0, 20.0].map(Minimum::Percent));
        let only = measured_paths(Some(vec!["/a".into(), "/a".into()]), &BTreeMap::new());
        assert!(only.len() == 1 && only[0].set.is_none());
    }

    fn check(host: &Path, set: &[(&str, &str)]) -> DiskPressure {
        let (host, settings) = (HostRoot::new(host).unwrap(), CheckSettings::of(set));
        DiskPressure::new(&mut Context { host: &host, settings, timeout: Duration::from_mins(1) })
    }

    #[tokio::test]
    async fn missing_paths_are_skipped_unless_all_are() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path();
        std::fs::create_dir_all(host.join("data")).unwrap();
        std::fs::create_dir_all(host.join("proc/1")).unwrap();
        let overlay = "1 0 0:20 / / rw - overlay overlay rw,upperdir=/run/up\n";
        let nothing = "NoDisk";
        for (table, set, code) in [
            (None, &[("paths", "/none:/data/x/y"), ("limits", "/data=0%/0%")][..], None),
            (None, &[("paths", "/none:/data/x/y")], Some(nothing)),
            // The host's own table shows overlays alone.
            (Some(overlay), &[], None),
            (Some(overlay), &[("paths", "/none")], Some(nothing)),
        ] {
            if let Some(table) = table {
                std::fs::write(host.join("proc/1/mountinfo"), table).unwrap();
            }
            let outcome = check(host, set).run(&KnownNode::default()).await;
            assert_eq!(outcome.reason().map(Reason::code), code, "{set:?}");
        }
    }

    #[tokio::test]
    async fn a_path_that_hangs_is_named_and_the_others_are_measured() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("b")).unwrap();
        // No disk has so much space: each measurement finds a shortage.
        let check = check(directory.path(), &[("paths", "/:/b"), ("limits", "/=100%/0%:/b=100%/0%")]);
        let (_release, stuck) = std::sync::mpsc::channel::<()>();
        let hanging = check.paths[0].thread.run(move || stuck.recv());
        let node = KnownNode::default();
        let (_, outcome) = tokio::join!(timeout(Duration::from_secs(1), hanging), check.run(&node));
        let reason = outcome.reason().unwrap().as_str();
        assert!(reason.starts_with("DiskPressure: /: Hung for ") && reason.contains("; /b: "), "{reason}");
    }
}
