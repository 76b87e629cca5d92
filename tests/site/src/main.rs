//! Builds the website of the documentation: `site [FOLDER]`, by default `target/site`.
//!
//! Ends with 1 if something in it leads nowhere, or mdBook had a warning.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = here.ancestors().nth(2).expect("this crate lies two folders below the root");
    let site = std::env::args_os().nth(1).map_or_else(|| tree.join("target/site"), PathBuf::from);
    match site::build(tree, &site) {
        Ok(findings) if findings.is_empty() => {
            println!("{}", site.join("index.html").display());
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            findings.iter().for_each(|finding| eprintln!("{finding}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the site cannot be built: {error:#}");
            ExitCode::FAILURE
        }
    }
}
