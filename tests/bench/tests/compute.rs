//! The bench of compute measures; only a run on a quiet machine decides its claims.

mod staged;

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Held while a bench runs: two at once would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn the_bench_measures_launches_and_shares_beside_the_bare_driver() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn streams_targets_hand_overs_transfers_and_a_busy_host_are_measured() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arguments = ["--quick", "--gpu", "sim", "--only", "streams,busy,targets,handover,transfers"];
    let Some((_, report, output)) = staged::run(env!("CARGO_BIN_EXE_bench-compute"), &arguments) else {
        return;
    };
    let figure = |name: &str, variant: &str| {
        median(&report, name, variant).unwrap_or_else(|| panic!("no {name} of {variant} in\n{output}"))
    };
    for variant in ["ours", "unscheduled"] {
        let work = figure("work_of_eight_streams_alone", variant);
        assert!(work > 150.0, "kernels of eight streams do not run side by side: {work} %\n{output}");
        assert!(figure("used_busy_host_1ms", variant) > 10.0, "{output}");
        let within = figure("requests_within_target_1ms", variant);
        assert!((0.0..=100.0).contains(&within), "{within} %\n{output}");
        assert!(figure("training_beside_targets_1ms", variant) > 5.0, "{output}");
        assert!(figure("streaming_200us_alone", variant) > 100.0, "{output}");
        // The simulated GPU needs as much for the switch itself.
        assert!(figure("handover_1ms", variant) >= 39.0, "{output}");
    }
    let beside = |variant| figure("kernels_30_beside_large_copies_inside", variant);
    assert!(beside("ours") < beside("uncounted") - 5.0, "uncounted copies leave more to kernels\n{output}");
}

fn median(report: &Value, name: &str, variant: &str) -> Option<f64> {
    let figures = report["figures"].as_array()?;
    let figure = figures.iter().find(|figure| figure["name"] == name && figure["variant"] == variant)?;
    figure["median"].as_f64()
}
