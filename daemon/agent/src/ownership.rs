//! Ownership of the daemon's files. Root's main process becomes a system user, which owns the content of the daemon's
//! directories.
//!
//! The directories themselves stay root's and sticky, and the user may create entries in them. A compromised main
//! process thus cannot replace what root keeps there: locks, sockets of systemd, libraries and folders that
//! containers mount. Files of an earlier release are handed over once, and a file of root's records that. Paths that
//! root follows are taken back at every start.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown, lchown};
use std::path::Path;

use nix::libc::{O_DIRECTORY, O_NOFOLLOW};
use nix::unistd::{User, geteuid};
use tranche_privileged::{ATTACH, Account, MOUNTS};

use crate::sockets::reach::DaemonScope;
use tranche_linux::atomic_file::{PRIVATE, Survives, replace};

/// The system user if none is configured.
pub(crate) const USUAL: &str = "tranched";
/// File that records the user that received the files of an earlier release.
const MARKER: &str = "handed-over";
/// Entries of the directories that stay root's.
const ROOTS: [&str; 9] =
    ["lock", "tranche.lock", MARKER, "tranched.sock", "jobs.sock", "attest.sock", "slice", "lib", MOUNTS];

/// The user that the main process becomes; `None` where it keeps its user.
///
/// # Errors
/// The configured user does not exist.
pub(crate) fn account(
    wanted: Option<&str>,
    reach: DaemonScope,
    is_usual: bool,
) -> Result<Option<Account>, String> {
    if reach == DaemonScope::User || wanted.is_none() && !is_usual {
        return Ok(None);
    }
    let name = wanted.unwrap_or(USUAL);
    let known = User::from_name(name).map_err(|error| format!("cannot look up user {name}: {error}"))?;
    match known {
        Some(user) if user.uid.is_root() => Ok(None),
        Some(user) => {
            let groups = device_groups(Path::new("/dev"))?;
            Ok(Some(Account { name: name.into(), uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
        }
        None if wanted.is_some() => Err(format!(
            "there is no user {name}, which `user` names: make it with `useradd --system {name}`"
        )),
        None => {
            // The missing user is reported as a condition, which is also logged.
            Ok(None)
        }
    }
}

/// Message for a node without the usual user.
pub(crate) fn fallback() -> String {
    format!(
        "there is no user {USUAL}: what others send is read as uid 0, without capabilities, but it owns root's files; make \
         the user with `systemd-sysusers` and restart tranched, or say `user = \"root\"` if that is meant"
    )
}

/// Groups that may open GPUs where other users may not.
fn device_groups(devices: &Path) -> Result<Vec<u32>, String> {
    let mut groups = Vec::new();
    for entry in fs::read_dir(devices).into_iter().flatten().flatten() {
        let Ok(file) = entry.metadata() else { continue };
        let is_gpu = entry.file_name().to_string_lossy().starts_with("nvidia") && !file.is_dir();
        if !is_gpu || file.mode() & 0o006 == 0o006 {
            continue;
        }
        if file.mode() & 0o060 != 0o060 || file.gid() == 0 {
            return Err(format!(
                "only root may open {}: give it a group (NVreg_DeviceFileGID and NVreg_DeviceFileMode of the nvidia \
                 module), or have the daemon read what others send as root (`user = \"root\"`)",
                entry.path().display()
            ));
        }
        groups.push(file.gid());
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// Hands a directory's content over to the user. The caller is root and holds the directory's lock.
///
/// # Errors
/// The directory is not root's; otherwise the file system's.
pub(crate) fn hand_over(directory: &Path, mode: u32, account: &Account) -> io::Result<()> {
    let marker = directory.join(MARKER);
    if !is_handed_over(&marker, account)? {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !ROOTS.iter().any(|name| entry.file_name() == *name) {
                hand_over_entry(&entry.path(), account)?;
            }
        }
        replace(&marker, account.uid.to_string().as_bytes(), PRIVATE, Survives::PowerCuts)?;
        chown(&marker, Some(0), Some(0))?;
    }
    share(directory, mode, account)
}

/// Checks the marker. Its group must be root: if the directory was handed back since, as systemd does for an earlier
/// release, the group differs.
fn is_handed_over(marker: &Path, account: &Account) -> io::Result<bool> {
    match fs::symlink_metadata(marker) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(file) if !file.is_file() || (file.uid(), file.gid()) != (0, 0) => return Ok(false),
        Ok(_) => {}
    }
    let to: Option<u32> = fs::read_to_string(marker)?.trim().parse().ok();
    match to {
        Some(uid) if uid == account.uid => Ok(true),
        _ => Err(io::Error::other(format!(
            "it was handed over to another user than {}: have that one own what is in it (`chown -R`) and remove {}",
            account.name,
            marker.display()
        ))),
    }
}

/// Lets the user create entries in a directory of root's, without changing those of others.
fn share(directory: &Path, mode: u32, account: &Account) -> io::Result<()> {
    let is = fs::symlink_metadata(directory)?;
    if !is.is_dir() || is.uid() != 0 {
        return Err(io::Error::other(format!("{} is no directory of root's", directory.display())));
    }
    if is.gid() != account.gid {
        chown(directory, None, Some(account.gid))?;
    }
    if is.mode() & 0o7777 != mode {
        fs::set_permissions(directory, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Hands over one entry. Only root could create entries so far, yet files with several links are skipped. A directory
/// follows its content, so one that is the user's is complete.
fn hand_over_entry(path: &Path, account: &Account) -> io::Result<()> {
    let is = fs::symlink_metadata(path)?;
    if is.is_dir() && is.uid() == 0 {
        for entry in fs::read_dir(path)? {
            hand_over_entry(&entry?.path(), account)?;
        }
    }
    if is_alone(&is) && is.uid() == 0 {
        lchown(path, Some(account.uid), Some(account.gid))?;
    }
    Ok(())
}

fn is_alone(file: &Metadata) -> bool {
    file.is_dir() || file.nlink() == 1
}

/// Takes the directory that container runtimes read back from the user of an earlier release.
/// The user could write there. The user's files are removed, as its documents were; slices get new ones.
///
/// # Errors
/// The file system's.
pub(crate) fn take_back_documents(directory: &Path, account: &Account) -> io::Result<()> {
    let directory = fs::canonicalize(directory)?;
    let is = fs::metadata(&directory)?;
    if is.gid() == account.gid && is.mode() & 0o020 != 0 {
        chown(&directory, None, Some(0))?;
        fs::set_permissions(&directory, Permissions::from_mode(is.mode() & 0o755))?;
    }
    for entry in fs::read_dir(&directory)? {
        let entry = entry?;
        if entry.metadata()?.uid() == account.uid {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Creates the directory of the folders that containers mount, or takes it back.
/// Its owner may be the user of an earlier release. The folders keep their inodes, since running containers have
/// them mounted and find the next socket there.
///
/// # Errors
/// The file system's.
pub(crate) fn take_back_mounts(mounts: &Path) -> io::Result<()> {
    take_back(mounts, 0o700)?;
    for entry in fs::read_dir(mounts)? {
        let folder = entry?.path();
        take_back(&folder, 0o755)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name() != ATTACH || !entry.file_type()?.is_socket() {
                remove(&entry.path())?;
            }
        }
    }
    Ok(())
}

/// Creates a directory owned by this process's user, or takes over the one that exists. Anything else of that name is
/// removed. Afterwards no process of another user can change its content.
///
/// # Errors
/// The file system's.
pub(crate) fn take_back(directory: &Path, mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(directory).is_ok_and(|is| !is.is_dir()) {
        fs::remove_file(directory)?;
    }
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let directory = File::options().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(directory)?;
    let user = geteuid().as_raw();
    if directory.metadata()?.uid() != user {
        fchown(&directory, Some(user), None)?;
    }
    directory.set_permissions(Permissions::from_mode(mode))
}

/// Removes a directory tree. Root without CAP_DAC_OVERRIDE cannot remove entries of other users' directories, so
/// these are taken over first.
fn remove(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    take_back(path, 0o700)?;
    for entry in fs::read_dir(path)? {
        remove(&entry?.path())?;
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn account() -> Account {
        Account { name: "daemon".into(), uid: 1, gid: 2, groups: Vec::new() }
    }

    fn owner(path: &Path) -> (u32, u32) {
        let is = fs::symlink_metadata(path).unwrap();
        (is.uid(), is.gid())
    }

    #[test]
    fn image_makes_the_usual_user() {
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deviceplugin/Containerfile");
        let image = fs::read_to_string(image).unwrap();
        let makes =
            |line: &str| line.starts_with("RUN useradd --system ") && line.ends_with(&format!(" {USUAL}"));
        assert!(image.lines().any(makes));
    }

    fn is_root() -> bool {
        let root = geteuid().is_root();
        if !root {
            println!("SKIP: only root hands files over");
        }
        root
    }

    #[test]
    fn earlier_files_are_handed_over_once() {
        if !is_root() {
            return;
        }
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("state");
        fs::create_dir_all(directory.join("slices/a")).unwrap();
        let secret = outer.path().join("secret");
        for file in ["state.json", "lock", "slices/a/control", "../secret"] {
            fs::write(directory.join(file), "x").unwrap();
        }
        symlink(&secret, directory.join("link")).unwrap();
        fs::hard_link(&secret, directory.join("other-name")).unwrap();
        hand_over(&directory, 0o1770, &account()).unwrap();
        for file in ["state.json", "slices", "slices/a", "slices/a/control", "link"] {
            assert_eq!(owner(&directory.join(file)), (1, 2), "{file}");
        }
        for file in ["lock", MARKER, "other-name", "../secret"] {
            assert_eq!(owner(&directory.join(file)), (0, 0), "{file}");
        }
        assert_eq!(owner(&directory), (0, 2));
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o1770);
        fs::write(directory.join("planted"), "x").unwrap();
        hand_over(&directory, 0o1770, &account()).unwrap();
        assert_eq!(owner(&directory.join("planted")), (0, 0), "it is done once");
    }

    #[test]
    fn directory_handed_back_is_handed_over_again() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state.json");
        fs::write(&state, "x").unwrap();
        hand_over(directory.path(), 0o1770, &account()).unwrap();
        // Handed back as systemd does for a unit of root's, then for one with the group.
        for group in [0, 2] {
            for path in [state.clone(), directory.path().join(MARKER), directory.path().to_owned()] {
                chown(path, Some(0), Some(group)).unwrap();
            }
        }
        hand_over(directory.path(), 0o1770, &account()).unwrap();
        assert_eq!(owner(&state), (1, 2));
        let other = Account { uid: 3, ..account() };
        assert!(hand_over(directory.path(), 0o1770, &other).is_err(), "another user's files are not taken");
    }

    #[test]
    fn mounted_folders_are_taken_back_in_place() {
        if !is_root() {
            return;
        }
        let outer = tempfile::tempdir().unwrap();
        let mounts = outer.path().join(MOUNTS);
        let elsewhere = outer.path().join("elsewhere");
        for folder in ["half/deeper", "other"] {
            fs::create_dir_all(mounts.join(folder)).unwrap();
        }
        fs::create_dir(&elsewhere).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(mounts.join("half").join(ATTACH)).unwrap();
        symlink(&elsewhere, mounts.join("link")).unwrap();
        fs::write(mounts.join("half/planted"), "x").unwrap();
        symlink("/", mounts.join("other").join(ATTACH)).unwrap();
        for path in ["", "half", "half/deeper", "half/planted", "other"] {
            chown(mounts.join(path), Some(1), Some(2)).unwrap();
        }
        let inode = fs::metadata(mounts.join("half")).unwrap().ino();
        for _ in 0..2 {
            take_back_mounts(&mounts).unwrap();
            for (path, mode) in [("", 0o700), ("half", 0o755), ("other", 0o755)] {
                let is = fs::metadata(mounts.join(path)).unwrap();
                assert_eq!((is.uid(), is.mode() & 0o7777), (0, mode), "{path}");
            }
            let left = |folder: &str| fs::read_dir(mounts.join(folder)).unwrap().count();
            assert_eq!((left("half"), left("other")), (1, 0), "the socket alone");
        }
        assert_eq!(fs::metadata(mounts.join("half")).unwrap().ino(), inode, "a container has it mounted");
        assert_eq!(fs::read_dir(mounts.join("link")).unwrap().count(), 0);
        assert!(fs::symlink_metadata(mounts.join("link")).unwrap().is_dir() && elsewhere.exists());
    }

    #[test]
    fn documents_directory_is_taken_back_without_user_files() {
        if !is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["tranche.dev-slice-a.json", "tranche.dev-slice-b.json", "nvidia.yaml", "other.yaml"] {
            fs::write(path(name), "x").unwrap();
        }
        for planted in ["tranche.dev-slice-a.json", "nvidia.yaml"] {
            chown(path(planted), Some(1), Some(2)).unwrap();
        }
        for (group, mode, then) in [(2, 0o1775, 0o755), (7, 0o1775, 0o1775), (2, 0o755, 0o755)] {
            chown(directory.path(), Some(0), Some(group)).unwrap();
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            take_back_documents(directory.path(), &account()).unwrap();
            assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o7777, then);
            let there = ["tranche.dev-slice-a.json", "tranche.dev-slice-b.json", "nvidia.yaml", "other.yaml"]
                .map(|name| path(name).exists());
            assert_eq!(there, [false, true, false, true]);
        }
    }

    #[test]
    fn device_group_is_kept_for_restricted_gpus() {
        let devices = tempfile::tempdir().unwrap();
        let make = |name: &str, mode| {
            let path = devices.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            path
        };
        make("nvidia0", 0o666);
        make("other", 0o600);
        assert_eq!(device_groups(devices.path()), Ok(Vec::new()));
        if is_root() {
            chown(make("nvidia1", 0o660), None, Some(44)).unwrap();
            assert_eq!(device_groups(devices.path()), Ok(vec![44]));
        }
        make("nvidiactl", 0o600);
        assert!(device_groups(devices.path()).unwrap_err().contains("nvidiactl"));
    }
}
