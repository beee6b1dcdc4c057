//! Reboots of a Debian on which the agent, an ingress and the real program run, while clients send 200 requests a second
//! through two HAProxy outside of it. `make reboots` prints what each case loses.

use nodegate_testbed::debian::Debian;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::prober::{Probe, Prober, Saw, exchange};
use nodegate_testbed::programs;
use nodegate_testbed::waiting::until_within;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The directory of the node's files.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shutdown");
const AGENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 25_001);
/// Longer than anything here takes: an agent needs 90 s to know its probers.
const PATIENCE: Duration = Duration::from_mins(5);
/// The time after which balancers notice a dead node by themselves.
const NOTICED: Duration = Duration::from_secs(8);
/// The file with the result of the service, as systemd calls it.
const RESULT: &str = "/run/nodegate/result";
/// The longest time until a node whose shutdown is cancelled is back.
const BACK_WITHIN: Duration = Duration::from_secs(3);
/// The requests of a second through each balancer, each by a client of its own: a lost one may take as long as clients wait.
const REQUESTS: u32 = 100;
const A_REQUEST: Duration = Duration::from_secs(15);

/// What follows what was done.
#[derive(PartialEq, Eq)]
enum Then {
    /// The system ends.
    Ends,
    /// The node is back in the pool at once.
    Returns,
    /// The node was never out of the pool.
    Stays,
}

