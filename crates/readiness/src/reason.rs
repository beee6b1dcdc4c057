//! The reason why a check does not pass.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Display;

/// The maximum length of a reason, in bytes. Each rendered answer and each remembered flip holds reasons.
/// Their text comes from outside: from the API, a program, a container runtime.
pub const MAX_REASON: usize = 256;

const CUT: char = '…';

/// The reason why a check does not pass: a code of one word as in Kubernetes' conditions, names from a small
/// set, and a detail for people. Its text is one line, no longer than [`MAX_REASON`] plus the mark of a cut.
///
/// ```
/// # use nodegate_readiness::Reason;
/// let reason = Reason::new("NetworkReady")
///     .name("NetworkPluginNotReady")
///     .detail("cni plugin not initialized");
/// assert_eq!(reason.as_str(), "NetworkReady: NetworkPluginNotReady: cni plugin not initialized");
/// assert_eq!(reason.code(), "NetworkReady");
/// assert_eq!(reason.label(), "NetworkReady: NetworkPluginNotReady");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
#[must_use]
pub struct Reason {
    text: String,
    /// The length of the code with its names.
    names_end: usize,
}

impl Reason {
    /// Returns a reason of a code alone, or with the key of a taint or a label (`Taint:<key>`), or a status from a
    /// small set (`HTTP 503`).
    pub fn new(code: impl Into<String>) -> Self {
        let text = clean(code.into());
        Self { names_end: text.len(), text }
    }

    /// Returns `<code>: <name>`, with another program's name for the fault. A name with a space or a leading
    /// digit becomes a detail, because it may differ each time. So does one behind a detail.
    pub fn name(mut self, name: &str) -> Self {
        let is_name = is_name(name) && self.names_end == self.text.len();
        self.push(": ", name);
        if is_name {
            self.names_end = self.text.len();
        }
        self
    }

    /// Returns `<code>: <detail>`, with anything that helps a person.
    pub fn detail(mut self, detail: impl Display) -> Self {
        self.push(": ", detail);
        self
    }

    /// Returns `<code> <word> <amount>`, such as `Timeout after 5s`. The amount may differ each time, so both are no
    /// names.
    pub fn with_amount(mut self, word: &str, amount: impl Display) -> Self {
        self.push(" ", format_args!("{word} {amount}"));
        self
    }

    /// Appends another reason. The code of the first stands for all.
    pub fn and(mut self, separator: &str, other: &Self) -> Self {
        self.push(separator, other);
        self.names_end = self.code().len();
        self
    }

    /// Joins several reasons; `None` if there are none.
    pub fn join(reasons: impl IntoIterator<Item = Self>, separator: &str) -> Option<Self> {
        reasons.into_iter().reduce(|all, next| all.and(separator, &next))
    }

    /// Parses a text of another process, such as the API or another agent, which has lost the structure of
    /// the reason. Parts end with a colon. Parts of one word are names; the first longer part is a detail,
    /// with all that follows. If the first part has an amount, there are no names.
    pub fn parse(text: impl Into<String>) -> Self {
        let text = clean(text.into());
        let head = text.split(": ").next().unwrap_or_default();
        let has_amount = !head.starts_with("HTTP ") && head.split(' ').skip(1).any(begins_with_digit);
        let names = text.split(": ").skip(1).take_while(|part| is_name(part));
        let all_names = names.fold(head.len(), |end, name| end + ": ".len() + name.len());
        Self { names_end: if has_amount { code_of(head).len() } else { all_names }, text }
    }

    /// Returns the one-word code.
    pub fn code(&self) -> &str {
        code_of(&self.text)
    }

    /// Returns the names after the code, without the separator.
    pub fn names(&self) -> &str {
        let names = self.label().get(self.code().len()..).unwrap_or_default();
        names.trim_start_matches([':', ' '])
    }

    /// Returns the label for metrics: the code and its names, without amounts, addresses and whatever else
    /// may differ each time.
    pub fn label(&self) -> &str {
        self.text.get(..self.names_end).unwrap_or_default()
    }

    /// Returns the whole text, for people.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn push(&mut self, joined: &str, part: impl Display) {
        self.text = clean(format!("{}{joined}{part}", self.text));
        debug_assert!(self.text.len() <= MAX_REASON + CUT.len_utf8());
        debug_assert!(self.text.is_char_boundary(self.names_end));
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::parse)
    }
}

