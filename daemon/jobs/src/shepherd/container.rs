//! Composition of podman's arguments for the container of one member.
//!
//! Pure: the result depends on the arguments alone, and no shell reads it.

use std::collections::BTreeMap;
use std::path::Path;

use tranche_cdi::spec::{CdiHook, ContainerEdits, DeviceNode, Mount};
use tranche_domain::jobs::PullPolicy;
use tranche_jobs::runner_protocol::{CommandOrder, ContainerOrder};

/// Folder of the slice's socket in its container.
const SOCKET_FOLDER: &str = "/run/tranche/slice";
/// Variable that leads a program to its slice.
const SLICE_SOCKET: &str = "TRANCHE_SLICE_SOCKET";
/// Options of mounts in a document that podman knows by the same name.
const OPTIONS: [&str; 8] = ["ro", "rw", "nosuid", "nodev", "noexec", "bind", "rbind", "rprivate"];

/// Properties of podman on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineTraits {
    /// Name of the OCI runtime, such as crun.
    pub(crate) runtime: String,
    /// Folder of hooks for the runtime, if there are any.
    pub(crate) hooks: Option<String>,
}

/// Arguments of podman, and the variables that it passes on to the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateCall {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
}

/// The call that creates the container of an order.
pub(crate) fn create(
    order: &CommandOrder,
    container: &ContainerOrder,
    edits: &ContainerEdits,
    traits: &EngineTraits,
) -> CreateCall {
    let spec = &container.spec;
    let mut words: Vec<String> = Vec::new();
    for folder in traits.hooks.iter() {
        words.push(format!("--hooks-dir={folder}"));
    }
    words.extend(["create", "--quiet", "--replace", "--log-driver=none"].map(str::to_owned));
    // Pulled before, so that the job shows it, but for the comparison with the registry.
    words.push(format!("--pull={}", if spec.pull == PullPolicy::Newer { "newer" } else { "never" }));
    words.push(format!("--name={}", container.name));
    words.push(cgroups(&traits.runtime).to_owned());
    // Files of the job's own user are not labelled for containers, and neither are the driver's.
    words.push("--security-opt=label=disable".into());
    // Without a port of its own a job has the node's network, as one without an image does.
    words.push(format!("--network={}", if spec.ports.is_empty() { "host" } else { "private" }));
    words.extend(spec.ports.iter().map(|port| format!("--publish={port}")));
    words.extend(spec.shm.map(|size| format!("--shm-size={}", size.get())));
    words.extend(spec.workdir.iter().map(|folder| format!("--workdir={folder}")));
    words.extend(edits.device_nodes.iter().map(device));
    words.extend(edits.mounts.iter().map(|mount| driver_mount(mount, order)));
    words.extend(spec.mounts.iter().map(|mount| format!("--volume={mount}")));
    let mut environment = Vec::new();
    for (name, value) in variables(order, edits) {
        if is_inherited(&name, &value, &spec.engine) {
            words.push(format!("--env={name}"));
            environment.push((name, value));
        } else {
            words.push(format!("--env={name}={value}"));
        }
    }
    words.push(spec.image.to_string());
    words.extend(order.command.iter().cloned());
    CreateCall { arguments: words, environment }
}

/// Runtime that runs each container in a cgroup of its own.
pub(crate) const RUNC: &str = "runc";

/// Keeps the container in the cgroup of its job runner, where the runtime can.
fn cgroups(runtime: &str) -> &'static str {
    if runtime == RUNC { "--cgroups=no-conmon" } else { "--cgroups=disabled" }
}

fn device(node: &DeviceNode) -> String {
    let host = node.host_path.as_ref().unwrap_or(&node.path);
    format!("--device={host}:{}:{}", node.path, node.permissions.as_deref().unwrap_or("rw"))
}

fn driver_mount(mount: &Mount, order: &CommandOrder) -> String {
    let Mount { host_path, container_path, kind, options, .. } = mount;
    let known: Vec<&str> =
        options.iter().map(String::as_str).filter(|option| OPTIONS.contains(option)).collect();
    if kind.as_deref() == Some("tmpfs") {
        let size = options.iter().find(|option| option.starts_with("size="));
        let words: Vec<&str> =
            known.into_iter().chain(size.map(String::as_str)).chain(["notmpcopyup"]).collect();
        return format!("--tmpfs={container_path}:{}", words.join(","));
    }
    let own = (container_path == SOCKET_FOLDER).then(|| socket_folder(order)).flatten();
    format!("--volume={}:{container_path}:{}", own.unwrap_or_else(|| host_path.clone()), known.join(","))
}

