//! Where the shim keeps what it knows: one private mapping that a forked child finds zeroed.
//!
//! A child of fork has no context on the GPU and no place in the slice. It finds the words zero, hence every
//! lock free, nothing held and nobody attached, and begins anew on its first governed call.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

use tranche_policy::{GATE_WORDS, Guard, Ledger, Lock};

use crate::sys;

/// Words that can be used from the beginning, touched only where they are: 256 MiB, for about a million entries.
const WORDS: usize = 32 << 20;
/// Words that there are addresses for, in the order in which they are asked for: 128 GiB, for some hundred million
/// entries, and less where the program may not have as many.
const EXTENTS: [usize; 4] = [16 << 30, 2 << 30, 256 << 20, WORDS];
const ROOT_WORDS: usize = 128;
/// Where our ledger lies: first whose it is, then the ledger. Each library has a place, as what it holds of the
/// library's own is gone when a program unloads that.
const LEDGER: usize = if cfg!(feature = "libnvml") { 44 } else { 24 };
/// Words that a ledger may take.
const LEDGER_WORDS: usize = 18;
const FIRST_DEVICE: usize = 64;
const FIRST_MARK: usize = ROOT_WORDS + GATE_WORDS;
const FIRST_OF_LEDGER: usize = (FIRST_MARK + MARK_WORDS).next_multiple_of(8);
/// Words about marks and contexts, see [`crate::progress`].
pub(crate) const MARK_WORDS: usize = 256;

/// Words of the root, by what they hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// 1 as soon as the others are good.
    Ready,
    /// The lock over the connection.
    Turn,
    /// Address of the control region.
    Control,
    /// Address of the usage region.
    Usage,
    /// Our slot.
    Slot,
    /// The slice's generation.
    Generation,
    /// The socket's number plus one.
    Socket,
    /// Which file the socket is.
    SocketDevice,
    /// Which file the socket is.
    SocketInode,
    /// The lock over the two below.
    Beginning,
    /// How many threads are in `cuInit`.
    Beginners,
    /// Address of the program's own entry for the variable that is ours meanwhile; 0 where it has none.
    OwnEntry,
    /// Which daemon let us in, as the control region counts them.
    Daemon,
    /// How many words the mapping has addresses for; 0 in a forked child.
    Extent,
}

/// The name under which the library in the place of the driver and the one in the place of NVML find each
/// other's mapping: they are one tenant. The preloaded one knows them by it.
///
/// It changes with the layout: after an upgrade, a program may have one of them of each release.
pub(crate) const SHARED: &CStr = c"tranche_root_2";

/// Our mapping; `make` says whether to make one if there is none yet.
#[cfg(not(feature = "preload"))]
#[cfg_attr(all(panic = "abort", any(feature = "libcuda", feature = "libnvml")), unsafe(no_mangle))]
extern "C" fn tranche_root_2(make: bool) -> *mut AtomicU64 {
    if make {
        Root::get();
    }
    let root = ROOT.load(Acquire);
    if !root.is_null() {
        // A forked child has lost it.
        Root::of(root).word(Word::Extent).store(EXTENT.load(Acquire), Release);
    }
    root
}

/// The other library's mapping. NVML's has the driver's make one, so that which was first does not matter.
#[cfg(not(feature = "preload"))]
fn sibling() -> Option<*mut AtomicU64> {
    let other = if cfg!(feature = "libnvml") { c"libcuda.so.1" } else { c"libnvidia-ml.so.1" };
    let function = crate::alias::loaded(other)?.function(SHARED)?;
    // SAFETY: only these two libraries have a function of this name, and both have it with this type. The
    // other one stays loaded, as `loaded` says.
    let shared = unsafe {
        let function: extern "C" fn(bool) -> *mut AtomicU64 = core::mem::transmute(function);
        function(cfg!(feature = "libnvml"))
    };
    (!shared.is_null()).then_some(shared)
}

