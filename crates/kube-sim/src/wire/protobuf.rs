//! The little protobuf that kubectl sends without being asked: options, evictions, reviews, and the
//! simplest objects. Others are refused with 415, as by an API server that does not know the media type.

use bytes::Bytes;
use serde_json::{Map, Value, json};

/// A field: its number, and a number or bytes.
enum Field<'a> {
    Number(u64, u64),
    Bytes(u64, &'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn fields(mut bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        match tag & 7 {
            0 => all.push(Field::Number(tag >> 3, varint(&mut bytes)?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (body, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                all.push(Field::Bytes(tag >> 3, body));
            }
            _ => return None,
        }
    }
    Some(all)
}

fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

/// How the bytes of a field are read.
type Reader = fn(&[u8]) -> Option<Value>;

/// A message whose fields are listed as (number, name, how to read bytes).
fn message(bytes: &[u8], known: &[(u64, &str, Reader)]) -> Option<Value> {
    let mut map = Map::new();
    for field in fields(bytes)? {
        match field {
            Field::Bytes(number, body) => {
                if let Some((_, name, read)) = known.iter().find(|(n, ..)| *n == number) {
                    let value = read(body)?;
                    match (map.get_mut(*name), value) {
                        // Entries of a map come one by one.
                        (Some(Value::Object(all)), Value::Object(one)) => all.extend(one),
                        (_, value) => {
                            map.insert((*name).to_owned(), value);
                        }
                    }
                }
            }
            Field::Number(number, value) => {
                if let Some((_, name, _)) = known.iter().find(|(n, ..)| *n == number) {
                    map.insert((*name).to_owned(), json!(value));
                }
            }
        }
    }
    Some(Value::Object(map))
}

#[allow(clippy::unnecessary_wraps, reason = "it is a Reader")]
fn string(bytes: &[u8]) -> Option<Value> {
    Some(text(bytes))
}

/// One entry of a `map<string, …>`.
fn entry(bytes: &[u8], read: Reader) -> Option<Value> {
    let (mut key, mut value) = (String::new(), json!(""));
    for field in fields(bytes)? {
        match field {
            Field::Bytes(1, text) => key = String::from_utf8_lossy(text).into_owned(),
            Field::Bytes(2, body) => value = read(body)?,
            _ => {}
        }
    }
    Some(json!({ key: value }))
}

fn text_entry(bytes: &[u8]) -> Option<Value> {
    entry(bytes, string)
}

/// Bytes in a map are base64 in JSON.
fn data_entry(bytes: &[u8]) -> Option<Value> {
    use base64::Engine as _;
    entry(bytes, |raw| Some(json!(base64::engine::general_purpose::STANDARD.encode(raw))))
}

fn metadata(bytes: &[u8]) -> Option<Value> {
    let known: &[(u64, &str, Reader)] = &[
        (1, "name", string),
        (2, "generateName", string),
        (3, "namespace", string),
        (11, "labels", text_entry),
        (12, "annotations", text_entry),
    ];
    message(bytes, known)
}

fn config_map(bytes: &[u8]) -> Option<Value> {
    message(bytes, &[(1, "metadata", metadata), (2, "data", text_entry), (3, "binaryData", data_entry)])
}

fn secret(bytes: &[u8]) -> Option<Value> {
    let known: &[(u64, &str, Reader)] = &[
        (1, "metadata", metadata),
        (2, "data", data_entry),
        (3, "type", string),
        (4, "stringData", text_entry),
    ];
    message(bytes, known)
}

fn preconditions(bytes: &[u8]) -> Option<Value> {
    message(bytes, &[(1, "uid", string), (2, "resourceVersion", string)])
}

#[allow(clippy::unnecessary_wraps, reason = "it is a Reader")]
fn dry_run(bytes: &[u8]) -> Option<Value> {
    Some(json!([text(bytes)]))
}

fn delete_options(bytes: &[u8]) -> Option<Value> {
    let known: &[(u64, &str, Reader)] = &[
        (1, "gracePeriodSeconds", string),
        (2, "preconditions", preconditions),
        (4, "propagationPolicy", string),
        (5, "dryRun", dry_run),
    ];
    message(bytes, known)
}

fn attributes(bytes: &[u8]) -> Option<Value> {
    let known: &[(u64, &str, Reader)] = &[
        (1, "namespace", string),
        (2, "verb", string),
        (3, "group", string),
        (4, "version", string),
        (5, "resource", string),
        (6, "subresource", string),
        (7, "name", string),
    ];
    message(bytes, known)
}

fn path_attributes(bytes: &[u8]) -> Option<Value> {
    message(bytes, &[(1, "path", string), (2, "verb", string)])
}

fn review_spec(bytes: &[u8]) -> Option<Value> {
    message(bytes, &[(1, "resourceAttributes", attributes), (2, "nonResourceAttributes", path_attributes)])
}

fn type_meta(bytes: &[u8]) -> Option<Value> {
    message(bytes, &[(1, "apiVersion", string), (2, "kind", string)])
}

/// Turns an encoded object (`k8s\0` and a `runtime.Unknown`) into JSON, if its kind is known here.
pub(crate) fn to_json(body: &Bytes) -> Option<Bytes> {
    let (mut meta, mut raw) = (json!({}), [].as_slice());
    for field in fields(body.strip_prefix(b"k8s\0")?)? {
        match field {
            Field::Bytes(1, bytes) => meta = type_meta(bytes)?,
            Field::Bytes(2, bytes) => raw = bytes,
            _ => {}
        }
    }
    let mut value = match meta.get("kind")?.as_str()? {
        "DeleteOptions" => delete_options(raw)?,
        "Eviction" => message(raw, &[(1, "metadata", metadata), (2, "deleteOptions", delete_options)])?,
        "SelfSubjectAccessReview" => message(raw, &[(1, "metadata", metadata), (2, "spec", review_spec)])?,
        "SelfSubjectReview" | "SelfSubjectRulesReview" => json!({}),
        "ConfigMap" => config_map(raw)?,
        "Secret" => secret(raw)?,
        "Namespace" | "ServiceAccount" => message(raw, &[(1, "metadata", metadata)])?,
        _ => return None,
    };
    let map = value.as_object_mut()?;
    for key in ["kind", "apiVersion"] {
        map.insert(key.to_owned(), meta.get(key)?.clone());
    }
    Some(value.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eviction_is_read() {
        let body =
            b"k8s\0\x0a\x15\x0a\x09policy/v1\x12\x08Eviction\x12\x0c\x0a\x0a\x0a\x01p\x12\x00\x1a\x03abc";
        let json = to_json(&Bytes::from_static(body)).expect("decodes");
        let value: Value = serde_json::from_slice(&json).expect("json");
        assert_eq!(
            value,
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "generateName": "", "namespace": "abc"}})
        );
        assert!(to_json(&Bytes::from_static(b"k8s\0\xff\xff\xff")).is_none());
    }
}
