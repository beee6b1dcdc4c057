//! How HAProxy is told to read its configuration again.

use crate::haproxy::blame::Words;
use crate::haproxy::master::{Master, ReloadError};
use crate::haproxy::rights::Rights;
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

    /// Returns what HAProxy may bind, as far as that is known.
    pub(crate) async fn rights(&self) -> Rights {
        match self {
            Self::Master(master) => Rights::of(&master.socket).await,
            Self::Command(..) | Self::Nobody => Rights::default(),
        }
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
        Ok(Ok(output)) => Err(ReloadError::Command(output.status.to_string(), Words::new(&output.stderr))),
        Ok(Err(error)) => {
            let said = error.to_string();
            Err(ReloadError::Command("it can't be run".to_owned(), Words::new(said.as_bytes())))
        }
        Err(_) => Err(ReloadError::Timeout(patience)),
    }
}
