//! Messages on a slice's socket: fixed frames of eight little-endian 64-bit words.
//!
//! A process connects to its slice's socket (SOCK_STREAM), says [`Request::Hello`] and receives
//! [`Reply::Welcome`] with two file descriptors by SCM_RIGHTS: the control region (read-only), then the usage
//! region. On the same connection it asks for credit, one request at a time. Who it is, the daemon asks the
//! kernel. Unknown words are refused, unused words are zero.

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
}

/// What the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// You are in; two descriptors come along.
    Welcome {
        /// Your slot in both regions.
        slot: Slot,
        /// The generation that both regions must show.
        generation: u64,
    },
    /// You are not let in.
    Refused(Refusal),
    /// The credit word holds more now: try again.
    Granted,
    /// All of the slice's memory is in use.
    Exhausted,
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
            Self::Hello { abi, slot } => frame([1, abi, slot.map_or(0, |slot| slot.index() as u64 + 1)]),
            Self::Credit { device, want } => frame([2, device.index() as u64, u64::from(want.get())]),
        }
    }

    /// From a frame.
    pub fn decode(bytes: &Frame) -> Result<Self, Meaningless> {
        match words(bytes)? {
            [1, abi, 0] => Ok(Self::Hello { abi, slot: None }),
            [1, abi, slot] => {
                let slot = usize::try_from(slot - 1).ok().and_then(Slot::new).ok_or(Meaningless)?;
                Ok(Self::Hello { abi, slot: Some(slot) })
            }
            [2, device, want] => Ok(Self::Credit {
                device: usize::try_from(device).ok().and_then(DeviceSlot::new).ok_or(Meaningless)?,
                want: u32::try_from(want).map(Units::new).map_err(|_| Meaningless)?,
            }),
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
            Self::Welcome { slot, generation } => frame([1, slot.index() as u64, generation]),
            Self::Refused(why) => frame([2, why as u64, 0]),
            Self::Granted => frame([3, 0, 0]),
            Self::Exhausted => frame([4, 0, 0]),
        }
    }

    /// From a frame.
    pub fn decode(bytes: &Frame) -> Result<Self, Meaningless> {
        match words(bytes)? {
            [1, slot, generation] => Ok(Self::Welcome {
                slot: usize::try_from(slot).ok().and_then(Slot::new).ok_or(Meaningless)?,
                generation,
            }),
            [2, why, 0] => REFUSALS.get(why as usize).map(|why| Self::Refused(*why)).ok_or(Meaningless),
            [3, 0, 0] => Ok(Self::Granted),
            [4, 0, 0] => Ok(Self::Exhausted),
            _ => Err(Meaningless),
        }
    }
}

/// In the order of their numbers on the wire.
const REFUSALS: [Refusal; 5] =
    [Refusal::Abi, Refusal::NotAMember, Refusal::Full, Refusal::Ending, Refusal::Malformed];

fn frame(words: [u64; 3]) -> Frame {
    let mut bytes = [0; FRAME_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn words(bytes: &Frame) -> Result<[u64; 3], Meaningless> {
    let word = |at: usize| bytes[at * 8..][..8].iter().rfold(0u64, |word, byte| word << 8 | u64::from(*byte));
    let unused = bytes[24..].iter().all(|byte| *byte == 0);
    if unused { Ok([word(0), word(1), word(2)]) } else { Err(Meaningless) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_message_reads_back() {
        let device = DeviceSlot::new(3).unwrap();
        let hellos = [Request::hello(None), Request::hello(Slot::new(0)), Request::hello(Slot::new(4095))];
        for request in hellos.into_iter().chain([Request::Credit { device, want: Units::new(512) }]) {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let welcome = Reply::Welcome { slot: Slot::new(4095).unwrap(), generation: u64::MAX };
        for reply in [welcome, Reply::Granted, Reply::Exhausted] {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
        for why in REFUSALS {
            assert_eq!(Reply::decode(&Reply::Refused(why).encode()), Ok(Reply::Refused(why)));
        }
    }

    proptest! {
        #[test]
        fn strange_frames_are_refused_without_a_panic(kind in 0u64..6, a: u64, b: u64, tail: u8) {
            let mut bytes = frame([kind, a, b]);
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
