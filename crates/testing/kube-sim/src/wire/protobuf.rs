//! The few protobuf kinds that kubectl sends without being asked. Other kinds get 415.

// Tags are those of `generated.proto` in Kubernetes' API packages.

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

/// The wrapper of every encoded object, after the four bytes `k8s\0`.
#[derive(Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Message, Serialize)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

/// An object with a name.
#[derive(Message, Serialize)]
struct Bare {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions {
    #[prost(int64, optional, tag = "1")]
    grace_period_seconds: Option<i64>,
    #[prost(string, optional, tag = "4")]
    propagation_policy: Option<String>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Eviction {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    delete_options: Option<DeleteOptions>,
}

/// An object in the form of JSON: its type and its fields side by side.
#[derive(Serialize)]
struct JsonObject<T> {
    #[serde(flatten)]
    type_meta: TypeMeta,
    #[serde(flatten)]
    object: T,
}

/// Turns an encoded object into JSON if its kind is supported.
pub(crate) fn to_json(body: &Bytes) -> Option<Bytes> {
    let unknown = Unknown::decode(body.strip_prefix(b"k8s\0")?).ok()?;
    let type_meta = unknown.type_meta?;
    match type_meta.kind.as_str() {
        "DeleteOptions" => json::<DeleteOptions>(type_meta, &unknown.raw),
        "Eviction" => json::<Eviction>(type_meta, &unknown.raw),
        "Namespace" => json::<Bare>(type_meta, &unknown.raw),
        _ => None,
    }
}

fn json<T: Message + Default + Serialize>(type_meta: TypeMeta, raw: &[u8]) -> Option<Bytes> {
    let object = T::decode(raw).ok()?;
    serde_json::to_vec(&JsonObject { type_meta, object }).ok().map(Bytes::from)
}
