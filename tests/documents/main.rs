//! The files that ship beside the programs: documents, man pages, manifests, alerts, packages, the demo.

mod chart;
mod circles;
mod demo;
mod docs;
mod help;
mod man;
mod manifests;
mod packages;
mod prometheus;
mod release;
mod running_demo;
mod wrong_inputs;
