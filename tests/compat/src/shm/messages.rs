//! Requests and replies on a slice's socket.

use std::num::NonZeroU32;

use tranche_shm::credit::Units;
use tranche_shm::message::{AttachRefusal, DaemonReply, Frame, OwnView, ProcessRequest, ShareKey};

use super::region::{device, slot};
use crate::Description;

pub(super) fn describe(description: &mut Description) {
    let (key, units) = (ShareKey(0xd1d2), Units::new(0xe1));
    let own = NonZeroU32::new(0x71).map(|pid| OwnView { pid, clock_ns: 0xc1 });
    let requests = [
        ("request Hello(ABI 0xf1)", ProcessRequest::Hello { abi: 0xf1, slot: None, own: None }),
        (
            "request Hello(ABI 0xf1, slot 5)",
            ProcessRequest::Hello { abi: 0xf1, slot: Some(slot(5)), own: None },
        ),
        (
            "request Hello(ABI 0xf1, slot 5, pid 0x71, clock 0xc1)",
            ProcessRequest::Hello { abi: 0xf1, slot: Some(slot(5)), own },
        ),
        ("request Credit(device 2, 0xe1 units)", ProcessRequest::Credit { device: device(2), want: units }),
        (
            "request Export(device 2, key 0xd1d2, 0xe1 units)",
            ProcessRequest::Export { device: device(2), key, units },
        ),
        ("request Import(key 0xd1d2)", ProcessRequest::Import { key }),
        ("request Drop(key 0xd1d2)", ProcessRequest::Drop { key }),
    ];
    // A daemon has to read the hello of any version to refuse it, and a shim of any version has to read the refusal. Of a
    // hello with more words than the daemon knows, the refusal is `Malformed`.
    for (what, request) in requests {
        let always = if matches!(request, ProcessRequest::Hello { own: None, .. }) { "always " } else { "" };
        description.add(format!("{always}{what}"), frame(&request.encode()));
    }
    let replies = [
        ("reply Welcome(slot 5, generation 0x11)", DaemonReply::Welcome { slot: slot(5), generation: 0x11 }),
        ("reply Granted", DaemonReply::Granted),
        ("reply Exhausted", DaemonReply::Exhausted),
        ("reply Later", DaemonReply::Later),
        ("reply Unknown", DaemonReply::Unknown),
        ("always reply Refused(Abi)", DaemonReply::Refused(AttachRefusal::Abi)),
        ("always reply Refused(NotAMember)", DaemonReply::Refused(AttachRefusal::NotAMember)),
        ("always reply Refused(Full)", DaemonReply::Refused(AttachRefusal::Full)),
        ("always reply Refused(Ending)", DaemonReply::Refused(AttachRefusal::Ending)),
        ("always reply Refused(Malformed)", DaemonReply::Refused(AttachRefusal::Malformed)),
    ];
    replies.into_iter().for_each(|(what, reply)| description.add(what, frame(&reply.encode())));
    description.add("share key of_bytes(\"a handle\")", format!("{:#x}", ShareKey::of_bytes(b"a handle").0));
    description.add("share key of_file(device 3, inode 4)", format!("{:#x}", ShareKey::of_file(3, 4).0));
}

/// A frame as 64-bit words, without the unused ones behind.
fn frame(bytes: &Frame) -> String {
    let words =
        bytes.chunks(8).map(|word| word.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)));
    let mut words: Vec<_> = words.map(|word| format!("{word:#x}")).collect();
    words.truncate(words.iter().rposition(|word| word != "0x0").map_or(0, |last| last + 1));
    format!("{} bytes: {}", bytes.len(), words.join(" "))
}
