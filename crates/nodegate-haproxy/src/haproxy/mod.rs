//! HAProxy itself: its master socket, its program, and the words with which it refuses something.

pub mod command;
pub mod launch;
pub mod master;
pub mod socket;
pub mod words;
