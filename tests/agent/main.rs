//! The real agent as a child process, through its sockets, with a simulated cluster and real programs around it.

mod access;
mod apiserver;
mod credentials;
mod disks;
mod drain_on;
mod host_signals;
mod local_checks;
mod local_ports;
mod network;
mod restarts;
mod rtnl;
mod startup;
mod status;
mod unknown;
mod upgrade;
mod wait;
