//! Rounds over all peers and all kinds of load. The rounds alternate, so other work of the machine affects
//! all peers alike.

use crate::Failure;
use crate::latencies::{Latencies, median};
use crate::load::{Connections, End, Load};
use crate::peer::{Kind, Peer};
use nodegate_testbed::process;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::time::Duration;

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) connections: Connections,
    pub(crate) clients: u32,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [
        Self { connections: Connections::New, clients: 1 },
        Self { connections: Connections::New, clients: 64 },
        Self { connections: Connections::Kept, clients: 1 },
        Self { connections: Connections::Kept, clients: 64 },
    ];

    pub(crate) fn name(self) -> String {
        let connections = self.connections.name();
        match self.clients {
            1 => format!("{connections}, 1 client"),
            clients => format!("{connections}, {clients} clients"),
        }
    }

    pub(crate) fn load(self, peer: &Peer) -> Load {
        Load { address: peer.address, connections: self.connections, clients: self.clients }
    }
}

/// The measurements of one peer under one kind of load, over all rounds.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) way: Way,
    pub(crate) kind: Kind,
    /// CPU microseconds per request, by round.
    pub(crate) cpu: Vec<f64>,
    /// Requests per second, by round.
    pub(crate) per_second: Vec<f64>,
    /// The latencies of all rounds.
    pub(crate) latencies: Latencies,
}

impl Cell {
    pub(crate) fn cpu(&self) -> f64 {
        median(&self.cpu)
    }

    pub(crate) fn per_second(&self) -> f64 {
        median(&self.per_second)
    }

    /// Returns the median of the rounds' ratios of CPU time. A disturbance of a round affects both peers.
    pub(crate) fn cpu_ratio(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> = self.cpu.iter().zip(&other.cpu).map(|(ours, theirs)| ours / theirs).collect();
        median(&ratios)
    }
}

/// The cells of all peers and kinds of load.
#[derive(Debug)]
pub(crate) struct Rounds(pub(crate) Vec<Cell>);

impl Rounds {
    /// Runs all rounds and returns the cells and the last peers. `each` is the time for one peer and one kind
    /// of load.
    ///
    /// Each round starts new peers: a process costs a few per cent more or less than another of its kind for
    /// its whole life, depending on the place of its memory. Each round has another order: a peer that runs
    /// after a peer that leaves the machine idle costs a few per cent more, too.
    pub(crate) fn run(
        start: impl Fn() -> io::Result<Vec<Peer>>,
        rounds: u32,
        each: Duration,
    ) -> Result<(Self, Vec<Peer>), Failure> {
        let (mut cells, mut peers) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            peers.clear();
            peers = start()?;
            if cells.is_empty() {
                cells = Cell::all(&peers);
            }
            for cell in in_other_order(&mut cells, round) {
                let Some(peer) = peers.iter().find(|peer| peer.kind == cell.kind) else { continue };
                cell.measure(peer, each)?;
            }
            eprintln!("round {round} of {rounds} done");
        }
        Ok((Self(cells), peers))
    }

    pub(crate) fn cell(&self, kind: Kind, way: Way) -> Option<&Cell> {
        self.0.iter().find(|cell| cell.kind == kind && cell.way == way)
    }
}

/// Returns the cells, one kind of load after the other. The order within a kind depends on the round.
fn in_other_order(cells: &mut [Cell], round: u32) -> Vec<&mut Cell> {
    let mut cells: Vec<_> = cells.iter_mut().enumerate().collect();
    cells.sort_by_cached_key(|(number, cell)| {
        let mut hasher = DefaultHasher::new();
        (round, number).hash(&mut hasher);
        (Way::ALL.iter().position(|way| *way == cell.way), hasher.finish())
    });
    cells.into_iter().map(|(_, cell)| cell).collect()
}

impl Cell {
    /// Returns an empty cell for each peer and each kind of load.
    fn all(peers: &[Peer]) -> Vec<Self> {
        let empty = |way, kind| {
            let (cpu, per_second, latencies) = Default::default();
            Self { way, kind, cpu, per_second, latencies }
        };
        Way::ALL.into_iter().flat_map(|way| peers.iter().map(move |peer| empty(way, peer.kind))).collect()
    }

    fn measure(&mut self, peer: &Peer, each: Duration) -> Result<(), Failure> {
        let load = self.way.load(peer);
        load.run(End::Requests(u64::from(self.way.clients) * 4))?;
        let before = process::cpu(peer.pid());
        let outcome = load.run(End::After(each))?;
        let used = process::cpu(peer.pid()).saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "requests of seconds")]
        let requests = outcome.latencies.count() as f64;
        self.cpu.push(used.as_secs_f64() * 1e6 / requests);
        self.per_second.push(requests / outcome.elapsed.as_secs_f64());
        self.latencies.append(&outcome.latencies);
        Ok(())
    }
}
