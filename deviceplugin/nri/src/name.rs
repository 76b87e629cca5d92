//! Names of slices, which determine the pod.

use tranche_domain::id::SliceName;
use tranche_domain::pod::PodUid;
use tranche_domain::view::SliceView;

const PREFIX: &str = "nri-";

/// Name of a container's slice: the pod's uid and the container's name.
///
/// A name that is too long is replaced by its hash.
/// Containers whose names have the same hash share a slice; both are the same pod's.
pub(crate) fn of(uid: &PodUid, container: &str) -> Option<SliceName> {
    let plain = format!("{PREFIX}{uid}.{container}");
    plain.parse().ok().or_else(|| format!("{PREFIX}{uid}-{:016x}", hash(container)).parse().ok())
}

/// Uid of the pod that a slice of this plugin is for.
///
/// A slice that a person gave such a name has no pod with this uid.
pub(crate) fn pod(slice: &SliceView) -> Option<&PodUid> {
    let pod = slice.pod.as_ref()?;
    let uid = pod.uid.as_ref()?;
    (of(uid, pod.container.as_str()).as_ref() == Some(&slice.name)).then_some(uid)
}

/// FNV-1a of 64 bits.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "5d8c3c1a-0000-4000-8000-000000000001";

    fn name(container: &str) -> String {
        of(&UID.parse().unwrap(), container).unwrap().to_string()
    }

    #[test]
    fn long_names_are_hashed() {
        assert_eq!(name("main"), format!("nri-{UID}.main"));
        assert_eq!(name(&"a".repeat(22)), format!("nri-{UID}.{}", "a".repeat(22)));
        assert_eq!(name(&"a".repeat(23)), format!("nri-{UID}-{:016x}", hash(&"a".repeat(23))));
        // The value that FNV's authors publish.
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    proptest! {
        #[test]
        fn every_container_has_a_name(container in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?") {
            prop_assert!(of(&UID.parse().unwrap(), &container).is_some());
        }
    }
}
