//! Messages on a slice's socket: fixed frames of eight little-endian 64-bit words.
//!
//! A process connects to its slice's socket (SOCK_STREAM), sends [`ProcessRequest::Hello`] and receives [`DaemonReply::Welcome`]
//! with three file descriptors by SCM_RIGHTS: the control region (read-only), the usage region, and the slice's wakeup
//! eventfd, by which a process signals the daemon to read its compute record. On the same connection it requests
//! credit, one request at a time. The daemon reads the identity of the process from the kernel, not from a message.
//! Unknown words are refused, unused words are zero.

use core::num::NonZeroU32;

use crate::credit::Units;
use crate::{ABI, DeviceSlot, Slot};

/// Length of a frame in bytes.
pub const FRAME_BYTES: usize = 64;

/// A frame as bytes on the wire.
pub type Frame = [u8; FRAME_BYTES];

/// Message from a process to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRequest {
    /// Registers the process with its slice.
    Hello {
        /// The shim's [`ABI`].
        abi: u64,
        /// Slot of an earlier connection of the same program, if there was one.
        ///
        /// A process that has called `exec` has none: its memory ended with the program before.
        slot: Option<Slot>,
        /// The process as it sees itself. Absent from older shims, and in a second hello to an older daemon.
        own: Option<OwnView>,
    },
    /// Requests more credit on a device.
    Credit {
        /// Index of the device within the slice.
        device: DeviceSlot,
        /// The charge that did not fit.
        want: Units,
    },
    /// Moves a charge of `units` from the process to the slice, for memory that other processes may open.
    ///
    /// The process is its first holder. The charge leaves its credit word in the same step.
    Export {
        /// Device on which the memory lies.
        device: DeviceSlot,
        /// Name of the memory within the slice.
        key: ShareKey,
        /// Charge of the process for it.
        units: Units,
    },
    /// Adds the process to the holders of exported memory.
    Import {
        /// Name of the memory within the slice.
        key: ShareKey,
    },
    /// Removes the process from the holders of exported memory.
    Drop {
        /// Name of the memory within the slice.
        key: ShareKey,
    },
}

/// Pid and clock that a process reads for itself, in its namespaces.
///
/// Where both agree with the daemon's, the process shares the daemon's namespaces and the daemon need not look them up.
/// They are claims: a false pid is read in the process's own slice alone, and a false clock shifts the times in its record,
/// which may be any bytes as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnView {
    /// Pid in the innermost pid namespace.
    pub pid: NonZeroU32,
    /// CLOCK_MONOTONIC in nanoseconds, when the hello was made.
    pub clock_ns: u64,
}

/// Name of exported memory within its slice, the same for exporter and importers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareKey(pub u64);

impl ShareKey {
    /// Key of memory that has a name in bytes, such as an IPC handle.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        // FNV-1a: a tenant that makes two names collide confuses the charges of its own slice alone.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// Key of memory behind an open file: its device and inode are the same in every process.
    pub fn of_file(device: u64, inode: u64) -> Self {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&device.to_le_bytes());
        name[8..].copy_from_slice(&inode.to_le_bytes());
        Self::of_bytes(&name)
    }
}

/// Message from the daemon to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonReply {
    /// The process is attached; three descriptors come with the message.
    Welcome {
        /// Slot of the process in both regions.
        slot: Slot,
        /// Generation that both regions must carry.
        generation: u64,
    },
    /// The process is not attached.
    Refused(AttachRefusal),
    /// The request was carried out. After a request for credit, the charge is worth repeating.
    Granted,
    /// All of the slice's memory is in use.
    Exhausted,
    /// As [`DaemonReply::Exhausted`], but memory of an ended process is not free yet.
    ///
    /// A later request may fit.
    Later,
    /// No process of this slice exported memory of that key.
    Unknown,
}

/// Reason for which a process is not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachRefusal {
    /// The two sides were built for different versions.
    Abi,
    /// The process does not belong to this slice, by the kernel's evidence.
    NotAMember,
    /// All [`crate::MAX_SLOTS`] slots are in use.
    Full,
    /// The slice is being deleted.
    Ending,
    /// The request was not decodable, or out of order.
    Malformed,
}

/// Error of a frame that encodes no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaningless;

impl ProcessRequest {
    /// The message as a frame of [`FRAME_BYTES`].
    pub fn encode(self) -> Frame {
        match self {
            Self::Hello { abi, slot, own } => {
                let slot = slot.map_or(0, |slot| slot.index() as u64 + 1);
                let (pid, clock_ns) = own.map_or((0, 0), |own| (u64::from(own.pid.get()), own.clock_ns));
                frame([1, abi, slot, pid, clock_ns])
            }
            Self::Credit { device, want } => frame([2, device.index() as u64, u64::from(want.get()), 0, 0]),
            Self::Export { device, key, units } => {
                frame([3, device.index() as u64, u64::from(units.get()), key.0, 0])
            }
            Self::Import { key } => frame([4, 0, 0, key.0, 0]),
            Self::Drop { key } => frame([5, 0, 0, key.0, 0]),
        }
    }

    /// The message in a frame. Unknown kinds, bad indices and unused words other than zero are errors.
    pub fn decode(bytes: &Frame) -> Result<Self, Meaningless> {
        match words(bytes)? {
            [1, abi, slot, pid, clock_ns] => {
                Ok(Self::Hello { abi, slot: known_slot(slot)?, own: own_view(pid, clock_ns)? })
            }
            [2, at, want, 0, 0] => Ok(Self::Credit { device: device(at)?, want: units(want)? }),
            [3, at, held, key, 0] => {
                Ok(Self::Export { device: device(at)?, key: ShareKey(key), units: units(held)? })
            }
            [4, 0, 0, key, 0] => Ok(Self::Import { key: ShareKey(key) }),
            [5, 0, 0, key, 0] => Ok(Self::Drop { key: ShareKey(key) }),
            _ => Err(Meaningless),
        }
    }

