//! Part of a bundle.

/// A text for the archive, or the reason for its absence.
pub(super) struct Item {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) text: Result<String, String>,
}