/// Makes a text fit for a reason: one line, no longer than [`MAX_REASON`] plus the mark of a cut.
pub fn clean(mut text: String) -> String {
    if text.len() > MAX_REASON {
        text.truncate(text.floor_char_boundary(MAX_REASON));
        text.push(CUT);
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

/// Returns the first word, which ends with a space, a colon, or what joins two reasons.
fn code_of(text: &str) -> &str {
    text.split([' ', ':', ';', ',']).next().unwrap_or_default()
}

fn is_name(text: &str) -> bool {
    !text.contains(' ') && !begins_with_digit(text)
}

fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_label_has_names_and_neither_amounts_nor_details() {
        for (text, label) in [
            ("CacheStale", "CacheStale"),
            ("Ready=False", "Ready=False"),
            ("Taint:example.com/1st", "Taint:example.com/1st"),
            ("DiskPressure: KubeletHasDiskPressure", "DiskPressure: KubeletHasDiskPressure"),
            ("HTTP 503", "HTTP 503"),
            ("NotCRIv1: /run/containerd.sock", "NotCRIv1: /run/containerd.sock"),
            ("Timeout after 5s", "Timeout"),
            ("NotSynced: IPv6 for 73s", "NotSynced"),
            ("NetworkReady: NotReady: Network plugin returns error: none", "NetworkReady: NotReady"),
            ("gRPC Unavailable: task 0af1 is gone", "gRPC Unavailable"),
            ("NotMeasured: /data: Timeout after 3s 750ms", "NotMeasured: /data"),
            ("Gateway: 10.0.0.1 on eth0: stopped answering; DNS: 10.0.0.2 SERVFAIL", "Gateway"),
            ("Some: 35s", "Some"),
        ] {
            assert_eq!(Reason::parse(text).label(), label, "{text}");
        }
    }

    /// A text parses to the reason that produced it.
    #[test]
    fn made_and_read() {
        let gone = Reason::new("Timeout").with_amount("after", "3s 750ms");
        for (made, code, names) in [
            (Reason::new("KubeletNotReady"), "KubeletNotReady", ""),
            (Reason::new("Taint:example.com/1st"), "Taint", "example.com/1st"),
            (Reason::new("HTTP 503"), "HTTP", "503"),
            (Reason::new("gRPC Unavailable").detail("task 0af1"), "gRPC", "Unavailable"),
            (Reason::new("DiskPressure").name("Kubelet"), "DiskPressure", "Kubelet"),
            (Reason::new("Some").name("35s"), "Some", ""),
            (Reason::new("Some").detail("a text").name("word"), "Some", ""),
            (Reason::new("Some").name("two words"), "Some", ""),
            (gone.clone(), "Timeout", ""),
            (Reason::new("/data").detail(&gone).and("; ", &Reason::new("/").detail("full")), "/data", ""),
            (Reason::new("A").name("B").and("; ", &Reason::new("C").name("D")), "A", ""),
        ] {
            assert_eq!((made.code(), made.names()), (code, names), "{made:?}");
            assert_eq!(Reason::parse(made.as_str()), made);
        }
    }

    #[test]
    fn a_text_that_fits_is_unchanged() {
        assert_eq!(clean("KubeletNotReady".to_owned()), "KubeletNotReady");
        assert_eq!(clean("two\nlines\u{85}\u{7f}".to_owned()), "two lines  ");
        assert_eq!(clean("é".repeat(200)), format!("{}…", "é".repeat(128)));
    }

    fn is_one_bounded_line(reason: &Reason) -> bool {
        reason.as_str().len() <= MAX_REASON + CUT.len_utf8() && !reason.as_str().contains(char::is_control)
    }

    proptest! {
        #[test]
        fn any_text_is_one_bounded_line(text in any::<String>(), times in 0_usize..100) {
            let reason = Reason::parse(text.repeat(times));
            prop_assert!(is_one_bounded_line(&reason));
            prop_assert!(reason.as_str().starts_with(reason.code()));
            prop_assert_eq!(Reason::parse(reason.as_str()), reason);
        }

        #[test]
        fn any_parts_are_one_bounded_line(parts in prop::collection::vec((1..5, any::<String>(), 0_usize..100), 0..6)) {
            let add = |reason: Reason, (way, text, times): (i32, String, usize)| match (way, text.repeat(times)) {
                (1, text) => reason.name(&text),
                (2, text) => reason.detail(text),
                (3, text) => reason.with_amount("for", text),
                (_, text) => reason.and("; ", &Reason::new(text)),
            };
            let reason = parts.into_iter().fold(Reason::new("Code"), add);
            prop_assert!(is_one_bounded_line(&reason) && reason.code() == "Code");
            prop_assert!(reason.label().starts_with("Code"));
        }
    }
}