/// A case: its name, true if it may lose requests, and what is done.
type Case = (&'static str, bool, fn(&mut Scenario) -> Then);

const CASES: [Case; 11] = [
    ("without", true, |scenario| scenario.runs("systemctl reboot")),
    ("systemctl", false, |scenario| scenario.runs("systemctl reboot")),
    ("shutdown", false, |scenario| scenario.runs("shutdown -r now")),
    ("reboot", false, |scenario| scenario.runs("reboot")),
    // The logind of systemd 257 may not come back to a new bus (systemd#36035). Then only the service's end delays a shutdown.
    ("bus-restart", false, |scenario| {
        scenario.debian.run("systemctl restart dbus.service");
        sleep(Duration::from_secs(5));
        let _ = (0..10).any(|_| scenario.is_held());
        scenario.runs("systemctl reboot")
    }),
    ("target", false, |scenario| scenario.runs("systemctl start --no-block reboot.target")),
    ("target-frozen", true, |scenario| {
        scenario.debian.run("systemctl kill --signal=STOP pod-agent");
        scenario.ends_past_logind()
    }),
    ("target-slow", true, Scenario::ends_past_logind),
    ("cancel", false, |scenario| {
        scenario.goes_out();
        scenario.runs("shutdown -c");
        // systemd before 257 says that it cancels, and goes on (systemd#34554).
        let version = scenario.debian.run("systemctl --version | awk 'NR == 1 {print $2}'");
        if version.trim().parse::<u32>().unwrap() < 257 { Then::Ends } else { Then::Returns }
    }),
    ("cancel-by-logind", false, |scenario| {
        scenario.goes_out();
        scenario.runs("systemctl restart systemd-logind");
        Then::Returns
    }),
    ("package", false, Scenario::package),
];

struct Scenario {
    debian: Debian,
    clients: Vec<Prober>,
    /// The time of the last command.
    began: Instant,
    _balancers: Vec<Haproxy>,
    _cluster: nodegate_testbed::Scenario,
}

impl Scenario {
    /// Starts all, and waits until the agent knows both balancers, or could.
    fn start(case: &str) -> Self {
        let cluster = nodegate_testbed::Scenario::start();
        let over = files(case, &cluster);
        let root = env::var_os("REBOOTS_ROOT").map_or_else(programs::debian, PathBuf::from);
        let debian = Debian::boot(&root, Some(&over));
        let is_slow = case == "target-slow";
        let interval = if is_slow { "20s" } else { "1s" };
        let balancers = [1, 2].map(|number| balance(&cluster, number, interval)).into();
        let (clients, began) = (Vec::new(), Instant::now());
        let mut scenario = Self { debian, clients, began, _balancers: balancers, _cluster: cluster };
        scenario.wait("the agent", |_| http::get(AGENT, "/drain.json").is_ok());
        if is_slow {
            // Three of its probes, and the agent's 90 s.
            sleep(Duration::from_secs(130));
        } else {
            scenario.wait("the agent to know both balancers", |_| {
                let drain = http::get(AGENT, "/drain.json").map(|reply| reply.json()).unwrap_or_default();
                drain["acknowledged_ready"] == true && drain["probers"] == 2
            });
        }
        if !["without", "package"].contains(&case) {
            scenario.wait("the lock", Self::is_held);
        }
        let client = |number: u16| Prober::start(frontend(number), request, REQUESTS, REQUESTS);
        scenario.clients = [1, 2].map(client).into();
        scenario.clients.iter().for_each(|client| client.wait(200));
        scenario
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        until_within(PATIENCE, || is_so(self).then_some(()), || format!("waited for {what}"));
    }

    /// Runs a command that may end the system before it ends.
    fn runs(&mut self, command: &str) -> Then {
        self.began = Instant::now();
        let _ = self.debian.output(command);
        Then::Ends
    }

    fn is_held(&self) -> bool {
        let list = self.debian.output("timeout 3 systemd-inhibit --list --no-pager");
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        list.contains("nodegate-shutdown")
    }

    fn goes_out(&mut self) {
        self.runs("shutdown -r now");
        let is_out =
            |_: &Self| http::get(AGENT, "/health").is_ok_and(|reply| reply.body.contains("NodeShutdown"));
        self.wait("the node to be out", is_out);
    }

    /// The host goes down past logind, and load balancers are slow or the agent is silent: the service ends by itself, not by systemd's SIGKILL.
    fn ends_past_logind(&mut self) -> Then {
        self.runs("systemctl start --no-block reboot.target");
        let result = || Some(self.debian.read(RESULT)).filter(|result| !result.is_empty());
        assert_eq!(until_within(PATIENCE, result, || self.debian.said()), "success\n");
        Then::Ends
    }

    /// Plays the life of the package: the Ansible role installs the older of two .deb, and dpkg upgrades, removes and purges
    /// it; then rpm does the same.
    fn package(&mut self) -> Then {
        let is_gone = |scenario: &Self, after: &str| {
            assert!(!scenario.is_held(), "the lock is held after {after}");
            for file in ["/run/nodegate/lock", "/etc/default/nodegate-shutdown"] {
                let stays = after == "remove" && file.starts_with("/etc");
                assert!(stays || !scenario.debian.path(file).exists(), "{file} is there after {after}");
            }
        };
        let delay = "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec";
        let shown = self.debian.run(
            "ansible-playbook -i inventory shutdown.yml -e nodegate_shutdown_package=$(ls /root/nodegate-shutdown_0.0.1-1_*.deb)",
        );
        assert!(shown.contains("at most 60 s"), "the role does not show the status: {shown}");
        self.debian.run("dpkg --install nodegate-shutdown_0.0.2-1_*.deb");
        self.wait("the lock", Self::is_held);
        for how in ["remove", "purge"] {
            self.debian.run(&format!("dpkg --{how} nodegate-shutdown"));
            is_gone(self, how);
        }
        assert_eq!(self.debian.run(delay), "t 5000000\n", "after purge");
        // dpkg knows the packages that it needs, and rpm does not.
        self.debian.run("rpm --install --nodeps nodegate-shutdown-0.0.1-1.*.rpm");
        self.debian.run("systemctl enable --now nodegate-shutdown");
        self.wait("the lock", Self::is_held);
        self.debian.run("rpm --upgrade --nodeps nodegate-shutdown-0.0.2-1.*.rpm");
        self.wait("the lock", Self::is_held);
        self.debian.run("rpm --erase nodegate-shutdown");
        is_gone(self, "rpm --erase");
        assert_eq!(self.debian.run(delay), "t 5000000\n", "after rpm --erase");
        self.began = Instant::now();
        Then::Stays
    }

    fn play((name, may_lose, act): Case) {
        let network = Namespace::new("reboot");
        let _stay = network.stay();
        let mut scenario = Self::start(name);
        match act(&mut scenario) {
            Then::Ends => scenario.wait("the end of the system", |scenario| scenario.debian.has_ended()),
            then => {
                scenario.wait("the node to be back", |_| {
                    http::get(AGENT, "/health").is_ok_and(|reply| reply.status == 200)
                });
                let took = scenario.began.elapsed();
                assert!(took <= BACK_WITHIN, "back after {took:?}");
                if then == Then::Returns {
                    scenario.wait("the lock", Self::is_held);
                }
            }
        }
        let took = scenario.began.elapsed().as_secs_f64();
        sleep(NOTICED);
        scenario.clients.iter_mut().for_each(Prober::stop);
        let (mut sent, mut lost) = (0, Vec::new());
        for client in &scenario.clients {
            sent += client.probes().len();
            lost.extend(client.failed().iter().map(Probe::result));
        }
        println!("{name:<16} {} of {sent}   {took:.1} s", lost.len());
        assert!(may_lose || lost.is_empty(), "{name}: {lost:?}");
    }
}

/// Makes the files of the node: an ingress, the agent, and the program, or for the case `package` what installs it.
fn files(case: &str, cluster: &nodegate_testbed::Scenario) -> PathBuf {
    let over = cluster.file("over");
    programs::run(&format!("cp -r {HERE}/node {}", over.display()));
    let copy = |from: &Path, to: &str| {
        let to = over.join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let enable = |unit: &str| {
        let wants = over.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        symlink(format!("../{unit}.service"), wants.join(format!("{unit}.service"))).unwrap();
    };
    copy(&programs::agent(), "usr/bin/nodegate");
    copy(&cluster.kubeconfig(), "etc/nodegate/kubeconfig");
    enable("pod-ingress");
    enable("pod-agent");
    if case == "package" {
        let packages = env::var_os("REBOOTS_PACKAGES").expect("REBOOTS_PACKAGES: make reboots makes them");
        let files = fs::read_dir(packages).unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "deb" || end == "rpm")) {
            copy(&file, &format!("root/{}", file.file_name().unwrap().display()));
        }
        let role = "roles/nodegate_shutdown/tasks/main.yml";
        for file in ["shutdown.yml", role] {
            copy(&Path::new(ROOT).join("examples/ansible").join(file), &format!("root/{file}"));
        }
    } else {
        let packaging = Path::new(ROOT).join("packaging");
        copy(&programs::nodegate_shutdown(), "usr/bin/nodegate-shutdown");
        let unit = "systemd/nodegate-shutdown.service";
        copy(&packaging.join(unit), "etc/systemd/system/nodegate-shutdown.service");
        copy(&packaging.join("logind/50-nodegate.conf"), "etc/systemd/logind.conf.d/50-nodegate.conf");
        if case != "without" {
            enable("nodegate-shutdown");
        }
        if case.starts_with("target-") {
            let result = "etc/systemd/system/nodegate-shutdown.service.d/result.conf";
            copy(&Path::new(HERE).join("result.conf"), result);
        }
    }
    over
}

