//! Messages on a slice's socket: fixed frames of eight little-endian 64-bit words.
//!
//! A process connects to its slice's socket (SOCK_STREAM), sends [`ProcessRequest::Hello`] and receives [`DaemonReply::Welcome`]
//! with three file descriptors by SCM_RIGHTS: the control region (read-only), the usage region, and the slice's wakeup
//! eventfd, by which a process signals the daemon to read its compute record. On the same connection it requests
//! credit, one request at a time. The daemon reads the identity of the process from the kernel, not from a message.
//! Unknown words are refused, unused words are zero.

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
            Self::Hello { abi, slot } => frame([1, abi, slot.map_or(0, |slot| slot.index() as u64 + 1), 0]),
            Self::Credit { device, want } => frame([2, device.index() as u64, u64::from(want.get()), 0]),
            Self::Export { device, key, units } => {
                frame([3, device.index() as u64, u64::from(units.get()), key.0])
            }
            Self::Import { key } => frame([4, 0, 0, key.0]),
            Self::Drop { key } => frame([5, 0, 0, key.0]),
        }
    }

    /// The message in a frame. Unknown kinds, bad indices and unused words other than zero are errors.
    pub fn decode(bytes: &Frame) -> Result<Self, Meaningless> {
        match words(bytes)? {
            [1, abi, 0, 0] => Ok(Self::Hello { abi, slot: None }),
            [1, abi, slot, 0] => {
                let slot = usize::try_from(slot - 1).ok().and_then(Slot::new).ok_or(Meaningless)?;
                Ok(Self::Hello { abi, slot: Some(slot) })
            }
            [2, at, want, 0] => Ok(Self::Credit { device: device(at)?, want: units(want)? }),
            [3, at, held, key] => {
                Ok(Self::Export { device: device(at)?, key: ShareKey(key), units: units(held)? })
            }
            [4, 0, 0, key] => Ok(Self::Import { key: ShareKey(key) }),
            [5, 0, 0, key] => Ok(Self::Drop { key: ShareKey(key) }),
            _ => Err(Meaningless),
        }
    }

    /// A [`ProcessRequest::Hello`] with the ABI of this build.
    pub const fn hello(slot: Option<Slot>) -> Self {
        Self::Hello { abi: ABI, slot }
    }
}

impl DaemonReply {
    /// The message as a frame of [`FRAME_BYTES`].
    pub fn encode(self) -> Frame {
        match self {
            Self::Welcome { slot, generation } => frame([1, slot.index() as u64, generation, 0]),
            Self::Refused(why) => frame([2, why as u64, 0, 0]),
            Self::Granted => frame([3, 0, 0, 0]),
            Self::Exhausted => frame([4, 0, 0, 0]),
            Self::Unknown => frame([5, 0, 0, 0]),
            Self::Later => frame([6, 0, 0, 0]),
        }
    }

    /// The message in a frame. Unknown kinds, bad indices and unused words other than zero are errors.
    pub fn decode(bytes: &Frame) -> Result<Self, Meaningless> {
        match words(bytes)? {
            [1, slot, generation, 0] => Ok(Self::Welcome {
                slot: usize::try_from(slot).ok().and_then(Slot::new).ok_or(Meaningless)?,
                generation,
            }),
            [2, why, 0, 0] => REFUSALS.get(why as usize).map(|why| Self::Refused(*why)).ok_or(Meaningless),
            [3, 0, 0, 0] => Ok(Self::Granted),
            [4, 0, 0, 0] => Ok(Self::Exhausted),
            [5, 0, 0, 0] => Ok(Self::Unknown),
            [6, 0, 0, 0] => Ok(Self::Later),
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

fn device(word: u64) -> Result<DeviceSlot, Meaningless> {
    usize::try_from(word).ok().and_then(DeviceSlot::new).ok_or(Meaningless)
}

fn units(word: u64) -> Result<Units, Meaningless> {
    u32::try_from(word).map(Units::new).map_err(|_| Meaningless)
}

fn frame(words: [u64; 4]) -> Frame {
    let mut bytes = [0; FRAME_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words(bytes: &Frame) -> Result<[u64; 4], Meaningless> {
    let word = |at: usize| bytes[at * 8..][..8].iter().rfold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let unused = bytes[32..].iter().all(|byte| *byte == 0);
    if unused { Ok([word(0), word(1), word(2), word(3)]) } else { Err(Meaningless) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive_encode_and_decode() {
        let device = DeviceSlot::new(3).unwrap();
        let hellos = [
            ProcessRequest::hello(None),
            ProcessRequest::hello(Slot::new(0)),
            ProcessRequest::hello(Slot::new(4095)),
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
        fn hostile_frames_decode_without_a_panic(kind in 0u64..8, a: u64, b: u64, c: u64, tail: u8) {
            let mut bytes = frame([kind, a, b, c]);
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
