//! The entry point of the fuzz targets.

use crate::lines::LineScanner;

/// Returns true if every line in these chunks is whole and bounded.
pub fn scan(chunks: &[&[u8]]) -> bool {
    let mut scanner = LineScanner::default();
    chunks.iter().all(|chunk| scanner.feed(chunk).is_ok())
}
