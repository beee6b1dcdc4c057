//! `disk_pressure`: the disks of this node have enough free space.

mod free_space;

use self::free_space::{
    FreeSpace, IMAGES, MinimumFree, NODE, RANCHER, Shortage, free_space, parse_limits, shortages,
};
use crate::check::{Check, Context, Definition, KnownNode, Run, Timing, timeout_reason};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::HostRoot;
use crate::mounts::MountTable;
use crate::options::{Key, paths};
use futures::future::join_all;
use nodegate_readiness::{Outcome, Reason};
use rustix::fs::fstatvfs;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
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

/// The source of limits that the operator has set.
const SET: &str = "limits=";
/// The source of the kubelet's own limits.
const KUBELET: &str = "kubelet's default";

const PATHS: Key<Vec<PathBuf>> = Key { name: "paths", parse: paths };
const LIMITS: Key<Vec<(PathBuf, MinimumFree)>> =
    Key { name: "limits", parse: |text| parse_limits(text).map_err(str::to_owned) };

pub(crate) const DEFINITION: Definition = Definition {
    name: "disk_pressure",
    options: &[&PATHS, &LIMITS],
    timing: Timing::USUAL,
    new: |context| Arc::new(DiskPressure::new(context)),
};

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
type Measured<'a> = (&'a MeasuredPath, Result<(FreeSpace, PathBuf), String>);

struct Host {
    mounts: MountTable,
    distribution: Option<&'static str>,
}

impl Check for DiskPressure {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.look().await.unwrap_or_else(Outcome::Fail) })
    }
}

impl DiskPressure {
    fn new(context: &Context<'_>) -> Self {
        let limits = context.options.get(&LIMITS).unwrap_or_default();
        let set = context.options.get(&PATHS);
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
        let read = move || {
            MountTable::of_host(&host, usual).map(|mounts| Host { mounts, distribution: distribution(&host) })
        };
        let host = self.table.run(read).await??;
        let seen = join_all(self.paths.iter().map(|path| path.measure(&self.host, self.time_limit)));
        let mut seen: Vec<Measured<'_>> = seen.await.into_iter().flatten().collect();
        let found = seen.len();
        seen.retain(|seen| !is_overlay(&host.mounts, seen));
        if seen.is_empty() && found > 0 && host.mounts.of_first_process {
            // The host itself runs in memory.
            self.only_overlays.call_once(|| {
                tracing::info!(
                    check = "disk_pressure",
                    "the host has its paths on overlays alone, so no disk can fill up; the check passes"
                );
            });
            return Ok(Outcome::Pass);
        }
        if seen.is_empty() {
            // For example, only a container's overlay was found. A pass would be wrong.
            return Err(Reason::new("NothingToMeasure").detail(format_args!(
                "none of the paths is on a disk; is --host-root={} the host's /?",
                self.host
            )));
        }
        Ok(verdict(&host, &seen))
    }
}

/// Returns the configured or default paths, and those that have a limit of their own, each with that limit.
fn measured_paths(set: Option<Vec<PathBuf>>, limits: &[(PathBuf, MinimumFree)]) -> Vec<MeasuredPath> {
    let usual = || OF_NODE.iter().chain(&OF_IMAGES).map(PathBuf::from).collect();
    let mut paths: Vec<PathBuf> = set.unwrap_or_else(usual);
    paths.extend(limits.iter().map(|(path, _)| path.clone()));
    paths.sort();
    paths.dedup();
    let measured = |path: PathBuf| {
        let set = limits.iter().find(|(other, _)| *other == path).map(|(_, limits)| *limits);
        MeasuredPath { path, set, thread: DedicatedThread::new("disk_pressure") }
    };
    paths.into_iter().map(measured).collect()
}

/// Returns the distribution of this host, if it is one that sets limits of its own.
fn distribution(host: &HostRoot) -> Option<&'static str> {
    DISTRIBUTIONS.iter().find(|(path, _)| host.locate(path).is_ok()).map(|(_, name)| *name)
}

/// Measures one path; `None` if it does not exist.
fn measure(host: &HostRoot, path: &Path) -> io::Result<Option<(FreeSpace, PathBuf)>> {
    let file = match host.locate(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        file => file?,
    };
    let real = host.real_path(&file).unwrap_or_else(|_| path.to_owned());
    Ok(Some((free_space(&fstatvfs(&file)?), real)))
}

