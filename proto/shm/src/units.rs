//! Amounts of device memory in units of 4 KiB.

/// Bytes in one unit of credit.
pub const UNIT_BYTES: u64 = 4096;

/// An amount of device memory in 4 KiB units, up to 16 TiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units(u32);

impl Units {
    /// No memory: 0 bytes.
    pub const ZERO: Self = Self(0);
    /// Largest amount: 16 TiB less 4 KiB.
    pub const MAX: Self = Self(u32::MAX);

    /// An amount of `units` times 4 KiB.
    pub const fn new(units: u32) -> Self {
        Self(units)
    }

    /// Number of 4 KiB units.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// `bytes` rounded up to whole units; `None` above [`Units::MAX`].
    pub const fn covering(bytes: u64) -> Option<Self> {
        let units = bytes.div_ceil(UNIT_BYTES);
        if units <= u32::MAX as u64 { Some(Self(units as u32)) } else { None }
    }

    /// `bytes` rounded down to whole units, at most [`Units::MAX`].
    pub const fn within(bytes: u64) -> Self {
        let units = bytes / UNIT_BYTES;
        if units <= u32::MAX as u64 { Self(units as u32) } else { Self::MAX }
    }

    /// The amount in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * UNIT_BYTES
    }

    /// `self + other`, at most [`Units::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, at least [`Units::ZERO`].
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self + other`; `None` above [`Units::MAX`].
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn units_cover_bytes(bytes in 0u64..1 << 43) {
            let units = Units::covering(bytes).unwrap();
            prop_assert!(units.bytes() >= bytes && units.bytes() < bytes + UNIT_BYTES);
        }
    }
}
