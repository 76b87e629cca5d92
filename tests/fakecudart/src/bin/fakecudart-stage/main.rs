//! `fakecudart-stage ARCHIVE FOLDER [PROGRAM|LIBRARY...]`: makes the simulated libraries.
//!
//! These are the runtimes, all others of NVIDIA's that the programs import, and those named, such as `libcublas.so.13`,
//! for programs that open them by name.
#![forbid(unsafe_code)]

mod stand_in;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::stand_in::{Failure, Wanted, add_imports, add_named, functions, runtimes, source};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [archive, folder, programs @ ..] = &arguments[..] else {
        eprintln!("usage: fakecudart-stage ARCHIVE FOLDER [PROGRAM|LIBRARY...]");
        return ExitCode::FAILURE;
    };
    match run(archive, folder, programs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fakecudart-stage: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(archive: &Path, folder: &Path, programs: &[PathBuf]) -> Result<(), Failure> {
    let mut plan = runtimes();
    for program in programs {
        if !add_named(&mut plan, program) {
            add_imports(&mut plan, program)?;
        }
    }
    let functions = functions(archive)?;
    fs::create_dir_all(folder).map_err(failed("make", folder))?;
    plan.iter().try_for_each(|(name, wanted)| make(archive, folder, name, wanted, &functions))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |source| Failure::File { action, path: path.into(), source }
}

fn make(
    archive: &Path,
    folder: &Path,
    name: &str,
    wanted: &Wanted,
    functions: &BTreeSet<String>,
) -> Result<(), Failure> {
    let source = source(name, wanted, functions);
    let beside = |end: &str| folder.join(format!(".{name}.{end}"));
    let (code, script, taken, fresh) = (beside("c"), beside("map"), beside("taken"), beside("fresh"));
    let wanted: Vec<String> = source.taken.iter().map(|name| format!("-Wl,-u,{name}\n")).collect();
    for (path, text) in [(&code, &source.code), (&script, &source.script), (&taken, &wanted.concat())] {
        fs::write(path, text).map_err(failed("write", path))?;
    }
    let (script_word, taken_word) = (option("-Wl,--version-script=", &script), option("@", &taken));
    let mut linker = Command::new("cc");
    linker
        .args(["-shared", "-fPIC", "-w", "-O1", "-fno-builtin", "-s", "-Wl,--gc-sections", "-o"])
        .arg(&fresh);
    linker
        .args([format!("-Wl,-soname,{name}"), script_word, taken_word])
        .args([&code, &archive.to_path_buf()]);
    linker.args(["-ldl", "-lpthread", "-lm"]);
    let output = linker.output().map_err(failed("start", Path::new("cc")))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Failure::Link { name: name.into(), complaint });
    }
    for path in [&code, &script, &taken] {
        fs::remove_file(path).map_err(failed("remove", path))?;
    }
    // Programs that run may have the old file mapped: it is replaced, not rewritten.
    let target = folder.join(name);
    fs::rename(&fresh, &target).map_err(failed("replace", &target))
}

fn option(start: &str, path: &Path) -> String {
    format!("{start}{}", path.display())
}
