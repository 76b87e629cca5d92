//! The two memory regions of a slice. The control region is a file of the daemon's; the usage region, which tenants write,
//! is sealed memory, so that nothing a tenant does with its descriptor makes it take more.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use nix::fcntl::{FallocateFlags, fallocate, posix_fallocate};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tranche_domain::id::HostPid;
use tranche_domain::slice::{ProcessId, Seat};
use tranche_shm::compute::{self, Compute, RECORD_WORDS};
use tranche_shm::control::{self, Control, ControlWriter};
use tranche_shm::crash::point;
use tranche_shm::usage::{self, Usage};
use tranche_shm::{MAX_SLOTS, Slot};

use crate::containers::identity;
use crate::privileges;
use crate::sealed;
use crate::shares;
use crate::sys::Mapping;

/// What the control region's file is called.
const CONTROL: &str = "control";
/// What the usage region's file is called, or the link that names it where it is no file.
pub(crate) const USAGE: &str = "usage";

/// Unit in which the kernel counts what a file takes.
const BLOCK: u64 = 512;
/// Largest page of the processors that have NVIDIA drivers.
const PAGE: u64 = 65536;

/// For how many seats at a time room is taken.
const SEATS: usize = 64;

/// Both regions, mapped, with the descriptors that tenants get.
#[derive(Debug)]
pub(crate) struct Regions {
    control: Mapping,
    usage: Mapping,
    control_for_tenants: File,
    usage_for_tenants: File,
    bell: EventFd,
    /// For how many seats there is room.
    seats: AtomicUsize,
    protection: Protection,
    /// A tenant overwrote the head of the usage region.
    head_spoilt: AtomicBool,
    /// The control region's file, once its slice is deleted.
    deleted: OnceLock<File>,
    /// The usage region of an earlier daemon is lost, and this one is empty.
    lost: bool,
}

impl Drop for Regions {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.deleted.get().map(|control| control.set_len(0)) {
            tracing::warn!(%error, "cannot give back what a control region takes");
        }
    }
}

/// What a tenant did to the length of its usage file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tampering {
    /// It made it longer.
    Grown,
    /// It made it shorter: what was said in it is lost.
    Truncated,
}

/// How the control region is kept from being written by tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Handed out through a read-only mount of its own: not even root in a container can write it.
    ReadOnlyMount,
    /// Handed out for reading only; file permissions keep other users from opening it for writing, if there
    /// are other users. The reason why it is no more than that.
    ReadOnlyDescriptor(String),
}

impl Regions {
    /// Makes empty regions in a slice's directory, the usage region of sealed memory or as a file.
    pub(crate) fn create(
        directory: &Path,
        generation: u64,
        devices: usize,
        sealed: bool,
    ) -> io::Result<Self> {
        for name in [CONTROL, USAGE, shares::FILE, identity::FILE] {
            remove(&directory.join(name))?;
        }
        point("regions: begun");
        take_room(&make_file(&directory.join(CONTROL), control::BYTES)?, 0, control::BYTES)?;
        point("regions: half");
        let usage = make_usage(directory, sealed)?;
        point("regions: empty");
        let regions = Self::map(directory, usage, false)?;
        ControlWriter::init(regions.control.words(), generation, devices).map_err(io::Error::other)?;
        point("regions: headed");
        Usage::init(regions.usage.words(), generation).map_err(io::Error::other)?;
        point("regions: made");
        Ok(regions)
    }

    /// Maps the regions that an earlier daemon left, if the control region is whole. The usage region is not asked
    /// whether it is: tenants write it, and one that spoils or truncates it while nobody looks must not be forgotten
    /// for that, with all that it holds. A sealed one that no process of the slice maps any more is made anew.
    pub(crate) fn open(directory: &Path, sealed: bool) -> io::Result<Self> {
        let path = directory.join(USAGE);
        let (usage, lost) = match path.is_symlink() {
            true => {
                match sealed::find(&path, &name(directory), seated(directory)?.into_iter().map(|(_, id)| id))
                {
                    Ok(usage) => (usage, false),
                    Err(error) => {
                        tracing::info!(directory = %directory.display(), %error, "its usage region is made anew");
                        remove(&path)?;
                        (make_usage(directory, sealed)?, true)
                    }
                }
            }
            false => {
                fit(&path, compute::REGION_BYTES)?;
                (open(&path)?, false)
            }
        };
        let regions = Self::map(directory, usage, lost)?;
        let control = ControlWriter::attach(regions.control.words()).map_err(io::Error::other)?;
        if lost {
            Usage::init(regions.usage.words(), control.reader().generation()).map_err(io::Error::other)?;
        }
        if regions.usage().generation() != control.reader().generation() {
            Usage::init(regions.usage.words(), control.reader().generation()).map_err(io::Error::other)?;
        }
        control.take_over();
        // Those who are there have touched theirs already.
        if let Err(error) = regions.make_room(control.reader().slots_high()) {
            tracing::warn!(directory = %directory.display(), %error, "cannot take room for a slice's processes");
        }
        Ok(regions)
    }

