//! Fields of a header block (RFC 7541, section 6), by their lengths, and the value of `:authority`.

use crate::huffman::{self, RIGHT, WRONG};

/// Index of the name `:authority` in the static table.
const AUTHORITY: usize = 1;

/// Replaces characters in each `:authority` that the block has literally. What is malformed is left to the server.
pub(crate) fn mend(block: &mut [u8]) {
    let mut at = 0;
    while at < block.len() {
        let Some(next) = field(block, at) else { return };
        at = next;
    }
}

/// Mends the field at this place. Returns the place of the next one.
fn field(block: &mut [u8], at: usize) -> Option<usize> {
    let first = *block.get(at)?;
    let prefix = match first {
        0x80.. => return integer(block, at, 7).map(|(_, next)| next),
        0x40..0x80 => 6,
        // A change of the dynamic table's size.
        0x20..0x40 => return integer(block, at, 5).map(|(_, next)| next),
        _ => 4,
    };
    let (name, mut next) = integer(block, at, prefix)?;
    let mut is_authority = name == AUTHORITY;
    if name == 0 {
        let name = string(block, next)?;
        is_authority = !name.compressed && block.get(name.begin..name.end)? == b":authority";
        next = name.end;
    }
    let value = string(block, next)?;
    let bytes = block.get_mut(value.begin..value.end)?;
    if is_authority && value.compressed {
        huffman::mend(bytes);
    } else if is_authority {
        bytes.iter_mut().filter(|byte| WRONG.contains(byte)).for_each(|byte| *byte = RIGHT);
    }
    Some(value.end)
}

/// Place of a string's bytes.
struct Place {
    begin: usize,
    end: usize,
    compressed: bool,
}

fn string(block: &[u8], at: usize) -> Option<Place> {
    let compressed = block.get(at)? & 0x80 != 0;
    let (length, begin) = integer(block, at, 7)?;
    let end = begin.checked_add(length).filter(|end| *end <= block.len())?;
    Some(Place { begin, end, compressed })
}

/// Integer whose first byte has a prefix of that length in bits (section 5.1), and the place after it.
fn integer(block: &[u8], at: usize, prefix: u32) -> Option<(usize, usize)> {
    let most = (1usize << prefix) - 1;
    let mut value = usize::from(*block.get(at)?) & most;
    let mut next = at + 1;
    if value < most {
        return Some((value, next));
    }
    // Five bytes are enough for any length of a frame.
    for shift in (0..35).step_by(7) {
        let byte = *block.get(next)?;
        next += 1;
        value = value.checked_add(usize::from(byte & 0x7f).checked_shl(shift)?)?;
        if byte & 0x80 == 0 {
            return Some((value, next));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_authority_changes() {
        // Indexed :method, :path with a literal value, :authority with a literal name, a table size, a field of its own.
        let mut block = b"\x83\x04\x04/a%b\x00\x0a:authority\x03/%a\x20\x40\x02/x\x02%y".to_vec();
        mend(&mut block);
        assert_eq!(block, b"\x83\x04\x04/a%b\x00\x0a:authority\x03--a\x20\x40\x02/x\x02%y");
    }

    #[test]
    fn long_values_have_long_lengths() {
        let path = [b'/'; 200];
        let mut block = [&b"\x41\x7f\x49"[..], &path, b"\x82"].concat();
        mend(&mut block);
        assert_eq!(block, [&b"\x41\x7f\x49"[..], &[b'-'; 200], b"\x82"].concat());
    }

    #[test]
    fn compressed_authority_of_the_kubelet_is_mended() {
        // "%2Fa/" in Huffman's code: 010101 00010 1100001 00011 011000 and a padding of ones.
        let mut block = vec![0x41, 0x84, 0b0101_0100, 0b0101_1000, 0b0100_0110, 0b1100_0111];
        mend(&mut block);
        // "-2Fa-"
        assert_eq!(block, [0x41, 0x84, 0b0101_1000, 0b0101_1000, 0b0100_0110, 0b1011_0111]);
    }

    proptest! {
        #[test]
        fn any_block_is_survived(mut block: Vec<u8>) {
            let length = block.len();
            mend(&mut block);
            prop_assert_eq!(block.len(), length);
        }
    }
}
