//! The connections that wait for a request, as the kernel sees them: an epoll set of their own.
//!
//! Edge-triggered: a connection is reported when something comes, also if that was before it was added, and once.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How many connections are reported at a time.
const MOST_EVENTS: usize = 64;

/// What is reported of [`Poller::end`]. No connection's key comes as far.
const END: u64 = u64::MAX;

pub(super) struct Poller {
    epoll: OwnedFd,
    end: OwnedFd,
}

/// A connection on which something has come.
pub(super) struct Ready {
    pub(super) key: u64,
    /// Whether that is, or is followed by, the client's end.
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

    /// No longer. A socket that is closed goes by itself.
    pub(super) fn remove(&self, socket: impl AsFd) {
        // It has been added.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Waits, and calls for each that is ready, until [`end`](Self::end) is called.
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
        // It has room for more ends than there can be.
        let _ = write(&self.end, &1u64.to_ne_bytes());
    }
}