/// Folder on the node of the socket that admits descendants of the job runner.
fn socket_folder(order: &CommandOrder) -> Option<String> {
    let (_, socket) = order.environment.iter().find(|(name, _)| name == SLICE_SOCKET)?;
    Some(Path::new(socket).parent()?.display().to_string())
}

/// Variables of the container. Those that lead into the slice take precedence.
fn variables(order: &CommandOrder, edits: &ContainerEdits) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = order.environment.iter().cloned().collect();
    // The first library is the shim at its path on the node. In a container the shim is in the driver's place, and
    // programs of other C libraries would not start with it.
    if let Some(list) = all.remove("LD_PRELOAD")
        && let Some((_, others)) = list.split_once(':')
    {
        all.insert("LD_PRELOAD".into(), others.into());
    }
    let given = edits.env.iter().filter_map(|entry| entry.split_once('='));
    all.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
    all
}

/// Tests if podman can take a variable from its own environment, where other users cannot read it.
///
/// Variables that podman or its loader read themselves are arguments, as are those with a value that podman would not
/// pass on.
fn is_inherited(name: &str, value: &str, engine: &[(String, String)]) -> bool {
    const READ: [&str; 16] = [
        "LD_",
        "GLIBC_",
        "GO",
        "MALLOC_",
        "CONTAINER",
        "PODMAN",
        "STORAGE_",
        "XDG_",
        "DOCKER_",
        "REGISTRY_",
        "NOTIFY_",
        "LISTEN_",
        "DBUS_",
        "SSH_",
        "_",
        "NSS_",
    ];
    const NAMES: [&str; 12] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TMPDIR",
        "LANG",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "SSL_CERT_FILE",
    ];
    let upper = name.to_ascii_uppercase();
    !value.is_empty()
        && !READ.iter().any(|prefix| upper.starts_with(prefix))
        && !NAMES.contains(&upper.as_str())
        && engine.iter().all(|(known, _)| known != name)
}

/// A hook of the document in the form of the runtime's hook files.
pub(crate) fn hook_file(hook: &CdiHook) -> String {
    let mut call = hook.unread.clone();
    call.insert("path".into(), hook.path.clone().into());
    if !hook.args.is_empty() {
        call.insert("args".into(), hook.args.clone().into());
    }
    let file = serde_json::json!({
        "version": "1.0.0",
        "hook": call,
        "when": {"always": true},
        "stages": [hook.hook_name],
    });
    file.to_string()
}

#[cfg(test)]
mod tests {
    use tranche_domain::jobs::{ContainerSpec, TerminationPolicy};
    use tranche_domain::units::Bytes;

    use super::*;

    fn container() -> ContainerOrder {
        let spec = ContainerSpec {
            image: "jupyter/base-notebook".parse().unwrap(),
            mounts: vec!["/nfs:/nfs".parse().unwrap(), "claim:/path:ro".parse().unwrap()],
            ports: Vec::new(),
            shm: Some(Bytes::mib(8192)),
            pull: PullPolicy::Missing,
            workdir: Some("/work".into()),
            engine: vec![("PATH".into(), "/usr/bin".into()), ("MINE".into(), "x".into())],
        };
        ContainerOrder { name: "tranche-a.j.0".into(), spec, document: None }
    }

    fn order() -> CommandOrder {
        let environment = [
            ("LD_PRELOAD", "/lib/shim.so:/mine.so"),
            ("TRANCHE_SLICE_SOCKET", "/run/tranche/slices/a.j.0/attach.sock"),
            ("SECRET", "a b\n$(c)"),
            ("PATH", "/opt/bin"),
            ("MINE", "y"),
            ("EMPTY", ""),
        ];
        CommandOrder {
            command: vec!["sh".into(), "-c".into(), "echo $HOME; --privileged".into()],
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            workdir: "/".into(),
            farewell: TerminationPolicy::DEFAULT,
            container: Some(container()),
            health: None,
        }
    }

