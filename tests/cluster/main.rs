//! The agent and its API server: the whole way, faults that only sockets, kernel and files show, hostile clients.

mod e2e;
mod faults;
mod strangers;
