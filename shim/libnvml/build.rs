//! Links the library under the driver's name, with a dependency on the driver under its other name.

#[path = "../link.rs"]
mod link;

fn main() {
    link::in_place_of("libnvidia-ml.so.1", "libnvidia-ml-real.so.1");
}
