//! Cleans text that strangers may have chosen, for log lines, messages, Events and terminals of all programs.

/// Stands for each replaced character.
const REPLACEMENT: &str = "\u{fffd}";

/// Returns the text with a replacement for each character that a terminal or a reader of logs obeys.
pub fn sanitize(text: &str) -> String {
    text.replace(is_obeyed, REPLACEMENT)
}

/// Returns at most `most` characters of the sanitized text.
pub fn sanitize_short(text: &str, most: usize) -> String {
    let mut chars = text.chars();
    let mut clean = sanitize(&chars.by_ref().take(most).collect::<String>());
    if chars.next().is_some() {
        clean.pop();
        clean.push('…');
    }
    clean
}

/// Returns true for characters that start a line, switch the direction of writing, steer a terminal, or are invisible.
pub(crate) fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_obeys_is_replaced_and_the_rest_stays() {
        assert_eq!(sanitize("pods/eviction ä 日本 \u{1f600}"), "pods/eviction ä 日本 \u{1f600}");
        for c in [
            '\n', '\r', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}', '\u{2028}', '\u{2029}', '\u{202e}',
            '\u{2066}', '\u{61c}', '\u{200b}',
        ] {
            assert_eq!(sanitize(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        assert_eq!(sanitize_short("abcdef", 6), "abcdef");
        assert_eq!(sanitize_short("abcdefg", 6), "abcde…");
    }

    proptest! {
        #[test]
        fn any_text_is_bounded(text in any::<String>(), most in 1_usize..50) {
            let clean = sanitize_short(&text, most);
            prop_assert!(clean.chars().count() <= most && !clean.chars().any(is_obeyed));
        }
    }
}
