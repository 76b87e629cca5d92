//! Requests and replies, as packets of fixed size.

use std::time::Duration;

use tranche_privileged::packets::{packet, words};

/// Length of a request in bytes.
pub(crate) const REQUEST: usize = 12;
/// Length of a reply in bytes.
pub(crate) const REPLY: usize = 12;

/// A request about the process of the passed pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkCall {
    /// Reads the state of the process.
    State,
    /// Waits until the process has no work outstanding, and blocks its calls.
    Lock(Duration),
    /// Moves its device memory to host memory.
    Checkpoint,
    /// Moves its device memory back.
    Restore,
    /// Ends the lock, so that calls of the process return.
    Unlock,
}

/// State of a process in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverState {
    /// The process has not initialised the driver: there is nothing to checkpoint.
    Uninitialized,
    /// Its calls are not blocked.
    Running,
    /// Its calls are blocked.
    Locked,
    /// Its device memory lies in host memory.
    Checkpointed,
    /// A checkpoint or restore failed; nothing brings the process back.
    Failed,
    /// A checkpoint or restore is under way, or a state that this version does not know.
    Busy,
}

impl DriverState {
    const ALL: [Self; 6] =
        [Self::Uninitialized, Self::Running, Self::Locked, Self::Checkpointed, Self::Failed, Self::Busy];
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerReply {
    Done,
    State(DriverState),
    /// Result code of the driver.
    Driver(u32),
    /// The process does not belong to a slice by the kernel's evidence, or has ended.
    NotOfASlice,
    /// The driver has no such calls.
    Unsupported,
    /// Too many requests have not returned.
    Busy,
    Malformed,
}

impl ParkCall {
    pub(crate) fn encode(self, sequence: u32) -> [u8; REQUEST] {
        let (kind, value) = match self {
            Self::State => (1, 0),
            Self::Lock(timeout) => (2, u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX)),
            Self::Checkpoint => (3, 0),
            Self::Restore => (4, 0),
            Self::Unlock => (5, 0),
        };
        packet([sequence, kind, value])
    }

    /// Sequence number of a packet, and its request if valid.
    pub(crate) fn decode(packet: &[u8]) -> (u32, Option<Self>) {
        let [sequence, kind, value] = words(packet);
        let verb = match (packet.len() == REQUEST, kind) {
            (true, 1) if value == 0 => Some(Self::State),
            (true, 2) if value > 0 => Some(Self::Lock(Duration::from_millis(value.into()))),
            (true, 3) if value == 0 => Some(Self::Checkpoint),
            (true, 4) if value == 0 => Some(Self::Restore),
            (true, 5) if value == 0 => Some(Self::Unlock),
            _ => None,
        };
        (sequence, verb)
    }
}

impl WorkerReply {
    pub(crate) fn encode(self, sequence: u32) -> [u8; REPLY] {
        let (kind, value) = match self {
            Self::Done => (0, 0),
            Self::State(state) => {
                (1, DriverState::ALL.iter().position(|known| *known == state).unwrap_or_default() as u32)
            }
            Self::Driver(code) => (2, code),
            Self::NotOfASlice => (3, 0),
            Self::Unsupported => (4, 0),
            Self::Busy => (5, 0),
            Self::Malformed => (6, 0),
        };
        packet([sequence, kind, value])
    }

    pub(crate) fn decode(packet: &[u8]) -> Option<(u32, Self)> {
        let [sequence, kind, value] = words(packet);
        let reply = match (packet.len() == REPLY, kind) {
            (true, 0) => Self::Done,
            (true, 1) => Self::State(*DriverState::ALL.get(usize::try_from(value).ok()?)?),
            (true, 2) => Self::Driver(value),
            (true, 3) => Self::NotOfASlice,
            (true, 4) => Self::Unsupported,
            (true, 5) => Self::Busy,
            (true, 6) => Self::Malformed,
            _ => return None,
        };
        Some((sequence, reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_decode_back() {
        let lock = ParkCall::Lock(Duration::from_millis(10_000));
        for verb in [ParkCall::State, lock, ParkCall::Checkpoint, ParkCall::Restore, ParkCall::Unlock] {
            assert_eq!(ParkCall::decode(&verb.encode(7)), (7, Some(verb)));
        }
        let states = DriverState::ALL.map(WorkerReply::State);
        let others = [
            WorkerReply::Done,
            WorkerReply::Driver(600),
            WorkerReply::NotOfASlice,
            WorkerReply::Unsupported,
            WorkerReply::Busy,
        ];
        for reply in states.into_iter().chain(others).chain([WorkerReply::Malformed]) {
            assert_eq!(WorkerReply::decode(&reply.encode(9)), Some((9, reply)));
        }
    }

    #[test]
    fn invalid_packet_is_no_request() {
        let good = ParkCall::Checkpoint.encode(1);
        for length in (0..good.len()).chain([REQUEST + 1]) {
            let mut packet = good.to_vec();
            packet.resize(length, 0);
            assert_eq!(ParkCall::decode(&packet).1, None, "{length}");
        }
        assert_eq!(ParkCall::decode(&ParkCall::Lock(Duration::ZERO).encode(1)).1, None, "a lock without end");
        for (at, value) in [(4, 0), (4, 6), (4, 255), (8, 1)] {
            let mut packet = good;
            packet[at] = value;
            assert_eq!(ParkCall::decode(&packet).1, None, "byte {at} = {value}");
        }
    }
}
