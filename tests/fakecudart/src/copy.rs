//! Copies and fills, of rows of bytes too.

use crate::device::{primary, ready};
use crate::driver;
use crate::shapes::{Flat, Side};
use crate::status::{Outcome, Status};
use crate::wall::In;

/// `cudaMemcpyDefault`: the addresses decide.
const DEFAULT: i32 = 4;
/// `CU_MEMORYTYPE_UNIFIED`.
const UNIFIED: u64 = 4;

fn check(kind: i32) -> Outcome {
    if (0..=DEFAULT).contains(&kind) { Ok(()) } else { Err(Status::INVALID_COPY_DIRECTION) }
}

/// `cudaMemcpy`: host and device have one address space, so the direction has nothing to add.
pub(crate) fn linear(to: u64, from: u64, bytes: usize, kind: i32) -> Outcome {
    check(kind)?;
    ready()?;
    if bytes == 0 { Ok(()) } else { driver::cuMemcpy(to, from, bytes) }
}

/// `cudaMemcpyAsync`.
pub(crate) fn linear_async(to: u64, from: u64, bytes: usize, kind: i32, stream: u64) -> Outcome {
    check(kind)?;
    ready()?;
    if bytes == 0 { Ok(()) } else { driver::cuMemcpyAsync(to, from, bytes, stream) }
}

/// `cudaMemcpyPeer`.
pub(crate) fn peer(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize) -> Outcome {
    ready()?;
    driver::cuMemcpyPeer(to, primary(to_device)?, from, primary(from_device)?, bytes)
}

/// `cudaMemcpyPeerAsync`.
pub(crate) fn peer_async(
    to: u64,
    to_device: i32,
    from: u64,
    from_device: i32,
    bytes: usize,
    stream: u64,
) -> Outcome {
    ready()?;
    driver::cuMemcpyPeerAsync(to, primary(to_device)?, from, primary(from_device)?, bytes, stream)
}

/// A copy of rows: addresses with their pitches, then bytes and number of rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) to: (u64, usize),
    pub(crate) from: (u64, usize),
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Rows {
    /// `cudaMemcpy2D`, or in a stream `cudaMemcpy2DAsync`.
    pub(crate) fn copy(self, kind: i32, stream: Option<u64>) -> Outcome {
        check(kind)?;
        ready()?;
        let side = |(address, pitch)| Side {
            x: 0,
            y: 0,
            memory_type: UNIFIED,
            host: 0,
            device: address,
            array: 0,
            pitch,
        };
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let copy = Flat { from: side(self.from), to: side(self.to), width: self.width, height: self.height };
        match stream {
            Some(stream) => driver::cuMemcpy2DAsync_v2(In::of(&copy), stream),
            None => driver::cuMemcpy2D_v2(In::of(&copy)),
        }
    }
}

/// `cudaMemset`.
pub(crate) fn fill(to: u64, value: i32, count: usize) -> Outcome {
    ready()?;
    if count == 0 { Ok(()) } else { driver::cuMemsetD8_v2(to, value as u8, count) }
}

/// `cudaMemsetAsync`.
pub(crate) fn fill_async(to: u64, value: i32, count: usize, stream: u64) -> Outcome {
    ready()?;
    if count == 0 { Ok(()) } else { driver::cuMemsetD8Async(to, value as u8, count, stream) }
}

/// `cudaMemset2D`, or in a stream `cudaMemset2DAsync`.
pub(crate) fn fill_rows(
    (to, pitch): (u64, usize),
    value: i32,
    (width, height): (usize, usize),
    stream: Option<u64>,
) -> Outcome {
    ready()?;
    match stream {
        _ if width == 0 || height == 0 => Ok(()),
        Some(stream) => driver::cuMemsetD2D8Async(to, pitch, value as u8, width, height, stream),
        None => driver::cuMemsetD2D8_v2(to, pitch, value as u8, width, height),
    }
}
