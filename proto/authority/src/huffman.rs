//! Huffman's code of header values (RFC 7541, appendix B).
//!
//! The code is canonical: codes of a length are consecutive numbers, and follow on the shorter ones. So the number of codes
//! of each length gives the end of a code.

/// Characters that are in paths and never in an authority, and the one in their place. All have codes of six bits, so a
/// value that is compressed keeps its length, too.
pub(crate) const WRONG: [u8; 2] = *b"%/";
pub(crate) const RIGHT: u8 = b'-';

/// Length of codes in bits, and their number.
const LENGTHS: [(u32, u64); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 4),
];

/// Codes of the characters that are replaced, and of the one in their place. All have six bits.
const SIX: u32 = 6;

const fn code(character: u8) -> u64 {
    match character {
        b'%' => 0x15,
        b'-' => 0x16,
        b'/' => 0x18,
        _ => panic!("no code of another character is needed"),
    }
}

/// Replaces characters in a compressed value.
pub(crate) fn mend(value: &mut [u8]) {
    let wrong = WRONG.map(code);
    let bits = value.len() * 8;
    let mut at = 0;
    // The end has a padding that is no code.
    while let Some((length, code_here)) = next(value, at).filter(|(length, _)| at + *length as usize <= bits)
    {
        if length == SIX && wrong.contains(&code_here) {
            write(value, at, SIX, code(RIGHT));
        }
        at += length as usize;
    }
}

/// Length and number of the code at this bit. `None` at the end.
fn next(value: &[u8], at: usize) -> Option<(u32, u64)> {
    let (mut first, mut before) = (0u64, 0);
    for (length, count) in LENGTHS {
        first <<= length - before;
        before = length;
        let number = read(value, at, length)?;
        if number < first + count {
            return Some((length, number));
        }
        first += count;
    }
    None
}

fn read(value: &[u8], at: usize, length: u32) -> Option<u64> {
    let mut number = 0;
    for bit in at..at + length as usize {
        let byte = value.get(bit / 8)?;
        number = number << 1 | u64::from(byte >> (7 - bit % 8) & 1);
    }
    Some(number)
}

fn write(value: &mut [u8], at: usize, length: u32, number: u64) {
    for (index, bit) in (at..at + length as usize).enumerate() {
        let mask = 1 << (7 - bit % 8);
        let is_set = number >> (length as usize - 1 - index) & 1 == 1;
        if let Some(byte) = value.get_mut(bit / 8) {
            *byte = if is_set { *byte | mask } else { *byte & !mask };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_a_complete_code() {
        // Kraft's sum is one, and there is a code for each byte and one for the end.
        let sum: u64 = LENGTHS.iter().map(|(length, count)| count << (30 - length)).sum();
        assert_eq!(sum, 1 << 30);
        assert_eq!(LENGTHS.iter().map(|(_, count)| count).sum::<u64>(), 257);
    }

    #[test]
    fn example_of_the_specification_has_its_codes() {
        // RFC 7541, C.4.1: "www.example.com".
        let value = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let (mut at, mut lengths) = (0, Vec::new());
        while let Some((length, _)) = next(&value, at) {
            lengths.push(length);
            at += length as usize;
        }
        assert_eq!(lengths, [7, 7, 7, 6, 5, 7, 5, 6, 6, 6, 5, 6, 5, 5, 6]);
        let mut same = value;
        mend(&mut same);
        assert_eq!(same, value);
    }
}
