//! See `../link.rs`.

#[path = "../link.rs"]
mod link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    link::lean();
}
