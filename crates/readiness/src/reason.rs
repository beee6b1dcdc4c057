//! Reasons hold text from the outside: the API's, a program's, a container runtime's.

/// The longest reason that is kept, in bytes. Each rendered answer and each remembered flip holds reasons.
pub const MAX_REASON: usize = 256;

/// Makes text fit to be a reason: one line, and no longer than [`MAX_REASON`] (and the sign that something was cut).
#[must_use]
pub fn clean(mut text: String) -> String {
    if text.len() > MAX_REASON {
        text.truncate(text.floor_char_boundary(MAX_REASON));
        text.push('…');
    }
    if text.contains(char::is_control) {
        text = text.replace(char::is_control, " ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fits_is_left_as_it_is() {
        assert_eq!(clean("KubeletNotReady".to_owned()), "KubeletNotReady");
        assert_eq!(clean("two\nlines\u{85}\u{7f}".to_owned()), "two lines  ");
        assert_eq!(clean("é".repeat(200)), format!("{}…", "é".repeat(128)));
    }

    proptest! {
        #[test]
        fn anything_becomes_one_bounded_line(text in any::<String>(), times in 0_usize..100) {
            let once = clean(text.repeat(times));
            prop_assert!(once.len() <= MAX_REASON + '…'.len_utf8());
            prop_assert!(!once.contains(char::is_control));
        }
    }
}
