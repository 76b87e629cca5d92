//! The bench of views measures: a view that it no longer starts must not leave it unseen.

mod staged;

#[test]
fn screen_and_page_take_less_than_one_percent_of_a_core() {
    let Some((status, report, output)) = staged::run(env!("CARGO_BIN_EXE_bench-views"), &["--quick"]) else {
        return;
    };
    let figures = report["figures"].as_array().expect(&output);
    for (name, variant) in [
        ("daemon_cpu", "alone"),
        ("daemon_cpu", "top and page"),
        ("page_cpu", "one viewer"),
        ("top_cpu", "120x40"),
        ("page_kb", "all files"),
    ] {
        let measured = figures.iter().find(|figure| figure["name"] == name && figure["variant"] == variant);
        assert!(measured.is_some_and(|figure| figure["median"].as_f64() > Some(0.0)), "{name}: {output}");
    }
    // Unoptimised programs take a fifth of what is claimed.
    let claims = report["claims"].as_array().expect(&output);
    let held = claims.iter().filter(|claim| claim["holds"] == true);
    let held: Vec<_> = held.filter_map(|claim| claim["name"].as_str()).collect();
    assert_eq!(held, ["top_cpu_120x40", "page_cpu_one_viewer", "page_cpu_no_viewer", "page_kb"], "{output}");
    assert!(status.success(), "{output}");
}
