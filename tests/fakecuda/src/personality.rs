//! The personality of this library: the driver version that it was staged as.
//!
//! It is the library's own, so that `dlsym`, `cuGetProcAddress` and `cuDriverGetVersion` agree before a node is there.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use simgpu::Personality;

/// First bytes of [`MARK`].
pub(crate) const MAGIC: [u8; 16] = *b"\x7fsimgpu-driver:\0";
/// Bytes of a key, filled up with zeros.
pub(crate) const KEY: usize = 8;

/// The key of the personality, which staging overwrites in the file. Atomic, so that no value is assumed for it.
static MARK: [AtomicU8; MAGIC.len() + KEY] = {
    let mut mark = [const { AtomicU8::new(0) }; MAGIC.len() + KEY];
    let mut at = 0;
    while at < MAGIC.len() {
        mark[at] = AtomicU8::new(MAGIC[at]);
        at += 1;
    }
    mark
};

/// The personality of this library; one that was not staged has the default.
pub(crate) fn own() -> &'static Personality {
    static OWN: OnceLock<Personality> = OnceLock::new();
    OWN.get_or_init(|| {
        let bytes: Vec<u8> = black_box(&MARK)[MAGIC.len()..].iter().map(|byte| byte.load(Relaxed)).collect();
        let key = String::from_utf8_lossy(&bytes);
        Personality::named(key.trim_end_matches('\0')).unwrap_or_default()
    })
}

/// True if processes can be locked, checkpointed and restored by others: CUDA 12.8, driver 570.
pub(crate) fn has_checkpoints() -> bool {
    own().has(12_080)
}
