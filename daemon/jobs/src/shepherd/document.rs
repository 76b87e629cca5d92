//! The CDI document of a member's slice: what its container needs of the node's GPUs and driver.
//!
//! podman reads such documents by itself, with a device's name. Here they are read instead, because rootless podman
//! cannot mount the folder that they name, which only root gets into: a job's container has the folder of the socket
//! at which descendants of the job runner are let into the slice.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;
use tranche_cdi::GovernedLibrary;
use tranche_cdi::spec::{ContainerEdits, Spec};

/// Maximum size of a document in bytes.
const LONGEST: u64 = 4 << 20;

/// Reads the document of a slice; the error is for the job's user.
pub(crate) fn edits_of(path: &Path, slice: &str) -> Result<ContainerEdits, String> {
    let shown = path.display();
    let failed = |error: io::Error| {
        format!("cannot read {shown}, which describes the slice for its container: {error}")
    };
    let text = read(path).map_err(failed)?;
    let spec: Spec = serde_json::from_str(&text).map_err(|error| failed(error.into()))?;
    let device = spec.devices.into_iter().find(|device| device.name == slice);
    device
        .map(|device| device.container_edits)
        .ok_or_else(|| format!("{shown} does not describe slice {slice}, which its container is to have"))
}

/// Content of a file that only root or this process's user can have written.
///
/// Its libraries are mounted over the driver.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::options().read(true).custom_flags(O_NOFOLLOW).open(path)?;
    let found = file.metadata()?;
    if ![0, geteuid().as_raw()].contains(&found.uid()) || found.mode() & 0o022 != 0 || !found.is_file() {
        return Err(io::Error::other("it is not root's alone to write"));
    }
    let mut text = String::new();
    (&mut file).take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces copies of the shim that this user cannot read by the installed files.
///
/// The daemon's copies are in a folder of its own.
pub(crate) fn with_installed_shim(mut edits: ContainerEdits, installed: &Path) -> ContainerEdits {
    for mount in edits.mounts.iter_mut().filter(|mount| mount.kind.is_none()) {
        let Some(library) = GovernedLibrary::named(&mount.container_path) else { continue };
        let own = installed.join(library.soname());
        if File::open(&mount.host_path).is_err() && own.is_file() {
            mount.host_path = own.display().to_string();
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = r#"{"cdiVersion": "0.5.0", "kind": "tranche.dev/slice", "devices": [{"name": "a.j.0", "containerEdits":
        {"env": ["A=1"], "mounts": [{"hostPath": "/nonexistent/x.so", "containerPath": "/usr/lib64/libcuda.so.1"},
        {"hostPath": "/nonexistent/y", "containerPath": "/y"}]}}]}"#;

    #[test]
    fn document_describes_its_slice_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tranche.dev-slice-a.j.0.json");
        fs::write(&path, TEXT).unwrap();
        assert_eq!(edits_of(&path, "a.j.0").unwrap().env, ["A=1"]);
        assert!(edits_of(&path, "a.j.1").unwrap_err().contains("does not describe slice a.j.1"));
        assert!(edits_of(&folder.path().join("none"), "a.j.0").unwrap_err().contains("cannot read"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(edits_of(&path, "a.j.0").unwrap_err().contains("root's alone"));
        fs::write(&path, "half a docu").unwrap();
        assert!(edits_of(&path, "a.j.0").is_err());
    }

    #[test]
    fn unreadable_copy_of_the_shim_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("libcuda.so.1"), "").unwrap();
        let spec: Spec = serde_json::from_str(TEXT).unwrap();
        let edits = with_installed_shim(spec.devices[0].container_edits.clone(), folder.path());
        let sources: Vec<_> = edits.mounts.iter().map(|mount| mount.host_path.clone()).collect();
        assert_eq!(
            sources,
            [folder.path().join("libcuda.so.1").display().to_string(), "/nonexistent/y".into()]
        );
    }
}
