//! The files that ship beside the programs are correct and work: documents, man pages, manifests, alerts and
//! dashboard, the demo.

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
