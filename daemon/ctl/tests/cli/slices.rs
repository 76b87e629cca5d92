//! `tranche slice`.

use serde_json::Value;
use tonic::Status;
use tranche_rpc::v1;

use crate::daemon::{Asked, Daemon};
use crate::tranche::ending;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_slice_is_created_to_stay() {
    let daemon = Daemon::new();
    let said = ending(&daemon.socket(), &["slice", "create", "frac05", "-g", "0.5"]).printed();
    assert_eq!(said, "created slice frac05: 16255 MiB of GPU 0, 50 % of its compute\n");
    let Asked::Create(request) = &daemon.asked()[0] else { panic!("it was asked for something else") };
    assert_eq!((request.name.as_deref(), request.ephemeral), (Some("frac05"), false));
}

#[test]
fn the_name_may_be_an_option_and_the_answer_json() {
    let daemon = Daemon::new();
    let said = ending(&daemon.socket(), &["slice", "create", "--name", "a", "-g", ".5", "--json"]).printed();
    assert_eq!(json(&said)["name"], "frac05");
    assert!(matches!(&daemon.asked()[0], Asked::Create(request) if request.name.as_deref() == Some("a")));
}

#[test]
fn slices_are_listed_and_shown() {
    let daemon = Daemon::new();
    let list = ending(&daemon.socket(), &["slice", "list"]).printed();
    assert!(list.contains("|   0.5 | 0   | 1000 / 16255 MiB |"), "{list}");
    let list = ending(&daemon.socket(), &["slice", "list", "--json"]).printed();
    assert_eq!(json(&list)[0]["devices"][0]["cap"], 16255_u64 << 20);
    let shown = ending(&daemon.socket(), &["slice", "show", "frac05"]).printed();
    assert!(shown.contains("process   4242 (inside: 7) trainer, 1000 MiB\n"), "{shown}");
    let shown = ending(&daemon.socket(), &["slice", "show", "frac05", "--json"]).printed();
    assert_eq!(json(&shown)["processes"][0]["pid"], 4242);
}

#[test]
fn empty_node_is_listed_with_the_first_command() {
    let daemon = Daemon::answering(|answers| answers.node.slices.clear());
    let said = ending(&daemon.socket(), &["slice", "list"]).printed();
    assert!(said.contains("tranche slice create"), "{said}");
    assert_eq!(ending(&daemon.socket(), &["slice", "list", "--json"]).printed(), "[]\n");
}

#[test]
fn unknown_slice_is_refused_with_existing_names() {
    let daemon = Daemon::new();
    ending(&daemon.socket(), &["slice", "show", "nobody"]).refused(1, &["nobody", "there are: frac05"]);
}

#[test]
fn a_slice_is_resized_in_what_is_given() {
    let daemon = Daemon::new();
    ending(&daemon.socket(), &["slice", "resize", "frac05", "-g", "0.3", "--compute", "0.5"]).printed();
    let change = v1::ResizeSliceRequest {
        name: "frac05".into(),
        fraction_permille: Some(300),
        memory_bytes: None,
        compute_permille: Some(500),
        ..v1::ResizeSliceRequest::default()
    };
    assert_eq!(daemon.asked(), [Asked::Resize(change)]);
    ending(&daemon.socket(), &["slice", "resize", "frac05"]).refused(2, &["--memory", "--compute"]);
}

#[test]
fn compute_terms_are_requested_by_option() {
    let daemon = Daemon::new();
    let create = ["slice", "create", "a", "-g", "0.3", "--compute-mode", "fair", "--limit", "60%"];
    let said = ending(&daemon.socket(), &[&create[..], &["--priority", "-5"]].concat());
    said.printed();
    let Asked::Create(request) = &daemon.asked()[0] else { panic!("it was asked for something else") };
    assert_eq!((request.limit_permille, request.priority), (Some(600), -5));
    ending(&daemon.socket(), &["slice", "resize", "frac05", "--limit", "0.7", "--priority=-128"]).printed();
    let change = v1::ResizeSliceRequest {
        name: "frac05".into(),
        limit_permille: Some(700),
        priority: Some(-128),
        ..v1::ResizeSliceRequest::default()
    };
    assert_eq!(daemon.asked()[1], Asked::Resize(change));
    for (latency, latency_us) in [("2500us", 2_500), ("none", 0)] {
        ending(&daemon.socket(), &["slice", "resize", "frac05", "--latency", latency]).printed();
        let change = v1::ResizeSliceRequest {
            name: "frac05".into(),
            latency_us: Some(latency_us),
            ..v1::ResizeSliceRequest::default()
        };
        assert_eq!(daemon.asked().pop(), Some(Asked::Resize(change)));
    }
    ending(&daemon.socket(), &["slice", "resize", "frac05", "--latency", "1ms"])
        .refused(2, &["2 ms to 10 s"]);
    ending(&daemon.socket(), &["slice", "resize", "frac05", "--limit", "101%"]).refused(2, &["at most 100%"]);
    ending(&daemon.socket(), &["slice", "resize", "frac05", "--priority", "128"])
        .refused(2, &["-128 to 127"]);
}

