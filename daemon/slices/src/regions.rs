//! The two memory regions of a slice. The control region is a file that only the daemon writes; the usage region,
//! which tenants write, is sealed memory, so that no operation on its descriptor makes it larger.

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
use tranche_shm::compute::{self, ComputeRecords, RECORD_WORDS};
use tranche_shm::control::{self, Control, ControlWriter};
use tranche_shm::crash::point;
use tranche_shm::usage::{self, Usage};
use tranche_shm::{MAX_SLOTS, Slot};

use crate::container;
use crate::shares;
use tranche_linux::privileges;
use tranche_linux::sealed;
use tranche_linux::sys::Mapping;
use tranche_privileged::remove;

/// File name of the control region.
const CONTROL: &str = "control";
/// File name of the usage region, or of the link that identifies it where it is sealed memory.
pub const USAGE: &str = "usage";

/// Unit in bytes in which the kernel counts the blocks of a file.
const BLOCK: u64 = 512;
/// Largest page size, in bytes, of processors with NVIDIA drivers.
const PAGE: u64 = 65536;

/// Number of slots for which space is allocated at a time.
const SEATS: usize = 64;

/// Both regions, mapped, with the descriptors that tenants receive.
#[derive(Debug)]
pub struct Regions {
    control: Mapping,
    usage: Mapping,
    control_for_tenants: File,
    usage_for_tenants: File,
    bell: EventFd,
    /// Number of slots with allocated space.
    seats: AtomicUsize,
    protection: Protection,
    /// Set when a tenant has overwritten the header of the usage region.
    header_damaged: AtomicBool,
    /// File of the control region, once the slice is deleted.
    deleted: OnceLock<File>,
    /// True if the usage region of an earlier daemon is lost and this one is empty.
    lost: bool,
}

impl Drop for Regions {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.deleted.get().map(|control| control.set_len(0)) {
            tracing::warn!(%error, "cannot give back what a control region takes");
        }
    }
}

/// Change that a tenant made to the length of its usage file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tampering {
    /// The file was extended.
    Grown,
    /// The file was truncated, and its content is lost.
    Truncated,
}

/// Protection of the control region against writes by tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Passed through a read-only mount of its own: even root in a container cannot write it.
    ReadOnlyMount,
    /// Passed read-only; file permissions keep other users, if there are any, from opening it for writing. With the
    /// reason why there is no mount.
    ReadOnlyDescriptor(String),
}

impl Regions {
    /// Creates empty regions in a slice's directory, the usage region as sealed memory or as a file.
    pub fn create(directory: &Path, generation: u64, devices: usize, sealed: bool) -> io::Result<Self> {
        for name in [CONTROL, USAGE, shares::FILE, container::FILE] {
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

    /// Maps the regions that an earlier daemon left, if the control region is valid. The usage region is not
    /// validated: tenants write it, and a slice whose tenant damages it while no daemon runs must not be forgotten
    /// along with the memory that it holds. A sealed region that no process of the slice maps is created anew.
    pub fn open(directory: &Path, sealed: bool) -> io::Result<Self> {
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
                let usage = open(&path)?;
                // Whatever a tenant made of its length.
                usage.set_len(compute::REGION_BYTES as u64)?;
                (usage, false)
            }
        };
        let regions = Self::map(directory, usage, lost)?;
        let control = ControlWriter::attach(regions.control.words()).map_err(io::Error::other)?;
        if lost || regions.usage().generation() != control.reader().generation() {
            Usage::init(regions.usage.words(), control.reader().generation()).map_err(io::Error::other)?;
        }
        control.take_over();
        // Pages of attached processes have been touched before.
        if let Err(error) = regions.make_room(control.reader().slots_high()) {
            tracing::warn!(directory = %directory.display(), %error, "cannot take room for a slice's processes");
        }
        Ok(regions)
    }

