//! Plays the states of a component, one after the other, with an agent that runs all the time and one that
//! starts in each state.

use crate::check_states::part::{Pace, Part, Says, State, question, said};
use nodegate_testbed::waiting::DEADLINE;
use nodegate_testbed::{Agent, ProbeReply};
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// The pause between two probes: as short as that of an aggressive load balancer.
const PAUSE: Duration = Duration::from_millis(50);

/// The tolerance for a busy machine and for the run of the check itself.
const SLACK: Duration = Duration::from_secs(1);

/// The time until the answer of the state; `None` if the agent gave this answer before and kept it. The error
/// says which answer was wrong.
pub(crate) type Told = Result<Option<Duration>, String>;

/// Plays all states and returns the outcome of each, or `None` for a state that was left out.
pub(crate) fn play<P: Part>(pace: Pace) -> Vec<Option<Told>> {
    if !P::is_there() {
        // Writes directly to stderr, because `cargo test` captures the output of a test that passes.
        let _ = writeln!(io::stderr(), "not played: {} (make checks-test builds what it needs)", P::TITLE);
        return P::STATES.iter().map(|_| None).collect();
    }
    let stage = guarded(|| {
        let part = P::start(pace);
        let agent = part.agent();
        (part, agent)
    });
    let (mut part, agent) = match stage {
        Ok(stage) => stage,
        Err(error) => return P::STATES.iter().map(|_| Some(Err(error.clone()))).collect(),
    };
    let mut told = Vec::new();
    for state in P::STATES {
        let here = (!(state.long && pace.is_quick()))
            .then(|| guarded(|| enter(state, &mut part, &agent, pace)).and_then(|told| told));
        if let Some(here) = &here {
            eprintln!("  {}, {}: {here:?}", P::TITLE, state.name);
        }
        told.push(here);
    }
    drop(agent);
    told
}

/// Turns a panic of a scenario into an error, so that its row shows it.
fn guarded<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

fn enter<P: Part>(state: &State<P>, part: &mut P, agent: &Agent, pace: Pace) -> Told {
    let ask = || agent.get(&question(P::CHECK));
    let before = state.says.is(&ask(), pace);
    (state.enter)(part);
    let shown = if before {
        stays(ask, state.says, pace)?;
        None
    } else {
        let shown = shows(ask, &[state.says], pace)?;
        if !pace.is_quick() && shown > state.within + SLACK {
            return Err(format!("showed after {shown:?}, not within {:?}", state.within));
        }
        Some(shown)
    };
    let newcomer = part.agent();
    let ask = || newcomer.get(&question(P::CHECK));
    let first = ask();
    // On a busy machine the first probe may come too late for the temporary answer.
    let may_come =
        if state.newcomer_at_first { vec![state.newcomer, state.says] } else { vec![state.newcomer] };
    let comes = may_come.iter().any(|says| says.is(&first, pace));
    if comes || (pace.is_quick() && shows(ask, &may_come, pace).is_ok()) {
        return Ok(shown);
    }
    Err(format!("an agent that starts then is to say {:?}, and says {}", state.newcomer, body(&first)))
}

/// Waits until the agent gives one of these answers.
fn shows(ask: impl Fn() -> ProbeReply, says: &[Says], pace: Pace) -> Result<Duration, String> {
    let start = Instant::now();
    let mut seen = Vec::new();
    loop {
        let reply = ask();
        if says.iter().any(|says| says.is(&reply, pace)) {
            return Ok(start.elapsed());
        }
        if seen.last() != Some(&body(&reply)) {
            seen.push(body(&reply));
        }
        if start.elapsed() > DEADLINE {
            return Err(format!("was to say {says:?}, and said {}", seen.join(", ")));
        }
        thread::sleep(PAUSE);
    }
}

/// Checks that the agent keeps giving this answer for two runs of the check.
fn stays(ask: impl Fn() -> ProbeReply, says: Says, pace: Pace) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < pace.interval() * 2 + SLACK {
        let reply = ask();
        if !says.is(&reply, pace) {
            return Err(format!("was to go on saying {says:?}, and said {}", body(&reply)));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn body(reply: &ProbeReply) -> String {
    format!("{} ({})", said(reply), reply.reason().unwrap_or_default())
}
