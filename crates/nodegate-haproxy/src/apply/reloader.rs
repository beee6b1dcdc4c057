//! The ways to make HAProxy reload its configuration.

use crate::haproxy::blame::Words;
use crate::haproxy::master::{Master, ReloadError};
use crate::haproxy::rights::Rights;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The way to reload HAProxy.
#[derive(Clone, Debug)]
pub enum Reloader {
    /// The master socket.
    Master(Master),
    /// A command of the operator, and its timeout. Its exit status decides about success.
    Command(Vec<String>, Duration),
    /// No reload: the operator has configured none.
    Nobody,
}

impl Reloader {
    /// Returns true if there is a way to reload HAProxy.
    pub fn is_somebody(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    /// Returns HAProxy's rights to bind ports, as far as they are known.
    pub(crate) async fn rights(&self) -> Rights {
        match self {
            Self::Master(master) => Rights::of(&master.socket).await,
            Self::Command(..) | Self::Nobody => Rights::default(),
        }
    }

    /// Reloads HAProxy, and waits until the reload is known to have worked.
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
