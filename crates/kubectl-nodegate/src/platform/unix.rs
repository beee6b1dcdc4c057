//! Signals and terminals on Linux and macOS.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::path::PathBuf;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// The number of descriptors wanted: one for every agent, two if the API server is queried as well. macOS
/// gives 256.
const FILES: u64 = 2048;

/// Waits for a signal to end, and returns its name.
pub(crate) async fn ending() -> &'static str {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = terminate.recv() => "SIGTERM",
        _ = hangup.recv() => "SIGHUP",
    }
}

/// Asks a program to end, as Ctrl-C does.
pub(crate) fn interrupt(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The program may already have ended.
        let _ = kill_process(pid, Signal::INT);
    }
}

/// Returns the home directories in which kubectl looks for `.kube/config`. On these systems kubectl uses only
/// the variable `HOME`.
pub(crate) fn homes() -> Vec<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).into_iter().collect()
}

/// Raises the limit on open files as far as needed; with a lower limit, some agents would seem not to answer.
pub(crate) fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if current.is_some_and(|current| current < wanted) {
        // Without permission, the present limit stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