    /// Sees to it that whoever gets that seat can write where they are to.
    ///
    /// # Errors
    /// The file system is full.
    pub(crate) fn make_room(&self, seat: usize) -> io::Result<()> {
        let has = self.seats.load(Relaxed);
        if seat < has {
            return Ok(());
        }
        let seats = (seat + 1).next_multiple_of(SEATS).min(MAX_SLOTS);
        take_room_for(&self.usage_for_tenants, seats)?;
        self.seats.fetch_max(seats, Relaxed);
        Ok(())
    }

    fn map(directory: &Path, usage_for_tenants: File, lost: bool) -> io::Result<Self> {
        let control_path = directory.join(CONTROL);
        let control_file = open(&control_path)?;
        let (control_for_tenants, protection) = open_for_tenants(&control_path)?;
        Ok(Self {
            control: Mapping::shared(&control_file, control::WORDS)?,
            usage: Mapping::shared(&usage_for_tenants, compute::REGION_WORDS)?,
            control_for_tenants,
            usage_for_tenants,
            bell: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
            seats: AtomicUsize::new(0),
            protection,
            head_spoilt: AtomicBool::new(false),
            deleted: OnceLock::new(),
            lost,
        })
    }

    /// Who has a seat, by the control region.
    pub(crate) fn seated(&self) -> Vec<(Seat, ProcessId)> {
        occupants(self.control().reader())
    }

    /// Whether the usage region of an earlier daemon is lost, with what processes said in it.
    pub(crate) const fn were_lost(&self) -> bool {
        self.lost
    }

    /// The control region.
    pub(crate) fn control(&self) -> ControlWriter<'_> {
        ControlWriter::attach(self.control.words()).expect("only the daemon writes it, and it made it whole")
    }

    /// The usage region. Its header was ours once; should a tenant have spoilt it since, that is put right.
    pub(crate) fn usage(&self) -> Usage<'_> {
        Usage::attach(self.usage.words()).unwrap_or_else(|_| {
            self.head_spoilt.store(true, Relaxed);
            let generation = self.control().reader().generation();
            Usage::init(self.usage.words(), generation).expect("the mapping is as long as the region")
        })
    }

    /// What processes have outstanding on the GPUs. No header of its own that anybody could spoil.
    pub(crate) fn compute(&self) -> Compute<'_> {
        Compute::known(self.usage.words()).expect("the mapping is as long as the region")
    }

    /// Readable as soon as a process of the slice has rung: it waits at the closed gate, or begins or ends to have
    /// work outstanding.
    pub(crate) const fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Gives the usage file its length again, and says in which way it had another.
    pub(crate) fn mend_length(&self) -> io::Result<Option<Tampering>> {
        let usage = self.usage_for_tenants.metadata()?;
        let takes = usage.blocks().saturating_mul(BLOCK);
        let tampering = match usage.len().cmp(&(compute::REGION_BYTES as u64)) {
            // Room can be taken beyond the end, which its length does not show.
            Ordering::Equal if takes > most() => Tampering::Grown,
            Ordering::Equal => return Ok(None),
            Ordering::Greater => Tampering::Grown,
            Ordering::Less => Tampering::Truncated,
        };
        self.usage_for_tenants.set_len(compute::REGION_BYTES as u64)?;
        Ok(Some(tampering))
    }

    /// Gives back what the regions of a slice that is deleted take, also where a tenant keeps a descriptor of one: the usage
    /// region now, the control region when nothing in the daemon reads it any more.
    pub(crate) fn clear(&self, directory: &Path) {
        if let Ok(control) = File::options().write(true).open(directory.join(CONTROL)) {
            let _ = self.deleted.set(control);
        }
        let everything = i64::try_from(compute::REGION_BYTES).unwrap_or(i64::MAX);
        let holes = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let cleared = fallocate(&self.usage_for_tenants, holes, 0, everything);
        // A file of an earlier release, which a tenant may have made take more beyond its end.
        let cut = self.mend_length();
        if let (Err(error), _) | (_, Err(error)) = (cleared.map_err(io::Error::from), cut) {
            tracing::warn!(%error, "cannot give back what a usage region takes");
        }
    }

    /// Whether a tenant overwrote the head of the usage region since this was last asked.
    pub(crate) fn was_head_spoilt(&self) -> bool {
        let _ = self.usage(); // looks
        self.head_spoilt.swap(false, Relaxed)
    }

    /// Whether a tenant truncated the usage region since this was last asked.
    pub(crate) fn were_damaged(&self) -> bool {
        self.usage.was_damaged()
    }

    /// What a tenant gets: control to read, usage to write, the bell to ring.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.control_for_tenants.as_fd(), self.usage_for_tenants.as_fd(), self.bell().as_fd()]
    }

    /// How the control region is protected.
    pub(crate) const fn protection(&self) -> &Protection {
        &self.protection
    }
}

