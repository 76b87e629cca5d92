//! Look-up of the objects behind handles.

use std::collections::BTreeMap;

use crate::status::{Outcome, Status};

/// Object of a handle; one that was never given out, or is gone, is an invalid handle.
pub(crate) fn find<T>(table: &BTreeMap<u64, T>, handle: u64) -> Outcome<&T> {
    table.get(&handle).ok_or(Status::InvalidHandle)
}
