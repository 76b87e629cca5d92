//! Fills: a pattern of one, two or four bytes over rows.

use crate::bytes::Fill;
use crate::driver::driver;
use crate::lookup::DefaultStream;
use crate::state::stream::Op;
use crate::status::{Outcome, Status};
use crate::transfer::{Wait, on_device, put};

fn fill(
    default: DefaultStream,
    stream: u64,
    to: u64,
    pitch: usize,
    pattern: &[u8],
    shape: (usize, usize),
    wait: Wait,
) -> Outcome {
    let (width, height) = shape;
    if width == 0 || height == 0 {
        driver()?.table().current()?;
        return Ok(());
    }
    let width = width.checked_mul(pattern.len()).ok_or(Status::InvalidValue)?;
    let pitch = if height == 1 { width } else { pitch };
    if pitch < width || !to.is_multiple_of(pattern.len() as u64) {
        return Err(Status::InvalidValue);
    }
    let bytes = pitch
        .checked_mul(height - 1)
        .and_then(|bytes| bytes.checked_add(width))
        .ok_or(Status::InvalidValue)?;
    let place = on_device(to, bytes)?;
    let (pitch, width, height) = (pitch as u64, width as u64, height as u64);
    put(default, stream, Op::Fill(Fill { place, pitch, width, height, pattern: pattern.to_vec() }), wait)
}

/// Operation of a memory-set node.
pub(crate) fn fill_node(
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
) -> Outcome<Fill> {
    let pattern = match element {
        1 => vec![value as u8],
        2 => (value as u16).to_ne_bytes().to_vec(),
        4 => value.to_ne_bytes().to_vec(),
        _ => return Err(Status::InvalidValue),
    };
    let width = width.checked_mul(pattern.len()).ok_or(Status::InvalidValue)?;
    let pitch = if height == 1 { width } else { pitch };
    if width == 0 || height == 0 || pitch < width {
        return Err(Status::InvalidValue);
    }
    let bytes = pitch
        .checked_mul(height - 1)
        .and_then(|bytes| bytes.checked_add(width))
        .ok_or(Status::InvalidValue)?;
    let place = on_device(to, bytes)?;
    Ok(Fill { place, pitch: pitch as u64, width: width as u64, height: height as u64, pattern })
}

macro_rules! fills {
    ($($type:ty: $row:ident, $row_async:ident, $row_low:ident, $rows:ident, $rows_async:ident;)*) => {
        $(
            pub(crate) fn $row(default: DefaultStream, to: u64, value: $type, count: usize) -> Outcome {
                fill(default, 0, to, 0, &value.to_ne_bytes(), (count, 1), Wait::Yes)
            }
            pub(crate) fn $row_async(
                default: DefaultStream, to: u64, value: $type, count: usize, stream: u64,
            ) -> Outcome {
                fill(default, stream, to, 0, &value.to_ne_bytes(), (count, 1), Wait::No)
            }
            pub(crate) fn $row_low(to: u32, value: $type, count: u32) -> Outcome {
                $row(DefaultStream::Legacy, u64::from(to), value, count as usize)
            }
            pub(crate) fn $rows(
                default: DefaultStream, to: u64, pitch: usize, value: $type, width: usize, height: usize,
            ) -> Outcome {
                fill(default, 0, to, pitch, &value.to_ne_bytes(), (width, height), Wait::Yes)
            }
            pub(crate) fn $rows_async(
                default: DefaultStream, to: u64, pitch: usize, value: $type, width: usize, height: usize, stream: u64,
            ) -> Outcome {
                fill(default, stream, to, pitch, &value.to_ne_bytes(), (width, height), Wait::No)
            }
        )*
    };
}

fills! {
    u8: bytes, bytes_async, bytes_low, bytes_2d, bytes_2d_async;
    u16: halves, halves_async, halves_low, halves_2d, halves_2d_async;
    u32: words, words_async, words_low, words_2d, words_2d_async;
}
