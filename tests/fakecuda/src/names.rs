//! Names handed out as C strings, each kept once and until the process ends.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use crate::wall::Host;

static KEPT: Mutex<BTreeMap<String, CString>> = Mutex::new(BTreeMap::new());

/// The address of a name with its closing zero.
pub(crate) fn kept(name: &str) -> Host {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let text = kept.entry(name.to_owned()).or_insert_with(|| CString::new(name).unwrap_or_default());
    Host(text.as_ptr().cast_mut().cast())
}

static LISTS: Mutex<BTreeMap<u64, Vec<u64>>> = Mutex::new(BTreeMap::new());

/// The address of a list of handles, valid until another one is kept for the same owner.
pub(crate) fn kept_list(owner: u64, list: Vec<u64>) -> u64 {
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    lists.insert(owner, list);
    lists[&owner].as_ptr() as u64
}