/// The mapping.
#[derive(Clone, Copy)]
pub(crate) struct Root(&'static [AtomicU64; WORDS]);

static ROOT: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// How many words the mapping has addresses for, if this library made it or has asked.
static EXTENT: AtomicU64 = AtomicU64::new(WORDS as u64);

impl Root {
    /// The mapping, made on first use.
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
            EXTENT.fetch_max(Self::of(shared).word(Word::Extent).load(Acquire), AcqRel);
            ROOT.store(shared, Release);
            return Some(Self::of(shared));
        }
        let fresh = EXTENTS.iter().find_map(|words| sys::map_private(*words, WORDS).ok())?;
        let first = fresh.as_ptr().cast_mut();
        Self::of(first).word(Word::Extent).store(fresh.len() as u64, Release);
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

    /// One of the named words.
    #[inline(always)]
    pub(crate) fn word(self, word: Word) -> &'static AtomicU64 {
        &self.0[word as usize]
    }

    /// What is known of the driver's device with this number: 0 nothing yet, else one more than its slot, or
    /// more than any slot for a stranger.
    #[inline(always)]
    pub(crate) fn device(self, number: usize) -> Option<&'static AtomicU64> {
        self.0[FIRST_DEVICE..ROOT_WORDS].get(number)
    }

    /// One thread at a time talks to the daemon. Gives up at the deadline.
    pub(crate) fn turn(self, deadline_ns: u64) -> Option<Guard<'static>> {
        let lock = Lock::at(self.word(Word::Turn), sys::pause);
        for tries in 0u32.. {
            if let Some(guard) = lock.try_acquire() {
                return Some(guard);
            }
            if sys::now_ns() >= deadline_ns {
                break;
            }
            // A daemon answers in microseconds; for one that does not, this sleeps.
            sys::pause(tries);
        }
        None
    }

    /// Words for the ledger. Those beyond the first [`WORDS`] are to be [opened](sys::open_private) before use.
    pub(crate) fn ledger_words(self) -> &'static [AtomicU64] {
        let extent = EXTENT.load(Acquire).max(self.word(Word::Extent).load(Acquire)) as usize;
        // SAFETY: the mapping that starts with the root has addresses for so many words, as its maker says, and
        // is never unmapped. What is not open yet is not read: the tables open what they carve out.
        unsafe {
            let start = ROOT.load(Acquire).cast_const().add(FIRST_OF_LEDGER);
            core::slice::from_raw_parts(start, extent.max(WORDS) - FIRST_OF_LEDGER)
        }
    }

    /// Words for the gate.
    pub(crate) fn gate(self) -> &'static [AtomicU64] {
        &self.0[ROOT_WORDS..FIRST_MARK]
    }

    /// Words about who writes its marks.
    pub(crate) fn marks(self) -> &'static [AtomicU64] {
        &self.0[FIRST_MARK..FIRST_OF_LEDGER]
    }

    /// Puts the ledger where each call finds it, so that none has to put it together.
    ///
    /// # Safety
    /// By whoever has the turn, while there is [none](Root::ledger).
    pub(crate) unsafe fn keep(self, ledger: Ledger<'static>) {
        // SAFETY: the place is large enough, as asserted below. Nobody looks at it before it is said to be ours,
        // and nobody else writes it.
        unsafe { self.place().write(MaybeUninit::new(ledger)) };
        self.0[LEDGER].store(ours(), Release);
    }

    /// The ledger, if there is one.
    #[inline(always)]
    pub(crate) fn ledger(self) -> Option<&'static Ledger<'static>> {
        let kept = self.0[LEDGER].load(Acquire) == ours();
        // SAFETY: we wrote it before we said so, and write it once. A forked child finds zeroes and writes it
        // again; its only thread is the one that forked, which was in none of our calls.
        kept.then(|| unsafe { (*self.place()).assume_init_ref() })
    }

    #[inline(always)]
    fn place(self) -> *mut MaybeUninit<Ledger<'static>> {
        self.0[LEDGER + 1].as_ptr().cast()
    }
}

/// What tells this library from one that was there before, and from the other one.
#[inline(always)]
fn ours() -> u64 {
    (&raw const ROOT) as u64
}

const _: () = assert!(size_of::<Ledger<'static>>() <= LEDGER_WORDS * size_of::<AtomicU64>());
const _: () = assert!(align_of::<Ledger<'static>>() <= align_of::<AtomicU64>());
const _: () = assert!(LEDGER + LEDGER_WORDS < FIRST_DEVICE);
