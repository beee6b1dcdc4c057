//! The cluster of the simulation: a Node, a kubelet, and faults.

use super::{Follower, LINEAGES, Server, World};
use crate::freshness::{Input, NodeVersion};
use crate::stream::Stream;
use fastrand::Rng;
use nodegate_kube_follow::Connection;

impl World {
    /// Writes the Node.
    pub(super) fn write(&mut self) {
        self.version += self.rng.u64(1..5) * LINEAGES;
        self.put("a");
    }

    pub(super) fn put(&mut self, uid: &str) {
        if let Some((_, until)) = self.states.last_mut() {
            *until = Some(self.now);
        }
        let version = self.version.to_string();
        self.states.push((NodeVersion::Present { uid: uid.to_owned(), version }, None));
        match self.rng.u8(0..4) {
            0 if self.late.is_none() => self.late = Some((self.now + self.rng.u64(1..900), self.newest())),
            _ => self.tell_in_order(self.newest()),
        }
    }

    /// Delivers a state, after an earlier one that is in flight.
    pub(super) fn tell_in_order(&mut self, state: usize) {
        let late = self.late.take().map(|(_, late)| late);
        for state in late.filter(|late| *late < state).into_iter().chain([state]) {
            if self.hears(0).is_some() && self.held.is_none_or(|held| held < state) {
                self.tell_node(state);
            }
        }
    }

    pub(super) fn renew(&mut self) {
        self.renewal = self.now + 10_000;
        if !self.kubelet {
            return;
        }
        if self.hears(1).is_some() {
            self.tell_renewal(self.wall());
        } else if matches!(self.followers[1], Follower::Watches { .. }) && !self.deaf[1] {
            self.held_back.push(self.wall());
        }
    }

    pub(super) fn tell_renewal(&mut self, at: u64) {
        self.step(Input::Bytes(Stream::Lease));
        self.step(Input::Renewed { at: Some(Self::date(at)), every: None, wall: Self::date(self.wall()) });
    }

    /// Sends bookmarks; servers that are cut off from etcd still do.
    pub(super) fn bookmarks(&mut self) {
        self.bookmark = self.now + 60_000;
        for (index, stream) in [Stream::Node, Stream::Lease].into_iter().enumerate() {
            if let Follower::Watches { connection } = self.followers[index]
                && !self.server(connection).frozen
                && !self.deaf[index]
            {
                self.step(Input::Bytes(stream));
            }
        }
    }

    /// Delivers all delayed events at once.
    pub(super) fn mended(&mut self) {
        if let (Some(_), Some(held)) = (self.hears(0), self.held) {
            for state in held + 1..self.states.len() {
                self.tell_node(state);
            }
        }
        if self.hears(1).is_some() {
            for at in std::mem::take(&mut self.held_back) {
                self.tell_renewal(at);
            }
        }
    }

    /// Ends and resumes the Node's watch, which may then deliver old events.
    pub(super) fn resume(&mut self) {
        let Follower::Watches { connection } = self.followers[0] else { return };
        self.step(Input::Closed(Stream::Node));
        if self.server(connection).frozen {
            self.followers[0] = Follower::Rests { until: self.now + 3000 };
            self.next_connection = self.rng.u64(100..1_000_000);
            return;
        }
        self.step(Input::Accepted(Stream::Node, Connection::of_client(connection)));
        if let (Some(held), true) = (self.held, self.rng.bool()) {
            self.tell_node(held);
        }
    }

    pub(super) fn something_happens(&mut self) {
        let server = self.rng.usize(0..2);
        let kind = self.rng.u8(0..16);
        match kind {
            _ if self.kinds & (1 << kind) == 0 => {}
            0..=4 => self.write(),
            5 => self.servers[server].cut = [true; 2],
            6 if self.one_stream => self.servers[server].cut[self.rng.usize(0..2)] = true,
            7 => self.servers[server].frozen = true,
            8 => self.servers[server].refuses = true,
            9 | 10 => {
                self.servers[server] = Server::default();
                self.mended();
            }
            11 => self.resume(),
            12 if self.one_stream => self.deaf[self.rng.usize(0..2)] = true,
            13 => self.set_by += self.rng.i64(-100_000..100_000),
            14 => self.kubelet = !self.kubelet,
            // etcd is restored, or the Node is recreated; open watches get no event of the former.
            15 if self.one_stream => {
                self.lineage = (self.lineage + 1) % LINEAGES;
                self.version = self.rng.u64(0..=self.version / LINEAGES) * LINEAGES + self.lineage;
                self.deaf = [true; 2];
                let uid = ["a", "b"][self.rng.usize(0..2)];
                self.put(uid);
            }
            _ => {}
        }
    }

    /// Draws the kinds of faults: one kind alone, often, finds errors that all of them together hide.
    pub(super) fn kinds(rng: &mut Rng) -> u16 {
        match rng.u8(0..3) {
            0 => u16::MAX,
            1 => rng.u16(..) | 1,
            _ => rng.u16(..) & rng.u16(..) | 1,
        }
    }

    pub(super) fn heal(&mut self) {
        self.servers = [Server::default(); 2];
        self.kubelet = true;
        self.quick = true;
        self.mended();
    }
}
