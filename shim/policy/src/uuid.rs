//! UUIDs of devices, as the driver and NVML write them.

/// A UUID as 16 bytes, as `cuDeviceGetUuid` returns it.
pub type Uuid = [u8; 16];
/// Prefix of a GPU's name in NVML.
pub const PREFIX: &[u8] = b"GPU-";
/// Length of a name in bytes, its final zero included.
pub const NAME_BYTES: usize = 41;

/// `GPU-` and a UUID in the usual form, with a final zero.
pub fn name(uuid: Uuid) -> [u8; NAME_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = *b"GPU-00000000-0000-0000-0000-000000000000\0";
    let places = (4..40).filter(|at| ![12, 17, 22, 27].contains(at));
    let digits = uuid.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, digit) in places.zip(digits) {
        name[place] = DIGITS[usize::from(digit)];
    }
    name
}

/// The UUID in a device's name, whatever stands before it.
pub fn parse(name: &[u8]) -> Option<Uuid> {
    let end = name.iter().position(|byte| *byte == 0)?;
    let start = name.iter().position(|byte| *byte == b'-')? + 1;
    let mut uuid = [0; 16];
    let mut count = 0;
    for byte in name.get(start..end)?.iter().filter(|byte| **byte != b'-') {
        let digit = char::from(*byte).to_digit(16)? as u8;
        let place = uuid.get_mut(count / 2)?;
        *place = *place << 4 | digit;
        count += 1;
    }
    (count == 32).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_from_its_name() {
        let uuid = core::array::from_fn(|at| at as u8 * 13 + 3);
        assert_eq!(parse(&name(uuid)), Some(uuid));
        assert_eq!(&name([0xab; 16])[..12], b"GPU-abababab");
        for bad in [&b"GPU-12\0"[..], b"GPU\0", b"", b"GPU-zz\0", &[b'-'; 60]] {
            assert_eq!(parse(bad), None);
        }
    }
}
