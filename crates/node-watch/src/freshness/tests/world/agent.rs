//! The agent of the simulation: executes the state machine's actions.

use super::{Follower, Question, World, moment};
use crate::freshness::{Action, Input, Refusal, Why};
use crate::stream::Stream;
use nodegate_kube_follow::Connection;
use std::time::Duration;

impl World {
    pub(super) fn step(&mut self, input: Input) {
        for action in self.machine.step(input, moment(self.now)) {
            match action {
                Action::ProveNode(at) | Action::Prove(at) => {
                    assert!(at <= moment(self.now), "proof from the future");
                    self.proved = self.proved.max(Some(at));
                }
                Action::Ask { question, on_a_new_connection } => self.ask(question, on_a_new_connection),
                Action::MoveToTheAnswer => self.next_connection = self.answered_on,
                Action::Replace(stream, why) => self.replace(stream, why),
                Action::Found(..)
                | Action::FollowService(_)
                | Action::LoseService(..)
                | Action::LeaseRenewed(_)
                | Action::DropTheAnswer => {}
            }
        }
        let wakes = self.machine.wake_at();
        assert!(wakes.is_none_or(|at| at > moment(self.now)), "it wants to be woken at once, for ever");
    }

    pub(super) fn ask(&mut self, question: u64, on_a_new_connection: bool) {
        self.asked += 1;
        let Follower::Watches { connection } = self.followers[0] else { panic!("nobody is watching") };
        let connection = if on_a_new_connection { self.rng.u64(100..1_000_000) } else { connection };
        let server = self.server(connection);
        let never = server.frozen || server.cut[0];
        let takes = if self.quick || self.rng.u8(0..8) > 0 { 400 } else { 4000 };
        if !never {
            // The server reads the state at once, or when it answers.
            let read = self.rng.bool().then(|| self.states[self.newest()].0.clone());
            let at = self.now + self.rng.u64(0..takes);
            self.questions.push(Question { at, number: question, connection, read });
        }
    }

    pub(super) fn replace(&mut self, stream: Stream, why: Why) {
        let index = usize::from(stream == Stream::Lease);
        self.step(Input::Closed(stream));
        let Follower::Watches { connection } = self.followers[index] else { return };
        if index == 0 && why == Why::Deaf {
            self.next_connection = connection;
        }
        self.followers[index] = Follower::Rests { until: self.now + self.rng.u64(1..1500) };
    }

    pub(super) fn answer(&mut self, Question { number: question, connection, read, .. }: Question) {
        self.answered_on = connection;
        if self.server(connection).refuses {
            let retry_after = self.rng.bool().then_some(Duration::from_secs(2));
            let refusal = if self.rng.bool() {
                Refusal::Answered { retry_after }
            } else {
                Refusal::Unheard { retry_after }
            };
            return self.step(Input::Unanswered { question, refusal });
        }
        let node = read.unwrap_or_else(|| self.states[self.newest()].0.clone());
        self.step(Input::Answered { question, node, connection: Connection::of_client(connection) });
    }

    /// Lists and watches for a follower; both take no time.
    pub(super) fn follow(&mut self, index: usize) {
        let stream = [Stream::Node, Stream::Lease][index];
        let connection = match (index, self.followers[0]) {
            (0, _) => self.next_connection,
            (_, Follower::Watches { connection }) => connection,
            (_, Follower::Rests { until }) => {
                self.followers[index] = Follower::Rests { until: until + 10 };
                return;
            }
        };
        self.step(Input::Began(stream));
        let server = self.server(connection);
        if server.frozen || server.cut[index] || server.refuses || (index == 1 && !self.leases) {
            self.followers[index] = Follower::Rests { until: self.now + self.rng.u64(100..10_000) };
            if index == 0 {
                self.next_connection = self.rng.u64(100..1_000_000);
            }
            return;
        }
        let on = Connection::of_client(connection);
        if index == 0 {
            self.held = Some(self.newest());
            let node = self.states[self.newest()].0.clone();
            self.step(Input::Listed { asked_at: moment(self.now), node });
        }
        self.deaf[index] = false;
        self.followers[index] = Follower::Watches { connection };
        self.step(Input::Accepted(stream, on));
    }

    pub(super) fn tell_node(&mut self, state: usize) {
        self.held = Some(state);
        let node = self.states[state].0.clone();
        self.step(Input::Bytes(Stream::Node));
        self.step(Input::Changed(node));
    }

    /// Returns the connection of a follower's watch, if events arrive on it now.
    pub(super) fn hears(&self, index: usize) -> Option<u64> {
        let Follower::Watches { connection } = self.followers[index] else { return None };
        let server = self.server(connection);
        (!server.frozen && !server.cut[index] && !self.deaf[index]).then_some(connection)
    }
}