    /// A [`ProcessRequest::Hello`] with the ABI of this build.
    pub const fn hello(slot: Option<Slot>, own: Option<OwnView>) -> Self {
        Self::Hello { abi: ABI, slot, own }
    }
}

impl DaemonReply {
    /// The message as a frame of [`FRAME_BYTES`].
    pub fn encode(self) -> Frame {
        match self {
            Self::Welcome { slot, generation } => frame([1, slot.index() as u64, generation, 0, 0]),
            Self::Refused(why) => frame([2, why as u64, 0, 0, 0]),
            Self::Granted => frame([3, 0, 0, 0, 0]),
            Self::Exhausted => frame([4, 0, 0, 0, 0]),
            Self::Unknown => frame([5, 0, 0, 0, 0]),
            Self::Later => frame([6, 0, 0, 0, 0]),
        }
    }

    /// The message in a frame. Unknown kinds, bad indices and unused words other than zero are errors.
    pub fn decode(bytes: &Frame) -> Result<Self, Meaningless> {
        match words(bytes)? {
            [1, slot, generation, 0, 0] => Ok(Self::Welcome {
                slot: usize::try_from(slot).ok().and_then(Slot::new).ok_or(Meaningless)?,
                generation,
            }),
            [2, why, 0, 0, 0] => REFUSALS.get(why as usize).map(|why| Self::Refused(*why)).ok_or(Meaningless),
            [3, 0, 0, 0, 0] => Ok(Self::Granted),
            [4, 0, 0, 0, 0] => Ok(Self::Exhausted),
            [5, 0, 0, 0, 0] => Ok(Self::Unknown),
            [6, 0, 0, 0, 0] => Ok(Self::Later),
            _ => Err(Meaningless),
        }
    }
}

/// Every refusal, in the order of their numbers on the wire.
const REFUSALS: [AttachRefusal; 5] = [
    AttachRefusal::Abi,
    AttachRefusal::NotAMember,
    AttachRefusal::Full,
    AttachRefusal::Ending,
    AttachRefusal::Malformed,
];

fn known_slot(word: u64) -> Result<Option<Slot>, Meaningless> {
    let Some(index) = word.checked_sub(1) else { return Ok(None) };
    usize::try_from(index).ok().and_then(Slot::new).map(Some).ok_or(Meaningless)
}

fn own_view(pid: u64, clock_ns: u64) -> Result<Option<OwnView>, Meaningless> {
    match (u32::try_from(pid).map(NonZeroU32::new), clock_ns) {
        (Ok(Some(pid)), clock_ns) => Ok(Some(OwnView { pid, clock_ns })),
        (Ok(None), 0) => Ok(None),
        _ => Err(Meaningless),
    }
}

fn device(word: u64) -> Result<DeviceSlot, Meaningless> {
    usize::try_from(word).ok().and_then(DeviceSlot::new).ok_or(Meaningless)
}

fn units(word: u64) -> Result<Units, Meaningless> {
    u32::try_from(word).map(Units::new).map_err(|_| Meaningless)
}

/// Number of words of a frame that a message may use.
const USED_WORDS: usize = 5;

fn frame(words: [u64; USED_WORDS]) -> Frame {
    let mut bytes = [0; FRAME_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words(bytes: &Frame) -> Result<[u64; USED_WORDS], Meaningless> {
    let word = |at: usize| bytes[at * 8..][..8].iter().rfold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let unused = bytes[USED_WORDS * 8..].iter().all(|byte| *byte == 0);
    if unused { Ok(core::array::from_fn(word)) } else { Err(Meaningless) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_encode_and_decode() {
        let device = DeviceSlot::new(3).unwrap();
        let hellos = [
            ProcessRequest::hello(None, None),
            ProcessRequest::hello(Slot::new(0), None),
            ProcessRequest::hello(
                Slot::new(4095),
                Some(OwnView { pid: NonZeroU32::MAX, clock_ns: u64::MAX }),
            ),
        ];
        let (key, units) = (ShareKey(u64::MAX), Units::new(7));
        let others = [
            ProcessRequest::Credit { device, want: Units::new(512) },
            ProcessRequest::Export { device, key, units },
            ProcessRequest::Import { key },
            ProcessRequest::Drop { key },
        ];
        for request in hellos.into_iter().chain(others) {
            assert_eq!(ProcessRequest::decode(&request.encode()), Ok(request));
        }
        let welcome = DaemonReply::Welcome { slot: Slot::new(4095).unwrap(), generation: u64::MAX };
        for reply in
            [welcome, DaemonReply::Granted, DaemonReply::Exhausted, DaemonReply::Unknown, DaemonReply::Later]
        {
            assert_eq!(DaemonReply::decode(&reply.encode()), Ok(reply));
        }
        for why in REFUSALS {
            assert_eq!(
                DaemonReply::decode(&DaemonReply::Refused(why).encode()),
                Ok(DaemonReply::Refused(why))
            );
        }
    }

    proptest! {
        #[test]
        fn hostile_frames_decode_without_a_panic(kind in 0u64..8, a: u64, b: u64, c: u64, d: u64, tail: u8) {
            let mut bytes = frame([kind, a, b, c, d]);
            bytes[63] = tail;
            if let Ok(request) = ProcessRequest::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes);
            }
            if let Ok(reply) = DaemonReply::decode(&bytes) {
                prop_assert_eq!(reply.encode(), bytes);
            }
        }
    }
}
