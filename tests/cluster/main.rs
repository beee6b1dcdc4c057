//! The agent and its API server: the way through the whole program on any cluster, faults that only sockets, kernel
//! and files show, and hostile clients.

mod e2e;
mod faults;
mod strangers;
