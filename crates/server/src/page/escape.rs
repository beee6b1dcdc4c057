//! Escapes untrusted text for the page.

use std::fmt::{self, Display, Write};

/// Text escaped for an element and for a quoted attribute.
pub(super) struct Escaped<T>(pub(super) T);

/// Text escaped for an element, in which a long name may wrap between its parts.
pub(super) struct Breakable<T>(pub(super) T);

impl<T: AsRef<str>> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().chars().try_for_each(|c| write_escaped(f, c))
    }
}

impl<T: AsRef<str>> Display for Breakable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = ' ';
        for c in self.0.as_ref().chars() {
            let of_two_words = before.is_lowercase() && c.is_uppercase();
            let after_a_part = matches!(before, '/' | ':' | ',' | '&' | '?' | '=' | '_' | '.') && c != ' ';
            if of_two_words || after_a_part {
                f.write_str("<wbr>")?;
            }
            write_escaped(f, c)?;
            before = c;
        }
        Ok(())
    }
}

fn write_escaped(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '&' => f.write_str("&amp;"),
        '<' => f.write_str("&lt;"),
        '>' => f.write_str("&gt;"),
        '"' => f.write_str("&quot;"),
        '\'' => f.write_str("&#39;"),
        // Marks that change the writing direction could make one reason read as another.
        c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
            f.write_char(char::REPLACEMENT_CHARACTER)
        }
        c => f.write_char(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_broken_between_their_parts() {
        for (text, broken) in [
            ("Taint:ToBeDeleted", "Taint:<wbr>To<wbr>Be<wbr>Deleted"),
            ("node_ready", "node_<wbr>ready"),
            ("DNS: no answer", "DNS: no answer"),
            ("/health?check=a,b&drain=404", "/<wbr>health?<wbr>check=<wbr>a,<wbr>b&amp;<wbr>drain=<wbr>404"),
            ("<b>", "&lt;b&gt;"),
        ] {
            assert_eq!(Breakable(text).to_string(), broken);
        }
    }
}
