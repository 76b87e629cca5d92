//! Completions and man pages, generated from the definition of the command line.

mod man;

use std::fs;
use std::path::Path;

use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::cli::{Artefact, GenerateArgs};
use crate::complete;
use crate::errors::Failure;
use crate::help::command;

/// Writes the files into the folder, which is created if absent.
pub fn generate(args: &GenerateArgs) -> Result<(), Failure> {
    let failed = |cause| Failure::File { path: args.out.clone(), cause };
    fs::create_dir_all(&args.out).map_err(failed)?;
    match args.what {
        Artefact::Completions => completions(&args.out).map_err(failed),
        Artefact::Man => man::pages(command(), &args.out).map_err(failed),
    }
}

/// Writes the scripts with which shells request completions from `tranche` itself.
fn completions(out: &Path) -> std::io::Result<()> {
    let shells: [(&dyn EnvCompleter, &str); 3] =
        [(&Bash, "tranche.bash"), (&Zsh, "_tranche"), (&Fish, "tranche.fish")];
    for (shell, file) in shells {
        let mut script = Vec::new();
        shell.write_registration(complete::VARIABLE, "tranche", "tranche", "tranche", &mut script)?;
        fs::write(out.join(file), script)?;
    }
    Ok(())
}
