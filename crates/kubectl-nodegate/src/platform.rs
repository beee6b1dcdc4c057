//! Everything that differs between operating systems: signals.

use tokio::process::Child;

/// Waits for a signal to end, and returns its name.
#[cfg(unix)]
pub(crate) async fn termination_signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
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

/// Waits for a signal to end, and returns its name.
#[cfg(windows)]
pub(crate) async fn termination_signal() -> &'static str {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close};
    let (Ok(mut interrupt), Ok(mut broken), Ok(mut closed)) = (ctrl_c(), ctrl_break(), ctrl_close()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = broken.recv() => "Ctrl-Break",
        _ = closed.recv() => "closing the console",
    }
}

/// Asks a program to end, as Ctrl-C does. On Windows, the console notifies all of its programs.
pub(crate) fn interrupt(child: &Child) {
    #[cfg(unix)]
    if let Some(pid) = child.id().and_then(|id| rustix::process::Pid::from_raw(id.try_into().ok()?)) {
        // The program may already have ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
    #[cfg(windows)]
    let _ = child;
}
