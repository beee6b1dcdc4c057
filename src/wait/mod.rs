//! `nodegate wait`: asks a running agent again and again until all balancers have been told.

mod terminal;

use crate::args::WaitArgs;
use crate::fetch;
use crate::status::harmless;
use crate::target::Target;
use nodegate_readiness::probers::{Demands, Ended, Waiting};
use nodegate_readiness::status::Status;
use nodegate_settings::Mistakes;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use terminal::Terminal;

/// How often the agent is asked: not much later than a balancer's last question.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// How long one answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Asks until it has ended, and gives the exit code.
pub(crate) fn run(args: &WaitArgs, mut wrong: Mistakes) -> Result<ExitCode, ExitCode> {
    let target = Target::chosen(args.addr.as_deref(), &mut wrong);
    wrong.ensure_none()?;
    let demands =
        Demands { fall: args.fall, rise: args.rise, probers: args.probers, interval: args.interval };
    let ended = wait(&target, Waiting::new(args.goal, demands, args.timeout), Terminal::new());
    Ok(ExitCode::from(ended.exit_code()))
}

fn wait(target: &Target, mut waiting: Waiting, mut terminal: Terminal) -> Ended {
    let began = nodegate_clock::now();
    loop {
        let said = ask(target);
        let elapsed = nodegate_clock::now().saturating_duration_since(began);
        let progress = waiting.step(said.as_ref().map_err(String::as_str), elapsed);
        let lines = progress.lines.iter().map(|line| harmless(line));
        lines.for_each(|line| terminal.line(&line));
        if let Some(ended) = progress.ended {
            terminal.end();
            return ended;
        }
        terminal.now(&harmless(&progress.now));
        thread::sleep(ASK_EVERY);
    }
}

fn ask(target: &Target) -> Result<Status, String> {
    let answer = fetch::get(target, "/status.json", ANSWER_WITHIN)
        .map_err(|error| format!("http://{target}: {error}"))?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map_err(|error| format!("http://{target}: the answer is not one of nodegate: {error}")),
        404 => Err(format!("http://{target}: HTTP 404; an agent with --metrics-addr answers there")),
        other => Err(format!("http://{target}: HTTP {other}")),
    }
}
