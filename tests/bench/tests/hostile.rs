//! Half a minute of hostile bytes in live usage regions.

mod staged;

use serde_json::Value;

#[test]
fn neighbours_of_hostile_regions_keep_their_share_and_the_daemon_lives() {
    let Some((status, report, output)) = staged::run(env!("CARGO_BIN_EXE_bench-hostile"), &["--short"])
    else {
        return;
    };
    assert_eq!(
        (&report["daemon_restarts"], &report["complaints"]),
        (&0.into(), &Value::Array(Vec::new())),
        "{output}"
    );
    assert!(status.success() && report["holds"] == true && report["plays"] != 0, "{output}");
}