#[test]
fn a_slice_is_frozen_and_thawed() {
    let daemon = Daemon::new();
    for (verb, frozen, said) in
        [("freeze", true, "froze slice frac05"), ("thaw", false, "thawed slice frac05")]
    {
        let told = ending(&daemon.socket(), &["slice", verb, "frac05"]).printed();
        assert!(told.starts_with(said), "{told}");
        let change = v1::ResizeSliceRequest {
            name: "frac05".into(),
            frozen: Some(frozen),
            ..v1::ResizeSliceRequest::default()
        };
        assert_eq!(daemon.asked().pop(), Some(Asked::Resize(change)));
    }
}

#[test]
fn a_slice_is_parked_and_brought_back() {
    let daemon = Daemon::new();
    let told = ending(&daemon.socket(), &["slice", "park", "frac05"]).printed();
    assert!(told.starts_with("parked slice frac05"), "{told}");
    assert_eq!(daemon.asked().pop(), Some(Asked::Park(v1::ParkSliceRequest { name: "frac05".into() })));
    for (wait, wait_ms) in [(&[][..], 0), (&["--wait", "90s"], 90_000)] {
        let told = ending(&daemon.socket(), &[&["slice", "unpark", "frac05"], wait].concat()).printed();
        assert!(told.starts_with("unparked slice frac05"), "{told}");
        let asked = v1::UnparkSliceRequest { name: "frac05".into(), wait_ms };
        assert_eq!(daemon.asked().pop(), Some(Asked::Unpark(asked)));
    }
}

#[test]
fn label_sets_and_removes_the_pod() {
    let daemon = Daemon::new();
    let said = ending(&daemon.socket(), &["slice", "label", "frac05", "--pod", "default/train-0/main"]);
    assert_eq!(said.printed(), "slice frac05 is for default/train-0/main\n");
    let said = ending(&daemon.socket(), &["slice", "label", "frac05", "--remove"]).printed();
    assert_eq!(said, "slice frac05 is for no pod\n");
    let pod = v1::PodContainer {
        namespace: "default".into(),
        name: "train-0".into(),
        container: "main".into(),
        uid: None,
    };
    let asked = |pod| Asked::Label(v1::LabelSliceRequest { name: "frac05".into(), pod });
    assert_eq!(daemon.asked(), [asked(Some(pod)), asked(None)]);
    let create = ["slice", "create", "a", "-g", ".5", "--pod", "n/p/c", "--pod-uid", "7"];
    ending(&daemon.socket(), &create).printed();
    let Some(Asked::Create(request)) = daemon.asked().pop() else {
        panic!("it was asked for something else")
    };
    assert_eq!(request.pod.unwrap().uid.as_deref(), Some("7"));
    ending(&daemon.socket(), &["slice", "label", "frac05"]).refused(2, &["--pod", "--remove"]);
    ending(&daemon.socket(), &["slice", "label", "frac05", "--pod", "a/b"])
        .refused(2, &["NAMESPACE/POD/CONTAINER"]);
}

#[test]
fn a_slice_in_use_is_deleted_only_by_force() {
    let in_use = "slice frac05 is used by process 4242 (trainer): end it, or delete with --force";
    let daemon = Daemon::answering(|answers| answers.delete = Err(Status::failed_precondition(in_use)));
    ending(&daemon.socket(), &["slice", "delete", "frac05"]).refused(1, &[in_use]);
    let killed = v1::DeleteSliceResponse { killed_pids: vec![4242] };
    let daemon = Daemon::answering(|answers| answers.delete = Ok(killed));
    let said = ending(&daemon.socket(), &["slice", "delete", "frac05", "--force"]).printed();
    assert_eq!(said, "deleted slice frac05 and killed its process 4242\n");
    assert_eq!(
        daemon.asked(),
        [Asked::Delete(v1::DeleteSliceRequest { name: "frac05".into(), force: true })]
    );
}

#[test]
fn refusal_is_printed_in_the_daemons_words() {
    for refusal in [
        Status::already_exists("a slice named frac05 exists"),
        Status::not_found("there is no GPU 9"),
        Status::failed_precondition("strict compute is not enforced yet"),
        Status::invalid_argument("no"),
    ] {
        let words = refusal.message().to_owned();
        let daemon = Daemon::answering(|answers| answers.slice = Err(refusal));
        ending(&daemon.socket(), &["slice", "create", "frac05", "-g", "0.5"]).refused(1, &[&words]);
    }
}
