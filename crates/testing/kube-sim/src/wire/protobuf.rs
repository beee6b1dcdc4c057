//! The few protobuf kinds that kubectl sends without being asked. Other kinds are refused with 415, as by an
//! API server that does not know the media type. Tags are those of `generated.proto` in Kubernetes' API
//! packages.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use prost::Message;
use serde::{Serialize, Serializer};

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
    #[prost(map = "string, string", tag = "11")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "12")]
    annotations: HashMap<String, String>,
}

/// An object of a kind with little more than a name.
#[derive(Message, Serialize)]
struct Bare {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Message, Serialize)]
struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(map = "string, string", tag = "2")]
    data: HashMap<String, String>,
}

/// A Secret. Helm keeps its releases in these.
#[derive(Message, Serialize)]
struct Secret {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(map = "string, bytes", tag = "2")]
    #[serde(serialize_with = "in_base64")]
    data: HashMap<String, Vec<u8>>,
    #[prost(string, tag = "3")]
    r#type: String,
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
struct Typed<T> {
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
        "Namespace" | "ServiceAccount" => json::<Bare>(type_meta, &unknown.raw),
        "ConfigMap" => json::<ConfigMap>(type_meta, &unknown.raw),
        "Secret" => json::<Secret>(type_meta, &unknown.raw),
        _ => None,
    }
}

fn json<T: Message + Default + Serialize>(type_meta: TypeMeta, raw: &[u8]) -> Option<Bytes> {
    let object = T::decode(raw).ok()?;
    serde_json::to_vec(&Typed { type_meta, object }).ok().map(Bytes::from)
}

/// Serializes bytes in base64, as JSON has them.
fn in_base64<S: Serializer>(data: &HashMap<String, Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(data.iter().map(|(key, bytes)| (key, STANDARD.encode(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_eviction_is_read() {
        let body =
            b"k8s\0\x0a\x15\x0a\x09policy/v1\x12\x08Eviction\x12\x0c\x0a\x0a\x0a\x01p\x12\x00\x1a\x03abc";
        let json = to_json(&Bytes::from_static(body)).expect("decodes");
        let value: Value = serde_json::from_slice(&json).expect("json");
        let metadata = json!({"name": "p", "namespace": "abc", "labels": {}, "annotations": {}});
        let expected = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": null});
        assert_eq!(value, expected);
        assert!(to_json(&Bytes::from_static(b"k8s\0\xff\xff\xff")).is_none());
    }

    #[test]
    fn a_secrets_bytes_become_base64() {
        let data = HashMap::from([("release".to_owned(), vec![0, 255])]);
        let secret = Secret { metadata: None, data, r#type: "helm.sh/release.v1".to_owned() };
        let type_meta = TypeMeta { api_version: "v1".to_owned(), kind: "Secret".to_owned() };
        let unknown = Unknown { type_meta: Some(type_meta), raw: secret.encode_to_vec() };
        let body = [b"k8s\0".as_slice(), &unknown.encode_to_vec()].concat();
        let json = to_json(&Bytes::from(body)).expect("decodes");
        let value: Value = serde_json::from_slice(&json).expect("json");
        assert_eq!(value["data"], json!({"release": "AP8="}));
        assert_eq!((&value["kind"], &value["type"]), (&json!("Secret"), &json!("helm.sh/release.v1")));
    }
}
