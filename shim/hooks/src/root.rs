//! The root of the shim's state: one private mapping that a forked child finds zeroed.
//!
//! A child of fork has no context on the GPU and no slot in the slice. It finds the words zero, hence every lock
//! free, an empty ledger and no connection, and attaches on its first governed call.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use tranche_policy::{GATE_WORDS, Guard, Ledger, Lock};

use crate::sys;

/// Words that are accessible from the beginning: 256 MiB, for about a million entries.
///
/// They are backed only where touched.
const WORDS: usize = 32 << 20;
/// Numbers of words to reserve addresses for, in the order of attempts.
///
/// 128 GiB, for some hundred million entries, and less where the program's limits do not allow that.
const EXTENTS: [usize; 4] = [16 << 30, 2 << 30, 256 << 20, WORDS];
const ROOT_WORDS: usize = 128;
/// Place of the ledger: first the library that owns it, then the ledger.
///
/// Each library has a place, because the ledger refers to statics of the library, which a program may unload.
const LEDGER: usize = if cfg!(feature = "libnvml") { 44 } else { 24 };
/// Number of words that a ledger may take.
const LEDGER_WORDS: usize = 18;
const FIRST_DEVICE: usize = 64;
const FIRST_MARK: usize = ROOT_WORDS + GATE_WORDS;
const FIRST_OF_LEDGER: usize = (FIRST_MARK + MARK_WORDS).next_multiple_of(8);
/// Number of words for marks and contexts, see [`crate::progress`].
pub(crate) const MARK_WORDS: usize = 256;

/// The named words of the root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RootWord {
    /// 1 as soon as the other words are valid.
    Ready,
    /// Lock over the connection to the daemon.
    Turn,
    /// Address of the control region.
    Control,
    /// Address of the usage region.
    Usage,
    /// Slot of this process in both regions.
    Slot,
    /// Generation of the slice's regions.
    Generation,
    /// Descriptor of the socket plus one.
    Socket,
    /// Device number of the socket's file.
    SocketDevice,
    /// Inode number of the socket's file.
    SocketInode,
    /// Lock over the two words below.
    Beginning,
    /// Number of threads in `cuInit`.
    Beginners,
    /// Address of the program's own entry for the variable that the shim has replaced; 0 where it has none.
    OwnEntry,
    /// [`Control::daemon`](tranche_shm::control::Control::daemon) at the last attachment.
    Daemon,
    /// Words that the mapping has addresses for; 0 in a forked child.
    Extent,
}

/// Name by which the libraries in the place of the driver and of NVML find each other's root.
///
/// Both belong to one process of the slice. The preloaded library detects them by it. It changes with the layout:
/// after an upgrade, a program may have one of them of each release.
pub(crate) const SHARED: &CStr = c"tranche_root_2";

/// The root of this library, made if there is none and `make` is set.
#[cfg(not(feature = "preload"))]
#[cfg_attr(all(panic = "abort", any(feature = "libcuda", feature = "libnvml")), unsafe(no_mangle))]
extern "C" fn tranche_root_2(make: bool) -> *mut AtomicU64 {
    if make {
        Root::get();
    }
    let root = ROOT.load(Acquire);
    if !root.is_null() {
        // A forked child finds the word zero.
        Root::of(root).word(RootWord::Extent).store(EXTENT.load(Acquire), Release);
    }
    root
}

/// The other library's root. NVML's library makes the driver's create it, so that the order of loading does not
/// matter.
#[cfg(not(feature = "preload"))]
fn sibling() -> Option<*mut AtomicU64> {
    let other = if cfg!(feature = "libnvml") { c"libcuda.so.1" } else { c"libnvidia-ml.so.1" };
    let function = crate::alias::loaded(other)?.function(SHARED)?;
    // SAFETY: only these two libraries export this name, and both with this type. The other one stays loaded, by the
    // contract of `loaded`.
    let shared = unsafe {
        let function: extern "C" fn(bool) -> *mut AtomicU64 = core::mem::transmute(function);
        function(cfg!(feature = "libnvml"))
    };
    (!shared.is_null()).then_some(shared)
}

