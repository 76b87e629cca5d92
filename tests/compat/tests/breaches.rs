//! Changes that would break other releases are found, and additions are no breaches.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use compat::{Breach, Description, descriptors, shm, wire};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto,
};

fn node(files: &mut FileDescriptorSet) -> &mut FileDescriptorProto {
    files.file.iter_mut().find(|file| file.name().ends_with("node.proto")).unwrap()
}

fn message<'a>(files: &'a mut FileDescriptorSet, name: &str) -> &'a mut DescriptorProto {
    node(files).message_type.iter_mut().find(|message| message.name() == name).unwrap()
}

fn field<'a>(files: &'a mut FileDescriptorSet, of: &str, name: &str) -> &'a mut FieldDescriptorProto {
    message(files, of).field.iter_mut().find(|field| field.name() == name).unwrap()
}

fn method<'a>(files: &'a mut FileDescriptorSet, name: &str) -> &'a mut MethodDescriptorProto {
    let methods = &mut node(files).service[0].method;
    methods.iter_mut().find(|method| method.name() == name).unwrap()
}

fn mode(files: &mut FileDescriptorSet) -> &mut EnumDescriptorProto {
    node(files).enum_type.iter_mut().find(|numbers| numbers.name() == "ComputeMode").unwrap()
}

/// A change of the interface: its name, the change, and a part of the breach or addition by it.
type Act = (&'static str, fn(&mut FileDescriptorSet), &'static str);

const BREACHES: &[Act] = &[
    (
        "a field is removed",
        |it| message(it, "Event").field.retain(|field| field.name() != "pid"),
        "message tranche.v1.Event 7 (optional uint32 pid) is gone",
    ),
    (
        "a field is renumbered",
        |it| field(it, "Event", "pid").number = Some(99),
        "message tranche.v1.Event 7 (optional uint32 pid) has become message tranche.v1.Event 99",
    ),
    (
        "two fields change their numbers",
        |it| {
            field(it, "SliceView", "frozen").number = Some(8);
            field(it, "SliceView", "ephemeral").number = Some(15);
        },
        "message tranche.v1.SliceView 15 was `bool frozen` and is `bool ephemeral`",
    ),
    (
        "a field is retyped",
        |it| field(it, "CreateSliceRequest", "wait_ms").set_type(Type::Uint32),
        "message tranche.v1.CreateSliceRequest 7 was `uint64 wait_ms` and is `uint32 wait_ms`",
    ),
    (
        "a number is encoded otherwise",
        |it| field(it, "CreateSliceRequest", "priority").set_type(Type::Int32),
        "10 was `sint32 priority` and is `int32 priority`",
    ),
    (
        "a field holds another message",
        |it| field(it, "SliceView", "pod").type_name = Some(".tranche.v1.Share".into()),
        "20 was `tranche.v1.PodContainer pod` and is `tranche.v1.Share pod`",
    ),
    (
        "a field is renamed",
        |it| field(it, "Share", "whole_gpus").name = Some("gpus".into()),
        "2 was `uint32 whole_gpus in oneof kind` and is `uint32 gpus in oneof kind`",
    ),
    (
        "a field that was there once is there many times",
        |it| field(it, "DeleteSliceRequest", "name").set_label(Label::Repeated),
        "1 was `string name` and is `repeated string name`",
    ),
    (
        "the absence of a field cannot be detected any longer",
        |it| field(it, "ResizeSliceRequest", "frozen").proto3_optional = None,
        "7 was `optional bool frozen` and is `bool frozen",
    ),
    (
        "a field leaves its oneof",
        |it| field(it, "Share", "memory_bytes").oneof_index = None,
        "3 was `uint64 memory_bytes in oneof kind` and is `uint64 memory_bytes`",
    ),
    (
        "a message is removed",
        |it| node(it).message_type.retain(|message| message.name() != "FaultView"),
        "message tranche.v1.FaultView 1 (uint64 xid) is gone",
    ),
    (
        "a method is removed",
        |it| node(it).service[0].method.retain(|method| method.name() != "WhoAmI"),
        "rpc tranche.v1.Node WhoAmI (tranche.v1.WhoAmIRequest -> tranche.v1.WhoAmIResponse) is gone",
    ),
    (
        "a method is renamed",
        |it| method(it, "WhoAmI").name = Some("WhereAmI".into()),
        "WhoAmIResponse) has become rpc tranche.v1.Node WhereAmI",
    ),
    (
        "a method takes another message",
        |it| method(it, "WhoAmI").input_type = Some(".tranche.v1.SnapshotRequest".into()),
        "was `tranche.v1.WhoAmIRequest -> tranche.v1.WhoAmIResponse` and is `tranche.v1.SnapshotRequest",
    ),
    (
        "a method answers by another message",
        |it| method(it, "ResizeSlice").output_type = Some(".tranche.v1.NodeView".into()),
        "-> tranche.v1.SliceView` and is `tranche.v1.ResizeSliceRequest -> tranche.v1.NodeView`",
    ),
    (
        "a stream of answers becomes one",
        |it| method(it, "FollowGpus").server_streaming = None,
        "-> stream tranche.v1.GpusChanged` and is `tranche.v1.FollowGpusRequest -> tranche.v1.GpusChanged`",
    ),
    (
        "an enum's value is removed",
        |it| mode(it).value.retain(|value| value.name() != "COMPUTE_MODE_STRICT"),
        "enum tranche.v1.ComputeMode 2 (COMPUTE_MODE_STRICT) is gone",
    ),
    (
        "an enum's value is renumbered",
        |it| mode(it).value[3].number = Some(7),
        "enum tranche.v1.ComputeMode 3 (COMPUTE_MODE_BEST_EFFORT) has become enum tranche.v1.ComputeMode 7",
    ),
    (
        "the package is renamed",
        |it| node(it).package = Some("tranche.v2".into()),
        "enum tranche.v1.ComputeMode 0 (COMPUTE_MODE_UNSPECIFIED) is gone",
    ),
];