/// Returns true if the path is on an overlay, a container's own root or that of a live image. Its space is
/// that of another directory.
fn is_overlay(table: &MountTable, (_, found): &Measured<'_>) -> bool {
    let holder = found.as_ref().ok().and_then(|(_, real)| table.holder(real));
    holder.is_some_and(|mount| mount.kind == b"overlay")
}

fn verdict(host: &Host, seen: &[Measured<'_>]) -> Outcome {
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
        let mount = host.mounts.holder(real);
        // An operating system image is full from its creation on. `statvfs` reports the flags of the container's mount.
        if mount
            .as_ref()
            .is_some_and(|mount| mount.is_read_only_by_nature() || mount.is_filesystem_read_only())
        {
            continue;
        }
        let (device, (limits, source)) = (mount.map(|mount| mount.device), path.limits(host.distribution));
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
        let found = match timeout(limit, self.thread.run(move || measure(&host, &path))).await {
            Ok(Ok(found)) => found.map_err(|error| error.to_string()),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err(timeout_reason(limit).to_string()),
        };
        found.transpose().map(|found| (self, found))
    }

    fn limits(&self, distribution: Option<&'static str>) -> (MinimumFree, &'static str) {
        let of_images = OF_IMAGES.iter().any(|images| self.path.starts_with(images));
        match (self.set, distribution) {
            (Some(set), _) => (set, SET),
            (None, Some(distribution)) => (RANCHER, distribution),
            (None, None) => (if of_images { IMAGES } else { NODE }, KUBELET),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::free_space::Minimum;
    use super::*;
    use crate::options::{AnyKey, Options};

    const TABLE: &str = "\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 / /var/lib ro - xfs /dev/sda2 rw
3 1 7:0 / /usr rw - squashfs /dev/loop0 ro
4 1 0:30 / /os ro - overlay composefs ro
";

    /// Returns the reasons for these paths, each with its free bytes and inodes out of a hundred.
    fn reasons_on(
        distribution: Option<&'static str>,
        limits: &str,
        seen: &[(&str, u64, u64)],
    ) -> Option<String> {
        let limits = free_space::parse_limits(limits).unwrap_or_default();
        let paths = seen.iter().map(|(path, ..)| PathBuf::from(path)).collect();
        let paths = measured_paths(Some(paths), &limits);
        let seen = seen.iter().zip(&paths).map(|((_, bytes, inodes), path)| {
            (path, Ok(([(*bytes, 100), (*inodes, 100)], path.path.clone())))
        });
        let host = Host { mounts: MountTable::of(TABLE), distribution };
        match verdict(&host, &seen.collect::<Vec<_>>()) {
            Outcome::Fail(reason) => Some(reason.to_string()),
            _ => None,
        }
    }

    fn reasons(seen: &[(&str, u64, u64)]) -> Option<String> {
        reasons_on(None, "", seen)
    }

    #[test]
    fn each_path_needs_what_the_kubelet_would_evict_below() {
        assert_eq!(reasons(&[("/", 10, 5), ("/var/lib/containerd/x", 15, 5)]), None);
        assert_eq!(
            reasons(&[("/", 9, 4), ("/var/lib/kubelet", 9, 5)]).unwrap(),
            "DiskPressure: /: 9 % of bytes free, needs 10 % (kubelet's default); \
             /: 4 % of inodes free, needs 5 % (kubelet's default); \
             /var/lib/kubelet: 9 % of bytes free, needs 10 % (kubelet's default)"
        );
    }

    #[test]
    fn k3s_and_rke2_need_what_they_set_and_limits_come_before_that() {
        let k3s = |limits, path, bytes| reasons_on(Some("k3s"), limits, &[(path, bytes, 0)]);
        assert_eq!(k3s("", "/var/lib/rancher", 5), None);
        assert_eq!(
            k3s("", "/var/lib/rancher", 4).unwrap(),
            "DiskPressure: /var/lib/rancher: 4 % of bytes free, needs 5 % (k3s)"
        );
        assert_eq!(k3s("/=40/0%", "/", 39).unwrap(), "DiskPressure: /: 39 bytes free, needs 40 (limits=)");
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
    fn a_filesystem_is_named_once_by_the_path_that_needs_most() {
        let full = [("/var/lib/kubelet", 4, 50), ("/var/lib/containerd", 4, 50), ("/var/lib/docker", 4, 50)];
        assert_eq!(
            reasons(&full).unwrap(),
            "DiskPressure: /var/lib/containerd: 4 % of bytes free, needs 15 % (kubelet's default)"
        );
    }

    #[test]
    fn a_read_only_filesystem_is_full_by_design() {
        assert_eq!(reasons(&[("/usr", 0, 0), ("/os", 0, 0)]), None);
        assert!(reasons(&[("/var/lib/x", 0, 99)]).is_some(), "a read-only mount of a writable filesystem");
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
        let only = measured_paths(Some(vec!["/a".into(), "/a".into()]), &[]);
        assert!(only.len() == 1 && only[0].set.is_none());
    }

    fn check(host: &Path, set: &[(&dyn AnyKey, &str)]) -> DiskPressure {
        let mut options = Options::default();
        for (key, value) in set {
            options.set(&[*key], key.name(), value).unwrap();
        }
        let host = HostRoot::new(host).unwrap();
        let timeout = Duration::from_mins(1);
        DiskPressure::new(&Context { host: &host, options: &options, timeout })
    }

    #[tokio::test]
    async fn missing_paths_are_skipped_unless_all_are() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path();
        std::fs::create_dir(host.join("data")).unwrap();
        let set: [(&dyn AnyKey, &str); 2] = [(&PATHS, "/none:/data/x/y"), (&LIMITS, "/data=0%/0%")];
        assert_eq!(check(host, &set).run(&KnownNode::default()).await, Outcome::Pass);
        let Outcome::Fail(reason) = check(host, &set[..1]).run(&KnownNode::default()).await else {
            panic!("nothing was there")
        };
        assert!(reason.as_str().starts_with("NothingToMeasure: none of the paths is on a disk"), "{reason}");
    }

    #[tokio::test]
    async fn a_host_whose_own_table_shows_overlays_alone_passes() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path();
        std::fs::create_dir_all(host.join("proc/1")).unwrap();
        let run = async || check(host, &[]).run(&KnownNode::default()).await;
        let table = host.join("proc/1/mountinfo");
        std::fs::write(&table, "1 0 0:20 / / rw - overlay overlay rw,upperdir=/run/up\n").unwrap();
        assert_eq!(run().await, Outcome::Pass);
        std::fs::write(&table, "1 0 0:20 / / rw - overlay overlay rw\n2 1 0:21 / /var rw - tmpfs none rw\n")
            .unwrap();
        assert_eq!(
            check(host, &[(&PATHS, "/none")]).run(&KnownNode::default()).await.reason().unwrap().code(),
            "NothingToMeasure"
        );
    }

    #[tokio::test]
    async fn a_path_that_hangs_is_named_and_the_others_are_measured() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("b")).unwrap();
        // No disk has so much space: each measurement finds a shortage.
        let check = check(directory.path(), &[(&PATHS, "/:/b"), (&LIMITS, "/=100%/0%:/b=100%/0%")]);
        for (number, path) in ["/", "/b"].into_iter().enumerate() {
            let (release, stuck) = std::sync::mpsc::channel::<()>();
            let (enter, mut entered) = tokio::sync::mpsc::channel(1);
            let call = check.paths[number].thread.run(move || {
                enter.blocking_send(()).unwrap();
                stuck.recv()
            });
            tokio::select! {
                _ = call => panic!("it can't come back yet"),
                began = entered.recv() => began.unwrap(),
            }
            let Outcome::Fail(reason) = check.run(&KnownNode::default()).await else { panic!("it hangs") };
            let other = if number == 0 { "/b" } else { "/" };
            assert!(reason.as_str().starts_with(&format!("DiskPressure: {path}: Hung for ")), "{reason}");
            assert!(reason.as_str().contains(&format!("; {other}: ")), "{reason}");
            drop(release);
            while check.paths[number].thread.run(|| ()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
