//! JSON in the form of Go's encoder.

/// The characters that can start or end markup in a page, and two line ends that JavaScript did not allow.
const ESCAPED: [(char, &str); 5] =
    [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

/// Escapes the characters that Go escapes. In JSON they occur only inside strings.
pub(crate) fn escaped(mut json: String) -> String {
    for (plain, code) in ESCAPED {
        if json.contains(plain) {
            json = json.replace(plain, code);
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_says_the_same() {
        let text = "<none> & \u{2028}\u{2029} \\u003c ü";
        let json = escaped(serde_json::to_string(text).expect("json"));
        assert_eq!(json, r#""\u003cnone\u003e \u0026 \u2028\u2029 \\u003c ü""#);
        assert_eq!(serde_json::from_str::<String>(&json).expect("json"), text);
    }
}
