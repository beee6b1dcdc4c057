//! The packages on a Debian whose HAProxy is in use: three steps to the first Service, upgrade, removal and
//! purge, while that HAProxy has clients.

use crate::kubeconfig;
use crate::scenario::Scenario;
use crate::servers::{Counts, Statuses, Traffic, get_from, node_name, serve};
use nodegate_kube_sim::Rule;
use nodegate_testbed::debian::Debian;
use nodegate_testbed::network::ports;
use nodegate_testbed::programs::{self, nodegate_haproxy, run};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
pub(crate) const PROGRAM: &str = "nodegate-haproxy";
pub(crate) const HAPROXY: &str = "nodegate-haproxy-lb";
const LATER: &str = "1000.0.0";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 3, 0, 1);
const SETTINGS: &str = "/etc/default/nodegate-haproxy";
const THREE_STEPS: &str = "## Three steps to the first Service";
/// The configuration of the HAProxy that is in use.
const OWN: &str = "/etc/haproxy/haproxy.cfg";
/// Debian's default configuration with an application of another team.
const IN_USE: &str = include_str!("in_use.cfg");

pub(crate) struct Packages(TempDir);

impl Packages {
    /// Packs the program with placeholders for what `make generate WHAT=man` writes.
    pub(crate) fn build(versions: &[&str], formats: &str) -> Self {
        let packages = Self(tempfile::tempdir().unwrap());
        let programs = packages.0.path().join("programs");
        for (name, text) in [
            ("man/nodegate-haproxy.1", ".TH NODEGATE-HAPROXY 1\n"),
            ("completions/bash/nodegate-haproxy", "# bash\n"),
            ("completions/fish/nodegate-haproxy.fish", "# fish\n"),
            ("completions/zsh/_nodegate-haproxy", "#compdef nodegate-haproxy\n"),
        ] {
            write(&programs.join(name), text);
        }
        let (target, programs) = (packages.0.path().display(), programs.display());
        run(&format!("strip -o {programs}/nodegate-haproxy {}", nodegate_haproxy().display()));
        let settings = format!("FORMATS={formats} PROGRAMS={programs}");
        for version in versions {
            let settings = format!("env VERSION={version} CARGO_TARGET_DIR={target} {settings}");
            run(&format!("{settings} {ROOT}/hack/packages {}", architecture()));
        }
        packages
    }

    pub(crate) fn copy(&self, debian: &Debian, version: &str, format: &str) -> String {
        let name = match format {
            "deb" => format!("nodegate-haproxy_{version}-1_{}.deb", architecture()),
            _ => format!("nodegate-haproxy-{version}-1.{}.rpm", std::env::consts::ARCH),
        };
        std::fs::copy(self.0.path().join("packages").join(&name), debian.path("/root").join(&name)).unwrap();
        name
    }
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Returns the kubeconfig of the documentation. Its token has the rights that the script gives, as kubeconfig.rs checks.
fn account(scenario: &Scenario) -> String {
    let script = Path::new(ROOT).join("hack/haproxy-kubeconfig");
    let (kubeconfig, _) = kubeconfig::run(&script, scenario, &[], true);
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    let read = Rule::allow(&["get", "list", "watch"], "", &["nodes", "services"]);
    scenario.sim.service_account(token, "nodegate", PROGRAM, vec![read]);
    kubeconfig
}

/// A Debian whose HAProxy serves an application of another team, and what a document's reader has at hand.
pub(crate) struct Installation {
    pub(crate) scenario: Scenario,
    pub(crate) debian: Debian,
    pub(crate) web: SocketAddr,
    own: Traffic,
    theirs: String,
}

impl Installation {
    pub(crate) fn start() -> Self {
        let mut scenario = Scenario::new(3);
        scenario.listen = SocketAddr::from((ADDRESS, ports::free()));
        let [own, web] = [ports::free(), ports::free()].map(|port| SocketAddr::from((ADDRESS, port)));
        let application = serve(&Counts::default(), &Statuses::default());
        scenario.add_at(web.port(), "web", &json!({}));
        let debian = Debian::boot(&programs::debian(), None);
        debian.wait_running();
        let in_use = IN_USE.replace("$ADDRESS", &own.to_string());
        let in_use = in_use.replace("$APPLICATION", &format!("127.0.0.1:{application}"));
        std::fs::write(debian.path(OWN), in_use).unwrap();
        std::fs::write(debian.path("/etc/apt/apt.conf.d/yes"), "APT::Get::Assume-Yes \"true\";\n").unwrap();
        debian.run("systemctl restart haproxy");
        std::fs::write(debian.path("/root/haproxy.kubeconfig"), account(&scenario)).unwrap();
        scenario.until("HAProxy serves the other team", || get_from(own).is_ok());
        let theirs = theirs(&debian);
        Self { scenario, debian, web, own: Traffic::to(own), theirs }
    }

