//! Slices that must exist, whatever happened to the daemon.
//!
//! A change that was answered is in force. One that was cut off is in force or not, and nothing between; the next
//! comparison shows which of the two, and it stays so.

use std::collections::BTreeMap;

use serde_json::Value;

/// The slices by name.
#[derive(Clone, Debug, Default)]
pub struct Book(BTreeMap<String, Entry>);

/// States that a slice may have.
#[derive(Clone, Debug)]
struct Entry {
    /// Caps that it may have, in bytes: more than one if a change of it was cut off.
    caps: Vec<u64>,
    /// Values that its freeze may have: both if a change of it was cut off.
    frozen: Vec<bool>,
    /// True if it may also be missing: its creation or its deletion was cut off.
    perhaps: bool,
    /// Values that never change, from the first comparison on.
    rest: Option<Value>,
}

/// A change of one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new slice with this cap in bytes.
    Create(u64),
    /// Another cap in bytes.
    Resize(u64),
    /// Launches are held, or pass again.
    Freeze(bool),
    /// The end of the slice.
    Delete,
}

/// Outcome of a call for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The daemon confirmed the change.
    Done,
    /// The daemon ended before its answer.
    CutOff,
}

impl Book {
    /// Records a change of a slice and the outcome of its call.
    pub fn note(&mut self, name: &str, change: Change, ended: Ended) {
        let sure = ended == Ended::Done;
        match (change, self.0.get_mut(name)) {
            (Change::Create(cap), None) => {
                let entry = Entry { caps: vec![cap], frozen: vec![false], perhaps: !sure, rest: None };
                self.0.insert(name.into(), entry);
            }
            (Change::Delete, Some(_)) if sure => drop(self.0.remove(name)),
            (Change::Delete, Some(entry)) => entry.perhaps = true,
            (Change::Resize(cap), Some(entry)) => become_one_of(&mut entry.caps, cap, sure),
            (Change::Freeze(frozen), Some(entry)) => become_one_of(&mut entry.frozen, frozen, sure),
            (Change::Create(_), Some(_)) | (_, None) => {}
        }
    }

    /// Names of the slices that exist for certain, or perhaps.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// True if a slice has exactly one possible state, which may be that it is missing.
    pub fn is_sure(&self, name: &str) -> bool {
        self.0.get(name).is_none_or(|entry| !entry.perhaps && entry.caps.len() + entry.frozen.len() == 2)
    }

    /// Compares with the JSON of `tranche smi`, except for slices that are `others`; returns the errors.
    ///
    /// From then on, states that were in doubt are as they were seen.
    pub fn compare(&mut self, snapshot: &Value, others: impl Fn(&str) -> bool) -> Vec<String> {
        let slices = snapshot["slices"].as_array().cloned().unwrap_or_default();
        let seen: BTreeMap<&str, &Value> =
            slices.iter().map(|slice| (slice["name"].as_str().unwrap_or_default(), slice)).collect();
        let mut wrong = Vec::new();
        self.0.retain(|name, entry| match seen.get(name.as_str()) {
            Some(slice) => {
                wrong.extend(entry.compare(name, slice));
                true
            }
            None if entry.perhaps => false,
            None => {
                wrong.push(format!("slice {name} is gone"));
                true
            }
        });
        let strange = seen.keys().filter(|name| !self.0.contains_key(**name) && !others(name));
        wrong.extend(strange.map(|name| format!("slice {name} was not created")));
        wrong.extend(unbalanced(snapshot, &slices));
        wrong
    }
}

fn become_one_of<T: PartialEq>(values: &mut Vec<T>, value: T, sure: bool) {
    if sure {
        values.clear();
    }
    if !values.contains(&value) {
        values.push(value);
    }
}

impl Entry {
    fn compare(&mut self, name: &str, slice: &Value) -> Vec<String> {
        self.perhaps = false;
        let cap = slice["devices"][0]["cap"].as_u64().unwrap_or_default();
        let frozen = slice["frozen"].as_bool().unwrap_or_default();
        let rest = what_never_changes(slice);
        let mut wrong = Vec::new();
        if !self.caps.contains(&cap) {
            wrong.push(format!("slice {name} has a cap of {cap} instead of {:?}", self.caps));
        }
        if !self.frozen.contains(&frozen) {
            wrong.push(format!("slice {name} is frozen: {frozen}, instead of {:?}", self.frozen));
        }
        if self.rest.as_ref().is_some_and(|known| *known != rest) {
            wrong.push(format!("slice {name} was {:?} and is {rest}", self.rest));
        }
        (self.caps, self.frozen, self.rest) = (vec![cap], vec![frozen], Some(rest));
        wrong
    }
}

