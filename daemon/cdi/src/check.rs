//! Validation of documents against the specification.

use std::collections::BTreeSet;

use crate::error::CdiFault;
use crate::library::is_clean;
use crate::names;
use crate::spec::{CdiHook, ContainerEdits, DeviceNode, Mount, Spec};

/// Hook names of the OCI runtime specification.
const HOOKS: &[&str] =
    &["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

impl Spec {
    /// Validates the document as container runtimes do, apart from fields that are passed on unread.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), CdiFault> {
        version(&self.cdi_version)?;
        let why = "it takes the form vendor/class";
        valid(names::is_kind(&self.kind), "the kind", &self.kind, why)?;
        self.container_edits.check()?;
        if self.devices.is_empty() {
            return Err(CdiFault::NoDevices);
        }
        let mut seen = BTreeSet::new();
        for device in &self.devices {
            let why = "it takes letters, digits and, between these, '_', '-', '.' and ':'";
            valid(names::is_device(&device.name), "the device name", &device.name, why)?;
            if !seen.insert(&device.name) {
                return Err(CdiFault::Twice(device.name.clone()));
            }
            device.container_edits.check()?;
        }
        Ok(())
    }
}

impl ContainerEdits {
    /// Validates the edits as container runtimes do.
    pub(crate) fn check(&self) -> Result<(), CdiFault> {
        self.env.iter().try_for_each(|entry| variable(entry))?;
        self.device_nodes.iter().try_for_each(node)?;
        self.hooks.iter().try_for_each(hook)?;
        self.mounts.iter().try_for_each(mount)
    }
}

/// Accepts versions 0.3.0 to 1.x.
fn version(text: &str) -> Result<(), CdiFault> {
    let numbers: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([1, _, _]) => Ok(()),
        Some([0, minor, _]) if *minor >= 3 => Ok(()),
        _ => Err(CdiFault::Version(text.to_owned())),
    }
}

fn variable(entry: &str) -> Result<(), CdiFault> {
    let named = entry.split_once('=').is_some_and(|(name, _)| !name.is_empty());
    valid(named && !entry.contains('\0'), "the variable", entry, "it takes the form NAME=text")
}

fn node(node: &DeviceNode) -> Result<(), CdiFault> {
    path("the device node", &node.path)?;
    node.host_path.iter().try_for_each(|host| path("the device node", host))?;
    let permissions = node.permissions.as_deref().unwrap_or_default();
    let known = permissions.chars().all(|c| "rwm".contains(c));
    valid(known, "the permissions", permissions, "they are some of r, w and m")
}

fn hook(hook: &CdiHook) -> Result<(), CdiFault> {
    let known = HOOKS.contains(&hook.hook_name.as_str());
    valid(known, "the hook name", &hook.hook_name, "the OCI runtime specification knows no such time")?;
    path("the hook's program", &hook.path)
}

fn mount(mount: &Mount) -> Result<(), CdiFault> {
    path("the mount's place in the container", &mount.container_path)?;
    // File systems other than bind mounts are created, and their source is a name, not a path.
    let made = mount.kind.as_deref().is_some_and(|kind| !["", "none", "bind"].contains(&kind));
    let named = !mount.host_path.is_empty() && !mount.host_path.contains('\0');
    if made {
        valid(named, "the mount's source", "", "it is empty")
    } else {
        path("the mount's source", &mount.host_path)
    }
}

fn path(what: &'static str, text: &str) -> Result<(), CdiFault> {
    valid(is_clean(text), what, text, "it takes an absolute path without '.', '..' and empty parts")
}

fn valid(good: bool, what: &'static str, value: &str, why: &'static str) -> Result<(), CdiFault> {
    if good { Ok(()) } else { Err(CdiFault::Value { what, value: value.to_owned(), why }) }
}
