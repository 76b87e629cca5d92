//! Links and details of entries for memory, which calls of several kinds read.

/// Link of an entry of `Kind::Memory` or `Kind::Physical` that is shared.
///
/// An entry of `Kind::Alias` holds its key, and the charge is with the entry of that key.
pub(crate) const SHARED: u64 = 1 << 63;
/// Link of a handle imported from elsewhere, whose size shows only when it is mapped.
///
/// Other links are zero, or the handle of which this one is another name.
pub(crate) const IMPORTED: u64 = 1 << 62;
/// Link of an entry that stands for a multicast object.
pub(crate) const MULTICAST: u64 = 1 << 61;

/// One reference in the detail of an entry of `Kind::Physical`; the lower half counts mappings.
pub(crate) const REFERENCE: u64 = 1 << 32;
pub(crate) const MAPPING: u64 = 1;
