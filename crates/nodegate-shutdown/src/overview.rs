//! `nodegate-shutdown status`: three lines on the lock, the agent, and what a reboot would do.

use crate::login::Login;
use crate::signal_files::problem;
use nodegate_agent_api::DrainSummary;
use nodegate_agent_client::ask_drain;
use nodegate_agent_client::hints::{NO_DELAY, at_most};
use nodegate_program::{UNKNOWN, sanitize};
use nodegate_readiness::{Age, Stamp, Verdict};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// The time limit for the answer of the agent.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// The state of logind's locks and delays.
struct LoginView {
    locked: bool,
    delay: Duration,
    /// A scheduled shutdown in words, for the end of a line.
    scheduled: String,
}

/// Prints the three lines, and returns the exit code.
pub(crate) async fn print(agent: SocketAddr) -> Result<ExitCode, Infallible> {
    let login = look().await.map_err(|error| error.to_string());
    let answer = ask_drain(&[agent], QUERY_TIMEOUT).await.map_err(|error| error.to_string());
    let (reboot, code) = reboot(login.as_ref().ok(), answer.as_ref().ok());
    println!("lock    {}", lock(&login));
    println!("agent   {agent} {}", describe(&answer));
    println!("reboot  {reboot}{}", login.as_ref().map_or("", |view| &view.scheduled));
    Ok(ExitCode::from(code))
}

async fn look() -> zbus::Result<LoginView> {
    let login = Login::connect().await?;
    let scheduled = login.scheduled().await?;
    let scheduled = scheduled.map(|(kind, at)| format!("; {} at {:#} UTC", sanitize(&kind), Stamp(at)));
    Ok(LoginView {
        locked: login.is_locked().await?,
        delay: login.delay().await?,
        scheduled: scheduled.unwrap_or_default(),
    })
}

fn lock(login: &Result<LoginView, String>) -> String {
    match login {
        Err(error) => format!("not known: systemd-logind does not answer ({})", sanitize(error)),
        Ok(view) if view.locked && view.delay.is_zero() => format!("held, but {NO_DELAY}"),
        Ok(view) if view.locked => format!("held; a shutdown is delayed, {}", at_most(view.delay)),
        Ok(_) => "not held; is nodegate-shutdown.service running?".to_owned(),
    }
}

fn describe(answer: &Result<DrainSummary, String>) -> String {
    let summary = match answer {
        Err(error) => return format!("does not answer: {}", sanitize(error)),
        Ok(summary) => summary,
    };
    let verdict = summary.verdict.map_or("without a verdict", Verdict::title);
    let slowest =
        summary.needs_ms.map_or(String::new(), |needs| format!(", acknowledged within {}", Age(needs)));
    format!("says {verdict}; load balancers: {}{slowest}", summary.probers)
}

/// Returns what a reboot would do, and the exit code.
fn reboot(login: Option<&LoginView>, answer: Option<&DrainSummary>) -> (String, u8) {
    let does_not = "does not wait for load balancers".to_owned();
    let Some(login) = login else { return (does_not, UNKNOWN) };
    let Some(summary) = answer.filter(|_| login.locked) else { return (does_not, 1) };
    if summary.host.is_some_and(|host| host.shutdown) {
        return ("the host is going down".to_owned(), 0);
    }
    match problem(summary, login.delay) {
        Some(why) => (why, 1),
        None if summary.probers == 0 => ("does not wait: no load balancer probes".to_owned(), 0),
        None => (format!("waits until every load balancer has acknowledged, {}", at_most(login.delay)), 0),
    }
}
