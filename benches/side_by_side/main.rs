//! nodegate beside nginx, HAProxy and a server of Go's `net/http`. One run on one machine measures all of them
//! alternately.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark may end where it breaks off, and its output is its purpose"
)]

mod budgets;
mod flips;
mod footprint;
mod latencies;
mod load;
mod machine;
mod peer;
mod pinning;
mod results;
mod rounds;

use budgets::Budget;
use clap::Parser;
use nodegate_testbed::cluster::Cluster;
use peer::{Kind, Peer};
use results::Results;
use rounds::Rounds;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures nodegate beside other servers and prints tables, and a line for each budget.
///
/// Ends with 1 if something could not be measured. A budget that is missed is a line of the output and not a
/// failure: on a shared machine a single run may miss one by noise. --strict makes it one.
#[derive(Debug, Parser)]
struct Args {
    /// Takes a minute instead of ten; good for a look, not for a verdict.
    #[arg(long)]
    quick: bool,

    /// Takes seconds; good for nothing but to see that it works.
    #[arg(long, hide = true)]
    smoke: bool,

    /// Ends with 2 if a budget is missed.
    #[arg(long)]
    strict: bool,

    /// The agent to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/nodegate")]
    nodegate: PathBuf,

    /// The directory of the file with the results.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

/// The reason why a measurement failed, as text for people only.
type Failure = Box<dyn std::error::Error>;

/// The size of a Node with many images. A kubelet lists 50 of them.
const NODE_BYTES: usize = 20_000;

/// The shortest interval at which a prober does not fill a core.
const FAST: Duration = Duration::from_micros(100);

/// The amount of measurements.
struct Plan {
    rounds: u32,
    each: Duration,
    flips: u32,
    footprint: footprint::Plan,
}

impl Plan {
    fn of(args: &Args) -> Self {
        let (rounds, each, flips, settle, idle, probes) = if args.smoke {
            (1, 150, 2, 10, 500, 2_000)
        } else if args.quick {
            (2, 300, 20, 1_000, 5_000, 20_000)
        } else {
            (5, 1_000, 300, 5_000, 60_000, 1_000_000)
        };
        let ms = Duration::from_millis;
        let footprint = footprint::Plan { settle: ms(settle), idle: ms(idle), probes };
        Self { rounds, each: ms(each), flips, footprint }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    match compare(&args) {
        Ok(passed) if passed || !args.strict => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(2),
        Err(error) => {
            eprintln!("side-by-side: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything. Returns true if all budgets were met.
fn compare(args: &Args) -> Result<bool, Failure> {
    let nodegate =
        args.nodegate.canonicalize().map_err(|error| format!("{}: {error}", args.nodegate.display()))?;
    let machine = machine::describe();
    pinning::pin();
    let plan = Plan::of(args);
    let cluster = Cluster::with(|builder| builder.node_bytes(NODE_BYTES).kubelets(true));
    let start = || Kind::ALL.into_iter().map(|kind| Peer::start(kind, &cluster, &nodegate)).collect();
    let (rounds, peers) = Rounds::run(start, plan.rounds, plan.each)?;
    let agent = peers.first().ok_or("no agent")?;
    let results = Results {
        machine,
        rounds,
        flips: flips::measure(&cluster, agent, FAST, plan.flips)?,
        footprint: footprint::measure(&cluster, &nodegate, plan.footprint)?,
        binary: nodegate.metadata()?.len(),
    };
    publish(args, &results)
}

/// Prints the results, and writes them into a file. Returns true if all budgets were met.
fn publish(args: &Args, results: &Results) -> Result<bool, Failure> {
    let budgets = budgets::compare(results);
    let lines: Vec<String> = budgets.iter().map(ToString::to_string).collect();
    let text = format!("{results}\n```\n{}\n```\n", lines.join("\n"));
    println!("{text}");
    let file = args.out.join("side_by_side.md");
    std::fs::create_dir_all(&args.out)?;
    std::fs::write(&file, text)?;
    eprintln!("also in {}", file.display());
    Ok(budgets.iter().all(Budget::is_met))
}
