//! The view of an edit on all other objects.

use super::State;
use crate::store::object::Obj;
use crate::store::resource::Resource;
use crate::store::selector::Selector;

/// All objects at the time of an edit. The store's lock keeps out other writers.
pub(crate) struct View<'a>(pub(super) &'a State);

impl View<'_> {
    /// Returns all objects of a resource, or those in one namespace.
    pub(crate) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Obj> {
        self.0.select(resource, namespace, &Selector::default())
    }
}
