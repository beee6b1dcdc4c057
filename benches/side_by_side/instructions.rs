//! Instructions per probe outside of the kernel, counted by callgrind. The count is the same on a busy
//! machine as on an idle one.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::flips;
use crate::load::{Connections, End, Load};
use crate::peer::{Kind, Peer, Programs};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The kinds of connections for which a server does different work.
const WAYS: [Connections; 3] = [Connections::New, Connections::NewWithState, Connections::Kept];

/// The instructions of one server for one kind of connections.
#[derive(Debug)]
pub(crate) struct Instructions {
    pub(crate) kind: Kind,
    pub(crate) connections: Connections,
    pub(crate) per_probe: f64,
}

/// Counts the instructions of the servers that still work when callgrind slows them down fifty times.
pub(crate) fn count(cluster: &Cluster, programs: Programs<'_>, probes: u32) -> Vec<Instructions> {
    let mut counted = Vec::new();
    for kind in [Kind::Nodegate, Kind::Unnoted, Kind::Before, Kind::Nginx, Kind::Haproxy] {
        if Kind::of(programs).any(|one| one == kind)
            && let Err(error) = count_one(kind, cluster, programs, probes, &mut counted)
        {
            eprintln!("instructions of {} not counted: {error}", kind.name());
        }
    }
    counted
}

fn count_one(
    kind: Kind,
    cluster: &Cluster,
    programs: Programs<'_>,
    probes: u32,
    counted: &mut Vec<Instructions>,
) -> Result<(), Failure> {
    let out = cluster.dir.path().join(format!("callgrind-{kind:?}"));
    let peer = Peer::start_counted(kind, cluster, programs, &out)?;
    for (number, connections) in (1_u32..).zip(WAYS) {
        let load = Load { address: peer.address, connections, clients: 1, rate: None };
        // The first requests do one-time work, which is not counted.
        load.run(End::Requests(20))?;
        control(&peer, "--zero")?;
        load.run(End::Requests(probes.into()))?;
        control(&peer, "--dump")?;
        let per_probe = total(&out.with_extension(number.to_string()))? / f64::from(probes);
        counted.push(Instructions { kind, connections, per_probe });
    }
    Ok(())
}

/// The interval of the prober. Its probes cost little in comparison with the flips that it sees.
const FLIP_EVERY: Duration = Duration::from_millis(20);

/// Counts the instructions of a change of verdict, for each build of the agent. The change is a cordon or its
/// end, with all events that the API server sends about it.
pub(crate) fn per_flip(cluster: &Cluster, programs: Programs<'_>, cordons: u32) -> Vec<(Kind, f64)> {
    let kinds = Kind::of(programs).filter(|kind| matches!(kind, Kind::Nodegate | Kind::Before));
    let count = |kind| match flips_of_one(kind, cluster, programs, cordons) {
        Ok(instructions) => Some((kind, instructions)),
        Err(error) => {
            eprintln!("instructions a flip of {} not counted: {error}", kind.name());
            None
        }
    };
    kinds.filter_map(count).collect()
}

fn flips_of_one(kind: Kind, cluster: &Cluster, programs: Programs<'_>, cordons: u32) -> Result<f64, Failure> {
    let out = cluster.dir.path().join(format!("callgrind-flips-{kind:?}"));
    let peer = Peer::start_counted(kind, cluster, programs, &out)?;
    flips::measure(cluster, &peer, FLIP_EVERY, 2)?;
    control(&peer, "--zero")?;
    flips::measure(cluster, &peer, FLIP_EVERY, cordons)?;
    control(&peer, "--dump")?;
    Ok(total(&out.with_extension("1"))? / f64::from(2 * cordons))
}

fn control(peer: &Peer, what: &str) -> Result<(), Failure> {
    let mut command = Command::new("callgrind_control");
    let command = command.arg(what).arg(peer.pid().to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    if command.status()?.success() { Ok(()) } else { Err(format!("callgrind_control {what} failed").into()) }
}

/// Returns the sum of all threads from a line like `totals: 12345`.
fn total(file: &Path) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let totals = text.lines().filter_map(|line| line.strip_prefix("totals: ")?.trim().parse::<f64>().ok());
    totals.reduce(|sum, one| sum + one).ok_or_else(|| "callgrind counted nothing".into())
}
