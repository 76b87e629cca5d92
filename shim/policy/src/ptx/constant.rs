//! Constant expressions, as sizes of arrays are written.
//!
//! They are evaluated in more bits than the assembler has, and a value that does not fit into its 64 is unreadable:
//! so no result depends on the sign of its type.

use super::word::{Word, Words};

/// Deepest nesting of an expression that is read.
const DEPTH: u32 = 32;
/// `WARP_SZ`
const WARP: i128 = 32;

/// Error of a text that is not readable as PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// A parser of constant expressions, over the words of a text.
pub(super) struct Constants<'w, 'a> {
    words: &'w mut Words<'a>,
}

impl<'w, 'a> Constants<'w, 'a> {
    pub(super) const fn of(words: &'w mut Words<'a>) -> Self {
        Self { words }
    }

    /// Value of the expression before `end`, which is consumed too; `None` if there is no expression.
    pub(super) fn until(mut self, end: u8) -> Result<Option<u64>, Unreadable> {
        if self.words.peek() == Some(Word::Mark(end)) {
            self.words.next();
            return Ok(None);
        }
        let value = self.choice(DEPTH)?;
        match self.words.next() {
            Some(Word::Mark(mark)) if mark == end => u64::try_from(value).map(Some).map_err(|_| Unreadable),
            _ => Err(Unreadable),
        }
    }

    /// `a ? b : c`
    fn choice(&mut self, depth: u32) -> Result<i128, Unreadable> {
        let depth = depth.checked_sub(1).ok_or(Unreadable)?;
        let first = self.binary(0, depth)?;
        if !self.eats(b"?") {
            return Ok(first);
        }
        let then = self.choice(depth)?;
        if !self.eats(b":") {
            return Err(Unreadable);
        }
        let other = self.choice(depth)?;
        Ok(if first != 0 { then } else { other })
    }

    /// Operators that bind at least as tightly as the one at `level`.
    fn binary(&mut self, level: usize, depth: u32) -> Result<i128, Unreadable> {
        /// From the loosest to the tightest; of those with a common start, the longer first.
        const LEVELS: [&[&[u8]]; 10] = [
            &[b"||"],
            &[b"&&"],
            &[b"|"],
            &[b"^"],
            &[b"&"],
            &[b"==", b"!="],
            &[b"<=", b">=", b"<", b">"],
            &[b"<<", b">>"],
            &[b"+", b"-"],
            &[b"*", b"/", b"%"],
        ];
        let Some(operators) = LEVELS.get(level) else { return self.unary(depth) };
        let mut left = self.binary(level + 1, depth)?;
        while let Some(operator) = operators.iter().find(|operator| self.is_next(operator)) {
            self.eats(operator);
            let right = self.binary(level + 1, depth)?;
            left = fits(apply(operator, left, right)?)?;
        }
        Ok(left)
    }

    fn unary(&mut self, depth: u32) -> Result<i128, Unreadable> {
        let depth = depth.checked_sub(1).ok_or(Unreadable)?;
        match self.words.next().ok_or(Unreadable)? {
            Word::Number(number) => Ok(number.into()),
            Word::Name(b"WARP_SZ") => Ok(WARP),
            Word::Mark(b'+') => self.unary(depth),
            Word::Mark(b'-') => fits(-self.unary(depth)?),
            Word::Mark(b'!') => Ok((self.unary(depth)? == 0).into()),
            // In 64 bits, whatever their sign.
            Word::Mark(b'~') => Ok((!(self.unary(depth)? as u64)).into()),
            Word::Mark(b'(') => {
                if let Some(Word::Directive(b"s64" | b"u64")) = self.words.peek() {
                    self.words.next();
                    return if self.eats(b")") { self.unary(depth) } else { Err(Unreadable) };
                }
                let value = self.choice(depth)?;
                if self.eats(b")") { Ok(value) } else { Err(Unreadable) }
            }
            _ => Err(Unreadable),
        }
    }

    /// True if these marks come next, and do not begin a longer operator.
    fn is_next(&self, operator: &[u8]) -> bool {
        let mut words = self.words.clone();
        let is_there = operator.iter().all(|mark| words.next() == Some(Word::Mark(*mark)));
        let doubled =
            matches!(operator, [b'|' | b'&' | b'<' | b'>']) && words.next() == Some(Word::Mark(operator[0]));
        is_there && !doubled
    }

    fn eats(&mut self, operator: &[u8]) -> bool {
        let is_there = self.is_next(operator);
        if is_there {
            operator.iter().for_each(|_| _ = self.words.next());
        }
        is_there
    }
}

/// Passes a value that fits into 64 bits, signed or unsigned.
const fn fits(value: i128) -> Result<i128, Unreadable> {
    if value >= i64::MIN as i128 && value <= u64::MAX as i128 { Ok(value) } else { Err(Unreadable) }
}

fn apply(operator: &[u8], left: i128, right: i128) -> Result<i128, Unreadable> {
    let shift = || u32::try_from(right).ok().filter(|bits| *bits < 64).ok_or(Unreadable);
    // The bits of a negative value are those of its 64-bit form.
    let bits = |value: i128| i128::from(value as u64);
    let same_sign = left >= 0 && right >= 0;
    Ok(match operator {
        b"||" => (left != 0 || right != 0).into(),
        b"&&" => (left != 0 && right != 0).into(),
        b"|" => bits(left) | bits(right),
        b"^" => bits(left) ^ bits(right),
        b"&" => bits(left) & bits(right),
        b"==" => (left == right).into(),
        b"!=" => (left != right).into(),
        b"+" => left + right,
        b"-" => left - right,
        b"*" => left.checked_mul(right).ok_or(Unreadable)?,
        // From here on the result would depend on the sign of the type.
        _ if !same_sign => return Err(Unreadable),
        b"<=" => (left <= right).into(),
        b">=" => (left >= right).into(),
        b"<" => (left < right).into(),
        b">" => (left > right).into(),
        b"<<" => left << shift()?,
        b">>" => left >> shift()?,
        b"/" => left.checked_div(right).ok_or(Unreadable)?,
        b"%" => left.checked_rem(right).ok_or(Unreadable)?,
        _ => return Err(Unreadable),
    })
}
