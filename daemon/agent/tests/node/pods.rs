//! Labels of slices with pods: set later, shown, persistent.

use tonic::Code;
use tranche_rpc::v1;

use crate::common::{DaemonDirectories, expect_code, fraction};
use crate::one_gpu;

fn pod(name: &str) -> v1::PodContainer {
    let uid = Some("5a1c8a4e-0b8e-4a8e-9d3c-1f2e3d4c5b6a".into());
    v1::PodContainer { namespace: "default".into(), name: name.into(), container: "main".into(), uid }
}

#[test]
fn pod_label_is_shown_and_persistent() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    let known = v1::CreateSliceRequest { pod: Some(pod("early")), ..fraction("early", 100) };
    assert_eq!(daemon.calls.create(known).unwrap().pod, Some(pod("early")));
    assert_eq!(daemon.calls.create(fraction("late", 100)).unwrap().pod, None);
    assert_eq!(daemon.calls.label("late", Some(pod("late"))).unwrap().pod, Some(pod("late")));
    drop(daemon);

    let mut daemon = place.start(&driver);
    let pods = |view: v1::NodeView| view.slices.into_iter().map(|slice| slice.pod).collect::<Vec<_>>();
    assert_eq!(pods(daemon.calls.snapshot()), [Some(pod("early")), Some(pod("late"))]);
    daemon.calls.label("early", None).unwrap();
    drop(daemon);
    assert_eq!(pods(place.start(&driver).calls.snapshot()), [None, Some(pod("late"))]);
}

#[test]
fn invalid_pod_label_is_refused_without_changes() {
    let (place, driver) = (DaemonDirectories::new(), one_gpu());
    let mut daemon = place.start(&driver);
    daemon.calls.create(fraction("a", 100)).unwrap();
    daemon.calls.label("a", Some(pod("good"))).unwrap();
    for name in ["", "a/b", "\u{1b}[2J", &"a".repeat(8 << 10)] {
        let refused = expect_code(daemon.calls.label("a", Some(pod(name))), Code::InvalidArgument);
        assert!(refused.contains("is not the name of a pod") && refused.len() < 500, "{refused}");
    }
    expect_code(daemon.calls.label("b", None), Code::NotFound);
    assert_eq!(daemon.calls.snapshot().slices[0].pod, Some(pod("good")));
}
