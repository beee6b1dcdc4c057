//! Validates a configuration with HAProxy itself.

use crate::haproxy::blame::Words;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The timeout. HAProxy reads 100,000 servers in a few seconds.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The error of a validation.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// HAProxy refused the configuration.
    #[error("haproxy -c refuses the new configuration: {0}")]
    Refused(Words),
    /// The program can't be run.
    #[error("can't run {0} -c: {1}")]
    Run(PathBuf, io::Error),
    /// The program takes too long.
    #[error("haproxy -c takes longer than {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Runs `haproxy -c` on a file, after the files that HAProxy loads before it.
pub async fn validate(haproxy: &Path, before: &[PathBuf], file: &Path) -> Result<(), ValidateError> {
    let mut command = Command::new(haproxy);
    command.arg("-c");
    for earlier in before {
        command.arg("-f").arg(earlier);
    }
    command.arg("-f").arg(file).stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Ok(output) => output.map_err(|error| ValidateError::Run(haproxy.to_owned(), error))?,
        Err(_) => return Err(ValidateError::Timeout),
    };
    if output.status.success() {
        return Ok(());
    }
    // HAProxy does not report a missing listener as an alert.
    let said = if output.stderr.is_empty() { output.stdout } else { output.stderr };
    Err(ValidateError::Refused(Words::new(&said)))
}
