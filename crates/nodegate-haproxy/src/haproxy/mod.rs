//! The interfaces of HAProxy: its sockets, its program and the file of its server states.

pub mod blame;
pub mod master;
pub(crate) mod rights;
pub mod socket;
pub mod state_file;
pub mod validate;
pub mod version;
