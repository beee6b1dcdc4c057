//! Learns a head: records the first exchange of a connection that went to hyper, and remembers it if it can
//! be repeated.

use super::known_heads::{Exchange, KnownHeads, MOST_BYTES};
use crate::answer::ServedAnswer;
use crate::networks::holder_of;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The record that the stream and the handler of one connection write together.
pub(super) struct Lesson {
    known_heads: Arc<Mutex<KnownHeads>>,
    teacher: IpAddr,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    head: Vec<u8>,
    told: Option<ServedAnswer>,
    answer: Vec<u8>,
    /// True if the whole answer has been sent.
    flushed: bool,
    /// True if nothing can be learned, or not any more.
    over: bool,
}

impl Lesson {
    /// Starts a record at the first bytes of a connection.
    pub(super) fn new(known_heads: Arc<Mutex<KnownHeads>>, teacher: IpAddr) -> Arc<Self> {
        Arc::new(Self { known_heads, teacher: holder_of(teacher), notes: Mutex::default() })
    }

    /// Notes received bytes.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut notes = self.notes();
        // A body, or another request.
        notes.over |= notes.told.is_some();
        notes.append(|notes| &mut notes.head, bytes);
    }

    /// Notes that hyper has parsed a request; `told` is the answer if it can be sent again.
    pub(super) fn parsed(&self, told: Option<ServedAnswer>) {
        let mut notes = self.notes();
        notes.over |= notes.told.is_some() || told.is_none();
        notes.told = told;
    }

    /// Notes sent bytes.
    pub(super) fn sent(&self, bytes: &[u8]) {
        let mut notes = self.notes();
        // A second answer.
        notes.over |= notes.flushed;
        notes.append(|notes| &mut notes.answer, bytes);
    }

    /// Notes that hyper has nothing left to send.
    pub(super) fn flushed(&self) {
        let mut notes = self.notes();
        notes.flushed |= !notes.answer.is_empty();
    }

    /// Called when hyper wants to read. Returns true if the exchange is complete and the connection continues
    /// after it.
    pub(super) fn goes_on(&self) -> bool {
        let flushed = self.notes().flushed;
        if flushed {
            self.learn(false);
        }
        flushed
    }

    /// Called when hyper has ended the connection in order.
    pub(super) fn ended(&self) {
        self.learn(true);
    }

    fn learn(&self, ends: bool) {
        let mut notes = std::mem::take(&mut *self.notes());
        if let (Some(told), true, false) = (notes.told.take(), notes.flushed, notes.over) {
            let exchange = Exchange { head: &notes.head, answer: &notes.answer, told, ends };
            let mut known_heads = self.known_heads.lock().unwrap_or_else(PoisonError::into_inner);
            known_heads.remember(exchange, self.teacher);
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    fn append(&mut self, to: impl FnOnce(&mut Self) -> &mut Vec<u8>, bytes: &[u8]) {
        if self.over {
            return;
        }
        let text = to(self);
        let fits = text.len() + bytes.len() <= MOST_BYTES;
        if fits {
            text.extend_from_slice(bytes);
        }
        self.over |= !fits;
    }
}
