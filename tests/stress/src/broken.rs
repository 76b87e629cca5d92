//! Ways in which a protocol can be wrong.

/// Fault of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// The driver is called first, and the charge made afterwards.
    DriverFirst,
    /// The credit word is read, changed and written back, as if no other process wrote it.
    LostUpdate,
    /// A process gets credit that is in no ledger.
    OverGrant,
    /// Shared memory is reported as released, and still held.
    KeptShare,
}