const ADDITIONS: &[Act] = &[
    (
        "a field is added",
        |it| {
            let mut added = field(it, "Event", "pid").clone();
            (added.name, added.number) = (Some("thread".into()), Some(1000));
            message(it, "Event").field.push(added);
        },
        "message tranche.v1.Event 1000 = optional uint32 thread",
    ),
    (
        "a method is added",
        |it| {
            let mut added = method(it, "WhoAmI").clone();
            added.name = Some("WhereAmI".into());
            node(it).service[0].method.push(added);
        },
        "rpc tranche.v1.Node WhereAmI = tranche.v1.WhoAmIRequest -> tranche.v1.WhoAmIResponse",
    ),
    (
        "an enum's value is added",
        |it| {
            let value = EnumValueDescriptorProto {
                name: Some("COMPUTE_MODE_ODD".into()),
                number: Some(4),
                options: None,
            };
            mode(it).value.push(value);
        },
        "enum tranche.v1.ComputeMode 4 = COMPUTE_MODE_ODD",
    ),
];

fn after(act: fn(&mut FileDescriptorSet)) -> (Description, Description) {
    let mut files = descriptors().unwrap();
    let before = wire(&files);
    act(&mut files);
    (before, wire(&files))
}

#[test]
fn every_breach_of_the_grpc_interface_is_found_and_named() {
    for (name, act, expected) in BREACHES {
        let (before, after) = after(*act);
        let breaches: Vec<_> = before.breaches(&after).iter().map(ToString::to_string).collect();
        assert!(breaches.iter().any(|breach| breach.contains(expected)), "{name}: {breaches:#?}");
    }
}

#[test]
fn what_is_added_to_the_grpc_interface_breaks_nothing_and_is_named() {
    for (name, act, expected) in ADDITIONS {
        let (before, after) = after(*act);
        assert_eq!(before.breaches(&after), [], "{name}");
        assert_eq!(before.additions(&after), [expected.to_string()], "{name}");
    }
}

/// Today's shared memory with one thing replaced in one of its lines.
#[track_caller]
fn otherwise(what: &str, from: &str, to: &str) -> Description {
    let text = shm().to_string();
    let line = text.lines().find(|line| line.starts_with(what)).unwrap();
    assert!(line.contains(from), "{line}");
    Description::parse(&text.replace(line, &line.replacen(from, to, 1))).unwrap()
}

#[test]
fn every_breach_of_shared_memory_is_found() {
    let cases = [
        ("control limits", "50: 0x4142434445, 51: 0x5152", "50: 0x5152, 51: 0x4142434445"),
        ("control heartbeat", "4: ", "12: "),
        ("control lease: set_lease(frozen)", "0x2000000000000004", "0x1000000000000004"),
        ("control common", "0x61000", "0x61"),
        ("usage counter of slot 5: Asked", "417", "418"),
        ("usage credit of slot 5, device 2: 2.", "386", "387"),
        ("compute mark of slot 5: 1.", "0xc1c2c3200000021", "0x2c1c2c300000021"),
        ("compute mark: done_offset", "424", "416"),
        ("number MAX_SLOTS", "4096", "2048"),
        ("number control::BYTES", "133248", "133256"),
        ("request Credit", "0x2 0x2", "0x6 0x2"),
        ("reply Later", "0x6", "0x7"),
        ("always reply Refused(Abi)", "0x2", "0x2 0x1"),
        ("share key of_bytes", "0x2a3b", "0x2a3c"),
    ];
    for (what, from, to) in cases {
        let breaches = shm().breaches(&otherwise(what, from, to));
        assert!(
            matches!(&breaches[..], [Breach::Changed { what: line, .. }] if line.starts_with(what)),
            "{what}: {breaches:?}"
        );
    }
}

#[test]
fn a_word_that_is_used_as_well_is_an_addition() {
    let more = otherwise("control limits", "51: 0x5152", "51: 0x5152, 56: 0x1");
    assert_eq!(shm().breaches(&more), []);
    assert_eq!(shm().additions(&more).len(), 1);
}

#[test]
fn a_description_reads_back() {
    for described in [shm(), wire(&descriptors().unwrap())] {
        assert_eq!(Description::parse(&described.to_string()), Ok(described));
    }
    assert!(Description::parse("no equals sign").is_err() && Description::parse("a = b\na = c").is_err());
}
