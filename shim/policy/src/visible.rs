//! `CUDA_VISIBLE_DEVICES`, read over the slice's devices as CUDA reads it over the node's.
//!
//! The text is a list of indices, or of UUIDs, which may be abbreviated; its start decides which. It ends before the
//! first entry that names none of the devices, and one that is named twice leaves none, as with CUDA.

use core::ffi::CStr;

use tranche_shm::MAX_DEVICES;

use crate::uuid::{self, NAME_BYTES, Uuid};

/// Name of the environment variable.
pub const VARIABLE: &CStr = c"CUDA_VISIBLE_DEVICES";
/// Length of the longest entry for a slice's devices in bytes, its final zero included.
pub const ENTRY_BYTES: usize = VARIABLE.count_bytes() + 1 + MAX_DEVICES * NAME_BYTES;

/// Devices that a program sees, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    uuids: [Uuid; MAX_DEVICES],
    count: usize,
}

impl Visible {
    /// Devices of the slice that the variable's text selects; all of them without a text.
    pub fn of(text: Option<&[u8]>, devices: &[Uuid]) -> Self {
        let Some(text) = text else { return devices.iter().fold(Self::default(), Self::with) };
        let read = if text.starts_with(uuid::PREFIX) { by_uuid } else { by_index };
        let mut visible = Self::default();
        for entry in text.split(|byte| *byte == b',') {
            match read(entry.trim_ascii(), devices) {
                None => break,
                Some(device) if visible.uuids().contains(&device) => return Self::default(),
                Some(device) => visible = visible.with(&device),
            }
        }
        visible
    }

    /// UUIDs of the devices, in the program's order.
    pub fn uuids(&self) -> &[Uuid] {
        &self.uuids[..self.count]
    }

    /// Entry of the environment by which the driver shows these devices and no other.
    pub fn entry(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        let (variable, list) = entry.split_at_mut(VARIABLE.count_bytes() + 1);
        variable[..VARIABLE.count_bytes()].copy_from_slice(VARIABLE.to_bytes());
        variable[VARIABLE.count_bytes()] = b'=';
        for (place, device) in list.chunks_exact_mut(NAME_BYTES).zip(self.uuids()) {
            place.copy_from_slice(&uuid::name(*device));
            place[NAME_BYTES - 1] = b',';
        }
        // Each name ends with a comma; the last one's place is the final zero's.
        if let Some(last) = (self.count * NAME_BYTES).checked_sub(1) {
            list[last] = 0;
        }
        entry
    }

    /// The selection with one more device. There is room for every device of a slice.
    fn with(mut self, device: &Uuid) -> Self {
        if let Some(place) = self.uuids.get_mut(self.count) {
            *place = *device;
            self.count += 1;
        }
        self
    }
}

/// The device of an index, read as by `strtoul`: text behind its digits is ignored.
fn by_index(entry: &[u8], devices: &[Uuid]) -> Option<Uuid> {
    let digits = entry.strip_prefix(b"+").unwrap_or(entry);
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digit = |index: usize, byte: &u8| index.saturating_mul(10).saturating_add(usize::from(byte - b'0'));
    let index = digits[..length].iter().fold(0, digit);
    devices.get(index).filter(|_| length > 0).copied()
}

/// The device of a UUID, or of a prefix that fits one device alone.
fn by_uuid(entry: &[u8], devices: &[Uuid]) -> Option<Uuid> {
    let named = |device: &&Uuid| entry.starts_with(uuid::PREFIX) && uuid::name(**device).starts_with(entry);
    let mut matching = devices.iter().filter(named);
    matching.next().filter(|_| matching.next().is_none()).copied()
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    const A: Uuid = [0xaa; 16];
    const B: Uuid = [0xab; 16];
    const C: Uuid = [0xcc; 16];

    fn seen(text: &str) -> Vec<Uuid> {
        Visible::of(Some(text.as_bytes()), &[A, B, C]).uuids().into()
    }

    #[test]
    fn absent_variable_selects_all_devices_in_order() {
        assert_eq!(Visible::of(None, &[B, A]).uuids(), [B, A]);
    }

    #[test]
    fn indices_count_slice_devices_in_list_order() {
        assert_eq!(seen("2,0"), [C, A]);
        assert_eq!(seen(" 1 , +2"), [B, C]);
        assert_eq!(seen("1gpu,2nd"), [B, C]);
    }

    #[test]
    fn unique_uuid_prefix_names_its_device() {
        let whole = "GPU-abababab-abab-abab-abab-abababababab";
        assert_eq!(seen(whole), [B]);
        assert_eq!(seen("GPU-c,GPU-aa"), [C, A]);
        for nobodys in ["GPU-a", "GPU-abc", "GPU-", &std::format!("{whole}0"), "abababab", "gpu-c"] {
            assert_eq!(seen(nobodys), [] as [Uuid; 0], "{nobodys}");
        }
    }

    #[test]
    fn first_unknown_device_ends_the_list() {
        assert_eq!(seen("1,-1,0"), [B]);
        assert_eq!(seen("1,3,0"), [B]);
        assert_eq!(seen("1,99999999999999999999999,0"), [B]);
        assert_eq!(seen("GPU-c,GPU-d,GPU-aa"), [C]);
        assert_eq!(seen("0,GPU-c"), [A]);
        assert_eq!(seen("GPU-c,0"), [C]);
        for none in ["", "-1", ",0", "none", "MIG-cc", "MIG-GPU-cccccccc/1/0"] {
            assert_eq!(seen(none), [] as [Uuid; 0], "{none}");
        }
    }

    #[test]
    fn a_device_that_is_named_twice_hides_all() {
        assert_eq!(seen("0,1,0"), [] as [Uuid; 0]);
        assert_eq!(seen("GPU-c,GPU-cc"), [] as [Uuid; 0]);
    }

    #[test]
    fn entry_holds_full_names_and_final_zero() {
        let text = |visible: Visible| {
            let entry = visible.entry();
            String::from(CStr::from_bytes_until_nul(&entry).unwrap().to_str().unwrap())
        };
        let (a, c) = ("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "cccccccc-cccc-cccc-cccc-cccccccccccc");
        assert_eq!(text(Visible::of(None, &[C, A])), std::format!("CUDA_VISIBLE_DEVICES=GPU-{c},GPU-{a}"));
        assert_eq!(text(Visible::default()), "CUDA_VISIBLE_DEVICES=");
        let many: [Uuid; MAX_DEVICES + 1] = core::array::from_fn(|at| [at as u8; 16]);
        let full = Visible::of(None, &many);
        assert_eq!(full.uuids(), &many[..MAX_DEVICES]);
        assert_eq!(full.entry().last(), Some(&0));
        assert!(text(full).ends_with("0f0f0f0f0f0f"));
    }
}
