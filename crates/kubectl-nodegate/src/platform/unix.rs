//! Linux and macOS.

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use std::path::PathBuf;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// How many descriptors are wanted: every agent takes one, two if the API server is asked as well. macOS gives 256.
const FILES: u64 = 2048;

/// Waits until the program is told to end; returns by what.
pub(crate) async fn ending() -> &'static str {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = terminate.recv() => "SIGTERM",
    }
}

/// Tells a program to end, as Ctrl-C does.
pub(crate) fn interrupt(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::INT);
    }
}

/// Returns the home directories in which kubectl looks for `.kube/config`. kubectl goes by the variable alone.
pub(crate) fn homes() -> Vec<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).into_iter().collect()
}

/// Returns true if a terminal understands escape codes.
pub(crate) fn takes_escape_codes() -> bool {
    true
}

/// Raises the limit on open files as far as needed; with fewer, some agents would seem not to answer.
pub(crate) fn raise_file_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(FILES, |maximum| maximum.min(FILES));
    if current.is_some_and(|current| current < wanted) {
        // Without permission it goes on with what it has.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
