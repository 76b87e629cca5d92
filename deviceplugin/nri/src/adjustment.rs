//! A slice's CDI document as an adjustment of a container.
//!
//! The runtime gets the edits themselves rather than the device's name: its own cache may not have the document of a
//! slice yet that was made a moment before.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tranche_cdi::spec::{CdiDevice, CdiHook, ContainerEdits, DeviceNode, Mount, Spec};
use tranche_nri::api;

/// Edits that only add groups to a container; nothing of a GPU's needs them.
const LEFT_OUT: &str = "additionalGids";

/// Variables that have the same value in every container with a slice.
const CONSTANT: [(&str, &str); 2] =
    [("NVIDIA_VISIBLE_DEVICES", "void"), ("TRANCHE_SLICE_SOCKET", "/run/tranche/slice/attach.sock")];
/// Kind of a device that has just these variables.
const KIND: &str = "tranche.dev/container";
/// Name of that device.
const DEVICE: &str = "sliced";
/// File name of its document.
pub(crate) const DOCUMENT: &str = "tranche.dev-container.json";

/// Reason for which a document is no adjustment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAdjusted {
    #[error("variable {0} is set twice, in the image and in the pod, and could not be replaced: set it once")]
    Twice(String),
    #[error("variable {0:?} has no value")]
    Variable(String),
    #[error("device node {path}: {cause}")]
    Node { path: PathBuf, cause: std::io::Error },
    #[error("device node {0} is no device")]
    NoDevice(PathBuf),
    #[error("hook {0:?} is of no time that container runtimes have")]
    Hook(String),
    #[error("hook {path}: {cause}")]
    HookFields { path: String, cause: serde_json::Error },
    #[error("device node {path}: permissions {given:?} cannot be given to a container by this interface")]
    Permissions { path: String, given: String },
    #[error("{0} cannot be given to a container by this interface")]
    Field(String),
}

/// Document of the device that has the constant variables.
pub(crate) fn document() -> Spec {
    let env = CONSTANT.map(|(name, value)| format!("{name}={value}")).into();
    let container_edits = ContainerEdits { env, ..ContainerEdits::default() };
    Spec {
        cdi_version: "0.5.0".into(),
        kind: KIND.into(),
        devices: vec![CdiDevice { name: DEVICE.into(), container_edits }],
        container_edits: ContainerEdits::default(),
    }
}

/// The edits of a document for a container with these variables.
///
/// Device nodes are as below the folder `root`.
///
/// containerd hands over a variable of the image and of the pod twice, and an adjustment replaces the first alone. The
/// constant variables come by a device then, whose edits are applied to what the adjustment has left.
pub(crate) fn of(
    spec: &Spec,
    root: &Path,
    variables: &[String],
) -> Result<api::ContainerAdjustment, NotAdjusted> {
    let mut adjustment = api::ContainerAdjustment::default();
    for edits in
        std::iter::once(&spec.container_edits).chain(spec.devices.iter().map(|one| &one.container_edits))
    {
        add(edits, root, &mut adjustment)?;
    }
    let times = |name: &str| {
        let its = |variable: &&String| variable.split_once('=').is_some_and(|(its, _)| its == name);
        variables.iter().filter(its).count()
    };
    for api::KeyValue { key, value } in adjustment.env.iter().filter(|variable| times(&variable.key) > 1) {
        if !CONSTANT.contains(&(key, value)) {
            return Err(NotAdjusted::Twice(key.clone()));
        }
        adjustment.cdi_devices = vec![api::CdiDevice { name: format!("{KIND}={DEVICE}") }];
    }
    Ok(adjustment)
}

