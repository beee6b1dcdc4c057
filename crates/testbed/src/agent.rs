//! The agent as a child process, asked over its socket.

use crate::poll::{DEADLINE, until};
use crate::programs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A running agent; killed when dropped.
pub struct Agent {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The code of the status line.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// What follows the empty line.
    pub body: String,
}

impl Reply {
    /// The body, which must be JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reason of the first check.
    pub fn reason(&self) -> Option<String> {
        self.json()["checks"][0]["reason"].as_str().map(str::to_owned)
    }

    /// Whether the first check calls itself stale.
    pub fn is_stale(&self) -> bool {
        self.json()["checks"][0]["stale"] == true
    }
}

impl Agent {
    /// Starts an agent for `node` on a free port, and waits until it listens.
    pub fn start(node: &str, kubeconfig: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(programs::agent());
        command.args(args).env("NODE_NAME", node).env("KUBECONFIG", kubeconfig);
        Self::launch(command)
    }

    /// Starts a command that is an agent, with logs that this can follow.
    pub fn launch(mut command: Command) -> Self {
        for (name, usual) in
            [("LISTEN_PORT", "0"), ("NODEGATE_AGENT_PORT", "0"), ("NODEGATE_LISTEN_ADDRESS", "127.0.0.1")]
        {
            if !command.get_envs().any(|(set, _)| set == name) {
                command.env(name, usual);
            }
        }
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
            let bound: SocketAddr = line.split("address=").nth(1)?.split(' ').next()?.parse().ok()?;
            Some(reachable(bound))
        });
        Self { child, address, log }
    }

    /// Where it is asked over HTTP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks on a connection of its own.
    pub fn get(&self, path: &str) -> Reply {
        self.raw(&format!("GET {path} HTTP/1.0\r\n\r\n"))
    }

    /// Sends bytes and reads until the agent closes.
    pub fn raw(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).expect("the agent accepts");
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Asks for the default checks.
    pub fn health(&self) -> Reply {
        self.get("/health")
    }

    /// Waits until `/health` is as described.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
        let start = Instant::now();
        loop {
            let reply = self.health();
            if wanted(&reply) {
                return reply;
            }
            assert!(
                start.elapsed() < DEADLINE,
                "waited for {what}; last answer {reply:?}\n{}",
                self.log_text()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a 200 that is not stale.
    pub fn wait_ready(&self) -> Reply {
        self.wait_for("ready", |reply| reply.status == 200 && !reply.is_stale())
    }

    /// Waits for a 503 with this reason.
    pub fn wait_reason(&self, reason: &str) -> Reply {
        self.wait_for(reason, |reply| reply.status == 503 && reply.reason().as_deref() == Some(reason))
    }

    /// All that it has logged.
    pub fn log_text(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// How many log lines contain `needle`.
    pub fn logged(&self, needle: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(needle)).count()
    }

    /// The value of a metric, by its full name with labels.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").body;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        send_signal(self.pid(), name);
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let status = self.wait_end();
        (status, self.log_text())
    }

    /// Waits until it has ended by itself, or by a signal that it was sent.
    pub fn wait_end(&mut self) -> ExitStatus {
        until("the agent to end", || self.child.try_wait().unwrap())
    }
}

/// Sends a signal, by its name.
pub fn send_signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// An agent that listens on all addresses is asked on loopback.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
