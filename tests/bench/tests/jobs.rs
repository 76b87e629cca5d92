//! The bench of jobs measures: a change of what a submission needs must not end it unseen.

mod staged;

#[test]
fn jobs_bench_measures_submissions_and_lists_of_every_part() {
    let Some((_, report, output)) = staged::run(env!("CARGO_BIN_EXE_bench-jobs"), &["--quick"]) else {
        return;
    };
    let figures = report["figures"].as_array().expect(&output);
    for name in [
        "decision_ms",
        "desk_submit_ms",
        "desk_list_ms",
        "socket_submit_ms",
        "socket_list_ms",
        "command_list_ms",
    ] {
        let measured = figures.iter().find(|figure| figure["name"] == name);
        assert!(measured.is_some_and(|figure| figure["median"].as_f64() > Some(0.0)), "{name}: {output}");
    }
}