    /// Shows that the HAProxy in use is the same process with the same files, and has lost no request.
    pub(crate) fn untouched(&self) {
        assert_eq!(theirs(&self.debian), self.theirs);
        self.none_lost();
    }

    fn none_lost(&self) {
        assert_eq!(self.own.lost(), Vec::<String>::new(), "{}", self.debian.said());
    }

    /// Returns a documented script, the one with this number below a heading, for this test's ports.
    fn documented(&self, heading: &str, number: usize) -> String {
        let text = std::fs::read_to_string(format!("{ROOT}/docs/nodegate-haproxy.md")).unwrap();
        let (_, below) = text.split_once(&format!("\n{heading}\n")).unwrap();
        let mut blocks = below.split("```sh ").filter(|block| block.contains("tests/haproxy/packages.rs"));
        let block = blocks.nth(number).unwrap_or_else(|| panic!("no script below {heading}"));
        let (script, _) = block.split_once('\n').unwrap().1.split_once("```").unwrap();
        let script = script.replace("127.0.0.1:25003", &self.scenario.listen.to_string());
        script.replace("_amd64.deb", &format!("_{}.deb", architecture()))
    }

    /// Returns the program's settings besides those of its unit: the scenario's ports.
    pub(crate) fn settings(&self) -> String {
        format!(
            "NODEGATE_HAPROXY_BIND={ADDRESS}\nNODEGATE_HAPROXY_CHECK=agent:port={},interval=500ms\n\
             NODEGATE_HAPROXY_LISTEN={}\n",
            self.scenario.check_port, self.scenario.listen
        )
    }

    fn three_steps(&self) {
        let steps = self.documented(THREE_STEPS, 0);
        let (before, start) = steps.split_at(steps.find("systemctl enable").unwrap());
        self.debian.run(before);
        assert_eq!(self.states(), "disabled inactive static inactive");
        self.starts(start);
    }

    fn starts(&self, script: &str) {
        std::fs::write(self.debian.path(SETTINGS), self.settings()).unwrap();
        self.debian.run(script);
        self.serves();
    }

    /// Waits until HAProxy serves the Service and the program says so.
    pub(crate) fn serves(&self) {
        self.scenario.until("the Service is served", || get_from(self.web).is_ok());
        self.scenario.until("the program is ready", || self.scenario.is_ready());
        // HAProxy serves before systemd has read its message that it does.
        self.scenario.until("systemd knows", || !self.states().contains("activating"));
    }

