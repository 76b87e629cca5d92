//! Look-up of the objects behind handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use simgpu::Lane;

use crate::driver::Driver;
use crate::state::stream::Stream;
use crate::status::{Outcome, Status};

/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;

/// Meaning of stream 0, which depends on the entry point that was called.
#[derive(Clone, Copy)]
pub(crate) enum DefaultStream {
    /// The plain entry points.
    Legacy,
    /// Those that end in `_ptsz` and `_ptds`.
    PerThread,
}

/// Object of a handle; one that was never given out, or is gone, is an invalid handle.
pub(crate) fn find<T>(table: &BTreeMap<u64, T>, handle: u64) -> Outcome<&T> {
    table.get(&handle).ok_or(Status::InvalidHandle)
}

/// The stream that a handle means in the calling thread.
pub(crate) fn select(driver: &Driver, default: DefaultStream, handle: u64) -> Outcome<Arc<Stream>> {
    let mut table = driver.table();
    let per_thread = match (handle, default) {
        (0, DefaultStream::Legacy) | (LEGACY, _) => false,
        (0, DefaultStream::PerThread) | (PER_THREAD, _) => true,
        _ => return find(&table.streams, handle).cloned(),
    };
    let (current, context) = table.current()?;
    if !per_thread {
        return Ok(context.legacy.clone());
    }
    let (engine, thread) = (context.engine, thread_number());
    if let Some(stream) = table.thread_streams.get(&(current, thread)) {
        return Ok(stream.clone());
    }
    let handle = table.handle();
    let stream = Arc::new(Stream::new(handle, current, engine, Lane::Blocking(handle), 0));
    table.thread_streams.insert((current, thread), stream.clone());
    Ok(stream)
}

fn thread_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