fn add(edits: &ContainerEdits, root: &Path, to: &mut api::ContainerAdjustment) -> Result<(), NotAdjusted> {
    if let Some(field) = edits.unread.keys().find(|field| *field != LEFT_OUT) {
        return Err(NotAdjusted::Field(field.clone()));
    }
    for variable in &edits.env {
        let (key, value) = variable.split_once('=').ok_or_else(|| NotAdjusted::Variable(variable.clone()))?;
        to.env.push(api::KeyValue { key: key.to_owned(), value: value.to_owned() });
    }
    if let Some(field) = edits.mounts.iter().find_map(|mount| mount.unread.keys().next()) {
        return Err(NotAdjusted::Field(format!("field {field} of a mount")));
    }
    to.mounts.extend(edits.mounts.iter().map(mount));
    if !edits.device_nodes.is_empty() {
        let devices = &mut to.linux.get_or_insert_default().devices;
        for node in &edits.device_nodes {
            devices.push(device(node, root)?);
        }
    }
    for hook in &edits.hooks {
        let hooks = to.hooks.get_or_insert_default();
        let list = match hook.hook_name.as_str() {
            "prestart" => &mut hooks.prestart,
            "createRuntime" => &mut hooks.create_runtime,
            "createContainer" => &mut hooks.create_container,
            "startContainer" => &mut hooks.start_container,
            "poststart" => &mut hooks.poststart,
            "poststop" => &mut hooks.poststop,
            other => return Err(NotAdjusted::Hook(other.to_owned())),
        };
        list.push(self::hook(hook)?);
    }
    Ok(())
}

fn mount(mount: &Mount) -> api::Mount {
    api::Mount {
        destination: mount.container_path.clone(),
        r#type: mount.kind.clone().unwrap_or_else(|| "bind".into()),
        source: mount.host_path.clone(),
        options: mount.options.clone(),
    }
}

/// Fields of a device node that the document may have, and else the file on the node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeFields {
    file_mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    /// The file itself has these.
    #[serde(rename = "type")]
    _kind: Option<String>,
    #[serde(rename = "major")]
    _major: Option<i64>,
    #[serde(rename = "minor")]
    _minor: Option<i64>,
}

fn device(node: &DeviceNode, root: &Path) -> Result<api::LinuxDevice, NotAdjusted> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    if let Some(given) =
        node.permissions.as_ref().filter(|given| !given.contains('r') || !given.contains('w'))
    {
        return Err(NotAdjusted::Permissions { path: node.path.clone(), given: given.clone() });
    }
    let on_node = node.host_path.as_ref().unwrap_or(&node.path);
    let path = root.join(on_node.trim_start_matches('/'));
    let file = match std::fs::metadata(&path) {
        Ok(file) => file,
        Err(cause) => return Err(NotAdjusted::Node { path, cause }),
    };
    let kind = match file.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => return Err(NotAdjusted::NoDevice(path)),
    };
    let fields = serde_json::to_value(&node.unread).and_then(serde_json::from_value::<NodeFields>);
    let fields = fields.map_err(|error| NotAdjusted::Field(format!("device node {}: {error}", node.path)))?;
    let number = |number: u64| i64::try_from(number).unwrap_or(-1);
    Ok(api::LinuxDevice {
        path: node.path.clone(),
        r#type: kind.into(),
        major: number(nix::sys::stat::major(file.rdev())),
        minor: number(nix::sys::stat::minor(file.rdev())),
        file_mode: fields.file_mode.map(|value| api::OptionalFileMode { value }),
        uid: fields.uid.map(|value| api::OptionalUInt32 { value }),
        gid: fields.gid.map(|value| api::OptionalUInt32 { value }),
    })
}

/// Fields of a hook that are not read elsewhere.
#[derive(Deserialize)]
struct HookFields {
    #[serde(default)]
    env: Vec<String>,
    timeout: Option<i64>,
}