fn frontend(number: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 9000 + number).into()
}

/// Starts a balancer that checks the agent alone and retries nothing; its second server is the other nodes.
fn balance(cluster: &nodegate_testbed::Scenario, number: u16, interval: &str) -> Haproxy {
    let directory = cluster.dir.path().join(format!("lb{number}"));
    fs::create_dir(&directory).unwrap();
    let (at, elsewhere) = (frontend(number), frontend(90 + number));
    let ingress = include_str!("node/etc/nodegate/ingress.cfg");
    let text = format!(
        "global\n  stats socket {}/nodegate.sock level admin\n{}\
         listen other\n  bind {elsewhere}\n  http-request return status 200\n\
         listen nodes\n  bind {at}\n  balance roundrobin\n  option httpchk GET /health\n  http-check send-state\n  \
         default-server inter {interval} fall 3 rise 2\n  \
         server node 127.0.0.1:8081 check port {} source 127.0.0.1{number}\n  server other {elsewhere}\n",
        directory.display(),
        ingress.split_once("listen").unwrap().0,
        AGENT.port()
    );
    let file = directory.join("haproxy.cfg");
    fs::write(&file, text).unwrap();
    Haproxy::start(&file)
}

fn request(to: SocketAddr) -> Saw {
    exchange(to, "GET / HTTP/1.0\r\n\r\n", A_REQUEST, |text| match ProbeReply::parse(text)?.status {
        200 => Some(Saw::Answer(200, String::new())),
        status => Some(Saw::Failed(status.to_string())),
    })
}

/// Prints the table. `REBOOTS` names cases, those with `:20` after them are played so many times.
#[test]
#[ignore = "make reboots: an hour"]
fn table() {
    let all = CASES.map(|(name, ..)| name).join(" ");
    let wanted = env::var("REBOOTS").ok().filter(|cases| !cases.is_empty());
    let mut failed = Vec::new();
    println!("{:<16} lost of all   took", "");
    for wanted in wanted.as_ref().unwrap_or(&all).split(' ') {
        let (name, times) = wanted.split_once(':').unwrap_or((wanted, "1"));
        let case = CASES.into_iter().find(|(case, ..)| *case == name);
        let case = case.unwrap_or_else(|| panic!("no case {name}; there are: {all}"));
        for _ in 0..times.parse().unwrap() {
            if catch_unwind(AssertUnwindSafe(|| Scenario::play(case))).is_err() {
                failed.push(name);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
