//! Signals and terminals on Windows.

use std::path::PathBuf;
use tokio::process::Child;
use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close};

/// Waits for a signal to end, and returns its name.
pub(crate) async fn ending() -> &'static str {
    let (Ok(mut interrupt), Ok(mut broken), Ok(mut closed)) = (ctrl_c(), ctrl_break(), ctrl_close()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => "Ctrl-C",
        _ = broken.recv() => "Ctrl-Break",
        _ = closed.recv() => "closing the console",
    }
}

/// Asks a program to end, as Ctrl-C does. Does nothing: the console notifies all of its programs.
pub(crate) fn interrupt(_: &Child) {}

/// Returns the home directories in which kubectl looks for `.kube/config`, in kubectl's order.
pub(crate) fn homes() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let on_drive = set("HOMEDRIVE").zip(set("HOMEPATH")).map(|(mut drive, path)| {
        drive.push(path);
        drive
    });
    [set("HOME"), on_drive, set("USERPROFILE")].into_iter().flatten().map(PathBuf::from).collect()
}

/// Does nothing: Windows has no such limit.
pub(crate) fn raise_file_limit() {}
