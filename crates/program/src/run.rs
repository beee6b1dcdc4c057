//! Runs a program, from its command line to its exit code.

use crate::help::for_terminal;
use crate::logging::LogSettings;
use crate::mistakes::Mistakes;
use crate::read::{one_line, parse};
use crate::{BAD_SETTING, UNKNOWN, failed, sanitize, variables};
use clap::Parser;
use std::env::args_os;
use std::fmt::Display;
use std::future::Future;
use std::process::{ExitCode, Termination};
use std::{io, thread};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

/// The most variables that no setting reads and that the log names.
const MAX_NAMED: usize = 20;

/// A program: its command line, and what it does.
pub trait Program: Parser {
    /// The settings that `-h` shows, by their names in the parser; those without a heading if it is empty.
    const USUAL: &'static [&'static str] = &[];

    /// The exit code for a wrong setting. That of a command is [`UNKNOWN`]: its exit code is the result of a query.
    const BAD_SETTING: u8 = BAD_SETTING;

    /// Returns the settings of log lines; `None` if the program prints its result instead.
    fn log(&self) -> Option<LogSettings>;

    /// Turns the settings into the work, which returns the exit code. Adds mistakes that no single setting shows; the work
    /// begins without any.
    fn setup(self, mistakes: &mut Mistakes) -> Box<dyn FnOnce() -> ExitCode>;
}

/// Runs a program, and returns its exit code. For help, and for wrong settings, which it names, it does no work.
pub fn run<P: Program>() -> ExitCode {
    let words: Vec<_> = args_os().collect();
    let command = for_terminal(P::command(), P::USUAL, words.iter().any(|word| word == "-h"));
    let is_query = words.get(1).is_some_and(|word| command.find_subcommand(word).is_some());
    let wrong = |lines: &[String]| {
        for line in lines {
            eprintln!("{}: {line}", command.get_name());
        }
        ExitCode::from(if is_query { UNKNOWN } else { P::BAD_SETTING })
    };
    let (args, mut mistakes) = match parse::<P>(&command, words) {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() => return wrong(&[one_line(&error, &command)]),
        Err(help) => {
            // Ignores a closed stdout.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    let log = args.log();
    let work = args.setup(&mut mistakes);
    if !mistakes.lines.is_empty() {
        return wrong(&mistakes.lines);
    }
    if let Some(log) = log {
        log.start();
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for variable in variables::unread(&command, variables.collect()).iter().take(MAX_NAMED) {
            let remedy = variables::remedy(&command, variable);
            tracing::warn!(variable = sanitize(variable), "no setting reads this variable; {remedy}");
        }
    }
    work()
}

/// Starts a thread of this name, which `ps -L` shows. The work is boxed, because each other type of it would make the
/// program several kB larger.
pub fn start_thread(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Tasks of which none ends by itself. Drop ends them.
#[derive(Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    /// Starts a task.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    /// Waits until a task has ended, which is an error.
    pub async fn ended(&mut self) -> io::Error {
        match self.0.join_next().await {
            Some(Err(error)) => io::Error::other(format!("a task has failed: {error}")),
            _ => io::Error::other("a task has ended"),
        }
    }
}

/// Runs a future on two threads until it ends, then drops the tasks that still run. Logs its error, and returns
/// the exit code.
pub fn block_on<T: Termination, E: Display>(work: impl Future<Output = Result<T, E>>) -> ExitCode {
    let runtime = match Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(format_args!("can't start: {error}")),
    };
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result.map_or_else(failed, Termination::report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_ends_or_panics_is_a_failure() {
        for panics in [false, true] {
            let code = block_on(async move {
                let mut tasks = Tasks::default();
                tasks.spawn(async move { assert!(!panics, "on purpose") });
                Err::<(), _>(tasks.ended().await)
            });
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE), "{panics}");
        }
    }
}
