//! nodegate beside nginx, HAProxy, the kernel's floor and a server that asks the API on every probe. One run
//! on one machine measures all of them alternately.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark may end where it breaks off, and its output is its purpose"
)]

mod allocations;
mod api_get;
mod budgets;
mod cluster;
mod failure;
mod flips;
mod floor;
mod footprint;
mod instructions;
mod latencies;
mod limited;
mod load;
mod machine;
mod peer;
mod pinning;
mod results;
mod rounds;
mod syscalls;

use budgets::Budget;
use clap::{Parser, Subcommand};
use failure::Failure;
use load::Connections;
use nodegate_testbed::process::allow_descriptors;
use peer::{Kind, Peer, Programs};
use results::Results;
use rounds::{Rounds, Way};
use serde::Serialize;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures nodegate beside other servers and prints tables, and a line for each budget.
///
/// Ends with 1 if something could not be measured. A budget that is missed is a line of the output and not a
/// failure: on a shared machine a single run may miss one by noise. --strict makes it one.
#[derive(Debug, Parser)]
struct Args {
    /// A minute instead of ten; good for a look, not for a verdict.
    #[arg(long)]
    quick: bool,

    /// Seconds; good for nothing but to see that it works.
    #[arg(long, hide = true)]
    smoke: bool,

    /// Ends with 2 if a budget is missed.
    #[arg(long)]
    strict: bool,

    /// The agent to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/nodegate")]
    nodegate: PathBuf,

    /// Another build of it, to be measured beside it.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,

    /// A newer HAProxy than the system's, e.g. of hack/install-haproxy 3.2, to be measured beside it.
    #[arg(long, value_name = "FILE")]
    haproxy: Option<PathBuf>,

    /// Where the results go, for people (.md) and for programs (.json).
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,

    #[command(subcommand)]
    role: Option<Role>,
}

/// Servers that this program is itself.
#[derive(Clone, Copy, Debug, Subcommand)]
#[command(hide = true)]
enum Role {
    /// The kernel's floor for new connections.
    Floor { port: u16 },
    /// The same for kept ones.
    KeptFloor { port: u16 },
    /// A GET of the Node for every probe.
    ApiGet { port: u16 },
}

/// The shortest interval at which a prober does not fill a core.
const FAST: Duration = Duration::from_micros(100);

/// The amount of measurements.
struct Plan {
    rounds: u32,
    each: Duration,
    traced: u32,
    flips: u32,
    footprint: footprint::Plan,
}

impl Plan {
    fn of(args: &Args) -> Self {
        if args.smoke {
            let (settle, idle) = (Duration::from_millis(10), Duration::from_millis(500));
            let footprint = footprint::Plan { starts: 1, settle, idle, probes: 2_000 };
            return Self { rounds: 1, each: Duration::from_millis(150), traced: 20, flips: 2, footprint };
        }
        if args.quick {
            let (settle, idle) = (Duration::from_secs(1), Duration::from_secs(5));
            let footprint = footprint::Plan { starts: 3, settle, idle, probes: 20_000 };
            return Self { rounds: 2, each: Duration::from_millis(300), traced: 200, flips: 20, footprint };
        }
        let (settle, idle) = (Duration::from_secs(5), Duration::from_mins(1));
        let footprint = footprint::Plan { starts: 20, settle, idle, probes: 1_000_000 };
        // Many short rounds: the machine is similar in neighboring rounds, and a median needs many values.
        Self { rounds: 15, each: Duration::from_millis(700), traced: 2_000, flips: 300, footprint }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.role {
        Some(role) => serve(role).map(|()| true),
        None => compare(&args),
    };
    match done {
        Ok(passed) if passed || !args.strict => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(2),
        Err(error) => {
            eprintln!("side-by-side: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(role: Role) -> Result<(), Failure> {
    let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    match role {
        Role::Floor { port } => Ok(floor::serve(&listen(port)?, peer::BODY)?),
        Role::KeptFloor { port } => Ok(floor::serve_kept(&listen(port)?, peer::BODY)?),
        Role::ApiGet { port } => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(api_get::serve(listen(port)?, cluster::NODE))
        }
    }
}

/// Measures everything. Returns true if all budgets were met.
fn compare(args: &Args) -> Result<bool, Failure> {
    let nodegate =
        args.nodegate.canonicalize().map_err(|error| format!("{}: {error}", args.nodegate.display()))?;
    let programs = Programs {
        nodegate: &nodegate,
        before: args.before.as_deref(),
        newer_haproxy: args.haproxy.as_deref(),
    };
    let machine = machine::describe();
    pinning::pin();
    // The clients of a crowded agent need more descriptors than the usual 1,024.
    allow_descriptors(4 * footprint::CROWD as u64);
    let plan = Plan::of(args);
    let cluster = cluster::start()?;
    let start =
        || Kind::of(programs).map(|kind| Peer::start(kind, &cluster, programs)).collect::<Result<_, _>>();
    let (rounds, peers) = Rounds::run(start, plan.rounds, plan.each)?;
    let agent = peers.first().ok_or("no agent")?;
    let mut syscalls = Vec::new();
    for way in Way::ALL.into_iter().filter(|way| way.rate.is_none()) {
        for peer in peers.iter().filter(|peer| peer.kind.serves(way.connections)) {
            match syscalls::count(peer, way, plan.traced, cluster.dir.path()) {
                Ok(calls) => syscalls.push((way, peer.kind, calls)),
                Err(error) => eprintln!("system calls of {} not counted: {error}", peer.kind.name()),
            }
        }
    }
    let allocations = |connections| allocations::per_request(connections, plan.traced);
    let results = Results {
        machine,
        rounds,
        syscalls,
        instructions: instructions::count(&cluster, programs, plan.traced),
        instructions_per_flip: instructions::per_flip(&cluster, programs, plan.flips / 3 + 1),
        allocations: (allocations(Connections::New)?, allocations(Connections::Kept)?),
        flips: flips::measure(&cluster, agent, Duration::from_millis(1), plan.flips)?,
        fast_flips: flips::measure(&cluster, agent, FAST, plan.flips)?,
        fast_flips_before: match peers.iter().find(|peer| peer.kind == Kind::Before) {
            Some(before) => Some(flips::measure(&cluster, before, FAST, plan.flips)?),
            None => None,
        },
        limited: limited::measure(&cluster, programs, plan.flips / 3 + 1)
            .inspect_err(|error| eprintln!("nothing measured under a limit of CPU time: {error}"))
            .ok(),
        footprint: footprint::measure(&cluster, &nodegate, plan.footprint)?,
        binary: nodegate.metadata()?.len(),
    };
    publish(args, &results)
}

/// The results as JSON, with their comparison with the budgets.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    results: serde_json::Value,
    verdicts: &'a [Budget],
    passed: bool,
}

fn publish(args: &Args, results: &Results) -> Result<bool, Failure> {
    let budgets = budgets::compare(results);
    let passed = budgets.iter().all(Budget::is_met);
    std::fs::create_dir_all(&args.out)?;
    let judged = Judged { results: results.json(), verdicts: &budgets, passed };
    std::fs::write(args.out.join("side_by_side.json"), serde_json::to_string_pretty(&judged)?)?;
    let lines: Vec<String> = budgets.iter().map(ToString::to_string).collect();
    let text = format!("{results}\n```\n{}\n```\n", lines.join("\n"));
    std::fs::write(args.out.join("side_by_side.md"), &text)?;
    println!("{text}");
    eprintln!("also in {}", args.out.join("side_by_side.{json,md}").display());
    Ok(passed)
}