fn hook(hook: &CdiHook) -> Result<api::Hook, NotAdjusted> {
    let fields = serde_json::to_value(&hook.unread).and_then(serde_json::from_value::<HookFields>);
    let fields = fields.map_err(|cause| NotAdjusted::HookFields { path: hook.path.clone(), cause })?;
    Ok(api::Hook {
        path: hook.path.clone(),
        args: hook.args.clone(),
        env: fields.env,
        timeout: fields.timeout.map(|value| api::OptionalInt { value }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(edits: serde_json::Value) -> Spec {
        let device = json!({"name": "s", "containerEdits": edits});
        serde_json::from_value(
            json!({"cdiVersion": "0.5.0", "kind": "tranche.dev/slice", "devices": [device]}),
        )
        .expect("a document")
    }

    fn adjusted(edits: serde_json::Value) -> Result<api::ContainerAdjustment, NotAdjusted> {
        of(&document(edits), Path::new("/"), &[])
    }

    #[test]
    fn every_edit_is_in_the_adjustment() {
        let edits = json!({
            "env": ["A=b=c", "NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/null", "fileMode": 438, "gid": 7}],
            "mounts": [
                {"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"]},
                {"hostPath": "tmpfs", "containerPath": "/c", "type": "tmpfs"},
            ],
            "hooks": [{"hookName": "createContainer", "path": "/h", "args": ["h", "x"], "env": ["K=v"], "timeout": 3}],
            "additionalGids": [44],
        });
        let adjustment = adjusted(edits).unwrap();
        let variables: Vec<_> =
            adjustment.env.iter().map(|one| (one.key.as_str(), one.value.as_str())).collect();
        assert_eq!(variables, [("A", "b=c"), ("NVIDIA_VISIBLE_DEVICES", "void")]);
        let device = &adjustment.linux.unwrap().devices[0];
        assert_eq!((device.path.as_str(), device.r#type.as_str()), ("/dev/nvidia0", "c"));
        assert_eq!((device.major, device.minor), (1, 3));
        assert_eq!((device.file_mode.unwrap().value, device.uid, device.gid.unwrap().value), (438, None, 7));
        let kinds: Vec<_> =
            adjustment.mounts.iter().map(|one| (one.r#type.as_str(), one.source.as_str())).collect();
        assert_eq!(kinds, [("bind", "/a"), ("tmpfs", "tmpfs")]);
        let hook = &adjustment.hooks.unwrap().create_container[0];
        assert_eq!(
            (hook.path.as_str(), &hook.args[..], hook.timeout),
            ("/h", &["h".to_owned(), "x".into()][..], Some(api::OptionalInt { value: 3 }))
        );
    }

    #[test]
    fn variables_that_are_set_twice_come_by_the_device() {
        let edits = json!({"env": ["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=GPU-1"]});
        let adjusted = |variables: &[&str]| {
            let variables: Vec<_> = variables.iter().map(|one| (*one).to_owned()).collect();
            of(&document(edits.clone()), Path::new("/"), &variables)
        };
        assert_eq!(adjusted(&["NVIDIA_VISIBLE_DEVICES=all"]).unwrap().cdi_devices, []);
        let twice = adjusted(&["NVIDIA_VISIBLE_DEVICES=all", "A=b", "NVIDIA_VISIBLE_DEVICES=1"]).unwrap();
        assert_eq!(twice.cdi_devices[0].name, "tranche.dev/container=sliced");
        let refused = adjusted(&["CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=0"]);
        assert!(matches!(refused, Err(NotAdjusted::Twice(name)) if name == "CUDA_VISIBLE_DEVICES"));
    }

    /// The constant is what the daemon's documents have.
    #[test]
    fn socket_of_the_device_is_the_slices() {
        assert!(CONSTANT[1].1.starts_with(tranche_cdi::SOCKET_FOLDER));
        assert_eq!(super::document().devices[0].container_edits.env.len(), 2);
    }

    #[test]
    fn what_cannot_be_adjusted_is_refused() {
        for (edits, why) in [
            (json!({"intelRdt": {}}), "intelRdt"),
            (json!({"env": ["A"]}), "no value"),
            (json!({"deviceNodes": [{"path": "/etc/passwd"}]}), "no device"),
            (json!({"deviceNodes": [{"path": "/dev/does-not-exist"}]}), "No such file"),
            (json!({"deviceNodes": [{"path": "/dev/null", "uid": "x"}]}), "/dev/null"),
            (json!({"deviceNodes": [{"path": "/dev/null", "permissions": "r"}]}), "permissions"),
            (json!({"deviceNodes": [{"path": "/dev/null", "colour": "red"}]}), "colour"),
            (json!({"mounts": [{"hostPath": "/a", "containerPath": "/b", "colour": "red"}]}), "colour"),
            (json!({"hooks": [{"hookName": "later", "path": "/h"}]}), "later"),
            (json!({"hooks": [{"hookName": "poststop", "path": "/h", "timeout": "x"}]}), "/h"),
        ] {
            let error = adjusted(edits.clone()).unwrap_err().to_string();
            assert!(error.contains(why), "{edits}: {error}");
        }
    }
}
