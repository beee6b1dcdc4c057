//! The packages on a Debian whose HAProxy is in use: installed, upgraded, removed and purged under traffic.

use crate::debian::Debian;
use crate::guest::{OWN, account, hand_written, of_type_load_balancer, settings};
use crate::lab::{Lab, get_from, node_name, program};
use crate::servers::{Counts, serve};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::system;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 3, 0, 1);
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// A later version, of the same program.
const LATER: &str = "1000.0.0";
const SETTINGS: &str = "/etc/default/nodegate-haproxy";
const KUBECONFIG: &str = "/etc/nodegate-haproxy/kubeconfig";
const DROP_IN: &str = "/etc/systemd/system/haproxy.service.d/nodegate.conf";
const GENERATED: &str = "/etc/haproxy/nodegate.cfg";

/// Packages of the program under test.
pub(crate) struct Packages(TempDir);

impl Packages {
    /// Packs the program with placeholders for what `make man` writes.
    pub(crate) fn build(versions: &[&str], formats: &str) -> Self {
        let packages = Self(tempfile::tempdir().unwrap());
        let programs = packages.0.path().join("programs");
        for (name, text) in [
            ("man/nodegate-haproxy.1", ".TH NODEGATE-HAPROXY 1\n"),
            ("completions/bash/nodegate-haproxy", "# bash\n"),
            ("completions/fish/nodegate-haproxy.fish", "# fish\n"),
            ("completions/zsh/_nodegate-haproxy", "#compdef nodegate-haproxy\n"),
        ] {
            let path = programs.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut strip = system("strip");
        succeeds(strip.arg("-o").arg(programs.join("nodegate-haproxy")).arg(program()));
        for version in versions {
            let mut pack = system(format!("{ROOT}/hack/packages"));
            pack.arg(architecture())
                .env("VERSION", version)
                .env("FORMATS", formats)
                .env("FAST", "1")
                .env("CARGO_NET_OFFLINE", "true");
            succeeds(pack.env("PROGRAMS", &programs).env("CARGO_TARGET_DIR", packages.0.path()));
        }
        packages
    }

    /// Copies a package into root's home, and returns its name.
    pub(crate) fn copy(&self, debian: &Debian, version: &str, format: &str) -> String {
        let name = match format {
            "deb" => format!("nodegate-haproxy_{version}-1_{}.deb", architecture()),
            _ => format!("nodegate-haproxy-{version}-1.{}.rpm", std::env::consts::ARCH),
        };
        std::fs::copy(self.0.path().join("packages").join(&name), debian.path("/root").join(&name)).unwrap();
        name
    }
}

/// Returns the machine's name in Debian and in images.
fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn succeeds(command: &mut std::process::Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a script of a document: the first one below this heading whose reason names this file.
fn documented(document: &str, heading: &str, debian: &Debian) -> String {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs").join(document)).unwrap();
    let below =
        text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{document} has no {heading}")).1;
    let mut blocks = below.split("```sh ").skip(1).map(|block| block.split_once('\n').unwrap());
    let block = blocks.find(|(reason, _)| reason.contains("tests/haproxy/packages.rs"));
    let (_, script) =
        block.unwrap_or_else(|| panic!("{document} has no script for this test below {heading}"));
    let script = script.split_once("```").unwrap().0;
    assert!(debian.path("/root").exists());
    script.replace("_amd64.deb", &format!("_{}.deb", architecture()))
}

/// A Debian whose HAProxy serves an application of another team, and what a document's reader has at hand.
pub(crate) struct Site {
    pub(crate) lab: Lab,
    pub(crate) debian: Debian,
    /// The ports of the other team and of the Service.
    pub(crate) own: u16,
    pub(crate) web: u16,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let lab = Lab::new(3).await;
        let (own, web) = (ports::free(), ports::free());
        let application = serve(Counts::default(), |_| true).await;
        lab.sim.apply(of_type_load_balancer(lab.service("web", web, &json!({})))).unwrap();
        let debian = Debian::boot(&lab).await;
        std::fs::write(debian.path(OWN), hand_written(ADDRESS, own, application)).unwrap();
        std::fs::write(debian.path("/etc/apt/apt.conf.d/yes"), "APT::Get::Assume-Yes \"true\";\n").unwrap();
        debian.run("systemctl restart haproxy");
        std::fs::write(debian.path("/root/haproxy.kubeconfig"), account(&lab)).unwrap();
        Self { lab, debian, own, web }
    }

    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        assert!(port == self.own || port == self.web);
        SocketAddr::from((ADDRESS, port))
    }

