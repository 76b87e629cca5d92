//! Lists as NVML writes them: into the caller's array, with a count of its room and then of all rows.

use core::ffi::c_int;
use core::ops::Deref;
use core::ptr::null_mut;
use core::slice;

use super::abi::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS};
use crate::sys::ZeroedRoom;

/// Writes the rows that fit, and their full number to `count`.
///
/// # Safety
/// `count` must be null or valid, and `rows` null or of as many rows as `count` holds.
pub(super) unsafe fn deliver<R>(listed: impl Iterator<Item = R>, count: *mut u32, rows: *mut R) -> c_int {
    // SAFETY: both pointers are valid by this function's contract; only indices below `room` are written.
    unsafe {
        if count.is_null() || rows.is_null() && *count > 0 {
            return INVALID_ARGUMENT;
        }
        let room = *count;
        let mut total = 0;
        for row in listed {
            if total < room {
                rows.add(total as usize).write(row);
            }
            total += 1;
        }
        *count = total;
        if total > room { INSUFFICIENT_SIZE } else { SUCCESS }
    }
}

/// Rows that NVML has listed, in memory of the shim's.
pub(super) struct Listed<T> {
    room: Option<ZeroedRoom>,
    count: usize,
    rows: *const T,
}

impl<T> Deref for Listed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self.room {
            // SAFETY: `listed` let NVML write that many rows there, and they live as long as the room does.
            Some(_) => unsafe { slice::from_raw_parts(self.rows, self.count) },
            None => &[],
        }
    }
}

/// Spare rows and attempts, because processes may begin between two calls.
const NEWCOMERS: u32 = 16;
const TRIES: usize = 8;

/// Lets NVML list all rows.
///
/// # Safety
/// `ask`, given room for a number of rows, must write at most that many and store their number; given none, only
/// store it.
pub(super) unsafe fn listed<T: Copy>(
    mut ask: impl FnMut(&mut u32, *mut T) -> c_int,
) -> Result<Listed<T>, c_int> {
    let mut count = 0;
    match ask(&mut count, null_mut()) {
        SUCCESS if count == 0 => return Ok(Listed { room: None, count: 0, rows: null_mut() }),
        SUCCESS | INSUFFICIENT_SIZE => {}
        error => return Err(error),
    }
    for _ in 0..TRIES {
        let most = count.saturating_add(NEWCOMERS);
        let room = ZeroedRoom::new(most as usize * size_of::<T>()).map_err(|_| INSUFFICIENT_SIZE)?;
        let rows = room.start::<T>();
        count = most;
        match ask(&mut count, rows) {
            SUCCESS => return Ok(Listed { room: Some(room), count: count.min(most) as usize, rows }),
            INSUFFICIENT_SIZE => {}
            error => return Err(error),
        }
    }
    Err(INSUFFICIENT_SIZE)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::abi::NOT_FOUND;
    use super::*;

    #[test]
    fn list_beyond_room_returns_its_length() {
        let mut rows = [0; 2];
        let mut count = 1;
        // SAFETY: the count holds one row, and the array has two.
        let result = unsafe { deliver([7, 8].into_iter(), &mut count, rows.as_mut_ptr()) };
        assert_eq!((result, count, rows), (INSUFFICIENT_SIZE, 2, [7, 0]));
        // SAFETY: the count holds two rows, and the array has two.
        let result = unsafe { deliver([7, 8].into_iter(), &mut count, rows.as_mut_ptr()) };
        assert_eq!((result, count, rows), (SUCCESS, 2, [7, 8]));
    }

    #[test]
    fn absent_array_returns_required_length() {
        // SAFETY: the array is null, so nothing is written but the count, a local.
        let asked = |count: *mut u32, row: Option<u8>| unsafe { deliver(row.into_iter(), count, null_mut()) };
        let mut count = 0;
        assert_eq!((asked(&mut count, Some(7)), count), (INSUFFICIENT_SIZE, 1));
        assert_eq!(asked(&mut count, Some(7)), INVALID_ARGUMENT);
        assert_eq!(asked(null_mut(), Some(7)), INVALID_ARGUMENT);
        assert_eq!(asked(&mut 0, None), SUCCESS);
    }

    /// A fake NVML of `now` processes, to which one comes with each call until there are `most`.
    fn node(mut now: u32, most: u32) -> impl FnMut(&mut u32, *mut u32) -> c_int {
        move |count, rows| {
            let room = *count;
            (*count, now) = (now, most.min(now + 1));
            if *count > room {
                return INSUFFICIENT_SIZE;
            }
            // SAFETY: `listed` passes an array with room for `count` rows.
            (0..*count).for_each(|at| unsafe { rows.add(at as usize).write(100 + at) });
            SUCCESS
        }
    }

    #[test]
    fn listing_includes_processes_that_begin_meanwhile() {
        for (first, most) in [(0, 0), (1, 1), (3, 5), (1000, 1007)] {
            // SAFETY: the fake writes at most as many rows as there is room for.
            let listed = unsafe { listed(node(first, most)) }.map(|listed| listed.to_vec());
            let there = if first == 0 { 0 } else { most.min(first + 1) };
            assert_eq!(listed, Ok((100..100 + there).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn error_of_nvml_passes_unchanged() {
        // SAFETY: this closure writes to neither of its pointers.
        assert_eq!(unsafe { listed::<u32>(|_, _| NOT_FOUND) }.err(), Some(NOT_FOUND));
        // SAFETY: this closure writes to neither of its pointers.
        let never = unsafe { listed::<u32>(|_, _| INSUFFICIENT_SIZE) };
        assert_eq!(never.err(), Some(INSUFFICIENT_SIZE));
    }
}
