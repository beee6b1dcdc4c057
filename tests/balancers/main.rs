//! nodegate with real load balancers, the configurations of docs/load-balancers, traffic and a simulated cluster.

// `cargo test` plays a cordon with each configuration; `make lb-test` every event, and prints the table.

mod agent_check;
mod backend;
mod balancer;
mod configurations;
mod drains;
mod event;
mod nodes;
mod proxies;
mod routing;
mod scenario;
mod table;
mod traffic;
