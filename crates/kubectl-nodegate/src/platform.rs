//! Everything that differs between operating systems: signals.

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