    /// Allocates the space that the process in a slot will write.
    ///
    /// # Errors
    /// The file system is full.
    pub fn make_room(&self, seat: usize) -> io::Result<()> {
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
            header_damaged: AtomicBool::new(false),
            deleted: OnceLock::new(),
            lost,
        })
    }

    /// Attached processes by slot, from the control region.
    pub fn seated(&self) -> Vec<(Seat, ProcessId)> {
        occupants(self.control().reader())
    }

    /// Returns true if the usage region of an earlier daemon was lost along with its content.
    pub const fn were_lost(&self) -> bool {
        self.lost
    }

    /// Writer of the control region.
    pub fn control(&self) -> ControlWriter<'_> {
        ControlWriter::attach(self.control.words()).expect("only the daemon writes it, and it made it whole")
    }

    /// The usage region. Rewrites the header if a tenant has damaged it.
    pub fn usage(&self) -> Usage<'_> {
        Usage::attach(self.usage.words()).unwrap_or_else(|_| {
            self.header_damaged.store(true, Relaxed);
            let generation = self.control().reader().generation();
            Usage::init(self.usage.words(), generation).expect("the mapping is as long as the region")
        })
    }

    /// Compute records of all slots. They have no header that a tenant could damage.
    pub fn compute(&self) -> ComputeRecords<'_> {
        ComputeRecords::known(self.usage.words()).expect("the mapping is as long as the region")
    }

    /// Readable once a process of the slice has signalled. It waits at a closed gate, or starts or finishes having
    /// work outstanding.
    pub const fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Restores the length of the usage file; returns the change that was found, if any.
    pub fn restore_length(&self) -> io::Result<Option<Tampering>> {
        let usage = self.usage_for_tenants.metadata()?;
        let takes = usage.blocks().saturating_mul(BLOCK);
        let tampering = match usage.len().cmp(&(compute::REGION_BYTES as u64)) {
            // Blocks can be allocated beyond the end, which the length does not show.
            Ordering::Equal if takes > most() => Tampering::Grown,
            Ordering::Equal => return Ok(None),
            Ordering::Greater => Tampering::Grown,
            Ordering::Less => Tampering::Truncated,
        };
        self.usage_for_tenants.set_len(compute::REGION_BYTES as u64)?;
        Ok(Some(tampering))
    }

    /// Releases the memory of a deleted slice's regions, even if a tenant keeps their descriptors. The usage region
    /// at once, the control region when the daemon no longer reads it.
    pub fn clear(&self, directory: &Path) {
        if let Ok(control) = File::options().write(true).open(directory.join(CONTROL)) {
            let _ = self.deleted.set(control);
        }
        let everything = i64::try_from(compute::REGION_BYTES).unwrap_or(i64::MAX);
        let holes = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let cleared = fallocate(&self.usage_for_tenants, holes, 0, everything);
        // A usage file of an earlier release may have blocks allocated beyond its end.
        let cut = self.restore_length();
        if let (Err(error), _) | (_, Err(error)) = (cleared.map_err(io::Error::from), cut) {
            tracing::warn!(%error, "cannot give back what a usage region takes");
        }
    }

    /// Returns true if a tenant overwrote the header of the usage region since the last call.
    pub fn was_header_damaged(&self) -> bool {
        let _ = self.usage(); // checks the header
        self.header_damaged.swap(false, Relaxed)
    }

    /// Returns true if a tenant truncated the usage region since the last call.
    pub fn were_damaged(&self) -> bool {
        self.usage.was_damaged()
    }

    /// Descriptors for tenants: control region read-only, usage region writable, wakeup eventfd.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.control_for_tenants.as_fd(), self.usage_for_tenants.as_fd(), self.bell().as_fd()]
    }

    /// Protection of the control region.
    pub const fn protection(&self) -> &Protection {
        &self.protection
    }
}

/// Largest allocation of a usage file in bytes, in whole pages.
const fn most() -> u64 {
    (compute::REGION_BYTES as u64).next_multiple_of(PAGE)
}

/// Name of the slice that owns a directory.
fn name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Attached processes by slot, from the control region in a directory.
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

/// Creates an empty usage region.
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

