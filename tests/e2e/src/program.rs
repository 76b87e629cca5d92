//! C programs that the tests compile: a driver is used through its C interface.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A directory that remains until `cargo clean`: Cargo's own place for files of tests.
pub fn scratch() -> PathBuf {
    let program = std::env::current_exe().expect("the path of a program is known");
    // Tests lie in <target>/<profile>/deps, other programs in <target>/<profile>.
    let profile = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    let target = profile.and_then(Path::parent).expect("what Cargo built lies in its target directory");
    let scratch = target.join("tmp/e2e");
    std::fs::create_dir_all(&scratch).expect("the target directory can be written");
    scratch
}

/// Compiles a C source, given relative to the workspace's root, unless its program is newer.
///
/// `Err` holds the compiler's messages.
pub fn compile(source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    compile_by("cc", source, flags)
}

/// As [`compile`], with another compiler, such as one for another machine.
pub fn compile_by(compiler: &str, source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let source = crate::stage::workspace().join(source);
    let program = scratch().join(program_name(compiler, &source, flags));
    if is_newer(&program, &source) {
        return Ok(program);
    }
    let half_made = program.with_extension(format!("{}", std::process::id()));
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-o"])
        .args([half_made.as_os_str(), source.as_os_str()])
        .args(flags)
        .args(["-ldl", "-lpthread"])
        .output()
        .map_err(|error| format!("cannot run {compiler}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{compiler} {}: {}", source.display(), String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(&half_made, &program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(program)
}

/// Name of a program, which depends on compiler, source and flags.
fn program_name(compiler: &str, source: &Path, flags: &[&str]) -> String {
    // A program of several files has the name of its folder.
    let named = if source.ends_with("main.c") { source.parent().unwrap_or(source) } else { source };
    let stem = named.file_stem().unwrap_or_default().to_string_lossy();
    let letters = flags.concat().chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let tail = letters.len().saturating_sub(80);
    let machine = if compiler == "cc" { "" } else { compiler };
    format!("{stem}-{machine}{}", &letters[tail..])
}

/// True if a program is newer than all files beside its source, any of which the source may include.
fn is_newer(program: &Path, source: &Path) -> bool {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    let beside = source.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    let written = beside.filter_map(|file| modified(&file.ok()?.path())).max();
    matches!((modified(program), written), (Some(made), Some(written)) if made > written)
}
