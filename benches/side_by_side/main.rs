//! nodegate beside nginx. One run on one machine measures both alternately.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may end where it breaks off, and its output is its purpose"
)]

mod flips;
mod load;
mod peer;
mod results;

use clap::Parser;
use nodegate_testbed::Scenario;
use results::Results;
use std::path::PathBuf;
use std::time::Duration;

/// Measures nodegate beside nginx, and prints a table and a line for each budget.
///
/// Fails if something could not be measured. A budget that is missed is a line of the output and not a failure: on a
/// shared machine a single run may miss one by noise.
#[derive(Debug, Parser)]
struct Args {
    /// Takes a minute instead of ten; good for a look, not for a verdict.
    #[arg(long)]
    quick: bool,

    /// Takes seconds; good for nothing but to see that it works.
    #[arg(long, hide = true)]
    smoke: bool,

    /// The agent to measure.
    #[arg(long, value_name = "FILE", default_value = "target/release/nodegate")]
    nodegate: PathBuf,
}

/// The size of a Node with many images. A kubelet lists 50 of them.
const NODE_BYTES: usize = 20_000;

struct Plan {
    rounds: u32,
    /// The time for one server and one kind of load.
    each: Duration,
    flips: u32,
    settle: Duration,
    idle: Duration,
    probes: u64,
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
        let [each, settle, idle] = [each, settle, idle].map(Duration::from_millis);
        Self { rounds, each, flips, settle, idle, probes }
    }
}

fn main() {
    let args = Args::parse();
    let nodegate = args.nodegate.canonicalize().expect("--nodegate is a program");
    peer::pin();
    let cluster = Scenario::with(|builder| builder.node_bytes(NODE_BYTES).kubelets(true));
    println!("{}", Results::measure(&cluster, &nodegate, &Plan::of(&args)));
}
