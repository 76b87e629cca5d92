//! That the bench of compute measures: what it finds is for those who run it on a quiet machine.

mod staged;

use serde_json::Value;

#[test]
fn the_bench_measures_launches_and_shares_beside_the_bare_driver() {
    let arguments = ["--quick", "--gpu", "sim", "--only", "launches,shares"];
    let Some((_, report, said)) = staged::run(env!("CARGO_BIN_EXE_bench-compute"), &arguments) else {
        return;
    };
    for variant in ["ours", "unscheduled"] {
        let used = median(&report, "used_50_30_20_1ms", variant).expect(&said);
        assert!((40.0..=100.0).contains(&used), "{variant}: {used}\n{said}");
    }
    // Without a scheduler all get alike, and with one they don't, on the busiest machine.
    let off = |variant| median(&report, "share_error_50_30_20_1ms", variant).expect(&said);
    assert!(off("ours") < off("unscheduled") / 2.0, "{said}");
    assert!(median(&report, "launch_added_ns", "ours").is_some(), "{said}");
    let claims = report["claims"].as_array().expect(&said);
    assert!(
        claims.iter().all(|claim| claim["holds"].is_boolean() && claim["reported"].is_boolean()),
        "{said}"
    );
}

fn median(report: &Value, name: &str, variant: &str) -> Option<f64> {
    let figures = report["figures"].as_array()?;
    let figure = figures.iter().find(|figure| figure["name"] == name && figure["variant"] == variant)?;
    figure["median"].as_f64()
}