/// Most that the file of a usage region takes, in whole pages.
const fn most() -> u64 {
    (compute::REGION_BYTES as u64).next_multiple_of(PAGE)
}

/// Name of the slice that has a directory.
fn name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Who has a seat in the regions of a directory.
fn seated(directory: &Path) -> io::Result<Vec<(Seat, ProcessId)>> {
    let control = Mapping::shared(&open(&directory.join(CONTROL))?, control::WORDS)?;
    Ok(occupants(ControlWriter::attach(control.words()).map_err(io::Error::other)?.reader()))
}

fn occupants(control: Control<'_>) -> Vec<(Seat, ProcessId)> {
    let occupant = |index: usize| {
        let identity = control.identity(Slot::new(index)?)?;
        let id = ProcessId { pid: HostPid::new(identity.pid), start_time: identity.start_time };
        Some((Seat(u16::try_from(index).ok()?), id))
    };
    (0..control.slots_high()).filter_map(occupant).collect()
}

/// Makes an empty usage region.
fn make_usage(directory: &Path, sealed: bool) -> io::Result<File> {
    let path = directory.join(USAGE);
    let usage = match sealed {
        true => sealed::make(&name(directory), compute::REGION_BYTES)?,
        false => make_file(&path, compute::REGION_BYTES)?,
    };
    take_room_for(&usage, SEATS)?;
    if sealed {
        sealed::record(&usage, &path)?;
    }
    Ok(usage)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

fn make_file(path: &Path, bytes: usize) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path)?;
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Takes what a usage region needs for so many seats of what the file system has left. Most of the region is never used.
fn take_room_for(usage: &File, seats: usize) -> io::Result<()> {
    take_room(usage, 0, usage::bytes_for(seats))?;
    take_room(usage, compute::FIRST_BYTE, seats * RECORD_WORDS * size_of::<u64>())
}

/// Where a file system runs full, a page of a file that nobody wrote yet cannot be had any more, and whoever touches it,
/// daemon or tenant, would die of that.
fn take_room(file: &File, from: usize, bytes: usize) -> io::Result<()> {
    let number = |bytes| i64::try_from(bytes).map_err(io::Error::other);
    Ok(posix_fallocate(file, number(from)?, number(bytes)?)?)
}

/// Makes a file as long as it is to be, whatever a tenant made of it.
fn fit(path: &Path, bytes: usize) -> io::Result<()> {
    File::options().write(true).open(path)?.set_len(bytes as u64)
}

