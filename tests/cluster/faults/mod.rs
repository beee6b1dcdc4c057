//! The faults of connections, certificates, files, clock and descriptors: the real program on a simulated cluster, with
//! a load balancer that probes it before, during and after the fault. The simulation has the API server's other faults.

// `make faults` prints a line for each.

mod connections;
mod host;
mod scene;
