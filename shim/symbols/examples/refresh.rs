//! Appends exports of a driver that the table lacks, as unclassified: `make refresh-symbols`.
//!
//!     refresh LIBRARY TABLE
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [library, table] = arguments.as_slice() else {
        eprintln!("usage: refresh LIBRARY TABLE");
        return ExitCode::from(2);
    };
    match refresh(library, table) {
        Ok(added) => {
            println!("{}: {added} names entered in {}", library.display(), table.display());
            ExitCode::SUCCESS
        }
        Err(complaint) => {
            eprintln!("{complaint}");
            ExitCode::FAILURE
        }
    }
}

fn refresh(library: &Path, table: &Path) -> Result<usize, String> {
    let complain = |path: &Path, error: &dyn std::fmt::Display| {
        format!("cannot refresh from {}: {error}", path.display())
    };
    let data = fs::read(library).map_err(|error| complain(library, &error))?;
    let exports = tranche_symbols::exports(&data).map_err(|error| complain(library, &error))?;
    let text = fs::read_to_string(table).map_err(|error| complain(table, &error))?;
    let known: BTreeSet<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    let new: BTreeSet<_> = exports.into_iter().filter(|name| !known.contains(name.as_str())).collect();
    if !new.is_empty() {
        let rows: String = new.iter().map(|name| format!("{name}\tunclassified\n")).collect();
        let file = library.canonicalize().unwrap_or_default();
        let source = file.file_name().unwrap_or_default().to_string_lossy();
        fs::write(table, format!("{text}# from {source}\n{rows}"))
            .map_err(|error| complain(table, &error))?;
    }
    Ok(new.len())
}
