//! Requests and replies, as packets of fixed size.

use std::io;

use nix::sys::signal::Signal;

/// Length of a request in bytes.
pub(crate) const REQUEST: usize = 16;
/// Length of a reply in bytes.
pub(crate) const REPLY: usize = 12;

/// Requests to the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A descriptor of the passed file through a read-only mount.
    ReadOnlyMount,
    /// Signals the process of the passed pidfd.
    Signal(Signal),
    /// A descriptor for reading a file of `/proc/PID`.
    ProcessFile(u32, ProcessFile),
    /// Advances the device rule to this step.
    DeviceRule(Step),
    /// Permits the process of the passed pidfd, in the slice of this generation, to open GPUs.
    Admit(u64),
    /// Revokes the permissions of the slice of this generation.
    Dismiss(u64),
    /// A descriptor of the daemon's memory with this inode number.
    /// The process of the passed pidfd maps that memory.
    Memory(u64),
    /// A listening socket in the folder that containers of the slice with the passed directory mount.
    Listen,
    /// Writes the CDI document of the slice with the passed directory.
    /// `gpus` is a mask of GPUs in the description; `with_shim` is true if the shim replaces the driver.
    Document { gpus: u64, with_shim: bool },
    /// Removes the document of the slice with the passed directory.
    Withdraw,
    /// Removes documents and folders of slices that do not exist.
    Sweep,
    /// The socket of a new park worker, which takes the place of the last one.
    ParkWorker,
}

/// Step of the device rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The program is loaded; processes can be admitted.
    Prepared,
    /// The rule is enforced, and replaces that of an earlier daemon.
    Enforced,
}

impl Step {
    const ALL: [Self; 2] = [Self::Prepared, Self::Enforced];
}

/// A file of `/proc/PID` that is public unless `/proc` is mounted with `hidepid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFile {
    /// `cgroup`
    Cgroup,
    /// `cmdline`
    Cmdline,
    /// `stat`
    Stat,
    /// `status`
    Status,
    /// `timens_offsets`
    TimensOffsets,
}

impl ProcessFile {
    const ALL: [Self; 5] = [Self::Cgroup, Self::Cmdline, Self::Stat, Self::Status, Self::TimensOffsets];

    /// Name of the file in `/proc/PID`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Cmdline => "cmdline",
            Self::Stat => "stat",
            Self::Status => "status",
            Self::TimensOffsets => "timens_offsets",
        }
    }
}

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum Refusal {
    #[error("the request is not one of those that the privileged helper knows")]
    Malformed,
    #[error("the file is not a private regular file of the daemon's user in its runtime directory")]
    NotTheDaemonsFile,
    #[error("the descriptor names no process")]
    NotAProcess,
    #[error("the first process of the machine is never signalled")]
    FirstProcess,
    #[error("the process neither uses a GPU nor a slice, and was not started for one")]
    NotOfASlice,
    #[error("the daemon is not configured to keep GPUs to slices, or that is not prepared yet")]
    NoDeviceRule,
    #[error(
        "the root of a cgroup hierarchy of version 2 is not at /sys/fs/cgroup or /sys/fs/cgroup/unified, or the process is \
         not beneath it"
    )]
    NoHierarchy,
    #[error(
        "the descriptor is not of a directory of the daemon's user that a slice has in the runtime directory"
    )]
    NotASlice,
    #[error(
        "there are no documents for containers, or the helper was started without a description of the node"
    )]
    NotDescribed,
    #[error("the mask names no GPU, or one that the node has not")]
    NoSuchGpus,
    #[error("the document cannot be composed; the log says why")]
    NotComposed,
}

impl Refusal {
    const ALL: [Self; 11] = [
        Self::Malformed,
        Self::NotTheDaemonsFile,
        Self::NotAProcess,
        Self::FirstProcess,
        Self::NotOfASlice,
        Self::NoDeviceRule,
        Self::NoHierarchy,
        Self::NotASlice,
        Self::NotDescribed,
        Self::NoSuchGpus,
        Self::NotComposed,
    ];
}

/// Reason for a failed request, at its origin.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages document them
pub enum Denied {
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl From<Denied> for io::Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Failed(error) => error,
            Denied::Refused(refusal) => Self::new(io::ErrorKind::PermissionDenied, refusal),
        }
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    Refused(Refusal),
    /// Error number of the kernel.
    Failed(i32),
}

/// A packet of these words.
pub fn packet<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    for (place, word) in packet.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    packet
}

/// The first words of a packet; zero where it is too short.
pub fn words<const WORDS: usize>(packet: &[u8]) -> [u32; WORDS] {
    let word = |at: usize| packet.get(at * 4..at * 4 + 4).and_then(|word| word.try_into().ok());
    std::array::from_fn(|at| word(at).map_or(0, u32::from_le_bytes))
}

/// Position in a table of constants, which are shorter than any number sent.
fn position<T: PartialEq>(table: &[T], value: &T) -> u32 {
    table.iter().position(|known| known == value).and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX)
}

fn at<T: Copy>(table: &[T], number: u32) -> Option<T> {
    usize::try_from(number).ok().and_then(|number| table.get(number)).copied()
}

/// Signals that end a process.
const SIGNALS: [Signal; 2] = [Signal::SIGTERM, Signal::SIGKILL];

