//! The bench of compute measures; only a run on a quiet machine decides its claims.

mod staged;

use serde_json::Value;

#[test]
fn the_bench_measures_launches_and_shares_beside_the_bare_driver() {
    let arguments = ["--quick", "--gpu", "sim", "--only", "launches,shares"];
    let Some((_, report, output)) = staged::run(env!("CARGO_BIN_EXE_bench-compute"), &arguments) else {
        return;
    };
    for variant in ["ours", "unscheduled"] {
        let used = median(&report, "used_50_30_20_1ms", variant).expect(&output);
        assert!((40.0..=100.0).contains(&used), "{variant}: {used}\n{output}");
    }
    // Without a scheduler all tenants get the same, and with one they do not, on the busiest machine too.
    let off = |variant| median(&report, "share_error_50_30_20_1ms", variant).expect(&output);
    assert!(off("ours") < off("unscheduled") / 2.0, "{output}");
    assert!(median(&report, "launch_added_ns", "ours").is_some(), "{output}");
    let claims = report["claims"].as_array().expect(&output);
    assert!(
        claims.iter().all(|claim| claim["holds"].is_boolean() && claim["reported"].is_boolean()),
        "{output}"
    );
}

fn median(report: &Value, name: &str, variant: &str) -> Option<f64> {
    let figures = report["figures"].as_array()?;
    let figure = figures.iter().find(|figure| figure["name"] == name && figure["variant"] == variant)?;
    figure["median"].as_f64()
}