    /// Runs a script of a document.
    fn follow(&self, document: &str, heading: &str) -> String {
        let script = documented(document, heading, &self.debian);
        // The port is another test's, too.
        let listen = format!("{ADDRESS}:{}", self.lab.metrics_port);
        self.debian.run(&script.replace("127.0.0.1:25003", &listen))
    }

    pub(crate) fn settings(&self) -> String {
        settings(&self.lab, ADDRESS)
    }

    /// Returns the processes of HAProxy, and the files that the operator owns: content, inode, mode, time of change.
    pub(crate) fn theirs(&self) -> Vec<(String, String, u64, u32, i64)> {
        let files = [OWN, "/etc/default/haproxy", KUBECONFIG, DROP_IN];
        let there = files.iter().filter(|path| self.debian.path(path).exists());
        there.map(|path| self.identity(path)).collect()
    }

    fn identity(&self, path: &str) -> (String, String, u64, u32, i64) {
        let meta = std::fs::metadata(self.debian.path(path)).unwrap();
        (path.to_owned(), self.debian.read(path), meta.ino(), meta.mode(), meta.mtime_nsec())
    }

    /// Returns the IDs of HAProxy's processes: the master and its workers.
    pub(crate) fn haproxy(&self) -> String {
        self.debian.run("cat /sys/fs/cgroup/system.slice/haproxy.service/cgroup.procs")
    }

    pub(crate) fn unit(&self) -> String {
        self.debian.run(
            "systemctl is-enabled nodegate-haproxy || true; systemctl is-active nodegate-haproxy || true",
        )
    }

    /// Returns the files with nodegate in their name that the system has beside those of dpkg.
    pub(crate) fn left(&self) -> Vec<String> {
        let found = self
            .debian
            .run("find / -xdev -name '*nodegate*' -not -path '/root/*' -not -path '/proc/*' | sort");
        found.lines().map(str::to_owned).collect()
    }

    /// Ends the traffic, of which no request may have been lost.
    pub(crate) fn none_lost(&self, what: &str, traffic: Traffic) -> usize {
        let (answered, lost) = traffic.end();
        assert_eq!(lost, Vec::<String>::new(), "{what}\n{}", self.debian.said());
        answered
    }

