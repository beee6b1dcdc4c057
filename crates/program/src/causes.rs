//! The text of an error for people.

use std::error::Error;
use std::io;
use std::iter::successors;

/// Returns the text of an error and of its causes, each once.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in successors(error.source(), |&cause| cause.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    without_number(&text)
}

/// Returns the text of the cause behind all others: those before it name the parts of a library.
pub fn last_cause(error: &(dyn Error + 'static)) -> String {
    without_number(&successors(Some(error), |&error| error.source()).last().unwrap_or(error).to_string())
}

/// Returns the operating system's own words for an error.
pub fn os_words(error: &io::Error) -> String {
    without_number(&error.to_string())
}

/// Takes the number of the operating system's error away, which stands at the end of its words.
fn without_number(text: &str) -> String {
    let words = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (os error "));
    words.map_or(text, |(words, _)| words).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("client error (Connect)")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_of_the_system_has_words_without_a_number() {
        let refused = || io::Error::from_raw_os_error(111);
        assert_eq!(os_words(&refused()), "Connection refused");
        assert_eq!(os_words(&io::Error::other("a (b)")), "a (b)");
        assert_eq!(with_causes(&Outer(refused())), "client error (Connect): Connection refused");
        assert_eq!(last_cause(&Outer(refused())), "Connection refused");
    }
}
