//! Files that may lie in the tree, and text that they must not contain.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use architecture::{root, sources, text, tracked};

/// All that may lie at the root, besides dotfiles.
const TOP: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "daemon",
    "deviceplugin",
    "docs",
    "proto",
    "rust-toolchain.toml",
    "shim",
    "systemd",
    "tests",
];

#[test]
fn the_root_holds_what_the_map_shows() {
    let top: BTreeSet<String> = tracked().iter().filter_map(|path| first(path)).collect();
    let strange: Vec<_> =
        top.iter().filter(|name| !name.starts_with('.') && !TOP.contains(&name.as_str())).collect();
    assert!(strange.is_empty(), "at the root, and in no map: {strange:?}");
}

#[test]
fn no_output_of_a_build_or_test_is_tracked() {
    let outputs: Vec<_> =
        tracked().into_iter().filter(|path| path.iter().any(|folder| folder == "target")).collect();
    assert!(outputs.is_empty(), "made by the build or by tests: {outputs:?}");
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let places: Vec<String> = places().iter().map(|place| format!("{}/", place.display())).collect();
    for path in tracked() {
        for (number, line) in text(&path).unwrap_or_default().lines().enumerate() {
            for place in &places {
                assert!(!names(line, place), "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn no_file_names_a_registry_of_its_own() {
    // In pieces, so that this file does not name them either.
    let hints = [
        ["registry+", "http"],
        ["sparse+", "http"],
        ["--index", "-url"],
        ["extra-index", "-url"],
        ["crates", ".io"],
        ["pypi", ".org"],
        ["npmjs", ".org"],
        ["proxy.golang", ".org"],
    ]
    .map(|pieces| pieces.concat());
    let index = ["registry+", "https", "://", "github.com", "/rust-lang/", "crates", ".io-index"].concat();
    for path in tracked() {
        // Cargo writes the public index there, and nowhere else.
        let is_lock = path.ends_with("Cargo.lock");
        for (number, line) in text(&path).unwrap_or_default().lines().enumerate() {
            let rest = if is_lock { line.replace(&index, "") } else { line.into() };
            let found = hints.iter().find(|hint| rest.contains(hint.as_str()));
            assert!(found.is_none(), "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

#[test]
fn paths_in_documents_exist() {
    let of_ours = |word: &str| {
        ["daemon/", "deviceplugin/", "proto/", "shim/", "systemd/", "tests/"]
            .iter()
            .any(|top| word.starts_with(top))
    };
    let plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    // A program or module stands for its source.
    let exists =
        |word: &str| ["", ".c", ".rs"].iter().any(|ending| root().join(format!("{word}{ending}")).exists());
    let mut missing = Vec::new();
    for path in tracked().into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        for (number, line) in text(&path).unwrap_or_default().lines().enumerate() {
            // Code spans of a line: each second part between backticks.
            let words = line.split('`').skip(1).step_by(2).filter(|word| of_ours(word) && plain(word));
            missing.extend(
                words
                    .filter(|word| !exists(word))
                    .map(|word| format!("{}:{}: {word}", path.display(), number + 1)),
            );
        }
    }
    assert!(missing.is_empty(), "paths that do not exist: {missing:#?}");
}

#[test]
fn names_in_the_glossary_exist() {
    let sources: Vec<_> =
        tracked().iter().filter(|path| is_rust(path)).filter_map(|path| text(path)).collect();
    let words: BTreeSet<&str> = sources.iter().flat_map(|source| source.split(is_no_letter)).collect();
    let glossary = text(Path::new("docs/GLOSSARY.md")).expect("the glossary is there");
    let spans = glossary.split('`').skip(1).step_by(2).filter(|span| !span.contains('/'));
    let names: Vec<_> =
        spans.flat_map(|span| span.split(is_no_letter)).filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 30, "the names are not found: {}", names.len());
    let gone: Vec<_> = names.into_iter().filter(|name| !words.contains(name)).collect();
    assert!(gone.is_empty(), "names of no source: {gone:?}");
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn is_no_letter(letter: char) -> bool {
    !letter.is_alphanumeric() && letter != '_'
}

#[test]
fn nothing_built_is_tracked() {
    for path in tracked() {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let built = ["so", "o", "a", "rlib", "rmeta", "cubin", "fatbin", "exe"].contains(&extension.as_str());
        assert!(!built, "{} is a product, not a source", path.display());
    }
}

#[test]
fn no_documentation_has_code_that_only_a_documentation_test_would_run() {
    let fences = |path: &PathBuf| {
        let source = text(path).unwrap_or_default();
        let comments = source.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
        });
        // Every second fence begins a block.
        let fences = comments.filter_map(|line| line.trim().strip_prefix("```")).step_by(2);
        let code = fences.filter(|language| *language != "text").count();
        (code > 0).then(|| path.display().to_string())
    };
    let found: Vec<_> = sources().iter().filter_map(fences).collect();
    assert!(
        found.is_empty(),
        "`make unit` runs no documentation tests, and these files have some: {found:?}"
    );
}

fn first(path: &Path) -> Option<String> {
    Some(path.components().next()?.as_os_str().to_string_lossy().into_owned())
}

/// Folders that exist only on the machine that runs this.
fn places() -> Vec<PathBuf> {
    let variables = ["CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR", "CARGO_TARGET_TMPDIR"];
    let set = variables.into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    set.chain([root()]).filter(|place| place.is_absolute() && place.components().count() > 2).collect()
}

/// True if the line names the path, and not merely one that contains it.
fn names(line: &str, place: &str) -> bool {
    let inside_a_path = |c: char| c.is_alphanumeric() || "/.-_".contains(c);
    line.match_indices(place).any(|(at, _)| !line[..at].ends_with(inside_a_path))
}

#[test]
fn a_path_is_named_only_by_itself() {
    assert!(names("cd /a/b/c", "/a/b/"));
    assert!(!names("cd x/a/b/c", "/a/b/"));
}
