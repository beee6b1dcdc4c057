//! Sets of values for the chart, by lot: values at their edges, alone and together, a third of the sets with a wrong one.

use crate::{kinds, program};
use serde_json::{Value, json};

/// The place of a value; texts that the chart takes, and texts that it refuses, as JSON. `-` stands for none.
const EDGES: &str = include_str!("values.txt");

/// Returns the set of this number, and the place of its wrong value if it has one.
pub(crate) fn set(number: u64) -> (Value, Option<String>) {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut edges: Vec<(String, Vec<Value>, Vec<Value>)> = Vec::new();
    for row in EDGES.trim().lines() {
        let [place, good, bad] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        let texts = |text: &str| {
            text.split(" # ")
                .filter(|text| *text != "-")
                .map(|text| serde_json::from_str(text).unwrap())
                .collect()
        };
        edges.push((place.to_owned(), texts(good), texts(bad)));
    }
    for program in program::all() {
        for (name, rule) in program.settings() {
            let kind = kinds::of(rule["takes"].as_str().unwrap());
            let written = |texts: &[String]| texts.iter().map(|text| program::written(text, &rule)).collect();
            edges.push((format!("{}.{name}", program.of), written(&kind.good), written(&kind.bad)));
        }
    }
    let mut values = json!({
        "haproxy": {"enabled": rng.bool()}, "evictionGate": {"enabled": rng.bool()}, "terminationGracePeriodSeconds": 400,
    });
    // From one value alone to a third of them: more contradict each other.
    let share = rng.f64() * 0.3;
    for (place, good, _) in &edges {
        if !good.is_empty() && rng.f64() < share {
            program::set(&mut values, place, rng.choice(good).unwrap().clone());
        }
    }
    if !number.is_multiple_of(3) {
        return (values, None);
    }
    let (place, _, bad) = rng.choice(&edges).unwrap();
    if let Some(bad) = rng.choice(bad) {
        program::set(&mut values, place, bad.clone());
    }
    (values, Some(place.clone()))
}
