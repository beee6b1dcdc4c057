//! `nodegate status`: asks a running agent, shows what it says, and ends with the verdict as exit code.

mod health;
mod probers;
mod text;

use crate::args::{StatusArgs, StatusOutput};
use crate::fetch;
use crate::target::AgentAddress;
use health::NodeHealth;
use nodegate_agent_client::{AgentReply, AskError, STATUS_PATH, harmless, understand};
use nodegate_readiness::Verdict;
use nodegate_settings::{Mistakes, UNKNOWN};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use text::Text;

/// What a list of checks needs in a query.
const LIST: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b',').remove(b':').remove(b'/');

/// What is asked, and how the answer is shown.
struct Question {
    target: AgentAddress,
    path: String,
    about_checks: bool,
    json: bool,
    timeout: Duration,
}

/// What the agent said.
struct Told {
    verdict: Option<Verdict>,
    text: Vec<u8>,
}

/// Asks, shows, and gives the exit code.
pub(crate) fn run(args: &StatusArgs, mut wrong: Mistakes) -> Result<ExitCode, ExitCode> {
    let question = Question::new(args, &mut wrong);
    wrong.ensure_none()?;
    match question.ask() {
        Ok(told) => {
            // Nobody is left to tell if stdout is closed; the exit code still says it.
            let _ = stdout().write_all(&told.text).and_then(|()| stdout().flush());
            Ok(ExitCode::from(exit_code(told.verdict)))
        }
        Err(error) => {
            eprintln!("nodegate: http://{}: {error}", question.target);
            Err(ExitCode::from(UNKNOWN))
        }
    }
}

/// As monitoring plugins have it: OK, WARNING, CRITICAL, UNKNOWN.
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
        // A clock before 1970 makes flips look young; nothing depends on it.
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

/// What the agent says of an answer that is an error, in brackets.
fn explained(body: &[u8]) -> String {
    health::error(body).map(|said| format!(" ({})", harmless(&said))).unwrap_or_default()
}

/// Colour is for terminals, and for people who have not asked for none (<https://no-color.org>).
fn is_colourful() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !unwanted
}
