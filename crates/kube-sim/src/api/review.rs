//! Reviews: questions that are asked with POST and answered at once.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::write::decode;
use crate::api::auth::{Ask, User};
use crate::store::object::{child_mut, meta_mut, render};
use crate::store::status::Status;
use crate::wire::reply::{self, Reply};
use crate::wire::request::Target;

/// Answers a review.
pub(crate) fn review(target: &Target, user: &User, body: &Bytes) -> Result<Reply, Status> {
    let mut value = decode(body)?;
    meta_mut(&mut value);
    match target.resource.as_str() {
        "selfsubjectaccessreviews" => {
            let (allowed, reason) = access(user, &value);
            let status = child_mut(&mut value, "status");
            status.insert("allowed".to_owned(), json!(allowed));
            if !reason.is_empty() {
                status.insert("reason".to_owned(), json!(reason));
            }
        }
        "selfsubjectreviews" => {
            let info = json!({"username": user.name, "groups": user.groups});
            child_mut(&mut value, "status").insert("userInfo".to_owned(), info);
        }
        _ => {
            let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            let master = user.groups.iter().any(|g| g == "system:masters");
            let own = || serde_json::to_value(&user.rules).unwrap_or_default();
            let status = child_mut(&mut value, "status");
            status.insert("resourceRules".to_owned(), if master { everything } else { own() });
            status.insert("nonResourceRules".to_owned(), json!([]));
            status.insert("incomplete".to_owned(), json!(false));
        }
    }
    let mut bytes = Vec::from(render(&value));
    bytes.push(b'\n');
    Ok(reply::json(StatusCode::CREATED, bytes))
}

fn access(user: &User, review: &Value) -> (bool, &'static str) {
    if let Some(path) = review.pointer("/spec/nonResourceAttributes/path").and_then(Value::as_str) {
        return (user.may_path(path), "");
    }
    let text = |field: &str| {
        review
            .pointer(&format!("/spec/resourceAttributes/{field}"))
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let ask = Ask {
        verb: text("verb"),
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    };
    (user.may(&ask), "")
}