/// The root mapping, at its fixed address.
#[derive(Clone, Copy)]
pub(crate) struct Root(&'static [AtomicU64; WORDS]);

static ROOT: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Words that the mapping has addresses for, if this library made it or has read it.
static EXTENT: AtomicU64 = AtomicU64::new(WORDS as u64);

impl Root {
    /// The root, mapped on first use; `None` without memory.
    #[inline(always)]
    pub(crate) fn get() -> Option<Self> {
        let known = ROOT.load(Acquire);
        if !known.is_null() {
            return Some(Self::of(known));
        }
        Self::make()
    }

    #[cold]
    fn make() -> Option<Self> {
        #[cfg(not(feature = "preload"))]
        if let Some(shared) = sibling() {
            EXTENT.fetch_max(Self::of(shared).word(RootWord::Extent).load(Acquire), AcqRel);
            ROOT.store(shared, Release);
            return Some(Self::of(shared));
        }
        let fresh = EXTENTS.iter().find_map(|words| sys::map_private(*words, WORDS).ok())?;
        let first = fresh.as_ptr().cast_mut();
        Self::of(first).word(RootWord::Extent).store(fresh.len() as u64, Release);
        match ROOT.compare_exchange(ptr::null_mut(), first, AcqRel, Acquire) {
            Ok(_) => {
                EXTENT.fetch_max(fresh.len() as u64, AcqRel);
                Some(Self::of(first))
            }
            Err(other) => {
                sys::unmap_unseen(fresh);
                Some(Self::of(other))
            }
        }
    }

    #[inline(always)]
    fn of(address: *mut AtomicU64) -> Self {
        // SAFETY: only `get` stores to ROOT, and only mappings of WORDS words that are never unmapped. Fork
        // keeps the mapping at its address.
        Self(unsafe { &*address.cast() })
    }

    /// The word of that name.
    #[inline(always)]
    pub(crate) fn word(self, word: RootWord) -> &'static AtomicU64 {
        &self.0[word as usize]
    }

    /// Slot of the driver's device with this number, plus one.
    ///
    /// 0 before the first look-up; more than any slot for a device outside the slice.
    #[inline(always)]
    pub(crate) fn device(self, number: usize) -> Option<&'static AtomicU64> {
        self.0[FIRST_DEVICE..ROOT_WORDS].get(number)
    }

    /// Takes the lock over the connection; `None` at the deadline.
    pub(crate) fn turn(self, deadline_ns: u64) -> Option<Guard<'static>> {
        let lock = Lock::at(self.word(RootWord::Turn), sys::pause);
        for tries in 0u32.. {
            if let Some(guard) = lock.try_acquire() {
                return Some(guard);
            }
            if sys::now_ns() >= deadline_ns {
                break;
            }
            // A daemon replies in microseconds; for one that does not, this sleeps.
            sys::pause(tries);
        }
        None
    }

    /// Words for the ledger. Those beyond the first [`WORDS`] need [`Root::open`] before use.
    pub(crate) fn ledger_words(self) -> &'static [AtomicU64] {
        let extent = EXTENT.load(Acquire).max(self.word(RootWord::Extent).load(Acquire)) as usize;
        // SAFETY: the mapping that starts with the root has addresses for `extent` words, as its maker stored there,
        // and is never unmapped. Inaccessible words are not read: the tables open the words that they take.
        unsafe {
            let start = ROOT.load(Acquire).cast_const().add(FIRST_OF_LEDGER);
            core::slice::from_raw_parts(start, extent.max(WORDS) - FIRST_OF_LEDGER)
        }
    }

    /// Makes words of [`Root::ledger_words`] usable; false if the program's limits do not allow it.
    pub(crate) fn open(words: &[AtomicU64]) -> bool {
        let start = ROOT.load(Acquire).cast_const();
        let is_open = words.as_ptr_range().end <= start.wrapping_add(WORDS);
        is_open || sys::open_private(words)
    }

    /// Words for the launch gate.
    pub(crate) fn gate(self) -> &'static [AtomicU64] {
        &self.0[ROOT_WORDS..FIRST_MARK]
    }

    /// Words about completion of marks, for [`crate::progress`].
    pub(crate) fn marks(self) -> &'static [AtomicU64] {
        &self.0[FIRST_MARK..FIRST_OF_LEDGER]
    }

    /// Stores the ledger where each call finds it, so that no call assembles it again.
    ///
    /// # Safety
    /// The caller must hold the lock over the connection, and there must be [no ledger](Root::ledger) yet.
    pub(crate) unsafe fn keep(self, ledger: Ledger<'static>) {
        // SAFETY: the place is large enough, as asserted below. The caller holds the lock, so no other thread writes
        // it, and readers wait for the store of `ours` below.
        unsafe { self.place().write(MaybeUninit::new(ledger)) };
        self.0[LEDGER].store(ours(), Release);
    }

    /// The ledger, once [`Root::keep`] has stored it.
    #[inline(always)]
    pub(crate) fn ledger(self) -> Option<&'static Ledger<'static>> {
        let kept = self.0[LEDGER].load(Acquire) == ours();
        // SAFETY: `keep` writes the place before it stores `ours`, which was read above, and writes it once. A forked
        // child finds zeroes and writes it again; its only thread is the one that forked, which was in no call of the
        // shim.
        kept.then(|| unsafe { (*self.place()).assume_init_ref() })
    }

    #[inline(always)]
    fn place(self) -> *mut MaybeUninit<Ledger<'static>> {
        self.0[LEDGER + 1].as_ptr().cast()
    }
}

/// Value that differs between this library, an earlier load of it, and the other library.
#[inline(always)]
fn ours() -> u64 {
    (&raw const ROOT) as u64
}

const _: () = assert!(size_of::<Ledger<'static>>() <= LEDGER_WORDS * size_of::<AtomicU64>());
const _: () = assert!(align_of::<Ledger<'static>>() <= align_of::<AtomicU64>());
const _: () = assert!(LEDGER + LEDGER_WORDS < FIRST_DEVICE);
