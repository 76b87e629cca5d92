//! What there is to see of the daemon itself.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

/// The daemon: what it may do and how it was set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonView {
    /// User that its main process runs as; nothing from a daemon that does not say.
    pub uid: Option<u32>,
    /// The capabilities that any of its threads holds, as the kernel says.
    pub capabilities: Vec<CapabilityView>,
    /// Those that it, or what it starts, could ever hold.
    pub bounding: Vec<String>,
    /// Whether nothing that it starts can gain more than it has.
    pub no_new_privs: bool,
    /// Each key of its configuration, as it is in force.
    pub settings: Vec<SettingView>,
    /// Its privileged helper, if it has one.
    pub helper: Option<PrivilegesView>,
}

/// Privileges of one process, as the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrivilegesView {
    /// User that it runs as.
    pub uid: u32,
    /// Capabilities that any of its threads holds.
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

/// A key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingView {
    /// Its name.
    pub key: String,
    /// Its value as the file would have it; empty if there is none.
    pub value: String,
    /// Where it came from: `default`, the file and its line, or the option of the command line.
    pub origin: String,
    /// Whether another value takes effect without a restart.
    pub live: bool,
}

impl fmt::Display for SettingView {
    /// As a line of the file, which says as a comment where the value came from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "# {} is not set", self.key),
            value => write!(f, "{} = {value}  # {}", self.key, self.origin),
        }
    }
}
