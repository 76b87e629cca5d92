//! `tranche doctor`: what works on this machine, what does not, and what to do about it.
//!
//! Law: `evidence`, `machine`, `library` and `exports` observe and do not judge; `checks` judges and does not observe.
//! `setup` has its own law.

mod bundle;
pub mod check;
mod checks;
mod evidence;
mod exports;
mod library;
mod machine;
mod report;
pub mod setup;

use std::path::Path;

use crate::cli::DoctorArgs;
use crate::errors::Failure;
use crate::out;
use evidence::Evidence;

use check::Found;

/// Checks this machine and the daemon at `socket`; fails if there is a problem.
pub fn doctor(args: &DoctorArgs, socket: &Path) -> Result<(), Failure> {
    if let Some(path) = &args.bundle {
        return bundle::write(path, socket);
    }
    if args.setup {
        return setup::setup(socket, args.apply, args.output.json);
    }
    let checks = checks::all(&Evidence::gather(socket));
    if args.output.json {
        out::json(&checks)?;
    } else {
        out::print(&report::render(&checks))?;
    }
    match Found::of(&checks) {
        Found { problems: 0, .. } => Ok(()),
        found => Err(Failure::Unwell(found)),
    }
}
