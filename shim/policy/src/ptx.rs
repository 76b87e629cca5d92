//! Global variables that a PTX text declares, and their sizes.
//!
//! Words are read as the assembler reads them: comments and strings apart, directives at their dots, integers in all
//! their bases, sizes as constant expressions, one declaration of several variables, arrays whose first size follows
//! from their initialiser. A declaration whose size cannot be read has no bound, so that a module with it does not
//! fit anywhere.

// Named, because the model of the protocol borrows this file and looks for them from elsewhere.
#[path = "ptx/constant.rs"]
mod constant;
#[path = "ptx/word.rs"]
mod word;

use constant::Constants;
use word::{Word, Words};

pub(crate) use constant::Unreadable;

/// One kind of variables that a declaration names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Size of one variable in bytes.
    pub(crate) bytes: u64,
    /// Alignment of each in bytes.
    pub(crate) align: u64,
    /// Number of variables of this kind.
    pub(crate) count: u64,
    /// True if the driver migrates them between host and device.
    pub(crate) is_managed: bool,
}

/// Passes every variable in device memory to `found`.
pub(crate) fn variables(text: &[u8], mut found: impl FnMut(Variable)) -> Result<(), Unreadable> {
    let mut words = Words::of(text);
    let mut before = Before::default();
    while let Some(word) = words.next() {
        match word {
            // The address space to which a parameter points.
            Word::Directive(b"global" | b"const") if before.is_pointer => {}
            Word::Directive(b"global" | b"const") => {
                declaration(&mut words, before.is_extern, &mut found)?;
                before = Before::default();
                continue;
            }
            Word::Directive(b"extern") => before.is_extern = true,
            // The result of a preprocessor directive is not known.
            Word::Hash => match words.next() {
                Some(Word::Name(b"line" | b"file" | b"pragma")) => {}
                _ => return Err(Unreadable),
            },
            Word::Mark(b';' | b'{' | b'}') => before = Before::default(),
            _ => {}
        }
        before.is_pointer = match word {
            Word::Directive(b"ptr") => true,
            // `.ptr .global .align 8`, in any order.
            Word::Directive(_) | Word::Number(_) => before.is_pointer,
            _ => false,
        };
    }
    Ok(())
}

/// State of a statement while it is read.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    is_extern: bool,
    is_pointer: bool,
}

/// Reads `.align 4 .v2 .f32 name[3][16] = {...}, other;` up to its end.
fn declaration(
    words: &mut Words<'_>,
    is_extern: bool,
    found: &mut impl FnMut(Variable),
) -> Result<(), Unreadable> {
    let (mut element, mut lanes, mut align, mut is_managed) = (None, 1u64, 1, false);
    loop {
        match words.next().ok_or(Unreadable)? {
            Word::Directive(b"align") => match words.next() {
                Some(Word::Number(number)) => align = number,
                _ => return Err(Unreadable),
            },
            // `.attribute(.managed)`, `.attribute(.unified(1, 2))`
            Word::Directive(b"attribute") => is_managed |= attributes(words)?,
            Word::Directive(b"visible" | b"weak" | b"common" | b"extern") => {}
            Word::Directive([b'v', digits @ ..]) => lanes = decimal(digits).ok_or(Unreadable)?,
            Word::Directive(kind) => element = Some(element_bytes(kind).ok_or(Unreadable)?),
            Word::Name(_) => break,
            _ => return Err(Unreadable),
        }
    }
    let element = element.and_then(|bytes: u64| bytes.checked_mul(lanes)).ok_or(Unreadable)?;
    loop {
        let (shape, end) = declarator(words, is_extern)?;
        let bytes = shape.elements.checked_mul(element).ok_or(Unreadable)?;
        found(Variable { bytes, align, count: shape.count, is_managed });
        match end {
            b';' => return Ok(()),
            _ => match words.next() {
                Some(Word::Name(_)) => {}
                _ => return Err(Unreadable),
            },
        }
    }
}

