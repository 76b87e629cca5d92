//! Links the library under the driver's name, with a dependency on the driver under its other name.

#[path = "../link.rs"]
mod link;

fn main() {
    link::in_place_of("libcuda.so.1", "libcuda-real.so.1");
}
