//! The fields of an object of a kubeconfig: their types, as kubectl reads them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_program::os_words;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

/// An object, and its place in the files for messages. Absent fields, `null` and empty ones are equal.
pub(crate) struct Object<'a> {
    fields: Option<&'a Map<String, Value>>,
    place: String,
}

impl Display for Object<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(&self.place)
    }
}

impl<'a> Object<'a> {
    pub(crate) fn empty(place: &str) -> Self {
        Self { fields: None, place: place.to_owned() }
    }

    pub(crate) fn new(value: Option<&'a Value>, place: String) -> Result<Self, String> {
        match value {
            None | Some(Value::Null) => Ok(Self { fields: None, place }),
            Some(Value::Object(fields)) => Ok(Self { fields: Some(fields), place }),
            Some(other) => Err(format!("{place} is {}, and takes fields", kind(other))),
        }
    }

    /// Returns a field of any type.
    pub(crate) fn value(&self, field: &str) -> Option<&'a Value> {
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    /// Returns the error of a field, or of `<field>-data` if that is given.
    pub(crate) fn wrong(&self, field: &str, why: impl Display) -> String {
        let data = if self.value(&format!("{field}-data")).is_some() { "-data" } else { "" };
        format!("{self}: {field}{data} {why}")
    }

    /// Returns a field as this type, which `takes` names; the default if it is absent.
    pub(crate) fn get<T: Default + Deserialize<'a>>(&self, field: &str, takes: &str) -> Result<T, String> {
        let Some(value) = self.value(field) else { return Ok(T::default()) };
        let mistyped = |_| self.wrong(field, format_args!("is {}, and takes {takes}", kind(value)));
        T::deserialize(value).map_err(mistyped)
    }

    pub(crate) fn object(&self, field: &str) -> Result<Option<Object<'a>>, String> {
        let place = format!("{self}: {field}");
        self.value(field).map(|value| Object::new(Some(value), place)).transpose()
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<String>, String> {
        Ok(self.get::<Option<String>>(field, "text")?.filter(|text| !text.is_empty()))
    }

    pub(crate) fn texts(&self, field: &str) -> Result<Vec<String>, String> {
        self.get(field, "a list of texts")
    }

    /// Returns the objects of a list, each with its place.
    pub(crate) fn objects(&self, field: &str) -> Result<Vec<Object<'a>>, String> {
        let list = match self.value(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list.iter().enumerate(),
            Some(other) => {
                return Err(self.wrong(field, format_args!("is {}, and takes a list", kind(other))));
            }
        };
        list.map(|(at, value)| Object::new(Some(value), format!("{self}: {field}[{at}]"))).collect()
    }

    /// Returns a path; a relative one begins at the directory of its file.
    pub(crate) fn path(&self, field: &str, directory: &Path) -> Result<Option<PathBuf>, String> {
        Ok(self.text(field)?.map(|path| directory.join(path)))
    }

    /// Returns the bytes of `<field>-data`, in base64, or of the file of `<field>`. As in kubectl, both together are
    /// an error.
    pub(crate) fn data(&self, field: &str, directory: &Path) -> Result<Option<Vec<u8>>, String> {
        let inline = format!("{field}-data");
        match (self.text(&inline)?, self.path(field, directory)?) {
            (Some(_), Some(_)) => {
                Err(self.wrong(&inline, format_args!("and {field} are both given; give one")))
            }
            (Some(data), None) => {
                // As in Go, line breaks do not count.
                let data: String = data.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
                STANDARD.decode(data).map(Some).map_err(|_| self.wrong(&inline, "is not base64"))
            }
            (None, Some(file)) => std::fs::read(&file)
                .map(Some)
                .map_err(|error| self.unreadable(field, &file, &os_words(&error))),
            (None, None) => Ok(None),
        }
    }

    /// Returns the error of a field that names a file.
    pub(crate) fn unreadable(&self, field: &str, file: &Path, error: &dyn Display) -> String {
        self.wrong(field, format_args!("{}: {error}; correct the path, or the file", file.display()))
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Returns the error of a field without a certificate, which may be one in another form or something else.
pub(crate) fn no_certificate(held: &[u8]) -> String {
    let length = held.len();
    format!("has {length} bytes without a certificate in PEM form (-----BEGIN CERTIFICATE-----); give one")
}