fn what_never_changes(slice: &Value) -> Value {
    let keys = ["compute", "limit", "mode", "priority", "pod", "ephemeral", "owner_uid", "created_unix_ms"];
    let mut rest: serde_json::Map<String, Value> =
        keys.iter().map(|key| ((*key).into(), slice[*key].clone())).collect();
    let gpus = slice["devices"].as_array().into_iter().flatten().map(|device| device["gpu_uuid"].clone());
    rest.insert("gpus".into(), gpus.collect());
    Value::Object(rest)
}

/// Errors of GPUs whose committed bytes or permille are not the sum over their slices.
fn unbalanced(snapshot: &Value, slices: &[Value]) -> Vec<String> {
    let parts = || {
        let of = |slice: &Value| slice["devices"].as_array().cloned().unwrap_or_default();
        slices.iter().flat_map(move |slice| of(slice).into_iter().map(move |device| (slice, device)))
    };
    let sum = |gpu: &Value, amount: fn(&Value, &Value) -> u64| -> u64 {
        let here = parts().filter(|(_, device)| device["gpu_uuid"] == gpu["uuid"]);
        here.map(|(slice, device)| amount(slice, &device)).sum()
    };
    let gpus = snapshot["gpus"].as_array().into_iter().flatten();
    let wrong = gpus.filter_map(|gpu| {
        let memory = sum(gpu, |_, device| device["cap"].as_u64().unwrap_or_default());
        let compute = sum(gpu, |slice, _| slice["compute"].as_u64().unwrap_or_default());
        let committed = (gpu["committed"].as_u64(), gpu["committed_compute"].as_u64());
        (committed != (Some(memory), Some(compute))).then(|| {
            format!("of GPU {} {committed:?} are committed, slices have {memory}, {compute}", gpu["index"])
        })
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(slices: &[(&str, u64, bool)], committed: u64) -> Value {
        let slice = |(name, cap, frozen): &(&str, u64, bool)| {
            let devices = serde_json::json!([{"gpu_uuid": "g", "cap": cap}]);
            serde_json::json!({"name": name, "frozen": frozen, "compute": 5, "devices": devices})
        };
        let gpu = serde_json::json!({"index": 0, "uuid": "g", "committed": committed,
            "committed_compute": 5 * slices.len()});
        serde_json::json!({"gpus": [gpu], "slices": slices.iter().map(slice).collect::<Vec<_>>()})
    }

    fn book() -> Book {
        let mut book = Book::default();
        book.note("a", Change::Create(7), Ended::Done);
        assert_eq!(book.compare(&snapshot(&[("a", 7, false)], 7), |_| false), Vec::<String>::new());
        book
    }

    fn count(book: &mut Book, slices: &[(&str, u64, bool)]) -> usize {
        let committed = slices.iter().map(|(_, cap, _)| cap).sum();
        book.compare(&snapshot(slices, committed), |_| false).len()
    }

    #[test]
    fn answered_changes_must_be_in_force() {
        assert_eq!(count(&mut book(), &[]), 1);
        assert_eq!(count(&mut book(), &[("a", 8, false)]), 1);
        assert_eq!(count(&mut book(), &[("a", 7, true)]), 1);
        assert_eq!(count(&mut book(), &[("a", 7, false), ("b", 1, false)]), 1);
        let mut resized = book();
        resized.note("a", Change::Resize(9), Ended::Done);
        assert_eq!(count(&mut resized, &[("a", 7, false)]), 1);
        let mut deleted = book();
        deleted.note("a", Change::Delete, Ended::Done);
        assert_eq!(count(&mut deleted, &[("a", 7, false)]), 1);
    }

    #[test]
    fn cut_off_changes_stay_as_the_next_comparison_shows() {
        for cap in [7, 9] {
            let mut book = book();
            book.note("a", Change::Resize(9), Ended::CutOff);
            assert_eq!(count(&mut book, &[("a", cap, false)]), 0);
            assert_eq!(count(&mut book, &[("a", 16 - cap, false)]), 1);
        }
        let mut book = book();
        book.note("a", Change::Delete, Ended::CutOff);
        assert_eq!((count(&mut book, &[]), count(&mut book, &[])), (0, 0));
        assert_eq!(count(&mut book, &[("a", 7, false)]), 1, "it is gone for good");
    }

    #[test]
    fn a_byte_too_many_is_noticed() {
        assert_eq!(book().compare(&snapshot(&[("a", 7, false)], 8), |_| false).len(), 1);
    }
}
