//! `disk_pressure`: the disks of this node have enough free space.

mod room;
mod settings;

use self::room::{FreeSpace, IMAGES, MinimumFree, NODE, Shortage};
use self::settings::LimitSettings;
use crate::check::{Check, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::definition::{Context, Definition};
use crate::host_root::HostRoot;
use crate::mounts::{Device, Mount, MountTable};
use crate::options::OptionKey;
use crate::paths::Paths;
use crate::timing::{Timing, timeout_reason};
use futures::future::join_all;
use nodegate_readiness::{AddressFamilies, Outcome, Reason};
use rustix::fs::fstatvfs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The paths of the kubelet, and of all programs without a disk of their own.
const OF_NODE: [&str; 2] = ["/", "/var/lib/kubelet"];

/// The image directories of containerd, CRI-O, Docker, k3s and RKE2, k0s and `MicroK8s`. Deeper directories
/// are not readable for every user.
const OF_IMAGES: [&str; 6] = [
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/rancher",
    "/var/lib/k0s",
    "/var/snap/microk8s",
];

const PATHS: OptionKey = OptionKey::new::<Paths>("paths");
const LIMITS: OptionKey = OptionKey::new::<LimitSettings>("limits");

pub(crate) const DEFINITION: Definition = Definition {
    name: "disk_pressure",
    options: &[PATHS, LIMITS],
    timing: Timing::USUAL,
    new: |context| Arc::new(DiskPressure::new(context)),
};

struct DiskPressure {
    host: HostRoot,
    table: DedicatedThread,
    places: Vec<Place>,
    /// True if the places are the default ones of a host. Configured paths may be mounted one by one,
    /// wherever the host's root is.
    usual: bool,
    /// The time within which the filesystems must answer. It is shorter than the timeout of a run, so that
    /// the reason can name the one that did not.
    patience: Duration,
}

/// A measured path.
struct Place {
    path: PathBuf,
    limits: MinimumFree,
    /// The thread of this path alone, so that a filesystem that hangs does not block the others.
    thread: DedicatedThread,
    /// The target of its links in the last run: links to a filesystem that hangs can't be resolved any more.
    real: Arc<Mutex<PathBuf>>,
}

/// The result for one place.
enum Seen<'a> {
    Room(&'a Place, FreeSpace),
    Trouble(&'a Place, String),
}

/// A shortage and its place.
struct Finding<'a> {
    path: &'a Path,
    device: Option<Device>,
    shortage: Shortage,
}

impl Check for DiskPressure {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        Box::pin(self.look())
    }
}

// === impl DiskPressure ===

impl DiskPressure {
    fn new(context: &Context<'_>) -> Self {
        let LimitSettings(limits) = context.options.get(LIMITS.name()).unwrap_or_default();
        let paths = context.options.get(PATHS.name()).map(|Paths(paths)| paths);
        Self {
            host: context.host.clone(),
            table: DedicatedThread::new("disk_pressure"),
            usual: paths.is_none(),
            places: places(paths, &limits).map(|(path, limits)| Place::new(path, limits)).collect(),
            patience: context.timeout * 3 / 4,
        }
    }

    async fn look(&self) -> Outcome {
        let deadline = Instant::now() + self.patience;
        let host = self.host.clone();
        let usual = self.usual;
        let read = move || {
            let table = MountTable::read(&host)?;
            let is_of_host = !usual || table.is_of_host(&host);
            io::Result::Ok(is_of_host.then_some(table))
        };
        let table = match self.table.run(read).await {
            Ok(Ok(Some(table))) => table,
            Ok(Ok(None)) => return Outcome::Fail(self.host.not_mounted()),
            Ok(Err(error)) => return Outcome::Fail(Reason::new("NoMountTable").detail(error)),
            Err(why) => return Outcome::Fail(why.into()),
        };
        let seen = join_all(self.by_filesystem(&table).into_iter().map(|places| self.ask(places, deadline)));
        let mut seen: Vec<Seen<'_>> = seen.await.into_iter().flatten().collect();
        seen.retain(|seen| !is_overlay(&table, seen));
        if seen.is_empty() {
            // For example, only an overlay was found. A pass would be wrong.
            return Outcome::Fail(Reason::new("NothingToMeasure").detail(format_args!(
                "none of the paths is on a disk; is --host-root={} the host's /?",
                self.host.as_path().display()
            )));
        }
        verdict(&table, &seen)
    }