    fn edits() -> ContainerEdits {
        let text = r#"{"env": ["TRANCHE_SLICE_SOCKET=/run/tranche/slice/attach.sock", "CUDA_VISIBLE_DEVICES=GPU-1"],
            "deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/x", "hostPath": "/dev/y", "permissions": "r"}],
            "mounts": [{"hostPath": "/lib/s.so", "containerPath": "/usr/lib64/libcuda.so.1", "options": ["ro", "nosuid", "odd"]},
            {"hostPath": "/run/tranche/mounts/a.j.0", "containerPath": "/run/tranche/slice", "options": ["ro", "bind"]},
            {"hostPath": "tmpfs", "containerPath": "/usr/local/cuda/compat", "type": "tmpfs", "options": ["ro", "size=4k"]}]}"#;
        serde_json::from_str(text).unwrap()
    }

    fn call(container: &ContainerOrder, runtime: &str) -> CreateCall {
        let traits = EngineTraits { runtime: runtime.into(), hooks: None };
        create(&order(), container, &edits(), &traits)
    }

    #[test]
    fn container_has_slice_driver_and_what_was_submitted() {
        let call = call(&container(), "crun");
        let text = call.arguments.join("\n");
        for line in [
            "--name=tranche-a.j.0",
            "--cgroups=disabled",
            "--network=host",
            "--shm-size=8589934592",
            "--workdir=/work",
            "--device=/dev/nvidia0:/dev/nvidia0:rw",
            "--device=/dev/y:/dev/x:r",
            "--volume=/lib/s.so:/usr/lib64/libcuda.so.1:ro,nosuid",
            "--volume=/run/tranche/slices/a.j.0:/run/tranche/slice:ro,bind",
            "--tmpfs=/usr/local/cuda/compat:ro,size=4k,notmpcopyup",
            "--volume=/nfs:/nfs",
            "--volume=claim:/path:ro",
            "--env=TRANCHE_SLICE_SOCKET",
            "--env=CUDA_VISIBLE_DEVICES",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is missing from\n{text}");
        }
        let socket = ("TRANCHE_SLICE_SOCKET".to_owned(), "/run/tranche/slice/attach.sock".to_owned());
        assert!(call.environment.contains(&socket), "{:?}", call.environment);
        assert!(!text.contains("publish"), "{text}");
    }

    #[test]
    fn command_follows_the_image_as_it_was_submitted() {
        let call = call(&container(), "crun");
        let image = call.arguments.iter().position(|word| word == "jupyter/base-notebook").unwrap();
        assert_eq!(call.arguments[image + 1..], order().command);
        assert!(call.arguments[..image].iter().all(|word| word.starts_with("--") || word == "create"));
    }

    #[test]
    fn variables_are_inherited_unless_podman_reads_them() {
        let call = call(&container(), "crun");
        let has = |word: &str| call.arguments.iter().any(|known| known == word);
        assert!(has("--env=SECRET") && call.environment.contains(&("SECRET".into(), "a b\n$(c)".into())));
        for word in ["--env=PATH=/opt/bin", "--env=MINE=y", "--env=LD_PRELOAD=/mine.so", "--env=EMPTY="] {
            assert!(has(word), "{word}: {:?}", call.arguments);
        }
        assert!(call.environment.iter().all(|(name, _)| name != "PATH" && name != "LD_PRELOAD"));
    }

    #[test]
    fn published_port_has_a_network_of_its_own() {
        let mut container = container();
        container.spec.ports = vec!["80:8888".parse().unwrap()];
        let arguments = call(&container, "runc").arguments;
        for word in ["--publish=80:8888", "--network=private", "--cgroups=no-conmon"] {
            assert!(arguments.iter().any(|known| known == word), "{word}: {arguments:?}");
        }
    }

    #[test]
    fn hooks_become_files_of_the_runtime() {
        let hook: CdiHook = serde_json::from_str(
            r#"{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": ["nvidia-ctk", "hook"], "env": ["A=1"]}"#,
        )
        .unwrap();
        let file: serde_json::Value = serde_json::from_str(&hook_file(&hook)).unwrap();
        assert_eq!(file["stages"][0], "createContainer");
        assert_eq!(
            (&file["hook"]["path"], &file["hook"]["env"][0]),
            (&"/usr/bin/nvidia-ctk".into(), &"A=1".into())
        );
        assert_eq!(file["when"]["always"], true);
    }
}
