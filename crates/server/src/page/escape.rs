//! Text from elsewhere, made harmless.

use std::fmt::{self, Display, Write};

/// Shows text as text, in an element and in a quoted attribute.
pub(super) struct Escaped<T>(pub(super) T);

impl<T: AsRef<str>> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            // Marks that turn the direction of writing could make a reason read as another one.
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                f.write_char(char::REPLACEMENT_CHARACTER)
            }
            c => f.write_char(c),
        })
    }
}
