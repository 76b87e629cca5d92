//! Work at the moment when the library is loaded.
//!
//! A real driver releases what a process held at the moment when it becomes another program. Here the same pid and
//! start time live on, and only a process with rights over it can distinguish the two images: a daemon without
//! privileges cannot. So the new image, which can, releases what its former self held as soon as it has the library.

use simgpu::Node;

// SAFETY: the loader calls each entry of this section once, when the library is loaded; the function has the C
// convention, takes nothing that it would read, and does not unwind: it ignores every error.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    if let Ok(node) = Node::from_env() {
        node.reap();
    }
}