/// The tree's descriptor only names the file; opening it by that name goes through the new mount.
fn open_for_tenants(path: &Path) -> io::Result<(File, Protection)> {
    let file = File::open(path)?;
    let through_mount = privileges::read_only_mount(file.as_fd())
        .and_then(|tree| File::open(format!("/proc/self/fd/{}", tree.as_raw_fd())));
    match through_mount {
        Ok(file) => Ok((file, Protection::ReadOnlyMount)),
        Err(error) => Ok((file, Protection::ReadOnlyDescriptor(error.to_string()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_shm::DeviceSlot;
    use tranche_shm::control::Identity;
    use tranche_shm::credit::Units;

    #[test]
    fn there_is_room_for_whoever_has_a_seat_and_not_for_all_who_might() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        let taken = || std::fs::metadata(directory.path().join(USAGE)).unwrap().blocks() * 512;
        let needs = |seats: usize| (usage::bytes_for(seats) + seats * RECORD_WORDS * 8) as u64;
        regions.make_room(0).unwrap();
        assert!((needs(SEATS)..2 * needs(SEATS)).contains(&taken()), "{}", taken());
        regions.make_room(3 * SEATS).unwrap();
        assert!(taken() >= needs(4 * SEATS), "{}", taken());
        regions.make_room(MAX_SLOTS - 1).unwrap();
    }

    #[test]
    fn the_next_daemon_finds_what_this_one_wrote() {
        let directory = tempfile::tempdir().unwrap();
        let slot = Slot::new(3).unwrap();
        let identity = Identity { pid: 7, start_time: 9, inner_pid: 0 };
        let first = Regions::create(directory.path(), 5, 1, false).unwrap();
        first.control().occupy(slot, identity);
        drop(first);
        let second = Regions::open(directory.path(), false).unwrap();
        assert_eq!(second.control().reader().generation(), 5);
        assert_eq!(second.control().reader().identity(slot), Some(identity));
    }

    #[test]
    fn a_tenant_that_spoils_its_region_while_no_daemon_runs_is_found_again_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (slot, device) = (Slot::new(3).unwrap(), DeviceSlot::new(0).unwrap());
        let identity = Identity { pid: 7, start_time: 9, inner_pid: 0 };
        let first = Regions::create(directory.path(), 5, 1, false).unwrap();
        first.control().occupy(slot, identity);
        first.usage().credit(slot, device).grant(Units::new(8));
        for at in 0..4 {
            first.usage.words()[at].store(u64::MAX, Relaxed);
        }
        drop(first);
        let second = Regions::open(directory.path(), false).unwrap();
        assert_eq!(second.usage().generation(), 5);
        assert_eq!(second.usage().credit(slot, device).load().granted, Units::new(8));
        drop(second);
        File::options().write(true).open(directory.path().join("usage")).unwrap().set_len(100).unwrap();
        let third = Regions::open(directory.path(), false).unwrap();
        assert_eq!(third.control().reader().identity(slot), Some(identity));
        assert_eq!(third.usage().generation(), 5);
    }

    #[test]
    fn a_usage_file_of_another_length_is_given_its_own_again() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        let length = || std::fs::metadata(directory.path().join("usage")).unwrap().len();
        let made = length();
        assert_eq!(regions.mend_length().unwrap(), None);
        for (length_then, tampering) in [(made + 1, Tampering::Grown), (made - 1, Tampering::Truncated)] {
            regions.usage_for_tenants.set_len(length_then).unwrap();
            assert_eq!((regions.mend_length().unwrap(), length()), (Some(tampering), made));
        }
    }

    #[test]
    fn room_taken_beyond_end_of_usage_file_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        let file = &regions.usage_for_tenants;
        let takes = || file.metadata().unwrap().blocks() * BLOCK;
        let before = takes();
        let (end, more) = (compute::REGION_BYTES as i64, 64 << 20);
        fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, end, more).unwrap();
        assert!(takes() >= before + (64 << 20));
        assert_eq!(regions.mend_length().unwrap(), Some(Tampering::Grown));
        assert!(takes() <= most(), "{}", takes());
        assert_eq!(regions.mend_length().unwrap(), None);
    }

    #[test]
    fn deleted_slices_regions_take_nothing_though_descriptors_stay() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        let [control, usage, _] =
            regions.descriptors().map(|fd| File::from(fd.try_clone_to_owned().unwrap()));
        let takes = |file: &File| file.metadata().unwrap().blocks() * BLOCK;
        assert!(takes(&control) > 0 && takes(&usage) > 0);
        regions.clear(directory.path());
        drop(regions);
        assert_eq!((takes(&control), takes(&usage)), (0, 0));
    }

    #[test]
    fn sealed_usage_region_takes_no_more_than_it_was_made_for() {
        let region = sealed::make("a", compute::REGION_BYTES).unwrap();
        let end = compute::REGION_BYTES as i64;
        for flags in [FallocateFlags::FALLOC_FL_KEEP_SIZE, FallocateFlags::empty()] {
            assert!(fallocate(&region, flags, end, 4096).is_err());
            assert!(fallocate(&region, flags, 0, end + 1).is_err());
        }
        assert!(region.set_len(end as u64 + 1).is_err() && region.set_len(end as u64 - 1).is_err());
        assert!(std::os::unix::fs::FileExt::write_all_at(&region, &[1; 8], end as u64).is_err());
        fallocate(&region, FallocateFlags::empty(), 0, end).unwrap();
        assert!(region.metadata().unwrap().blocks() * BLOCK <= most());
    }

    #[test]
    fn sealed_region_that_nothing_maps_is_made_anew_and_nobody_is_accused() {
        let directory = tempfile::tempdir().unwrap();
        drop(Regions::create(directory.path(), 5, 1, true).unwrap());
        let regions = Regions::open(directory.path(), true).unwrap();
        assert!(regions.were_lost() && !regions.was_head_spoilt());
        assert_eq!(regions.usage().generation(), 5);
    }

    #[test]
    fn a_control_region_that_is_not_whole_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        regions.control.words()[0].store(0, Relaxed);
        drop(regions);
        assert!(Regions::open(directory.path(), false).is_err());
    }

    #[test]
    fn a_tenant_that_spoils_the_usage_header_hurts_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        regions.usage.words()[0].store(0, Relaxed);
        let device = DeviceSlot::new(0).unwrap();
        assert_eq!(regions.usage().used(regions.control().reader(), device).get(), 0);
        assert_eq!(regions.usage().generation(), 5);
    }
}
