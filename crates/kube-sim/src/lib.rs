//! A simulated Kubernetes API with switchable faults, for tests and for the demo.
//!
//! kubectl and client libraries cannot tell it from a real API server in what they use; what they
//! get when things go wrong is switched on and off at run time. Never part of the image.
//!
//! ```no_run
//! # async fn story() -> Result<(), Box<dyn std::error::Error>> {
//! use nodegate_kube_sim::{Effect, Scope, Sim};
//!
//! let sim = Sim::builder().tls(true).node("worker-1").kubelets(true).start().await?;
//! std::fs::write("kubeconfig", sim.kubeconfig())?;
//! sim.cordon("worker-1");
//! let deaf = sim.faults().add(Effect::Deaf { bookmarks: false }.on(Scope::all().resources(&["nodes"])));
//! sim.faults().remove(deaf);
//! sim.kill().await;
//! sim.restart(true).await?;
//! # Ok(())
//! # }
//! ```

mod api;
mod auth;
mod builder;
mod control;
mod counters;
mod discovery;
mod escape;
mod etcd;
mod fault;
mod journal;
mod kubeconfig;
mod kubelet;
mod lifecycle;
mod limits;
mod net;
mod node;
mod object;
mod openapi;
mod patch;
mod proto;
mod resource;
mod scene;
mod schema;
mod selector;
mod server;
mod service;
mod sim;
mod spoil;
mod status;
mod store;
mod strategy;
mod table;
mod time;
mod validate;

pub use auth::{Rule, Tokens, User};
pub use builder::{Builder, StartError};
pub use control::HELP as CONTROL_HELP;
pub use counters::{Counters, Kind, Reading};
pub use fault::{Effect, Fault, FaultId, Faults, Scope};
pub use kubelet::Timing;
pub use limits::Limits;
pub use net::tls::TlsError;
pub use node::{NodeShape, make as make_node};
pub use object::{Key, Obj, Object};
pub use resource::{RESOURCES, Resource};
pub use server::Server;
pub use sim::Sim;
pub use status::{Cause, Content, Details, Status};
pub use store::Store;
