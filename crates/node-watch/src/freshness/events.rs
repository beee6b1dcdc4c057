//! Reads the events of the streams, and decides which of them are proof.

use super::lease_renewal::Step;
use super::node_state::NodeVersion;
use super::stream_state::BOOKMARK_OVERDUE;
use super::transition::Transition;
use super::{Action, FreshnessMonitor, RENEWAL_LATE, RENEWED_EVERY};
use crate::stream::{NODE, StreamId};
use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::time::SystemTime;

impl FreshnessMonitor {
    pub(super) fn listed(&mut self, asked_at: Moment, node: NodeVersion, now: Moment) {
        // A list is complete, even if it is older.
        self.cached = NodeVersion::Unknown;
        self.confirmed_absence = false;
        self.cache(node, now);
        self.count(Transition::NodeListed);
        self.outage_is_over(asked_at, now);
        self.check.backoff.reset();
        self.prove_node(asked_at, None);
    }

    pub(super) fn accepted(&mut self, stream: StreamId, connection: Connection, now: Moment) {
        let Some(watch) = self.watch_mut(stream) else { return };
        (watch.connection, watch.last_bytes) = (Some(connection), Some(now));
        if stream == NODE && self.proved_on.is_none() {
            self.proved_on = Some(connection);
            // The list's proof now has a connection.
            if let Some(at) = self.node_proved {
                self.prove(at, false, Some(connection));
            }
        }
    }

    /// Handles an event of the Node. It is news without a date: an API server that responds again, or is in
    /// touch with etcd again, first sends old events, and may never get to the end of them.
    pub(super) fn changed(&mut self, node: NodeVersion, now: Moment) {
        // An absence has no version: this Node may be older than the check that confirmed the absence.
        let was_absent = std::mem::take(&mut self.confirmed_absence);
        if !self.cache(node, now) {
            self.count(Transition::NodeEventFromThePast);
            // A server that keeps replaying history does not cause a check each time.
            if self.check.verified.is_none_or(|verified| now.since(verified) > RENEWED_EVERY) {
                self.check.early = true;
            }
        } else if self.node.is_open() {
            let stale = self.is_stale(now);
            self.count(if stale { Transition::NodeEventWhileStale } else { Transition::NodeEvent });
            if was_absent {
                self.check.early = true;
            }
        }
    }

    pub(super) fn renewed(&mut self, at: Option<SystemTime>, wall: SystemTime, now: Moment) {
        self.look_at_clock(wall, now);
        let date = at.ok_or(Transition::LeaseWithoutDate);
        let date = date.and_then(|at| self.clock.date(at, now, self.check.stale_after));
        if let Ok(date) = date {
            self.actions.push(Action::LeaseRenewed(date));
        }
        match date.and_then(|date| Ok((date, self.lease_speaks(now)?))) {
            Ok((date, connection)) => {
                self.count(Transition::LeaseProved);
                self.prove(date, false, Some(connection));
                // The API server works again: the next failure is the first of another outage.
                self.check.failing = false;
                // The next one comes too late to count. With this one there is the most time for the check.
                let next = date.plus(RENEWED_EVERY.mul_f64(RENEWAL_LATE));
                if self.lease_speaks_until.is_some_and(|until| next > until) {
                    self.count(Transition::LeaseSpokeLast);
                    self.check.early = true;
                }
            }
            Err(silenced) => self.count(silenced),
        }
    }

    /// Returns the connection on which the Lease counts for the Node, or the reason why it does not.
    fn lease_speaks(&self, now: Moment) -> Result<Connection, Transition> {
        let connection = self.node.connection().ok_or(Transition::LeaseWithoutNodeWatch)?;
        let heard = self.node.last_bytes.max(self.check.verified);
        if !self.lease.is_on(connection) {
            Err(Transition::LeaseWithoutNodeWatch)
        } else if self.proved_on != Some(connection) {
            Err(Transition::LeaseOnAnotherServer)
        } else if self.is_stale(now) {
            Err(Transition::LeaseWhileStale)
        } else if heard.is_none_or(|heard| now.since(heard) > BOOKMARK_OVERDUE) {
            Err(Transition::LeaseWithoutBookmarks)
        } else if self.lease_speaks_until.is_none_or(|until| now > until) {
            Err(Transition::LeaseSpokeTooLong)
        } else {
            Ok(connection)
        }
    }

    pub(super) fn look_at_clock(&mut self, wall: SystemTime, now: Moment) {
        match self.clock.look(now, wall) {
            Some(Step::Back) => self.count(Transition::ClockSetBack),
            // The machine may have stood still, and the monotonic clock with it.
            Some(Step::Forward) => {
                self.count(Transition::ClockSetForward);
                self.check.early = true;
            }
            None => {}
        }
    }
}
