//! The agent as a child process, with its HTTP server.

use crate::http::{self, ProbeReply};
use crate::waiting::{DEADLINE, until, until_within};
use crate::{process, programs};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The settings of an agent whose command does not set them.
const USUAL: [(&str, &str); 3] =
    [("LISTEN_PORT", "0"), ("NODEGATE_AGENT_CHECK_PORT", "0"), ("NODEGATE_LISTEN_ADDRESS", "127.0.0.1")];

/// The largest age of the answers that the agent renders once a second.
const RENDERED_EVERY: Duration = Duration::from_secs(1);

/// A running agent. Drop kills it.
pub struct Agent {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    /// The times at which this agent's periodically rendered answers were last read, by path.
    seen: Mutex<BTreeMap<String, Instant>>,
}

impl Agent {
    /// Starts an agent for `node` on a free port, and waits until it listens.
    pub fn start(node: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(programs::agent());
        command.args(args).env("NODE_NAME", node).env("KUBECONFIG", kubeconfig);
        Self::launch(command)
    }

    /// Starts an agent without a cluster: it fails open, and local checks need none.
    pub fn alone<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut command = Command::new(programs::agent());
        command.args(args);
        Self::launch_alone(command)
    }

    /// Starts a command that runs an agent with no settings but the command's own.
    pub fn launch_alone(mut command: Command) -> Self {
        command.env_remove("KUBECONFIG").env("NODE_NAME", "n1");
        Self::launch(command)
    }

    /// Starts a command that runs an agent. Its logs are readable through this type, and it has no settings
    /// but the command's own.
    pub fn launch(mut command: Command) -> Self {
        let set: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        let is_set = |name: &OsStr| set.iter().any(|set| set == name);
        for (name, _) in std::env::vars_os().filter(|(name, _)| !is_set(name)) {
            let of_agent = name.to_str().is_some_and(|name| name.starts_with("NODEGATE_"));
            // Credentials of a pod would come before those of the kubeconfig.
            if of_agent || name == "RUST_LOG" || name == "KUBERNETES_SERVICE_HOST" {
                command.env_remove(name);
            }
        }
        command.envs(USUAL.into_iter().filter(|(name, _)| !is_set(name.as_ref())));
        let mut child =
            command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("the agent starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let written = log.clone();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| written.lock().unwrap().push(line));
        });
        let address = until("the agent to listen", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the agent ended with {status}: {:#?}", log.lock().unwrap());
            }
            let log = log.lock().unwrap();
            let line = log.iter().find(|line| line.contains("listening address="))?;
            line.split("address=").nth(1)?.split(' ').next()?.parse().ok()
        });
        Self { child, address, log, seen: Mutex::default() }
    }

    /// Returns the address at which the agent listens. If that is unspecified, Linux connects to loopback.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address at which the agent serves metrics, from its log.
    pub fn metrics_address(&self) -> SocketAddr {
        let log = self.log_text();
        let named = log.split("metrics_addr=").nth(1).expect("an agent with --metrics-addr");
        named.split([' ', '\n']).next().unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a GET. For a path that the agent renders once a second, it first waits for the next rendering.
    pub fn get(&self, path: &str) -> ProbeReply {
        if !matches!(path.split('?').next(), Some("/" | "/metrics" | "/status.json")) {
            return self.get_at_once(path);
        }
        let mut seen = self.seen.lock().unwrap();
        if let Some(seen) = seen.get(path) {
            sleep((*seen + RENDERED_EVERY).saturating_duration_since(Instant::now()));
        }
        let reply = until("a large answer", || {
            let reply = self.get_at_once(path);
            reply.header("retry-after").is_none().then_some(reply)
        });
        seen.insert(path.to_owned(), Instant::now());
        reply
    }

    /// Waits for the next rendering, for a client other than this one, such as a browser.
    pub fn next_rendering(&self) {
        sleep(RENDERED_EVERY);
    }

    fn get_at_once(&self, path: &str) -> ProbeReply {
        http::get(self.address, path).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log_text()))
    }

    pub fn health(&self) -> ProbeReply {
        self.get("/health")
    }

    pub fn wait_for(&self, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> ProbeReply {
        self.wait_within(DEADLINE, "/health", what, wanted)
    }

    pub fn wait_within(
        &self,
        limit: Duration,
        path: &str,
        what: &str,
        wanted: impl Fn(&ProbeReply) -> bool,
    ) -> ProbeReply {
        let last = RefCell::new(None);
        let attempt = || {
            let reply = self.get(path);
            if wanted(&reply) {
                return Some(reply);
            }
            last.replace(Some(reply));
            None
        };
        until_within(limit, attempt, || {
            format!("the last answer was {:?}\n{}", last.borrow(), self.all_it_says(what))
        })
    }

    pub fn all_it_says(&self, missing: &str) -> String {
        let (status, log) = (self.get("/status.json").body, self.log_text());
        format!("waited for {missing}\nstatus: {status}\nlog:\n{log}")
    }

    /// Waits for a 200 that is not stale.
    pub fn wait_ready(&self) -> ProbeReply {
        self.wait_for("ready", |reply| reply.status == 200 && !reply.is_stale())
    }

    pub fn wait_reason(&self, reason: &str) -> ProbeReply {
        self.wait_for(reason, |reply| reply.status == 503 && reply.reason().as_deref() == Some(reason))
    }

    pub fn wait_passes(&self, check: &str) -> ProbeReply {
        self.wait_check(check, "pass", |reply| reply.status == 200 && reply.reason().is_none())
    }

    pub fn wait_fails(&self, check: &str, reason: &str) -> ProbeReply {
        self.wait_check(check, reason, |reply| {
            reply.status == 503 && reply.reason().as_deref() == Some(reason)
        })
    }

    pub fn wait_fails_with(&self, check: &str, part: &str) -> ProbeReply {
        self.wait_check(check, part, |reply| {
            reply.status == 503 && reply.reason().is_some_and(|found| found.contains(part))
        })
    }

    fn wait_check(&self, check: &str, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> ProbeReply {
        let (path, what) = (format!("/health?check={check}"), format!("{check}: {what}"));
        let reply = self.wait_within(DEADLINE, &path, &what, wanted);
        eprintln!("{}", reply.body);
        reply
    }

    pub fn wait_runs(&self, check: &str, count: usize) {
        let age = format!("nodegate_check_age_seconds{{check=\"{check}\"}}");
        for _ in 0..count {
            let before = Instant::now();
            until("a run", || self.metric(&age).filter(|age| *age < before.elapsed().as_secs_f64()));
        }
    }

    pub fn log_text(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub fn logged(&self, needle: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(needle)).count()
    }

    /// Waits for the log line that contains `needle`, and checks that it occurs once.
    pub fn logs_once(&self, needle: &str) {
        until(needle, || (self.logged(needle) > 0).then_some(()));
        assert_eq!(self.logged(needle), 1, "{}", self.log_text());
    }

    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").body;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    pub fn metric_sum(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        values.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    pub fn signal(&self, name: &str) {
        process::signal(self.pid(), name);
    }

    /// Asks the agent to end, and waits until it has ended.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let status = self.wait_end();
        (status, self.log_text())
    }

    /// Waits until the agent has ended, by itself or by an earlier signal.
    pub fn wait_end(&mut self) -> ExitStatus {
        until("the agent to end", || self.child.try_wait().unwrap())
    }
}

/// Runs the agent's program with this environment only. If it does not end, it is killed after a minute.
pub fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new("/usr/bin/timeout");
    command.arg("60").arg(programs::agent()).args(args).env_clear().envs(env.iter().copied());
    command.stdin(Stdio::null()).output().unwrap()
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
