//! The epoll set of the kept connections.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The maximum number of connections reported at a time.
const MOST_EVENTS: usize = 64;

/// The key that reports [`Poller::end`]. Keys of connections do not get this high.
const END: u64 = u64::MAX;

/// The waiting connections, as an epoll set.
///
/// The set is edge-triggered: it reports a connection once when bytes arrive, even if they arrived before the
/// connection was added.
pub(super) struct Poller {
    epoll: OwnedFd,
    end: OwnedFd,
}

/// A connection on which bytes have arrived.
pub(super) struct Ready {
    pub(super) key: u64,
    /// True if the client has ended the connection, with or without bytes before the end.
    pub(super) hung_up: bool,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
        Ok(Self { epoll, end })
    }

    /// Reports `socket` as `key` from now on.
    pub(super) fn add(&self, socket: impl AsFd, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(key), flags)
    }

    /// Stops reporting `socket`. A closed socket leaves the set by itself.
    pub(super) fn remove(&self, socket: impl AsFd) {
        // Can't fail: the socket is in the set.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Waits, and calls `call` for each ready connection, until [`end`](Self::end) is called.
    pub(super) fn run(&self, mut call: impl FnMut(Ready)) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        let mut ended = false;
        while !ended {
            events.clear();
            retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut events), None))?;
            for event in &events {
                let (key, flags) = (event.data.u64(), event.flags);
                if key == END {
                    ended = true;
                } else {
                    let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                    call(Ready { key, hung_up });
                }
            }
        }
        Ok(())
    }

    /// Ends [`run`](Self::run).
    pub(super) fn end(&self) {
        // Can't fail: the counter has room for more ends than can happen.
        let _ = write(&self.end, &1u64.to_ne_bytes());
    }
}
