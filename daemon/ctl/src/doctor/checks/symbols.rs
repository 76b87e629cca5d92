//! Check for functions of the installed driver that Tranche does not know.

use std::collections::BTreeSet;

use crate::doctor::check::{Check, ok, warning};
use crate::doctor::exports::Exports;

/// Maximum number of names listed.
const NAMED: usize = 40;

pub(super) fn check(library: &Exports) -> Check {
    let known: BTreeSet<&str> =
        tranche_symbols::cuda().chain(tranche_symbols::nvml()).map(|row| row.name).collect();
    let unknown: Vec<&str> =
        library.names.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    let path = library.path.display();
    if unknown.is_empty() {
        let count = library.names.len();
        return ok(library.soname, format!("{path}: what is made of each of its {count} names is known"));
    }
    let found = format!(
        "{path} has {} names that this version of tranche does not know: {}",
        unknown.len(),
        list(&unknown)
    );
    warning(
        library.soname,
        found,
        Some(
            "they are left alone: what a program takes through them is not counted; install a newer tranche, or \
             in a source tree `make refresh-symbols` and decide about them",
        ),
    )
}

fn list(names: &[&str]) -> String {
    match names.split_at_checked(NAMED) {
        Some((first, rest @ [_, ..])) => format!("{} and {} more", first.join(", "), rest.len()),
        _ => names.join(", "),
    }
}
