//! Messages on a slice's socket: fixed frames of eight little-endian 64-bit words.
//!
//! A process connects to its slice's socket (SOCK_STREAM), says [`Request::Hello`] and receives
//! [`Reply::Welcome`] with three file descriptors by SCM_RIGHTS: the control region (read-only), then the usage
//! region, then the slice's bell: an eventfd by which a process says, without a message, that the daemon had better
//! look at its compute record. On the same connection it asks for credit, one request at a time. Who it is, the
//! daemon asks the kernel. Unknown words are refused, unused words are zero.

use crate::credit::Units;
use crate::{ABI, DeviceSlot, Slot};

/// Length of a frame in bytes.
pub const FRAME_BYTES: usize = 64;

/// A frame as it travels.
pub type Frame = [u8; FRAME_BYTES];

/// What a process asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Let me in; I speak this ABI.
    Hello {
        /// The shim's [`ABI`].
        abi: u64,
        /// The slot that it has already, if this is a new connection of the same program. A process that has
        /// become another program by `exec` has none: what it held before is gone with its former self.
        slot: Option<Slot>,
    },
    /// I need this much more credit on this device.
    Credit {
        /// The device, as the slice counts.
        device: DeviceSlot,
        /// The charge that did not fit.
        want: Units,
    },
    /// Others may open what I am charged `units` for; from now on the slice is charged for it, once, and I am
    /// the first of its holders. They leave my credit word in the same step.
    Export {
        /// Where it is.
        device: DeviceSlot,
        /// What it is known by.
        key: ShareKey,
        /// What I am charged for it.
        units: Units,
    },
    /// I open what somebody exported.
    Import {
        /// What it is known by.
        key: ShareKey,
    },
    /// I hold it no more.
    Drop {
        /// What it is known by.
        key: ShareKey,
    },
}

/// What exported memory is known by within its slice: the same number for whoever exports and whoever opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareKey(pub u64);

impl ShareKey {
    /// The key of memory that is named by bytes, such as an IPC handle.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        // FNV-1a: whoever makes two names collide mixes up what his own slice is charged, and nothing else.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// The key of memory that is named by an open file: the kernel says which one it is, in every process.
    pub fn of_file(device: u64, inode: u64) -> Self {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&device.to_le_bytes());
        name[8..].copy_from_slice(&inode.to_le_bytes());
        Self::of_bytes(&name)
    }
}

/// What the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// You are in; three descriptors come along.
    Welcome {
        /// Your slot in both regions.
        slot: Slot,
        /// The generation that both regions must show.
        generation: u64,
    },
    /// You are not let in.
    Refused(Refusal),
    /// As you wish. To a request for credit: the credit word holds more now, try again.
    Granted,
    /// All of the slice's memory is in use.
    Exhausted,
    /// All of it is in use or was used by somebody who has just ended, and is not free yet: asking again may help.
    Later,
    /// Nobody in this slice exported that.
    Unknown,
}

/// Why a process is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The two sides were built for different versions.
    Abi,
    /// The kernel does not place the process in this slice.
    NotAMember,
    /// All slots are taken.
    Full,
    /// The slice is ending.
    Ending,
    /// The request made no sense.
    Malformed,
}

/// A frame that means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaningless;

impl Request {
    /// As a frame.
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

    /// From a frame.
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

    /// The greeting of this build.
    pub const fn hello(slot: Option<Slot>) -> Self {
        Self::Hello { abi: ABI, slot }
    }
}

impl Reply {
    /// As a frame.
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

    /// From a frame.
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

/// In the order of their numbers on the wire.
const REFUSALS: [Refusal; 5] =
    [Refusal::Abi, Refusal::NotAMember, Refusal::Full, Refusal::Ending, Refusal::Malformed];

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
    fn every_message_reads_back() {
        let device = DeviceSlot::new(3).unwrap();
        let hellos = [Request::hello(None), Request::hello(Slot::new(0)), Request::hello(Slot::new(4095))];
        let (key, units) = (ShareKey(u64::MAX), Units::new(7));
        let others = [
            Request::Credit { device, want: Units::new(512) },
            Request::Export { device, key, units },
            Request::Import { key },
            Request::Drop { key },
        ];
        for request in hellos.into_iter().chain(others) {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let welcome = Reply::Welcome { slot: Slot::new(4095).unwrap(), generation: u64::MAX };
        for reply in [welcome, Reply::Granted, Reply::Exhausted, Reply::Unknown, Reply::Later] {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
        for why in REFUSALS {
            assert_eq!(Reply::decode(&Reply::Refused(why).encode()), Ok(Reply::Refused(why)));
        }
    }

    proptest! {
        #[test]
        fn strange_frames_are_refused_without_a_panic(kind in 0u64..8, a: u64, b: u64, c: u64, tail: u8) {
            let mut bytes = frame([kind, a, b, c]);
            bytes[63] = tail;
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes);
            }
            if let Ok(reply) = Reply::decode(&bytes) {
                prop_assert_eq!(reply.encode(), bytes);
            }
        }
    }
}
