//! Completions and man pages, generated from the definition of the command line.

use std::fs;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Artefact, Cli, GenerateArgs};
use crate::errors::Failure;

/// Writes the files into the folder, which is created if absent.
pub fn generate(args: &GenerateArgs) -> Result<(), Failure> {
    let failed = |cause| Failure::File { path: args.out.clone(), cause };
    fs::create_dir_all(&args.out).map_err(failed)?;
    match args.what {
        Artefact::Completions => completions(args).map_err(failed),
        Artefact::Man => clap_mangen::generate_to(Cli::command(), &args.out).map_err(failed),
    }
}

fn completions(args: &GenerateArgs) -> std::io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "tranche", &args.out)?;
    }
    Ok(())
}
