//! What there is to see of the daemon itself.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

/// The daemon: what it may do and how it was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonView {
    /// The capabilities that any of its threads holds, as the kernel says.
    pub capabilities: Vec<CapabilityView>,
    /// Those that it, or what it starts, could ever hold.
    pub bounding: Vec<String>,
    /// Whether nothing that it starts can gain more than it has.
    pub no_new_privs: bool,
}

/// A capability that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapabilityView {
    /// Its name, such as `CAP_KILL`.
    pub name: String,
    /// What the daemon needs it for; nothing if it has no use for it.
    pub reason: Option<String>,
}
