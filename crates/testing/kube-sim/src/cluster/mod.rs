//! The parts of a cluster besides its API server.

pub(crate) mod base;
mod endpoints;
pub(crate) mod kubelet;
pub(crate) mod node;
pub(crate) mod node_controller;
pub(crate) mod pods;
pub(crate) mod workloads;

use crate::store::Store;
use crate::store::object::Obj;
use crate::store::resource::by_plural;
use crate::store::selector::Selector;

fn list(store: &Store, plural: &str) -> Vec<Obj> {
    store.list(by_plural(plural), None, &Selector::default()).1
}
