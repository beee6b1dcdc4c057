//! Runs a few seeds; `make simulate` runs many.

use nodegate_simulation::run;

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hashes = |seed| [run(seed, false).hash, run(seed, false).hash];
    for seed in [3, 5, 11, 13] {
        let [first, second] = hashes(seed);
        assert_eq!(first, second, "seed {seed}");
    }
    assert_ne!(hashes(3), hashes(11));
}

#[test]
fn some_seeds_have_no_violation() {
    let mut acknowledged = 0;
    for seed in 1..=12 {
        let outcome = run(seed, false);
        assert_eq!(outcome.violation, None, "SIM_SEED={seed} make simulate");
        acknowledged += outcome.report.acknowledged;
    }
    assert!(acknowledged > 0, "acknowledged must be reported at least once, or the oracle proves nothing");
}
