//! Names in the specification's grammar, and the names of slices in it.

use tranche_domain::id::SliceName;

/// Vendor part of the device kind.
pub const VENDOR: &str = "tranche.dev";
/// Class part of the device kind.
pub const CLASS: &str = "slice";
/// Device kind: vendor and class.
pub const KIND: &str = "tranche.dev/slice";

/// Qualified device name of a slice: `tranche.dev/slice=NAME`.
pub fn qualified(slice: &SliceName) -> String {
    format!("{KIND}={slice}")
}

/// File name of a slice's document, in CDI's form for transient devices.
///
/// The name is unique for each slice, contains no slash, and does not begin with a dot.
pub fn file_name(slice: &SliceName) -> String {
    format!("{VENDOR}-{CLASS}-{slice}.json")
}

/// The slice of a document's file name, if it is one of Tranche's.
pub fn slice_of(file_name: &str) -> Option<SliceName> {
    file_name.strip_prefix(&format!("{VENDOR}-{CLASS}-"))?.strip_suffix(".json")?.parse().ok()
}

/// Tests if the text is a valid vendor.
///
/// It has letters, digits, `_`, `-` and `.`, from a letter to a letter or digit.
pub fn is_vendor(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && of(text, "_-.")
}

/// Tests if the text is a valid class. Dots are permitted since version 0.6.0; Tranche's class has none.
pub fn is_class(text: &str) -> bool {
    is_vendor(text)
}

/// Tests if the text is a valid device name.
///
/// It is like a vendor, but may begin with a digit and contain `:`.
pub fn is_device(text: &str) -> bool {
    of(text, "_-.:")
}

/// Tests if the text has the form `vendor/class`.
pub fn is_kind(text: &str) -> bool {
    text.split_once('/').is_some_and(|(vendor, class)| is_vendor(vendor) && is_class(class))
}

/// Tests if both ends are letters or digits, and all else is too or in `others`.
fn of(text: &str, others: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || others.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_grammar_matches_the_specification() {
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
        fn slice_names_are_valid_devices_with_unique_files(name in "[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?") {
            let slice: SliceName = name.parse().unwrap();
            prop_assert!(is_device(slice.as_str()));
            let file = file_name(&slice);
            prop_assert!(file.len() <= 255 && !file.contains('/'));
            prop_assert_eq!(slice_of(&file), Some(slice));
        }
    }

    #[test]
    fn foreign_files_are_not_slices() {
        for other in
            ["nvidia.yaml", "tranche.dev-slice-.json", "tranche.dev-slice-a.yaml", "tranche.dev-slice-A.json"]
        {
            assert_eq!(slice_of(other), None, "{other}");
        }
    }
}
