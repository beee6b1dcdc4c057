//! nodegate in front of real load balancers: the configurations of docs/load-balancers, real programs,
//! constant traffic, and three agents on a simulated cluster.

// `cargo test` plays a cordon with each configuration; `make lb-test` plays every row with every event and
// prints the table.

mod agent_check;
mod apache;
mod backend;
mod balancer;
mod bgp;
mod caddy;
mod drains;
mod envoy;
mod event;
mod haproxy;
mod keepalived;
mod lan;
mod nginx;
mod nodes;
mod picture;
mod scenarios;
mod site;
mod stage;
mod table;
mod traefik;
mod traffic;
