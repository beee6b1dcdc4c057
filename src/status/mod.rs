//! `nodegate status`: asks a running agent, shows what it says, and ends with the verdict as exit code.

mod fetch;
mod health;
mod target;
mod text;

use crate::args::StatusArgs;
use fetch::Answer;
use health::Health;
use nodegate_readiness::Verdict;
use nodegate_readiness::status::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use target::Target;
use text::Text;

/// Nothing is known: what monitoring plugins end with then, for wrong arguments, too.
pub(crate) const UNKNOWN: u8 = 3;

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
pub(crate) fn run(args: &StatusArgs) -> ExitCode {
    let question = match Question::parse(args) {
        Ok(question) => question,
        Err(mistakes) => {
            for mistake in mistakes {
                eprintln!("nodegate: {mistake}");
            }
            return ExitCode::from(UNKNOWN);
        }
    };
    match question.ask() {
        Ok(told) => {
            // Nobody is left to tell if stdout is closed; the exit code still says it.
            let _ = stdout().write_all(&told.text).and_then(|()| stdout().flush());
            ExitCode::from(exit_code(told.verdict))
        }
        Err(error) => {
            eprintln!("nodegate: http://{}: {error}", question.target);
            ExitCode::from(UNKNOWN)
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
    fn parse(args: &StatusArgs) -> Result<Self, Vec<String>> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let target = Target::choose(args.addr.as_deref(), env);
        let json = match args.output.as_str() {
            "text" => Ok(false),
            "json" => Ok(true),
            other => Err(format!("--output {other:?}: takes text or json")),
        };
        let timeout = match humantime::parse_duration(&args.timeout) {
            Ok(timeout) if (Duration::from_millis(1)..=Duration::from_hours(1)).contains(&timeout) => {
                Ok(timeout)
            }
            _ => Err(format!(
                "--timeout {:?}: takes a duration from 1ms to 1h, e.g. 500ms or 2s",
                args.timeout
            )),
        };
        let path = args
            .check
            .as_ref()
            .map(|list| format!("/health?check={}&drain=200", utf8_percent_encode(list, LIST)));
        match (target, json, timeout) {
            (Ok(target), Ok(json), Ok(timeout)) => Ok(Self {
                target,
                about_checks: path.is_some(),
                path: path.unwrap_or_else(|| "/status.json".to_owned()),
                json,
                timeout,
            }),
            (target, json, timeout) => {
                Err([target.err(), json.err(), timeout.err()].into_iter().flatten().collect())
            }
        }
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
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
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