impl Request {
    /// The packet; `None` for values that the protocol excludes.
    pub(crate) fn encode(self, sequence: u32) -> Option<[u8; REQUEST]> {
        let (kind, first, second) = match self {
            Self::ReadOnlyMount => (1, 0, 0),
            Self::Signal(signal) if SIGNALS.contains(&signal) => (2, position(&SIGNALS, &signal), 0),
            Self::Signal(_) => return None,
            Self::ProcessFile(pid, file) => (3, pid, position(&ProcessFile::ALL, &file)),
            Self::DeviceRule(step) => (4, position(&Step::ALL, &step), 0),
            Self::Admit(generation) => (5, generation as u32, (generation >> 32) as u32),
            Self::Dismiss(generation) => (6, generation as u32, (generation >> 32) as u32),
            Self::Memory(inode) => (7, inode as u32, (inode >> 32) as u32),
            Self::Listen => (8, 0, 0),
            Self::Document { gpus, with_shim } => {
                (9 + u32::from(with_shim), gpus as u32, (gpus >> 32) as u32)
            }
            Self::Withdraw => (11, 0, 0),
            Self::Sweep => (12, 0, 0),
            Self::ParkWorker => (13, 0, 0),
        };
        Some(packet([sequence, kind, first, second]))
    }

    /// Sequence number of a packet, and its request if valid.
    pub(crate) fn decode(packet: &[u8]) -> (u32, Option<Self>) {
        let [sequence, kind, first, second] = words(packet);
        let number = u64::from(first) | u64::from(second) << 32;
        let request = match (packet.len() == REQUEST, kind) {
            (true, 1) if (first, second) == (0, 0) => Some(Self::ReadOnlyMount),
            (true, 2) if second == 0 => at(&SIGNALS, first).map(Self::Signal),
            (true, 3) => at(&ProcessFile::ALL, second).map(|file| Self::ProcessFile(first, file)),
            (true, 4) if second == 0 => at(&Step::ALL, first).map(Self::DeviceRule),
            (true, 5) => Some(Self::Admit(number)),
            (true, 6) => Some(Self::Dismiss(number)),
            (true, 7) => Some(Self::Memory(number)),
            (true, 8) if number == 0 => Some(Self::Listen),
            (true, 9 | 10) => Some(Self::Document { gpus: number, with_shim: kind == 10 }),
            (true, 11) if number == 0 => Some(Self::Withdraw),
            (true, 12) if number == 0 => Some(Self::Sweep),
            (true, 13) if number == 0 => Some(Self::ParkWorker),
            _ => None,
        };
        (sequence, request)
    }

    /// Tests if the request carries a descriptor.
    pub(crate) const fn has_descriptor(self) -> bool {
        match self {
            Self::ReadOnlyMount | Self::Signal(_) | Self::Admit(_) | Self::Memory(_) => true,
            Self::Listen | Self::Document { .. } | Self::Withdraw => true,
            Self::ProcessFile(..) | Self::DeviceRule(_) | Self::Dismiss(_) | Self::Sweep => false,
            Self::ParkWorker => false,
        }
    }
}

impl Reply {
    pub(crate) fn encode(self, sequence: u32) -> [u8; REPLY] {
        let (status, value) = match self {
            Self::Done => (0, 0),
            Self::Refused(refusal) => (1, position(&Refusal::ALL, &refusal)),
            Self::Failed(errno) => (2, errno.unsigned_abs()),
        };
        packet([sequence, status, value])
    }

    pub(crate) fn decode(packet: &[u8]) -> Option<(u32, Self)> {
        let [sequence, status, value] = words(packet);
        let reply = match (packet.len() == REPLY, status) {
            (true, 0) => Self::Done,
            (true, 1) => Self::Refused(at(&Refusal::ALL, value)?),
            (true, 2) => Self::Failed(i32::try_from(value).ok()?),
            _ => return None,
        };
        Some((sequence, reply))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap names its line
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_decode_back() {
        let signals = SIGNALS.map(Request::Signal);
        let files = ProcessFile::ALL.map(|file| Request::ProcessFile(7, file));
        let rule = Step::ALL.map(Request::DeviceRule);
        let slices = [Request::Admit(7 << 32 | 9), Request::Dismiss(u64::MAX)];
        let memory = [Request::Memory(7), Request::Memory(u64::MAX - 7)];
        let document = |with_shim| Request::Document { gpus: 1 << 63 | 5, with_shim };
        let [with, without] = [true, false].map(document);
        let containers =
            [Request::Listen, with, without, Request::Withdraw, Request::Sweep, Request::ParkWorker];
        for request in [Request::ReadOnlyMount]
            .into_iter()
            .chain(signals)
            .chain(files)
            .chain(rule)
            .chain(slices)
            .chain(memory)
            .chain(containers)
        {
            assert_eq!(Request::decode(&request.encode(9).unwrap()), (9, Some(request)));
        }
        for reply in
            [Reply::Done, Reply::Failed(libc::EPERM)].into_iter().chain(Refusal::ALL.map(Reply::Refused))
        {
            assert_eq!(Reply::decode(&reply.encode(9)), Some((9, reply)));
        }
    }

    #[test]
    fn invalid_packet_is_no_request() {
        let good = Request::ProcessFile(7, ProcessFile::Stat).encode(1).unwrap();
        for length in (0..good.len()).chain([REQUEST + 1]) {
            let mut packet = good.to_vec();
            packet.resize(length, 0);
            assert_eq!(Request::decode(&packet).1, None, "{length}");
        }
        for (at, value) in
            [(4, 0), (4, 4), (4, 8), (4, 11), (4, 12), (4, 13), (4, 14), (4, 255), (12, 5), (15, 1)]
        {
            let mut packet = good;
            packet[at] = value;
            assert_eq!(Request::decode(&packet).1, None, "byte {at} = {value}");
        }
    }

    #[test]
    fn other_signals_cannot_be_encoded() {
        assert_eq!(Request::Signal(Signal::SIGSTOP).encode(0), None);
        assert_eq!(Request::Signal(Signal::SIGUSR1).encode(0), None);
    }
}
