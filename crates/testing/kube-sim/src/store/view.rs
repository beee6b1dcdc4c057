//! What an edit sees besides the object that it is about.

use super::State;
use crate::store::object::Obj;
use crate::store::resource::Resource;
use crate::store::selector::Selector;

/// All objects as an edit finds them, while nobody else can write.
pub(crate) struct View<'a>(pub(super) &'a State);

impl View<'_> {
    /// Returns all objects of a resource (in one namespace).
    pub(crate) fn list(&self, resource: &Resource, namespace: Option<&str>) -> Vec<Obj> {
        self.0.select(resource, namespace, &Selector::default())
    }
}
