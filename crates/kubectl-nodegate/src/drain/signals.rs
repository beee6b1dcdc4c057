//! Being told to end.

use tokio::process::Child;

/// Waits until the program is told to end; gives by what.
#[cfg(unix)]
pub(super) async fn ending() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
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

/// Waits until the program is told to end; gives by what.
#[cfg(not(unix))]
pub(super) async fn ending() -> &'static str {
    match tokio::signal::ctrl_c().await {
        Ok(()) => "Ctrl-C",
        Err(_) => std::future::pending().await,
    }
}

/// Tells a program to end, as Ctrl-C does.
#[cfg(unix)]
pub(super) fn interrupt(child: &Child) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::INT);
    }
}

/// Tells a program to end, as Ctrl-C does: the console has done it.
#[cfg(not(unix))]
pub(super) fn interrupt(_: &Child) {}
