//! The network between programs: addresses and ports, namespaces, cables.

pub mod cable;
pub mod namespaces;
pub mod node_network;
pub mod ports;
