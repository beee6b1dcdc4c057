//! `nodegate status`: asks a running agent, shows what it says, and ends with the verdict as exit code.

mod health;
mod probers;
mod text;

use crate::args::{Output, StatusArgs};
use crate::fetch::{self, Answer};
use crate::target::Target;
use health::Health;
use nodegate_readiness::Verdict;
use nodegate_readiness::status::Status;
use nodegate_settings::{Mistakes, UNKNOWN};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};
use text::Text;

pub(crate) use text::harmless;

/// What a list of checks needs in a query.
const LIST: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b',').remove(b':').remove(b'/');

/// What is asked, and how the answer is shown.
struct Question {
    target: Target,
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
        let target = Target::chosen(args.addr.as_deref(), wrong);
        let path = match &args.check {
            Some(list) => format!("/health?check={}&drain=200", utf8_percent_encode(list, LIST)),
            None => "/status.json".to_owned(),
        };
        let (about_checks, json) = (args.check.is_some(), args.output == Output::Json);
        Self { target, path, about_checks, json, timeout: args.timeout }
    }

    fn ask(&self) -> Result<Told, String> {
        let answer = fetch::get(&self.target, &self.path, self.timeout).map_err(|error| error.to_string())?;
        let told = if self.about_checks { self.health(&answer) } else { self.status(&answer) }?;
        Ok(if self.json { Told { text: answer.body, ..told } } else { told })
    }

    fn status(&self, answer: &Answer) -> Result<Told, String> {
        if answer.status != 200 {
            return Err(self.refused(answer));
        }
        let status: Status = serde_json::from_slice(&answer.body).map_err(|error| self.foreign(&error))?;
        // A clock before 1970 makes flips look young; nothing depends on it.
        let wall = nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Told { verdict: status.verdict, text: Text::new(is_colourful()).status(&status, wall).into() })
    }

    fn health(&self, answer: &Answer) -> Result<Told, String> {
        if !matches!(answer.status, 200 | 503) {
            return Err(self.refused(answer));
        }
        let health: Health = serde_json::from_slice(&answer.body).map_err(|error| self.foreign(&error))?;
        Ok(Told { verdict: Some(health.verdict()), text: Text::new(is_colourful()).health(&health).into() })
    }

    /// An answer with another status: the agent says why in a field or in a line of text.
    fn refused(&self, answer: &Answer) -> String {
        let hint = match answer.status {
            404 => "; an agent with --metrics-addr answers there",
            _ => "",
        };
        let said = health::error(&answer.body)
            .map(|said| format!(" ({})", text::harmless(&said)))
            .unwrap_or_default();
        format!("{} answered HTTP {}{said}{hint}", self.path, answer.status)
    }

    fn foreign(&self, error: &serde_json::Error) -> String {
        format!("the answer to {} is not one of nodegate: {}", self.path, text::harmless(&error.to_string()))
    }
}

/// Colour is for terminals, and for people who have not asked for none (<https://no-color.org>).
fn is_colourful() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout().is_terminal() && !unwanted
}
