//! The form of objects that a client asks for.

use crate::store::object::render_item;
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;
use serde_json::{Value, json};
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectFormat {
    Object,
    Metadata,
}

impl ObjectFormat {
    /// Parses `Accept`. The client must accept JSON, as kubectl does.
    pub(crate) fn of(accept: &str) -> Result<Self, ApiStatus> {
        let in_json = |offer: &&str| {
            let media_type = offer.split(';').next().unwrap_or_default().trim();
            matches!(media_type, "" | "application/json" | "application/*" | "*/*")
        };
        let format = |offer: &str| match offer.split_once("as=") {
            None => Some(Self::Object),
            Some((_, form)) => form.starts_with("PartialObjectMetadata").then_some(Self::Metadata),
        };
        accept.split(',').filter(in_json).find_map(format).ok_or_else(ApiStatus::not_acceptable)
    }

    fn form(self, object: &Value) -> Cow<'_, Value> {
        match self {
            Self::Object => Cow::Borrowed(object),
            Self::Metadata => Cow::Owned(json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
            })),
        }
    }

    pub(crate) fn render(self, object: &Value) -> String {
        self.form(object).to_string()
    }

    /// Renders an item of a list. Whole objects have no type there.
    pub(crate) fn render_item(self, object: &Value) -> String {
        match self {
            Self::Object => render_item(object),
            Self::Metadata => self.render(object),
        }
    }

    /// Returns the kind and the API version of a list of this resource.
    pub(crate) fn list_type(self, resource: &Resource) -> (String, String) {
        match self {
            Self::Object => (format!("{}List", resource.kind), resource.api_version()),
            Self::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        }
    }
}