/// Elements of one variable, and number of variables, as stated behind a name.
struct VariableShape {
    elements: u64,
    count: u64,
}

/// Reads `[3][16] = {...}` or `<100>` behind a name, with the comma or semicolon after it.
fn declarator(words: &mut Words<'_>, is_extern: bool) -> Result<(VariableShape, u8), Unreadable> {
    let (mut shape, mut is_open) = (VariableShape { elements: 1, count: 1 }, false);
    loop {
        match words.next().ok_or(Unreadable)? {
            Word::Mark(b'[') => {
                let length = Constants::of(words).until(b']')?;
                match length {
                    Some(length) => shape.elements = shape.elements.checked_mul(length).ok_or(Unreadable)?,
                    // Only the first can be left out.
                    None if !is_open => is_open = true,
                    None => return Err(Unreadable),
                }
            }
            Word::Mark(b'<') => match (words.next(), words.next()) {
                (Some(Word::Number(count)), Some(Word::Mark(b'>'))) => shape.count = count,
                _ => return Err(Unreadable),
            },
            Word::Mark(b'=') => {
                let (given, end) = initialiser(words)?;
                if is_open {
                    // Each value may be a row of its own.
                    shape.elements = shape.elements.checked_mul(given).ok_or(Unreadable)?;
                }
                return Ok((shape, end));
            }
            Word::Mark(end @ (b';' | b',')) => {
                // Its size is that of its definition elsewhere.
                if is_open && is_extern {
                    shape.elements = 0;
                }
                return if is_open && !is_extern { Err(Unreadable) } else { Ok((shape, end)) };
            }
            _ => return Err(Unreadable),
        }
    }
}

/// Upper bound of an initialiser's values, and the mark that ends it.
fn initialiser(words: &mut Words<'_>) -> Result<(u64, u8), Unreadable> {
    let (mut depth, mut values) = (0u32, 1u64);
    loop {
        match words.next().ok_or(Unreadable)? {
            Word::Mark(b'{' | b'(') => depth += 1,
            Word::Mark(b'}' | b')') => depth = depth.checked_sub(1).ok_or(Unreadable)?,
            Word::Mark(end @ (b';' | b',')) if depth == 0 => return Ok((values, end)),
            Word::Mark(b';') => return Err(Unreadable),
            Word::Mark(b',') => values += 1,
            _ => {}
        }
    }
}

/// Reads attributes in parentheses; true if managed memory is among them.
fn attributes(words: &mut Words<'_>) -> Result<bool, Unreadable> {
    let (mut depth, mut is_managed) = (0u32, false);
    loop {
        match words.next().ok_or(Unreadable)? {
            Word::Mark(b'(') => depth += 1,
            Word::Mark(b')') => {
                depth = depth.checked_sub(1).ok_or(Unreadable)?;
                if depth == 0 {
                    return Ok(is_managed);
                }
            }
            Word::Directive(b"managed") => is_managed = true,
            Word::Mark(b';' | b'{' | b'}') => return Err(Unreadable),
            _ if depth == 0 => return Err(Unreadable),
            _ => {}
        }
    }
}

