//! View of the daemon itself: privileges and settings.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

/// Privileges and settings of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonView {
    /// Uid of its main process; `None` from daemons that do not report it.
    pub uid: Option<u32>,
    /// Union of the capabilities held by its threads, from the kernel.
    pub capabilities: Vec<CapabilityView>,
    /// Names of the capabilities in its bounding set.
    pub bounding: Vec<String>,
    /// True if `no_new_privs` is set: no child gains privileges.
    pub no_new_privs: bool,
    /// All configuration keys, with the values in force.
    pub settings: Vec<SettingView>,
    /// Its privileged helper, if there is one.
    pub helper: Option<PrivilegesView>,
}

/// Privileges of one process, from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrivilegesView {
    /// Uid of the process.
    pub uid: u32,
    /// Union of the capabilities held by its threads.
    pub capabilities: Vec<CapabilityView>,
    /// Names of the capabilities in its bounding set.
    pub bounding: Vec<String>,
    /// True if `no_new_privs` is set: no child gains privileges.
    pub no_new_privs: bool,
}

/// A capability that a process holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CapabilityView {
    /// Name, such as `CAP_KILL`.
    pub name: String,
    /// Purpose of the capability; `None` if it is unused.
    pub reason: Option<String>,
}

/// A configuration key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingView {
    /// Name of the key.
    pub key: String,
    /// Value in the syntax of the file; empty if unset.
    pub value: String,
    /// Origin of the value: `default`, the file and its line, or the command-line option.
    pub origin: String,
    /// True if a change takes effect without a restart.
    pub live: bool,
}

impl fmt::Display for SettingView {
    /// A line of the file, with the origin as a comment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "# {} is not set", self.key),
            value => write!(f, "{} = {value}  # {}", self.key, self.origin),
        }
    }
}
