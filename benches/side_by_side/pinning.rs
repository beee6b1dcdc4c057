//! CPU pinning. Servers run on the first core, clients and the simulated API on the second, so that the
//! scheduler's choices do not change the results.

use nodegate_testbed::programs::system;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::path::Path;
use std::process::Command;

/// Returns the servers' core and the clients' core: the first two cores that this process may use.
fn cores() -> Option<(usize, usize)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    Some((cores.next()?, cores.next()?))
}

/// Keeps this process and its later child processes off the servers' core. Does nothing if there is only one
/// core.
pub(crate) fn pin() {
    let Some((server, client)) = cores() else { return };
    let mut set = CpuSet::new();
    set.set(client);
    if sched_setaffinity(None, &set).is_ok() {
        SERVER_CORE.get_or_init(|| server);
    }
}

static SERVER_CORE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();

/// Returns a command that runs on the servers' core.
pub(crate) fn on_server_core(program: &Path) -> Command {
    let Some(core) = SERVER_CORE.get() else { return system(program) };
    let mut taskset = system("taskset");
    taskset.arg("--cpu-list").arg(core.to_string()).arg(program);
    taskset
}
