//! The network between programs: addresses and ports, namespaces, cables, proxies.

pub mod cable;
pub mod namespaces;
pub mod node_network;
pub mod ports;
pub mod proxy;
