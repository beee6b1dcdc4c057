//! System calls per request, counted by strace. The count has its own run, since strace makes servers several
//! times slower.

use crate::failure::Failure;
use crate::load::End;
use crate::peer::Peer;
use crate::rounds::Way;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Calls per request, by name.
pub(crate) type Calls = BTreeMap<String, f64>;

/// Counts the system calls of the server during `requests` requests.
pub(crate) fn count(peer: &Peer, way: Way, requests: u32, dir: &Path) -> Result<Calls, Failure> {
    let file = dir.join("strace");
    let mut strace = Command::new("strace")
        .args(["-c", "-f", "-U", "name,calls", "-o"])
        .arg(&file)
        .args(["-p", &peer.pid().to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("can't start strace: {error}"))?;
    let counted = wait_until_attached(&mut strace, peer.pid())
        .and_then(|()| Ok(way.load(peer).run(End::Requests(requests.into()))?));
    // On an interrupt, strace detaches from the server and writes its counts.
    Command::new("kill").args(["-INT", &strace.id().to_string()]).status()?;
    strace.wait()?;
    counted?;
    Ok(parse(&std::fs::read_to_string(file)?, requests))
}

fn wait_until_attached(strace: &mut Child, pid: u32) -> Result<(), Failure> {
    let tracer = format!("TracerPid:\t{}", strace.id());
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
        let traced = |task: std::io::Result<std::fs::DirEntry>| {
            task.and_then(|task| std::fs::read_to_string(task.path().join("status")))
                .is_ok_and(|status| status.lines().any(|line| line == tracer))
        };
        if tasks.all(traced) {
            return Ok(());
        }
        if strace.try_wait()?.is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err("strace can't attach: it needs root or CAP_SYS_PTRACE".into())
}

/// Parses lines of `name calls` between rules of dashes.
fn parse(table: &str, requests: u32) -> Calls {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let calls = lines.filter_map(|words| match words[..] {
        [name, calls] if name != "total" => Some((name.to_owned(), calls.parse::<u32>().ok()?)),
        _ => None,
    });
    calls.map(|(name, calls)| (name, f64::from(calls) / f64::from(requests))).collect()
}
