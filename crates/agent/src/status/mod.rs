//! `nodegate status`: queries a running agent, shows its status, and returns the verdict as exit code.

mod health;
mod probers;
mod text;

use crate::args::{StatusArgs, StatusOutput};
use crate::fetch;
use crate::target::AgentAddress;
use health::NodeHealth;
use nodegate_agent_client::{AgentReply, AskError, STATUS_PATH, harmless, understand};
use nodegate_program::{Mistakes, UNKNOWN};
use nodegate_readiness::Verdict;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use text::Text;

/// The characters to escape in a list of checks.
const LIST: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b',').remove(b':').remove(b'/');

/// The query, and the form of its output.
struct Question {
    target: AgentAddress,
    path: String,
    about_checks: bool,
    json: bool,
    timeout: Duration,
}

/// The agent's answer, formatted.
struct Told {
    verdict: Option<Verdict>,
    text: Vec<u8>,
}

/// Queries the agent, prints its status, and returns the exit code.
pub(crate) fn run(args: &StatusArgs, mut wrong: Mistakes) -> Result<ExitCode, ExitCode> {
    let question = Question::new(args, &mut wrong);
    wrong.ensure_none()?;
    match question.ask() {
        Ok(told) => {
            // Ignores a closed stdout; the exit code still has the result.
            let _ = stdout().write_all(&told.text).and_then(|()| stdout().flush());
            Ok(ExitCode::from(exit_code(told.verdict)))
        }
        Err(error) => {
            eprintln!("nodegate: http://{}: {error}", question.target);
            Err(ExitCode::from(UNKNOWN))
        }
    }
}

/// Returns the exit code as monitoring plugins define it: OK, WARNING, CRITICAL, UNKNOWN.
fn exit_code(verdict: Option<Verdict>) -> u8 {
    match verdict {
        Some(Verdict::Ready) => 0,
        Some(Verdict::Draining) => 1,
        Some(Verdict::NotReady) => 2,
        None => UNKNOWN,
    }
}

impl Question {
    fn new(args: &StatusArgs, wrong: &mut Mistakes) -> Self {
        let target = AgentAddress::chosen(args.addr.as_deref(), wrong);
        let path = match &args.check {
            Some(list) => format!("/health?check={}&drain=200", utf8_percent_encode(list, LIST)),
            None => STATUS_PATH.to_owned(),
        };
        let (about_checks, json) = (args.check.is_some(), args.output == StatusOutput::Json);
        Self { target, path, about_checks, json, timeout: args.timeout }
    }

    fn ask(&self) -> Result<Told, String> {
        let reply = fetch::get(&self.target, &self.path, self.timeout).map_err(|error| error.to_string())?;
        let body = self.json.then(|| reply.body.to_vec());
        let told = if self.about_checks { self.health(&reply) } else { Self::status(reply) }?;
        Ok(match body {
            Some(text) => Told { text, ..told },
            None => told,
        })
    }

    fn status(reply: AgentReply) -> Result<Told, String> {
        let said = explained(&reply.body);
        let answered = understand(reply).map_err(|error| match error {
            AskError::Refused(..) => harmless(&format!("{error}{said}")),
            error => harmless(&error.to_string()),
        })?;
        // With a wall clock before 1970, flips look young. Nothing depends on that.
        let wall = nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = Text::new(is_colourful()).status(&answered.status, wall).into();
        Ok(Told { verdict: answered.status.verdict, text })
    }

    fn health(&self, reply: &AgentReply) -> Result<Told, String> {
        if !matches!(reply.status, 200 | 503) {
            let said = explained(&reply.body);
            return Err(format!("{} answered HTTP {}{said}", self.path, reply.status));
        }
        let health: NodeHealth = serde_json::from_slice(&reply.body).map_err(|error| {
            harmless(&format!("the answer to {} is not one of nodegate: {error}", self.path))
        })?;
        Ok(Told { verdict: Some(health.verdict()), text: Text::new(is_colourful()).health(&health).into() })
    }
}

/// Returns the agent's message in an error answer, in brackets.
fn explained(body: &[u8]) -> String {
    health::error(body).map(|said| format!(" ({})", harmless(&said))).unwrap_or_default()
}

/// Returns true on a terminal, unless the user has turned colour off (<https://no-color.org>).
fn is_colourful() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !unwanted
}
