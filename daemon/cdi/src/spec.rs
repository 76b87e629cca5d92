//! The document format of the specification, as far as it is used.
//!
//! Unknown fields are preserved and written again, since a device may depend on them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Fields that are preserved without interpretation.
pub type Unread = BTreeMap<String, Value>;

/// A document: devices of one kind with their container edits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the specification that a reader has to support.
    pub cdi_version: String,
    /// `vendor/class`.
    pub kind: String,
    /// Devices that a container may request by name.
    #[serde(default)]
    pub devices: Vec<CdiDevice>,
    /// Edits for containers with any of the devices.
    #[serde(default, skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// A device of the document, with its edits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CdiDevice {
    /// Name, which follows `vendor/class=` in requests.
    pub name: String,
    /// Edits for containers with the device.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// Changes to a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEdits {
    /// Variables, as `NAME=value`, which override those of the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device files that are created in the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Hooks that run during the container's creation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<CdiHook>,
    /// Mounts that the container gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// `intelRdt`, `additionalGids`, `netDevices` and unknown fields.
    #[serde(flatten)]
    pub unread: Unread,
}

impl ContainerEdits {
    /// Tests if there are no edits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A device file; its numbers and owner are preserved fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceNode {
    /// Path in the container.
    pub path: String,
    /// Path on the node, if different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Permissions, a subset of `rwm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Fields that are preserved without interpretation.
    #[serde(flatten)]
    pub unread: Unread,
}

/// A mount from the node into the container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// Path on the node, or the name of a file system that is created.
    pub host_path: String,
    /// Path at which the container sees it.
    pub container_path: String,
    /// Type of the file system; `None` for a bind mount.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Options, as of mount(8).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Fields that are preserved without interpretation.
    #[serde(flatten)]
    pub unread: Unread,
}

/// A program that the runtime runs on the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CdiHook {
    /// Name of the time at which it runs.
    pub hook_name: String,
    /// Path of the program.
    pub path: String,
    /// Arguments, including `argv[0]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Preserved fields, such as environment and timeout.
    #[serde(flatten)]
    pub unread: Unread,
}
