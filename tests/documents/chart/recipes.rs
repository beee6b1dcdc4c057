//! The chart accepts the values that the documents show.

use super::template;
use crate::docs::pages;
use serde_json::Value;

#[test]
fn the_chart_accepts_all_values_in_the_documents() {
    let mut found = 0;
    for block in pages::all().into_iter().flat_map(|page| page.blocks) {
        if block.language == "yaml" && block.body.lines().any(|line| matches!(line, "settings:" | "image:")) {
            let digest = format!("sha256:{}", "7".repeat(64));
            let values: Value = serde_saphyr::from_str(&block.body.replace("sha256:…", &digest)).unwrap();
            template(&values).unwrap_or_else(|error| panic!("{}: {error}", block.body));
            found += 1;
        }
    }
    assert!(found >= 4, "only {found} were found");
}
