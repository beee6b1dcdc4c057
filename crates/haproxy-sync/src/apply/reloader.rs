//! How HAProxy is told to read its configuration again.

use crate::haproxy::master::{Master, ReloadError};
use crate::haproxy::validate::telling;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Who tells it.
#[derive(Clone, Debug)]
pub enum Reloader {
    /// The master socket.
    Master(Master),
    /// A command of the operator's, whose exit status is believed.
    Command(Vec<String>, Duration),
    /// Nobody tells it.
    Nobody,
}

impl Reloader {
    /// Whether there is anybody to tell it.
    pub fn is_somebody(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Has it read again, and waits until that is known to have worked.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        match self {
            Self::Master(master) => master.reload().await,
            Self::Command(words, patience) => run(words, *patience).await,
            Self::Nobody => Ok(()),
        }
    }
}

async fn run(words: &[String], patience: Duration) -> Result<(), ReloadError> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    match tokio::time::timeout(patience, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = telling(&String::from_utf8_lossy(&output.stderr));
            Err(ReloadError::Command(format!("{}: {said}", output.status)))
        }
        Ok(Err(error)) => Err(ReloadError::Command(error.to_string())),
        Err(_) => Err(ReloadError::Timeout(patience)),
    }
}
