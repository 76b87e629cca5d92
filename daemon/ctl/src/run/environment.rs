//! Environment of a program in a slice.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use tranche_rpc::v1::EnterSliceResponse;

use crate::client::SLICE_SOCKET;

/// `outside` with the variables of the slice: preloaded library, attach socket and GPUs.
pub(super) fn within(
    outside: impl IntoIterator<Item = (OsString, OsString)>,
    entered: &EnterSliceResponse,
) -> BTreeMap<OsString, OsString> {
    let mut inside: BTreeMap<_, _> = outside.into_iter().collect();
    let preload = preload(&entered.preload_path, inside.get(OsStr::new("LD_PRELOAD")));
    inside.insert("LD_PRELOAD".into(), preload);
    inside.insert(SLICE_SOCKET.into(), entered.socket_path.clone().into());
    inside.insert("CUDA_VISIBLE_DEVICES".into(), entered.gpu_uuids.join(",").into());
    inside
}

/// The library first in LD_PRELOAD, so that its symbols take precedence.
fn preload(shim: &str, existing: Option<&OsString>) -> OsString {
    let mut list = OsString::from(shim);
    let existing = existing.map(|existing| existing.as_bytes()).unwrap_or_default();
    // The environment of a program in a slice has the library already.
    let others =
        existing.split(|byte| *byte == b':').filter(|other| !other.is_empty() && *other != shim.as_bytes());
    for other in others {
        list.push(":");
        list.push(OsStr::from_bytes(other));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered() -> EnterSliceResponse {
        EnterSliceResponse {
            socket_path: "/r/slices/a/attach.sock".into(),
            preload_path: "/l/shim.so".into(),
            gpu_uuids: vec!["GPU-1".into(), "GPU-2".into()],
        }
    }

    fn value(outside: &[(&str, &str)], name: &str) -> String {
        let outside = outside.iter().map(|(name, value)| (name.into(), value.into()));
        within(outside, &entered())[OsStr::new(name)].clone().into_string().unwrap()
    }

    #[test]
    fn shim_is_first_in_preload_list() {
        assert_eq!(value(&[], "LD_PRELOAD"), "/l/shim.so");
        assert_eq!(value(&[("LD_PRELOAD", "")], "LD_PRELOAD"), "/l/shim.so");
        assert_eq!(value(&[("LD_PRELOAD", "a.so b.so")], "LD_PRELOAD"), "/l/shim.so:a.so b.so");
        assert_eq!(value(&[("LD_PRELOAD", "/l/shim.so:a.so")], "LD_PRELOAD"), "/l/shim.so:a.so");
    }

    #[test]
    fn slice_sets_visible_gpus() {
        assert_eq!(value(&[("CUDA_VISIBLE_DEVICES", "5")], "CUDA_VISIBLE_DEVICES"), "GPU-1,GPU-2");
        assert_eq!(value(&[], "TRANCHE_SLICE_SOCKET"), "/r/slices/a/attach.sock");
        assert_eq!(value(&[("HOME", "/h")], "HOME"), "/h");
    }
}