    /// Returns whether the two units are enabled and active. Debian 12 has no word for a unit that is gone.
    pub(crate) fn states(&self) -> String {
        let ask = |unit| format!("systemctl is-enabled {unit} || true; systemctl is-active {unit} || true");
        let words = [PROGRAM, HAPROXY].map(|unit| self.debian.run(&ask(unit)));
        words.concat().replace("not-found", "").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn pid(&self, unit: &str) -> String {
        self.debian.run(&format!("systemctl show --property MainPID --value {unit}"))
    }

    pub(crate) fn left(&self) -> Vec<String> {
        let find = "find / -xdev -name '*nodegate*' -not -path '/root/*' -not -path '/proc/*' | sort";
        self.debian.run(find).lines().map(str::to_owned).collect()
    }
}

/// Returns the identity of what the other team has: HAProxy's processes and files.
fn theirs(debian: &Debian) -> String {
    let files = [OWN, "/etc/default/haproxy"].map(|path| {
        let meta = std::fs::metadata(debian.path(path)).unwrap();
        format!("{path} {} {:o} {}\n{}", meta.ino(), meta.mode(), meta.mtime_nsec(), debian.read(path))
    });
    debian.run("cat /sys/fs/cgroup/system.slice/haproxy.service/cgroup.procs") + &files.concat()
}

#[test]
fn three_steps_publish_a_service_beside_a_haproxy_in_use() {
    let packages = Packages::build(&[VERSION, LATER], "deb");
    let installation = Installation::start();
    let (scenario, debian) = (&installation.scenario, &installation.debian);
    packages.copy(debian, VERSION, "deb");
    installation.three_steps();
    assert_eq!(installation.states(), "enabled active static active");
    let explained = debian.run(&installation.documented(THREE_STEPS, 1));
    assert!(explained.contains("default/web"), "{explained}");
    let exposure = [PROGRAM, HAPROXY].map(|unit| exposure(debian, unit));
    assert!(exposure.iter().all(|each| *each <= 1.5), "{exposure:?}");

    // The unit lets the program try ports below 1024: one that another program has is left out of HAProxy's configuration.
    let taken =
        (512..1024).find_map(|port| TcpListener::bind(SocketAddr::from((ADDRESS, port))).ok()).unwrap();
    scenario.add_at(taken.local_addr().unwrap().port(), "low", &json!({}));
    let busy = "nodegate_haproxy_problems{kind=\"busy\"}";
    scenario.until_metric(busy, 1.0);
    drop(taken);
    scenario.until("it is published when it is free", || scenario.metric(busy).is_none());

    // The program's restart, its end and an upgrade are nothing to HAProxy.
    let (haproxy, traffic) = (installation.pid(HAPROXY), Traffic::to(installation.web));
    debian.run(&format!("systemctl reload {PROGRAM} {HAPROXY}"));
    for what in ["systemctl restart", "systemctl kill --signal=KILL"] {
        let before = installation.pid(PROGRAM);
        debian.run(&format!("{what} {PROGRAM}"));
        scenario.until("the program is back", || !["0\n", &before].contains(&&*installation.pid(PROGRAM)));
        installation.serves();
    }
    let before = installation.pid(PROGRAM);
    let name = packages.copy(debian, LATER, "deb");
    debian.run(&format!("apt-get install ./{name}"));
    assert_ne!(installation.pid(PROGRAM), before, "the old program still runs");
    assert_eq!(debian.read(SETTINGS), installation.settings());
    scenario.sim.cordon(&node_name(0));
    scenario.until_spared(0);
    traffic.none_lost(scenario);
    assert_eq!(installation.pid(HAPROXY), haproxy, "{}", debian.said());

    // HAProxy's restart and its end are nothing to the program.
    let before = installation.pid(PROGRAM);
    for what in ["systemctl restart", "systemctl kill --signal=KILL"] {
        debian.run(&format!("{what} {HAPROXY}"));
        installation.serves();
    }
    assert_eq!(installation.pid(PROGRAM), before);
    // A boot without the API server: HAProxy has the last configuration.
    scenario.kill_api();
    debian.run(&format!("systemctl stop {PROGRAM} {HAPROXY} && systemctl start multi-user.target"));
    scenario.until("HAProxy serves", || get_from(installation.web).is_ok());
    scenario.restart_api();
    installation.serves();

    // A later installation finds settings and states.
    debian.run("apt-get remove nodegate-haproxy");
    assert_eq!(installation.states(), "masked inactive inactive");
    assert!(debian.path(SETTINGS).exists() && debian.path("/var/lib/nodegate-haproxy/haproxy.cfg").exists());
    debian.run("apt-get purge nodegate-haproxy");
    assert_eq!(installation.left(), ["/etc/nodegate-haproxy"], "with the operator's kubeconfig");
    installation.untouched();
}

/// Returns systemd's score for a unit, from 0 (safe) to 10, whose file it must find without a mistake.
fn exposure(debian: &Debian, unit: &str) -> f64 {
    let verified = debian.output(&format!("systemd-analyze verify {unit}.service"));
    assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
    let text = debian.run(&format!("systemd-analyze security --no-pager {unit}"));
    text.rsplit_once(": ").unwrap().1.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn so_does_the_rpm() {
    let packages = Packages::build(&[VERSION, LATER], "rpm");
    let installation = Installation::start();
    let debian = &installation.debian;
    // As on RHEL, where a unit is not enabled unless an administrator says so.
    write(&debian.path("/etc/systemd/system-preset/99-default.preset"), "disable *\n");
    let rpm = |action: &str, what: &str| debian.run(&format!("rpm --nodeps {action} {what}"));
    rpm("--install", &packages.copy(debian, VERSION, "rpm"));
    debian.run("rpm --verify --nodeps nodegate-haproxy");
    assert_eq!(installation.states(), "disabled inactive static inactive");
    let steps = installation.documented(THREE_STEPS, 0);
    installation.starts(steps.split_once('\n').unwrap().1);

    let (before, haproxy) = (installation.pid(PROGRAM), installation.pid(HAPROXY));
    rpm("--upgrade", &packages.copy(debian, LATER, "rpm"));
    assert_eq!(installation.states(), "enabled active static active");
    assert_ne!(installation.pid(PROGRAM), before, "the old program still runs");
    assert_eq!((debian.read(SETTINGS), installation.pid(HAPROXY)), (installation.settings(), haproxy));
    rpm("--erase", PROGRAM);
    assert_eq!(installation.states(), "inactive inactive");
    assert_eq!(debian.read(&format!("{SETTINGS}.rpmsave")), installation.settings());
    assert!(debian.path("/var/lib/nodegate-haproxy/haproxy.cfg").exists());
    installation.untouched();
}

/// Makes the other team's configuration the template.
#[test]
#[ignore = "one more system; make release-test"]
fn the_haproxy_in_use_gets_the_services() {
    let packages = Packages::build(&[VERSION], "deb");
    let installation = Installation::start();
    let debian = &installation.debian;
    packages.copy(debian, VERSION, "deb");
    installation.three_steps();
    debian.run(&format!("systemctl stop {PROGRAM} {HAPROXY}"));
    debian.run(&installation.documented("### Your own HAProxy", 0));
    installation.serves();
    installation.none_lost();
    let (template, written) = (debian.read(&format!("{OWN}.TEMPLATE")), debian.read(OWN));
    assert!(written.starts_with(&template) && written.contains("nodegate_default_web"), "{written}");
}
