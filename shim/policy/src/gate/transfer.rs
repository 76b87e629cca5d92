//! Copies and fills, where these count as launches do.

/// Direction of a copy, or a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A fill of device memory.
    Fill,
    /// From one place on a device to another, or to another device.
    Device,
    /// A copy from host to device.
    Upload,
    /// A copy from device to host.
    Download,
    /// A copy whose direction does not follow from its addresses.
    Unknown,
}

/// A copy or fill. What it takes is learnt for each route and size, to a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Whence and where to.
    pub route: Route,
    /// Size of the transfer.
    pub bytes: u64,
}

impl Transfer {
    /// Tests if the copy is known to go over the bus, beside kernels.
    pub const fn is_over_bus(self) -> bool {
        matches!(self.route, Route::Upload | Route::Download)
    }

    /// Tests if both ends are known to lie on devices, so that no call waits for its end.
    pub const fn is_inside(self) -> bool {
        matches!(self.route, Route::Fill | Route::Device)
    }

    /// Key of the costs of such transfers, in the table of graphs.
    ///
    /// Handles of graphs are addresses of the program and lack the highest bit.
    pub(super) const fn key(self) -> u64 {
        let size = u64::BITS - self.bytes.leading_zeros();
        1 << 63 | (self.route as u64) << 8 | size as u64
    }
}
