use super::*;
use tranche_rpc::v1;

const POD: &str = "5d8c3c1a-0000-4000-8000-000000000001";
const OTHER: &str = "5d8c3c1a-0000-4000-8000-000000000002";

fn slice(pod: &str, container: &str) -> SliceName {
    name::of(&pod.parse().unwrap(), container).unwrap()
}

/// A view with slices of containers of pods, and one of a person.
fn views(slices: &[(&str, &str)]) -> Vec<SliceView> {
    let view = |(pod, container): &(&str, &str)| v1::SliceView {
        name: slice(pod, container).to_string(),
        share: Some(v1::Share { kind: Some(v1::share::Kind::WholeGpus(1)) }),
        compute_mode: v1::ComputeMode::Fair.into(),
        pod: Some(v1::PodContainer {
            namespace: "n".into(),
            name: "p".into(),
            container: (*container).into(),
            uid: Some((*pod).into()),
        }),
        ..Default::default()
    };
    let all = v1::NodeView { slices: slices.iter().map(view).collect(), ..Default::default() };
    tranche_domain::view::NodeView::try_from(all).expect("the view makes sense").slices
}

fn container(pod: &str, sandbox: &str, id: &str) -> LastContainer {
    let (pod, sandbox, id) = (pod.parse().unwrap(), sandbox.into(), id.into());
    LastContainer { pod, sandbox, id, created_at: i64::MAX, stopped: false }
}

fn made(record: &mut SliceRecord, pod: &str, name: &str, sandbox: &str, id: &str) {
    assert!(record.begin(&slice(pod, name)));
    record.done(&slice(pod, name), Some(container(pod, sandbox, id)));
}

#[test]
fn slices_end_with_their_sandbox_and_not_with_an_earlier_one() {
    let mut record = SliceRecord::default();
    made(&mut record, POD, "main", "old", "c1");
    made(&mut record, POD, "main", "new", "c2");
    made(&mut record, OTHER, "main", "else", "c3");
    let there = views(&[(POD, "main"), (OTHER, "main")]);
    record.end_sandbox(POD.parse().unwrap(), "old");
    assert_eq!(record.due(&there), []);
    record.end_sandbox(POD.parse().unwrap(), "new");
    assert_eq!(record.due(&there), [(slice(POD, "main"), true)]);
}

#[test]
fn slice_ends_with_its_last_container_alone() {
    let mut record = SliceRecord::default();
    made(&mut record, POD, "main", "s", "c1");
    made(&mut record, POD, "main", "s", "c2");
    let there = views(&[(POD, "main")]);
    record.remove(&slice(POD, "main"), "c1");
    assert_eq!(record.due(&there), []);
    record.remove(&slice(POD, "main"), "c2");
    assert_eq!(record.due(&there), [(slice(POD, "main"), true)]);
    // A failure to end it is followed by another attempt, until it is gone.
    record.over(&slice(POD, "main"));
    assert_eq!(record.due(&there), [(slice(POD, "main"), true)]);
    record.over(&slice(POD, "main"));
    assert_eq!(record.due(&[]), []);
    assert_eq!(record.due(&there), []);
}

#[test]
fn slice_is_made_or_ended_and_never_both() {
    let mut record = SliceRecord::default();
    made(&mut record, POD, "main", "s", "c1");
    let (there, main) = (views(&[(POD, "main")]), slice(POD, "main"));
    record.end_sandbox(POD.parse().unwrap(), "s");
    assert!(record.begin(&main));
    assert_eq!(record.due(&there), []);
    record.done(&main, Some(container(POD, "t", "c2")));
    assert_eq!(record.due(&there), []);
    record.end_sandbox(POD.parse().unwrap(), "t");
    assert_eq!(record.due(&there), [(main.clone(), true)]);
    assert!(!record.begin(&main));
    record.over(&main);
    assert!(record.begin(&main));
}

#[test]
fn what_the_runtime_does_not_list_ends_if_no_process_uses_it() {
    let mut record = SliceRecord::default();
    record.keep(BTreeSet::from([slice(POD, "main")]));
    let there = views(&[(POD, "main"), (OTHER, "main"), (OTHER, "aside")]);
    assert!(record.begin(&slice(OTHER, "aside")));
    record.done(&slice(OTHER, "aside"), None);
    assert_eq!(record.due(&there), [(slice(OTHER, "main"), false)]);
    record.except(&slice(OTHER, "main"));
    record.over(&slice(OTHER, "main"));
    assert_eq!(record.due(&there), []);
    // It is over once there was nothing to end.
    assert_eq!(record.due(&views(&[(POD, "later")])), []);
}

#[test]
fn containers_of_before_do_not_replace_later_ones() {
    let mut record = SliceRecord::default();
    made(&mut record, POD, "main", "s", "c2");
    record.hold(slice(POD, "main"), LastContainer { created_at: 5, ..container(POD, "s", "c1") });
    record.remove(&slice(POD, "main"), "c1");
    assert_eq!(record.due(&views(&[(POD, "main")])), []);
    record.stop("c2");
    assert_eq!(record.stopped(&POD.parse().unwrap()), [slice(POD, "main")]);
    assert_eq!(record.stopped(&OTHER.parse().unwrap()), []);
}