    /// Waits until requests have been answered for a while.
    pub(crate) async fn some_traffic(&self, traffic: &Traffic) {
        let seen = traffic.answered();
        self.lab.until("requests are answered", async || traffic.answered() > seen + 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_in_use_loses_nothing_by_the_deb() {
    let packages = tokio::task::spawn_blocking(|| Packages::build(&[VERSION, LATER], "deb")).await.unwrap();
    let site = Site::start().await;
    let (lab, debian) = (&site.lab, &site.debian);
    let mut answered = 0;

    // Installed: nothing runs, and HAProxy has not been told anything.
    let (theirs, haproxy) = (site.theirs(), site.haproxy());
    let traffic = Traffic::to(site.at(site.own));
    packages.copy(debian, VERSION, "deb");
    site.some_traffic(&traffic).await;
    site.follow("nodegate-haproxy.md", "### 2. The package");
    site.some_traffic(&traffic).await;
    answered += site.none_lost("the installation", traffic);
    assert_eq!(site.unit(), "disabled\ninactive\n");
    assert_eq!((&site.haproxy(), debian.path("/etc/haproxy/nodegate.cfg").exists()), (&haproxy, false));
    let verified = debian.output("systemd-analyze verify nodegate-haproxy.service");
    let told = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && told.is_empty(), "{told}");

    // The documented steps. The restart is the one thing that cuts connections.
    std::fs::write(debian.path(SETTINGS), site.settings()).unwrap();
    let looked = site.follow("nodegate-haproxy.md", "### 3. A preview");
    assert!(
        looked.contains("default/web") && looked.contains(&format!("bind {ADDRESS}:{}", site.web)),
        "{looked}"
    );
    assert_eq!(&site.theirs()[..theirs.len()], &theirs);
    site.follow("nodegate-haproxy.md", "### 4. A second file for HAProxy");
    site.follow("nodegate-haproxy.md", "### 5. The start");
    assert_eq!(site.unit(), "enabled\nactive\n");

    // From here on there is no reason for a lost request.
    let theirs = site.theirs();
    let traffic = [site.own, site.web].map(|port| Traffic::to(site.at(port)));
    let main = "systemctl show --property MainPID --value nodegate-haproxy";
    let before = debian.run(main);
    packages.copy(debian, LATER, "deb");
    let upgrade = documented("packaging.md", "### Upgrade", debian).replace(VERSION, LATER);
    debian.run(&upgrade);
    assert_eq!(
        debian.run("dpkg-query --show --showformat '${Version} ${db:Status-Status}' nodegate-haproxy"),
        format!("{LATER}-1 installed")
    );
    assert_eq!(site.unit(), "enabled\nactive\n");
    let after = debian.run(main);
    assert_ne!(before, after, "the old program still runs");
    assert_eq!(debian.read(SETTINGS), site.settings());
    lab.sim.cordon(&node_name(0));
    lab.until_spared(0).await;
    for traffic in &traffic {
        site.some_traffic(traffic).await;
    }

    // Removed: HAProxy goes on with what it has, and a later installation finds settings and states.
    debian.run("apt-get remove nodegate-haproxy");
    // As every unit of Debian.
    assert_eq!(site.unit(), "masked\ninactive\n");
    assert!(
        debian.path(SETTINGS).exists() && debian.path("/var/lib/nodegate-haproxy/nodegate.servers").exists()
    );
    for traffic in &traffic {
        site.some_traffic(traffic).await;
    }
    let removal = documented("nodegate-haproxy.md", "### Removal", debian);
    let (purge, rest) = removal.split_once('\n').unwrap();
    let purged = debian.run(purge);
    assert!(purged.contains("nodegate.cfg stays"), "{purged}");
    debian.run("systemctl reload haproxy");
    for traffic in &traffic {
        site.some_traffic(traffic).await;
    }
    for traffic in traffic {
        answered += site.none_lost("upgrade, removal, purge and a reload of HAProxy", traffic);
    }
    assert_eq!(site.theirs(), theirs);
    let mut left = vec![GENERATED, "/etc/nodegate-haproxy", DROP_IN];
    left.sort_unstable();
    assert_eq!(site.left(), left);
    // HAProxy starts with what is left, too; without it, it serves the other team alone.
    debian.run("systemctl restart haproxy");
    for port in [site.own, site.web] {
        lab.until("HAProxy serves", async || get_from(site.at(port)).is_ok()).await;
    }
    debian.run(rest);
    lab.until("HAProxy serves the other team", async || get_from(site.at(site.own)).is_ok()).await;
    assert!(get_from(site.at(site.web)).is_err());
    assert_eq!(site.identity(OWN), theirs[0]);
    let debian = debian.run("echo \"Debian $(cat /etc/debian_version), $(systemctl --version | head -n 1)\"");
    println!(
        "the .deb on {}: {answered} requests, 0 lost; the operator's files are the same files",
        debian.trim()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_haproxy_in_use_loses_nothing_by_the_rpm() {
    let packages = tokio::task::spawn_blocking(|| Packages::build(&[VERSION, LATER], "rpm")).await.unwrap();
    let site = Site::start().await;
    let debian = &site.debian;
    // As on RHEL, where a unit is not enabled unless an administrator says so.
    std::fs::create_dir_all(debian.path("/etc/systemd/system-preset")).unwrap();
    std::fs::write(debian.path("/etc/systemd/system-preset/99-default.preset"), "disable *\n").unwrap();
    let rpm = |action: &str, what: &str| debian.run(&format!("rpm --nodeps {action} {what}"));

    let haproxy = site.haproxy();
    rpm("--install", &packages.copy(debian, VERSION, "rpm"));
    debian.run("rpm --verify --nodeps nodegate-haproxy");
    assert_eq!(site.unit(), "disabled\ninactive\n");
    assert_eq!((&site.haproxy(), debian.path(GENERATED).exists()), (&haproxy, false));
    debian.run("install -Dm600 haproxy.kubeconfig /etc/nodegate-haproxy/kubeconfig");
    std::fs::write(debian.path(SETTINGS), site.settings()).unwrap();
    site.follow("nodegate-haproxy.md", "### 4. A second file for HAProxy");
    site.follow("nodegate-haproxy.md", "### 5. The start");

    let theirs = site.theirs();
    let traffic = [site.own, site.web].map(|port| Traffic::to(site.at(port)));
    let main = "systemctl show --property MainPID --value nodegate-haproxy";
    let before = debian.run(main);
    rpm("--upgrade", &packages.copy(debian, LATER, "rpm"));
    assert_eq!(site.unit(), "enabled\nactive\n");
    assert_ne!(debian.run(main), before, "the old program still runs");
    assert_eq!(debian.read(SETTINGS), site.settings());
    rpm("--erase", "nodegate-haproxy");
    assert_eq!(site.unit(), "not-found\ninactive\n");
    assert!(debian.path("/var/lib/nodegate-haproxy/nodegate.servers").exists());
    debian.run("systemctl reload haproxy");
    for traffic in &traffic {
        site.some_traffic(traffic).await;
    }
    let mut answered = 0;
    for traffic in traffic {
        answered += site.none_lost("upgrade, removal and a reload of HAProxy", traffic);
    }
    assert_eq!(site.theirs(), theirs);
    assert_eq!(debian.read(&format!("{SETTINGS}.rpmsave")), site.settings());
    println!(
        "the .rpm upgraded and removed: {answered} requests, 0 lost; the operator's files are the same files"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "one more system; make packages-test"]
async fn copied_files_become_the_package_without_a_lost_request() {
    let packages = tokio::task::spawn_blocking(|| Packages::build(&[VERSION], "deb")).await.unwrap();
    let site = Site::start().await;
    let debian = &site.debian;
    let copy = |from: &Path, to: &str| std::fs::copy(from, debian.path(to)).unwrap();
    let systemd = Path::new(ROOT).join("packaging/systemd");
    debian.run("mkdir -p /etc/nodegate-haproxy /etc/systemd/system/haproxy.service.d");
    copy(&program(), "/usr/bin/nodegate-haproxy");
    copy(&systemd.join("nodegate-haproxy.service"), "/etc/systemd/system/nodegate-haproxy.service");
    copy(&systemd.join("haproxy.service.d/nodegate.conf"), DROP_IN);
    debian.run("cp haproxy.kubeconfig /etc/nodegate-haproxy/kubeconfig");
    std::fs::write(debian.path(SETTINGS), site.settings()).unwrap();
    debian.run("systemctl daemon-reload && systemctl restart haproxy");
    site.follow("nodegate-haproxy.md", "### 5. The start");

    let (theirs, haproxy) = (site.theirs(), site.haproxy());
    let traffic = [site.own, site.web].map(|port| Traffic::to(site.at(port)));
    let unit = "systemctl show --property FragmentPath --value nodegate-haproxy";
    let main = "systemctl show --property MainPID --value nodegate-haproxy";
    let before = debian.run(main);
    assert_eq!(debian.run(unit), "/etc/systemd/system/nodegate-haproxy.service\n");
    packages.copy(debian, VERSION, "deb");
    site.follow("packaging.md", "### From copied files to the package");
    assert_eq!(debian.run(unit), "/usr/lib/systemd/system/nodegate-haproxy.service\n");
    assert_ne!(debian.run(main), before, "the old program still runs");
    assert_eq!(site.unit(), "enabled\nactive\n");
    assert_eq!((debian.read(SETTINGS), site.haproxy()), (site.settings(), haproxy));
    for traffic in &traffic {
        site.some_traffic(traffic).await;
    }
    for traffic in traffic {
        site.none_lost("the package in place of copied files", traffic);
    }
    assert_eq!(site.theirs(), theirs);
}