    /// Returns the places grouped by filesystem. A link that has never been resolved counts with the
    /// filesystem that contains it.
    fn by_filesystem(&self, table: &MountTable) -> Vec<Vec<&Place>> {
        let mut groups: Vec<(Option<Device>, Vec<&Place>)> = Vec::new();
        for place in &self.places {
            let device = table.holder(&place.real()).map(|mount| mount.device);
            match groups.iter_mut().find(|(of, _)| *of == device) {
                Some((_, group)) => group.push(place),
                None => groups.push((device, vec![place])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Measures one place after the other, and stops after one without an answer, because the next would hang
    /// as well. For the same reason, a place that hangs since an earlier run comes first.
    async fn ask<'a>(&'a self, mut places: Vec<&'a Place>, deadline: Instant) -> Vec<Seen<'a>> {
        places.sort_by_key(|place| !place.thread.is_busy());
        let mut seen = Vec::new();
        for place in places {
            let (host, path, real) = (self.host.clone(), place.path.clone(), Arc::clone(&place.real));
            let call = place.thread.run(move || measure(&host, &path, &real));
            let trouble = match timeout_at(deadline, call).await {
                Ok(Ok(Ok(Some(room)))) => {
                    seen.push(Seen::Room(place, room));
                    continue;
                }
                Ok(Ok(Ok(None))) => continue,
                Ok(Ok(Err(error))) => {
                    seen.push(Seen::Trouble(place, error.to_string()));
                    continue;
                }
                Ok(Err(why)) => Reason::from(why).to_string(),
                Err(_) => timeout_reason(self.patience).to_string(),
            };
            seen.push(Seen::Trouble(place, trouble));
            break;
        }
        seen
    }
}

/// Returns the paths with their minimum free space: the configured or default paths, and those that have a
/// limit of their own.
fn places(
    set: Option<Vec<PathBuf>>,
    limits: &[(PathBuf, MinimumFree)],
) -> impl Iterator<Item = (PathBuf, MinimumFree)> {
    let usual = || OF_NODE.iter().chain(&OF_IMAGES).map(PathBuf::from).collect();
    let mut paths: Vec<PathBuf> = set.unwrap_or_else(usual);
    paths.extend(limits.iter().map(|(path, _)| path.clone()));
    let mut known: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !known.contains(&path) {
            known.push(path);
        }
    }
    let of_images = |path: &Path| OF_IMAGES.iter().any(|images| path.starts_with(images));
    known.into_iter().map(move |path| {
        let own = limits.iter().find(|(other, _)| *other == path).map(|(_, limits)| *limits);
        let needs = own.unwrap_or(if of_images(&path) { IMAGES } else { NODE });
        (path, needs)
    })
}

/// Measures one path; `None` if it does not exist.
fn measure(host: &HostRoot, path: &Path, real: &Mutex<PathBuf>) -> io::Result<Option<FreeSpace>> {
    let file = match host.locate(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        file => file?,
    };
    let led_to = host.real_path(&file).unwrap_or_else(|_| path.to_owned());
    *real.lock().unwrap_or_else(PoisonError::into_inner) = led_to;
    Ok(Some(fstatvfs(&file)?.into()))
}

/// Returns true if the place is on an overlay, whose space is that of another directory. It is a container's
/// own root, or that of a live image; the host's disks are mounted below it.
fn is_overlay(table: &MountTable, seen: &Seen<'_>) -> bool {
    let Seen::Room(place, _) = seen else { return false };
    table.holder(&place.real()).is_some_and(|mount| mount.kind == b"overlay")
}

fn verdict(table: &MountTable, seen: &[Seen<'_>]) -> Outcome {
    let mut findings: Vec<Finding<'_>> = Vec::new();
    let mut texts = Vec::new();
    for seen in seen {
        match seen {
            Seen::Trouble(place, why) => texts.push(format!("{}: {why}", place.path.display())),
            Seen::Room(place, room) => {
                let mount = table.holder(&place.real());
                if mount.as_ref().is_some_and(takes_no_writes) {
                    continue;
                }
                let device = mount.map(|mount| mount.device);
                for shortage in room.shortages(place.limits) {
                    add(&mut findings, Finding { path: &place.path, device, shortage });
                }
            }
        }
    }
    let code = if findings.is_empty() { "NotMeasured" } else { "DiskPressure" };
    texts.extend(findings.iter().map(|found| format!("{}: {}", found.path.display(), found.shortage)));
    let reason = (!texts.is_empty()).then(|| Reason::new(code).detail(texts.join("; ")));
    reason.into()
}

/// Returns true if the filesystem takes no writes. An operating system image is full from its creation on,
/// and stays so. `statvfs` would report the flags of the agent's own mount, and a container mounts everything
/// read-only. A read-only mount of a filesystem that takes writes elsewhere can still fill up.
fn takes_no_writes(mount: &Mount<'_>) -> bool {
    mount.is_read_only_by_nature() || mount.is_filesystem_read_only()
}

/// Adds a finding. Of several paths on one filesystem, the one with the highest minimum is reported.
fn add<'a>(findings: &mut Vec<Finding<'a>>, new: Finding<'a>) {
    let same = |known: &&mut Finding<'_>| {
        let (a, b) = (known.shortage, new.shortage);
        known.device == new.device && (a.kind, a.total) == (b.kind, b.total)
    };
    match findings.iter_mut().find(same) {
        Some(known) if known.shortage.needs >= new.shortage.needs => {}
        Some(known) => *known = new,
        None => findings.push(new),
    }
}

// === impl Place ===

impl Place {
    fn new(path: PathBuf, limits: MinimumFree) -> Self {
        let real = Arc::new(Mutex::new(path.clone()));
        Self { path, limits, thread: DedicatedThread::new("disk_pressure"), real }
    }

    fn real(&self) -> PathBuf {
        self.real.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::room::{Percent, Share};
    use super::*;
    use crate::options::Options;

    const TABLE: &str = "\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 / /var/lib ro - xfs /dev/sda2 rw
3 1 7:0 / /usr rw - squashfs /dev/loop0 ro
4 1 0:30 / /os ro - overlay composefs ro
";

    /// Returns the reasons for these paths, each with its free bytes and inodes out of a hundred.
    fn reasons(seen: &[(&str, u64, u64)]) -> Option<String> {
        let paths = seen.iter().map(|(path, ..)| PathBuf::from(path)).collect();
        let places: Vec<Place> =
            places(Some(paths), &[]).map(|(path, limits)| Place::new(path, limits)).collect();
        let share = |free| Share { free, total: 100 };
        let seen = seen.iter().zip(&places).map(|((_, bytes, inodes), place)| {
            Seen::Room(place, FreeSpace { bytes: share(*bytes), inodes: share(*inodes) })
        });
        match verdict(&MountTable::of(TABLE), &seen.collect::<Vec<_>>()) {
            Outcome::Fail(reason) => Some(reason.to_string()),
            _ => None,
        }
    }

    #[test]
    fn each_path_needs_what_the_kubelet_would_evict_below() {
        assert_eq!(reasons(&[("/", 10, 5), ("/var/lib/containerd/x", 15, 5)]), None);
        assert_eq!(
            reasons(&[("/", 9, 4), ("/var/lib/kubelet", 9, 5)]).unwrap(),
            "DiskPressure: /: 9 % of bytes free, needs 10 %; /: 4 % of inodes free, needs 5 %; \
             /var/lib/kubelet: 9 % of bytes free, needs 10 %"
        );
    }

    #[test]
    fn a_filesystem_is_told_once_by_the_path_that_needs_most() {
        let full = [("/var/lib/kubelet", 4, 50), ("/var/lib/containerd", 4, 50), ("/var/lib/docker", 4, 50)];
        assert_eq!(
            reasons(&full).unwrap(),
            "DiskPressure: /var/lib/containerd: 4 % of bytes free, needs 15 %"
        );
    }

    #[test]
    fn what_nobody_can_write_to_is_full_by_design() {
        assert_eq!(reasons(&[("/usr", 0, 0), ("/os", 0, 0)]), None);
        assert!(reasons(&[("/var/lib/x", 0, 99)]).is_some(), "a read-only mount of a writable filesystem");
    }

    #[test]
    fn limits_replace_what_is_usual_and_add_paths() {
        let LimitSettings(limits) = "/var/lib/docker=1%/0%:/data=20%".parse().unwrap();
        let all: Vec<_> = places(None, &limits).collect();
        assert_eq!(all.len(), OF_NODE.len() + OF_IMAGES.len() + 1);
        let bytes = |path: &str| all.iter().find(|(known, _)| known == Path::new(path)).unwrap().1.bytes;
        let found = ["/", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker", "/data"].map(bytes);
        assert_eq!(found, [10, 10, 15, 1, 20].map(Percent));
        let only: Vec<_> = places(Some(vec!["/a".into(), "/a".into()]), &[]).collect();
        assert_eq!(only, [(PathBuf::from("/a"), NODE)]);
    }

    fn check(host: &Path, set: &[(OptionKey, &str)]) -> DiskPressure {
        let mut options = Options::default();
        for (key, value) in set {
            options.set(*key, value).unwrap();
        }
        let host = HostRoot::new(host).unwrap();
        let apiserver = &crate::ApiServerSettings::default();
        let timeout = Duration::from_mins(1);
        DiskPressure::new(&Context { host: &host, apiserver, options: &options, timeout })
    }

    #[tokio::test]
    async fn missing_paths_are_skipped_unless_all_are() {
        let directory = tempfile::tempdir().unwrap();
        let host = directory.path();
        std::fs::create_dir(host.join("data")).unwrap();
        let set = [(PATHS, "/none:/data/x/y"), (LIMITS, "/data=0%/0%")];
        assert_eq!(check(host, &set).run(AddressFamilies::default()).await, Outcome::Pass);
        let Outcome::Fail(reason) = check(host, &set[..1]).run(AddressFamilies::default()).await else {
            panic!("nothing was there")
        };
        assert!(reason.as_str().starts_with("NothingToMeasure: none of the paths is on a disk"), "{reason}");
    }

    #[tokio::test]
    async fn a_place_that_hangs_is_named_and_those_on_its_filesystem_are_not_asked() {
        let directory = tempfile::tempdir().unwrap();
        for (number, path) in ["/", "/b"].into_iter().enumerate() {
            // No disk has so much space: each measurement finds a shortage.
            let check = check(directory.path(), &[(PATHS, "/:/b"), (LIMITS, "/=100%/0%")]);
            let (release, stuck) = std::sync::mpsc::channel::<()>();
            let (enter, mut entered) = tokio::sync::mpsc::channel(1);
            let call = check.places[number].thread.run(move || {
                enter.blocking_send(()).unwrap();
                stuck.recv()
            });
            tokio::select! {
                _ = call => panic!("it can't come back yet"),
                began = entered.recv() => began.unwrap(),
            }
            let Outcome::Fail(reason) = check.run(AddressFamilies::default()).await else {
                panic!("it hangs")
            };
            assert_eq!(reason, Reason::new("NotMeasured").detail(format_args!("{path}: Hung for 0s")));
            drop(release);
        }
    }
}
