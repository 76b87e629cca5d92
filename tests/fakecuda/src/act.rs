//! Effects of operations on memory and the program, once their turn has come.

use crate::memory::physical::unpin_in_turn;
use crate::memory::release::leave;
use crate::state::stream::Op;

/// State of an operation.
pub(crate) enum Progress {
    /// The operation has acted.
    Done,
    /// Its condition does not hold yet.
    NotYet,
}

impl Op {
    /// Acts on memory or the program. A bad address of the program's was found before.
    pub(crate) fn act(&self) -> Progress {
        match self {
            Self::Copy(copy) => drop(copy.run()),
            Self::Fill(fill) => drop(fill.run()),
            Self::Host(callee) => callee.call(),
            Self::WriteValue(write) => drop(write.run()),
            Self::Leave(base, id) => leave(*base, *id),
            Self::Unpin(memory) => unpin_in_turn(*memory),
            Self::WaitValue(wait) if !wait.holds().unwrap_or(true) => return Progress::NotYet,
            _ => {}
        }
        Progress::Done
    }
}
