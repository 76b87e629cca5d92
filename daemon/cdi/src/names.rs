//! Names by the specification's grammar, and the names that slices have by it.

use tranche_domain::id::SliceName;

/// Who describes the devices.
pub const VENDOR: &str = "tranche.dev";
/// What they are.
pub const CLASS: &str = "slice";
/// Both, as documents say it.
pub const KIND: &str = "tranche.dev/slice";

/// The name by which a container asks for a slice: `tranche.dev/slice=NAME`.
pub fn qualified(slice: &SliceName) -> String {
    format!("{KIND}={slice}")
}

/// The name of the file that describes a slice, as CDI names what belongs to one device for a while.
///
/// Every slice's name gives another one, which neither holds a slash nor begins with a dot.
pub fn file_name(slice: &SliceName) -> String {
    format!("{VENDOR}-{CLASS}-{slice}.json")
}

/// The slice that a file of that name describes, if it is one of ours.
pub fn slice_of(file_name: &str) -> Option<SliceName> {
    file_name.strip_prefix(&format!("{VENDOR}-{CLASS}-"))?.strip_suffix(".json")?.parse().ok()
}

/// Whether a text can be a vendor: letters, digits, `_`, `-` and `.`, from a letter to a letter or digit.
pub fn is_vendor(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && of(text, "_-.")
}

/// Whether a text can be a class. Dots are allowed since version 0.6.0, and ours has none.
pub fn is_class(text: &str) -> bool {
    is_vendor(text)
}

/// Whether a text can name a device: as a vendor, but it may begin with a digit and hold `:`.
pub fn is_device(text: &str) -> bool {
    of(text, "_-.:")
}

/// `vendor/class`.
pub fn is_kind(text: &str) -> bool {
    text.split_once('/').is_some_and(|(vendor, class)| is_vendor(vendor) && is_class(class))
}

/// Letters and digits at both ends, and these or `others` between.
fn of(text: &str, others: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_those_of_the_specification() {
        assert!(is_kind(KIND) && is_kind("nvidia.com/gpu") && is_kind("v/foo.bar"));
        for bad in ["", "/", "foo", "nvidia.com/", "/gpu", "a.b/c/d", "1a/b", "a/1b", "a-/b", "a b/c", "ä/b"]
        {
            assert!(!is_kind(bad), "{bad:?}");
        }
        assert!(is_device("0") && is_device("GPU-1:2") && is_device("a"));
        for bad in ["", "-a", "a-", ":", "a=b", "a/b", "a b"] {
            assert!(!is_device(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_slice_is_a_device_and_has_a_file_of_its_own(name in "[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?") {
            let slice: SliceName = name.parse().unwrap();
            prop_assert!(is_device(slice.as_str()));
            let file = file_name(&slice);
            prop_assert!(file.len() <= 255 && !file.contains('/'));
            prop_assert_eq!(slice_of(&file), Some(slice));
        }
    }

    #[test]
    fn files_of_others_are_not_taken_for_ours() {
        for other in
            ["nvidia.yaml", "tranche.dev-slice-.json", "tranche.dev-slice-a.yaml", "tranche.dev-slice-A.json"]
        {
            assert_eq!(slice_of(other), None, "{other}");
        }
    }
}
