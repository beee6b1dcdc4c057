//! Explanations of lost requests: HAProxy's own log line of the connection, found by the client's port, and what
//! HAProxy last logged about the server that the connection went to.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::prober::{Probe, Saw};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

/// HAProxy accepts a connection after the client began it; both read one clock, HAProxy in milliseconds.
const CLOCKS: SignedDuration = SignedDuration::from_millis(50);
const FROM: &str = "from ";

/// Sends one request. A lost one has the client's own address, as HAProxy logs it.
pub(super) fn ask(to: SocketAddr) -> Saw {
    let connected = http::connect(to).and_then(|stream| Ok((stream.local_addr()?, stream)));
    let (from, mut stream) = match connected {
        Ok(connected) => connected,
        Err(error) => return Saw::Failed(format!("not connected: {error}")),
    };
    let mut get = || {
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match ProbeReply::parse(&answer) {
            Some(reply) if reply.status == 200 => Ok(()),
            _ => Err(io::Error::other(format!("not an answer: {answer:?}"))),
        }
    };
    match get() {
        Ok(()) => Saw::Answer(200, String::new()),
        Err(error) => Saw::Failed(format!("{FROM}{from}: {error}")),
    }
}

/// The log of one HAProxy.
struct Log {
    balancer: String,
    lines: Vec<Line>,
}

struct Line {
    at: Timestamp,
    text: String,
}

impl Log {
    /// Reads a file of `log stdout format iso`; each line begins with its time.
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let (at, text) = line.split_once(' ')?;
            Some(Line { at: at.parse().ok()?, text: text.to_owned() })
        };
        let balancer = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Self { balancer, lines: text.lines().filter_map(line).collect() }
    }

    /// Returns the line of the connection that this client began in this time.
    fn of_connection(&self, client: &str, from: Timestamp, to: Timestamp) -> Option<&Line> {
        let begun = |line: &&Line| accepted(&line.text).is_some_and(|at| from - CLOCKS <= at && at <= to);
        self.lines.iter().filter(|line| line.text.split(' ').next() == Some(client)).find(begun)
    }

    /// Returns the last line about a server's state up to then.
    fn of_server(&self, server: &str, until: Timestamp) -> Option<&Line> {
        let about = |line: &&Line| line.text.to_lowercase().contains(&format!("server {server} "));
        self.lines.iter().filter(|line| line.at <= until).rfind(about)
    }
}

/// Returns the time in brackets, at which HAProxy accepted the connection.
fn accepted(line: &str) -> Option<Timestamp> {
    let (date, _) = line.split_once('[')?.1.split_once(']')?;
    let date = DateTime::strptime("%d/%b/%Y:%H:%M:%S%.f", date).ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Returns a line for each lost request: when it began after the row did, how it failed, and what each HAProxy
/// logged about it.
pub(super) fn explain(lost: &[&Probe], row: Instant, logs: &[impl AsRef<Path>]) -> String {
    if lost.is_empty() {
        return String::new();
    }
    let logs: Vec<Log> = logs.iter().map(|file| Log::read(file.as_ref())).collect();
    lost.iter().map(|probe| explain_one(probe, row, &logs)).collect()
}

fn explain_one(probe: &Probe, row: Instant, logs: &[Log]) -> String {
    let told = probe.told();
    let (began, ended) = (wall(probe.sent), wall(probe.answered));
    let mut text = format!(
        "{began:.3}, {:.1} s after the row's begin, for {:.1} s: {told}\n",
        probe.sent.saturating_duration_since(row).as_secs_f64(),
        (probe.answered - probe.sent).as_secs_f64(),
    );
    let client = told.strip_prefix(FROM).and_then(|rest| rest.split(": ").next());
    let found = logs.iter().find_map(|log| Some((log, log.of_connection(client?, began, ended)?)));
    let Some((log, line)) = found else {
        return text + "  HAProxy has logged no such connection\n";
    };
    let _ = writeln!(text, "  {}, {:.3}: {}", log.balancer, line.at, line.text);
    if let Some(server) = line.text.split(' ').nth(3)
        && let Some(state) = log.of_server(server, ended)
    {
        let _ = writeln!(text, "  {}, {:.3}: {}", log.balancer, state.at, state.text);
    }
    text
}

fn wall(at: Instant) -> Timestamp {
    let ago = SignedDuration::try_from(at.elapsed()).expect("a time of this test");
    Timestamp::now() - ago
}

/// A request that HAProxy can't pass on is explained by the line that HAProxy logs about it.
#[test]
fn a_lost_request_has_haproxys_own_line() {
    nodegate_testbed::programs::needs_root("network namespaces");
    let lan = nodegate_testbed::network::namespaces::Namespace::new("losses");
    lan.run("ip link add lan type bridge");
    lan.run("ip link set lan up");
    lan.run("ip addr add 10.0.0.1/24 dev lan");
    let dir = tempfile::tempdir().unwrap();
    let mut balancer = super::balancer::Balancer::new(0, &lan, dir.path());
    balancer.start_haproxy();
    let row = Instant::now();
    let lose = || {
        let sent = Instant::now();
        let saw = lan.act(|| ask(([10, 0, 0, 10], 80).into()));
        Probe { due: sent, sent, answered: Instant::now(), saw }
    };
    // No node is there, and no agent: HAProxy finds that out by its checks.
    let lost = nodegate_testbed::until("the servers to be down", || {
        let lost = lose();
        let text = explain(&[&lost], row, &[balancer.log()]);
        text.contains(" local/<NOSRV> ").then_some(text)
    });
    assert!(lost.contains(": from 10.0.0.1:") && lost.contains(" SC "), "{lost}");
    // A connection that HAProxy has never had is not taken for another one's.
    let mut foreign = lose();
    foreign.saw = Saw::Failed("from 10.0.0.9:1: reset".to_owned());
    let text = explain(&[&foreign], row, &[balancer.log()]);
    assert!(text.ends_with("HAProxy has logged no such connection\n"), "{text}");
    let log = Log::read(&balancer.log());
    let down = log.of_server("local/worker-1", Timestamp::now()).expect("a line about the server");
    assert!(down.text.contains("DOWN"), "{}", down.text);
}
