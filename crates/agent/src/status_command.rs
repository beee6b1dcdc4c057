//! `nodegate status`: queries a running agent, shows its status, and returns the verdict as exit code. `args` calls it.

use crate::target::{AddrArg, AgentAddress};
use clap::ArgAction;
use nodegate_agent_api::{STATUS_PATH, Status};
use nodegate_agent_client::{
    AgentReply, AskError, Console, exit_code, health_text, parse, refusal, status_text,
};
use nodegate_program::{UNKNOWN, choice, duration, sanitize};
use nodegate_readiness::Verdict;
use nodegate_readiness::answer::HealthBody;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::process::ExitCode;
use std::time::Duration;

/// The characters to escape in a list of checks.
const LIST: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b',').remove(b':').remove(b'/');

/// Shows the verdict of a running agent; the exit code is the verdict
///
/// nodegate status queries a running agent and shows its answer: the verdict and its reason, the freshness of
/// the cache, each check, and the last flips. The exit code is the verdict, as monitoring plugins have it, so
/// that scripts, keepalived and exec probes need no curl and no jq.
#[derive(Debug, clap::Args)]
#[command(after_long_help = include_str!("help/status.txt"))]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) agent: AddrArg,

    /// Output format: text or json. Text has colour on a terminal, unless `NO_COLOR` is set
    #[arg(short = 'o', long = "output", value_name = "text|json", default_value = "text", action = ArgAction::Set)]
    #[arg(value_parser = choice(&[("text", false), ("json", true)]))]
    is_json: bool,

    /// Checks to query instead of the default ones, as in /health?check=; the agent starts those that don't
    /// run
    #[arg(long, value_name = "LIST")]
    check: Option<String>,

    /// Timeout of the whole command
    #[arg(long, value_name = "DURATION")]
    #[arg(default_value = "2s", value_parser = duration(Duration::from_millis(1)..=Duration::from_hours(1)))]
    timeout: Duration,
}

/// The agent's verdict, and the text to print.
type Shown = (Option<Verdict>, String);

impl StatusArgs {
    /// Queries the agent, prints its status, and returns the exit code.
    pub(crate) fn run(self, target: &AgentAddress) -> ExitCode {
        match self.ask(target) {
            Ok((verdict, text)) => {
                // Ignores a closed stdout; the exit code still has the result.
                let _ = Console::write(&text);
                ExitCode::from(exit_code(verdict))
            }
            Err(error) => {
                eprintln!("nodegate: {}", target.failed(error));
                ExitCode::from(UNKNOWN)
            }
        }
    }

    fn ask(self, target: &AgentAddress) -> Result<Shown, String> {
        let list = self.check.as_ref();
        let path = list.map_or_else(
            || STATUS_PATH.to_owned(),
            |list| format!("/health?check={}&drain=200", utf8_percent_encode(list, LIST)),
        );
        let reply = target.get(&path, self.timeout).map_err(|error| error.to_string())?;
        let (verdict, text) = if list.is_some() { health(&path, &reply) } else { status(&reply) }?;
        // JSON that was parsed is text.
        Ok((verdict, if self.is_json { String::from_utf8_lossy(&reply.body).into_owned() } else { text }))
    }
}

fn status(reply: &AgentReply) -> Result<Shown, String> {
    let status: Status = parse(reply).map_err(|error| match error {
        AskError::Refused(..) => sanitize(&format!("{error}{}", refusal(&reply.body))),
        error => sanitize(&error.to_string()),
    })?;
    Ok((status.verdict, status_text(&status, Console::default().is_colourful)))
}

fn health(path: &str, reply: &AgentReply) -> Result<Shown, String> {
    if !matches!(reply.status, 200 | 503) {
        let said = refusal(&reply.body);
        return Err(format!("{path} answered HTTP {}{said}", reply.status));
    }
    let health: HealthBody<'_> = serde_json::from_slice(&reply.body)
        .map_err(|error| sanitize(&format!("the answer to {path} is not one of nodegate: {error}")))?;
    Ok((Some(health.status), health_text(&health, Console::default().is_colourful)))
}