/// Bytes of `b8`, `f16x2`, `texref` and the like.
fn element_bytes(kind: &[u8]) -> Option<u64> {
    /// No opaque type is larger in any release.
    const OPAQUE: u64 = 128;
    let bits = |digits: &[u8]| {
        let (one, many) = match digits.iter().position(|byte| *byte == b'x') {
            Some(at) => (&digits[..at], decimal(&digits[at + 1..])?),
            None => (digits, 1),
        };
        decimal(one)?.checked_mul(many).map(|bits| bits.div_ceil(8))
    };
    match kind {
        b"texref" | b"samplerref" | b"surfref" => Some(OPAQUE),
        b"pred" => Some(1),
        [b'b', b'f', digits @ ..] | [b't', b'f', digits @ ..] => {
            // `tf32` is kept in 32 bits, and `bf16` in 16.
            bits(digits)
        }
        // `e4m3`, `e5m2x2`: at most eight bits each.
        [b'e', b'0'..=b'9', b'm', b'0'..=b'9', rest @ ..] => match rest {
            [] => Some(1),
            [b'x', digits @ ..] => decimal(digits),
            _ => None,
        },
        [b'b' | b'u' | b's' | b'f', digits @ ..] => bits(digits),
        _ => None,
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn read(text: &str) -> Result<Vec<u64>, Unreadable> {
        let mut found = Vec::new();
        variables(text.as_bytes(), |one| found.push(one.bytes * one.count))?;
        Ok(found)
    }

    #[test]
    fn sizes_in_every_base_are_read_as_the_assembler_does() {
        for (length, elements) in [
            ("0x40000000", 1 << 30),
            ("0X10U", 16),
            ("010", 8),
            ("0b101", 5),
            ("0B11U", 3),
            ("12U", 12),
            ("4*1024*1024", 4 << 20),
            ("(1 << 20) + 0x10", (1 << 20) + 16),
            ("1<<3|1", 9),
            ("7/2%2", 1),
            ("~0xfffffff0U & 0xff", 15),
            ("3 > 2 ? 100 : 5", 100),
            ("-4+8", 4),
            ("!0", 1),
            ("WARP_SZ*2", 64),
            ("(.s64)32", 32),
            ("/* 5 */ 6 // 7\n", 6),
        ] {
            let text = std::format!(".global .b8 buf[{length}];");
            assert_eq!(read(&text), Ok([elements].into()), "{text}");
        }
    }

    #[test]
    fn every_form_of_a_declaration_is_counted() {
        for (text, sizes) in [
            (".global .align 8 .u64 a = 5, b, c[3][2];", &[8, 8, 48][..]),
            (".visible.global.v4.f32 a[2];", &[32]),
            (".global .v2 .f16x2 a;", &[8]),
            (".global .attribute(.managed) .s32 m;", &[4]),
            (".global .attribute(.unified(1, 2)) .align 16 .b128 m[2];", &[32]),
            (".const .f32 bias[] = {-1.0, 1.0, 0f3f800000};", &[12]),
            (".global .u32 t[][2] = {{1, 2}, {3, 4}};", &[32]),
            (".extern .global .b8 elsewhere[];", &[0]),
            (".global .b32 v<1000>;", &[4000]),
            (".common .global .b64 c[4];.weak .global .b8 w;", &[32, 1]),
            (".global .texref t;", &[128]),
            (
                ".entry f(.param .u64 .ptr .global .align 8 p, .param .u64 q) { ld.global.u32 %r1, [%rd1]; }",
                &[],
            ),
            (".global .b8 one[1]; .file 1 \".global .b8 x[9];\" /* .global .b8 y[9]; */", &[1]),
            (".extern .shared .align 16 .b8 s[]; .shared .b8 t[0x1000];", &[]),
            (".global .u64 p = generic(q) + 8;", &[8]),
        ] {
            assert_eq!(read(text), Ok(sizes.to_vec()), "{text}");
        }
    }

    #[test]
    fn declarations_that_cannot_be_read_have_no_bound() {
        for text in [
            ".global .b8 a[N];",
            "#define N 9\n.global .b8 a[3];",
            ".global .b8 a[];",
            ".global .b8 a[2][];",
            ".global .new a;",
            ".global a[4];",
            ".global .b8 a[1",
            ".global .b8 a[0-1];",
            ".global .b8 a[1/0];",
            ".global .b64 a[0x2000000000000000];",
            ".global .b8 a[99999999999999999999999];",
            ".global .b8 a[08];",
        ] {
            assert_eq!(read(text), Err(Unreadable), "{text}");
        }
        let deep = std::format!(".global .b8 a[{}1{}];", "(".repeat(10_000), ")".repeat(10_000));
        assert_eq!(read(&deep), Err(Unreadable));
    }
}
