//! What ships beside the programs is true and works: documents, man pages, manifests, alerts and dashboard, the demo.

mod chart;
mod demo;
mod docs;
mod man;
mod manifests;
mod prometheus;
mod release;
mod running_demo;
mod tools;