/// Allocates space for this many slots; most of the region is never used.
fn take_room_for(usage: &File, seats: usize) -> io::Result<()> {
    take_room(usage, 0, usage::bytes_for(seats))?;
    take_room(usage, compute::FIRST_BYTE, seats * RECORD_WORDS * size_of::<u64>())
}

/// Allocates space in a file. On a full file system an unallocated page cannot be provided, and touching it would
/// kill the daemon or the tenant with SIGBUS.
fn take_room(file: &File, from: usize, bytes: usize) -> io::Result<()> {
    let number = |bytes| i64::try_from(bytes).map_err(io::Error::other);
    Ok(posix_fallocate(file, number(from)?, number(bytes)?)?)
}

/// Opens the file through a read-only mount. The tree's descriptor only names the file, and opening it by that name
/// goes through the new mount.
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
    use tranche_shm::control::ProcessIdentity;
    use tranche_shm::credit::Units;

    #[test]
    fn space_is_allocated_for_used_slots_only() {
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
    fn regions_reopen_with_their_content() {
        let directory = tempfile::tempdir().unwrap();
        let slot = Slot::new(3).unwrap();
        let identity = ProcessIdentity { pid: 7, start_time: 9, inner_pid: 0 };
        let first = Regions::create(directory.path(), 5, 1, false).unwrap();
        first.control().occupy(slot, identity);
        drop(first);
        let second = Regions::open(directory.path(), false).unwrap();
        assert_eq!(second.control().reader().generation(), 5);
        assert_eq!(second.control().reader().identity(slot), Some(identity));
    }

    #[test]
    fn damaged_usage_region_still_opens() {
        let directory = tempfile::tempdir().unwrap();
        let (slot, device) = (Slot::new(3).unwrap(), DeviceSlot::new(0).unwrap());
        let identity = ProcessIdentity { pid: 7, start_time: 9, inner_pid: 0 };
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
    fn usage_file_length_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        let length = || std::fs::metadata(directory.path().join("usage")).unwrap().len();
        let made = length();
        assert_eq!(regions.restore_length().unwrap(), None);
        for (length_then, tampering) in [(made + 1, Tampering::Grown), (made - 1, Tampering::Truncated)] {
            regions.usage_for_tenants.set_len(length_then).unwrap();
            assert_eq!((regions.restore_length().unwrap(), length()), (Some(tampering), made));
        }
    }

    #[test]
    fn blocks_beyond_the_usage_file_end_are_released() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        let file = &regions.usage_for_tenants;
        let takes = || file.metadata().unwrap().blocks() * BLOCK;
        let before = takes();
        let (end, more) = (compute::REGION_BYTES as i64, 64 << 20);
        fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, end, more).unwrap();
        assert!(takes() >= before + (64 << 20));
        assert_eq!(regions.restore_length().unwrap(), Some(Tampering::Grown));
        assert!(takes() <= most(), "{}", takes());
        assert_eq!(regions.restore_length().unwrap(), None);
    }

    #[test]
    fn deleted_regions_take_no_space_despite_descriptors() {
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
    fn sealed_usage_region_cannot_grow() {
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
    fn unmapped_sealed_region_is_recreated_without_a_violation() {
        let directory = tempfile::tempdir().unwrap();
        drop(Regions::create(directory.path(), 5, 1, true).unwrap());
        let regions = Regions::open(directory.path(), true).unwrap();
        assert!(regions.were_lost() && !regions.was_header_damaged());
        assert_eq!(regions.usage().generation(), 5);
    }

    #[test]
    fn incomplete_control_region_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        regions.control.words()[0].store(0, Relaxed);
        drop(regions);
        assert!(Regions::open(directory.path(), false).is_err());
    }

    #[test]
    fn damaged_usage_header_is_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let regions = Regions::create(directory.path(), 5, 1, false).unwrap();
        regions.usage.words()[0].store(0, Relaxed);
        let device = DeviceSlot::new(0).unwrap();
        assert_eq!(regions.usage().used(regions.control().reader(), device).get(), 0);
        assert_eq!(regions.usage().generation(), 5);
    }
}
