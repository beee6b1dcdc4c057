//! Checks the bytes of a watch in transit: every line must be complete, and within the limits.

// kube takes a line that ends in the middle of an object for the end of the stream: it drops the line without an
// error, and reads on. The change in that line would be lost. It also reads lines of any length.

/// The maximum length of an event, a list or the body of an error. A Node with 100 images is 20 kB; etcd refuses
/// objects above 1.5 MiB.
pub(crate) const MAX_BYTES: usize = 8 << 20;

/// The error of a response that is not read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("an event ended in the middle of its JSON")]
    Truncated,
    #[error("an event or an answer is longer than {MAX_BYTES} bytes")]
    TooLong,
}

/// Tracks the nesting of JSON from chunk to chunk, and stores none of it.
#[derive(Debug, Default)]
pub(crate) struct LineScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    length: usize,
}

impl LineScanner {
    /// Processes the next chunk.
    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<(), BadBody> {
        for byte in chunk {
            self.length += 1;
            match byte {
                b'\n' if self.in_string || self.depth > 0 => return Err(BadBody::Truncated),
                b'\n' => self.length = 0,
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        if self.length > MAX_BYTES { Err(BadBody::TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_pass_however_they_are_cut_into_chunks() {
        let text = br#"{"type":"ADDED","object":{"a":["}\"{\\",1]}}
{"type":"BOOKMARK","object":{}}
"#;
        for cut in 0..text.len() {
            let mut scanner = LineScanner::default();
            assert_eq!(scanner.feed(&text[..cut]), Ok(()));
            assert_eq!(scanner.feed(&text[cut..]), Ok(()));
        }
    }

    #[test]
    fn a_line_that_ends_early_is_refused() {
        for line in ["{\"type\":\"MODIFIED\",\"object\":{}\n", "{\"type\":\"MOD\n", "[\n"] {
            assert_eq!(LineScanner::default().feed(line.as_bytes()), Err(BadBody::Truncated), "{line}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut scanner = LineScanner::default();
        let chunk = vec![b' '; 1 << 20];
        assert!((0..8).all(|_| scanner.feed(&chunk).is_ok()));
        assert_eq!(scanner.feed(&chunk), Err(BadBody::TooLong));
    }
}
