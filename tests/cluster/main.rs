//! The agent and its API server: faults that only sockets and the kernel show, and hostile clients.

mod faults;
mod strangers;
