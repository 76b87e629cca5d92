//! The document of the specification, as far as it is needed here.
//!
//! What it holds besides is kept as it is and written again: a field that is not understood may be what makes the
//! device work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Fields that are passed on unread.
pub type Unread = BTreeMap<String, Value>;

/// One document: devices of one kind, and what each of them needs in a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The version of the specification that a reader has to know.
    pub cdi_version: String,
    /// `vendor/class`.
    pub kind: String,
    /// What can be asked for by name.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What a container gets that has any of the devices.
    #[serde(default, skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// What it is asked for by, after `vendor/class=`.
    pub name: String,
    /// What a container gets that has it.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// What is done to a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEdits {
    /// Variables, `NAME=text`, in the place of those that the image sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Programs that run while the container is made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Files and folders.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// `intelRdt`, `additionalGids`, `netDevices` and what is to come.
    #[serde(flatten)]
    pub unread: Unread,
}

impl ContainerEdits {
    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A device file. Its numbers and its owner are among what is passed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceNode {
    /// Where it is in the container.
    pub path: String,
    /// Where it is on the node, if elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Which of `rwm` the container may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub unread: Unread,
}

/// A file or folder of the node in the container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Mount {
    /// Where it is on the node; for a file system that is made for the container, its name.
    pub host_path: String,
    /// Where it is in the container.
    pub container_path: String,
    /// The file system's type; nothing for what is bound.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// As mount(8) has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The rest.
    #[serde(flatten)]
    pub unread: Unread,
}

/// A program that runs while the container is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hook {
    /// When it runs.
    pub hook_name: String,
    /// The program.
    pub path: String,
    /// Its arguments, the first of which is its own name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The rest: its environment, its timeout.
    #[serde(flatten)]
    pub unread: Unread,
}
