//! What is said to HAProxy, and what it says: its sockets, its program, the file of its servers' states.

pub mod blame;
pub mod master;
pub(crate) mod rights;
pub mod socket;
pub mod state_file;
pub mod validate;
pub mod version;
