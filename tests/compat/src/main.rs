//! `make freeze`: enters additions to the interfaces that other releases rely on, and refuses breaches.

use compat::{Frozen, descriptors, shm, wire};

fn main() -> std::process::ExitCode {
    match freeze() {
        Ok(added) if added.is_empty() => println!("nothing was added, and nothing is broken"),
        Ok(added) => added.iter().for_each(|line| println!("promised from now on: {line}")),
        Err(why) => {
            eprintln!("{why}");
            return std::process::ExitCode::FAILURE;
        }
    }
    std::process::ExitCode::SUCCESS
}

fn freeze() -> Result<Vec<String>, String> {
    let files = descriptors().map_err(|error| error.to_string())?;
    let mut added = Frozen::wire().freeze(&wire(&files))?;
    added.extend(Frozen::shm(tranche_shm::ABI).freeze(&shm())?);
    Ok(added)
}
