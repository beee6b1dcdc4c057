//! `kubectl nodegate check`: one look at a whole setup. `gather` asks the agents and the API server, `judge` finds what is
//! wrong, and `print` shows it.

mod gather;
mod judge;
mod print;

use crate::args::{CheckArgs, Via};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::fleet::look;
use crate::gate::Gate;
use gather::{Setup, services};
use judge::judge;
use nodegate_agent_client::Console;

/// Checks the setup; returns the exit code.
pub(crate) async fn run(cluster: &Cluster, args: &CheckArgs) -> Result<u8, Error> {
    let nodes = cluster.nodes(&args.nodes, None).await?;
    let setup = Setup {
        nodes: look(cluster, &nodes).await,
        is_direct_first: cluster.args.via == Via::Auto,
        is_whole: args.nodes.is_empty(),
        services: services(cluster).await,
        gate: Gate::look(cluster).await.map_err(|error| error.why),
    };
    let findings = judge(&setup);
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&print::print(&setup, &findings, args.is_json));
    Ok(findings.iter().map(|finding| finding.level.exit_code()).max().unwrap_or_default())
}
