//! Bytes as a source of decisions.

/// The bytes that are left.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    /// The next decision; `None` at the end.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next decision, a number below `count`.
    pub(crate) fn below(&mut self, count: u8) -> Option<u8> {
        self.byte().map(|byte| byte % count)
    }

    /// A number of up to eight bytes; small ones and those at the ends of the range take few.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let kind = self.byte()?;
        match kind % 4 {
            0 => self.byte().map(u64::from),
            1 => Some(u64::MAX - u64::from(kind / 4)),
            2 => Some(u64::from(self.byte()?) << (kind / 4)),
            _ => (0..8).try_fold(0, |number, _| Some(number << 8 | u64::from(self.byte()?))),
        }
    }
}
