//! Appends enumerators of a header that the table lacks, as unclassified: `make refresh-symbols`.
//!
//! Only types that the table has already are read.
//!
//!     refresh_enumerators HEADER TABLE
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [header, table] = arguments.as_slice() else {
        eprintln!("usage: refresh_enumerators HEADER TABLE");
        return ExitCode::from(2);
    };
    match refresh(header, table) {
        Ok(added) => {
            println!("{}: {added} enumerators entered in {}", header.display(), table.display());
            ExitCode::SUCCESS
        }
        Err(complaint) => {
            eprintln!("{complaint}");
            ExitCode::FAILURE
        }
    }
}

fn refresh(header: &Path, table: &Path) -> Result<usize, String> {
    let complain = |path: &Path, error: &dyn std::fmt::Display| {
        format!("cannot refresh from {}: {error}", path.display())
    };
    let declared = fs::read_to_string(header).map_err(|error| complain(header, &error))?;
    let text = fs::read_to_string(table).map_err(|error| complain(table, &error))?;
    let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t'));
    let known: BTreeSet<(&str, &str)> =
        rows.filter_map(|mut words| Some((words.next()?, words.next()?))).collect();
    let types: BTreeSet<&str> = known.iter().map(|(kind, _)| *kind).collect();
    let declared = tranche_symbols::header::enumerators(&declared, &types);
    if !declared.iter().any(|(kind, ..)| types.contains(&**kind)) {
        return Err(complain(header, &"it declares none of the types in the table"));
    }
    let new: BTreeSet<_> = declared
        .iter()
        // The last of each type bounds the others and means nothing.
        .filter(|(kind, name, _)| types.contains(&**kind) && !name.ends_with("_MAX"))
        .filter(|(kind, name, _)| !known.contains(&(&**kind, &**name)))
        .collect();
    if !new.is_empty() {
        let row = |(kind, name, number): &&(String, String, i64)| {
            format!("{kind}\t{name}\t{number}\tunclassified\n")
        };
        let rows: String = new.iter().map(row).collect();
        fs::write(table, format!("{text}{rows}")).map_err(|error| complain(table, &error))?;
    }
    Ok(new.len())
}
