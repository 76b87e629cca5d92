//! Prints the imports between the files of a target: `imports daemon/agent/src/lib.rs`.
#![forbid(unsafe_code)]

use std::path::Path;

use architecture::{imports, root};

fn main() {
    for target in std::env::args().skip(1) {
        let short = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
        for (from, targets) in imports::of_target(&root().join(target)) {
            println!("{}", short(&from));
            for (to, names) in targets {
                println!("    {}: {}", short(&to), names.into_iter().collect::<Vec<_>>().join(", "));
            }
        }
    }
}
