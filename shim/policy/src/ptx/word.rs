//! Words of a PTX text.

/// A word of a PTX text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// A directive without its dot: `.v2.f32` is two of them.
    Directive(&'a [u8]),
    /// A name, or an instruction with all its suffixes.
    Name(&'a [u8]),
    /// An integer, in any base.
    Number(u64),
    /// A floating-point number, or an integer that is too large.
    Other,
    /// A string; its text is skipped.
    Text,
    /// The `#` that begins a preprocessor line.
    Hash,
    /// Anything else, one character at a time.
    Mark(u8),
}

/// An iterator over the words of a text, which a zero byte ends.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    rest: &'a [u8],
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a [u8]) -> Self {
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Self { rest: &text[..end] }
    }

    /// The next word, without consuming it.
    pub(super) fn peek(&self) -> Option<Word<'a>> {
        self.clone().next()
    }

    fn skip_blanks(&mut self) {
        loop {
            let end = match self.rest {
                [byte, ..] if byte.is_ascii_whitespace() || *byte == 0x0b => 1,
                [b'/', b'/', ..] => end_of(self.rest, b"\n"),
                [b'/', b'*', ..] => 2 + end_of(&self.rest[2..], b"*/"),
                _ => return,
            };
            self.rest = &self.rest[end..];
        }
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn length(&self, from: usize, of: impl Fn(u8) -> bool) -> usize {
        self.rest
            .iter()
            .skip(from)
            .position(|byte| !of(*byte))
            .map_or(self.rest.len(), |length| from + length)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        self.skip_blanks();
        Some(match *self.rest.first()? {
            b'.' if self.rest.get(1).is_some_and(|byte| is_of_name(*byte)) => {
                Word::Directive(&self.take(self.length(1, is_of_name))[1..])
            }
            b'"' => {
                let text = self.length(1, |byte| byte != b'"');
                self.take(text + 1);
                Word::Text
            }
            b'#' => {
                self.take(1);
                Word::Hash
            }
            b'0'..=b'9' => {
                let word = self.take(self.length(0, |byte| byte.is_ascii_alphanumeric() || byte == b'.'));
                integer(word).map_or(Word::Other, Word::Number)
            }
            // After a number it may be an operator.
            b'%' if !self.rest.get(1).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_') => {
                self.take(1);
                Word::Mark(b'%')
            }
            byte if is_of_name(byte) => {
                Word::Name(self.take(self.length(0, |byte| is_of_name(byte) || byte == b'.')))
            }
            mark => {
                self.take(1);
                Word::Mark(mark)
            }
        })
    }
}

/// End of the first `end` in the text, or of the text.
fn end_of(text: &[u8], end: &[u8]) -> usize {
    text.windows(end.len()).position(|window| window == end).map_or(text.len(), |at| at + end.len())
}

/// `0x1F`, `017`, `0b1`, `15`, each perhaps with a `U`.
fn integer(word: &[u8]) -> Option<u64> {
    let word = word.strip_suffix(b"U").unwrap_or(word);
    let (digits, base) = match word {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', b'b' | b'B', digits @ ..] => (digits, 2),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        digits => (digits, 10),
    };
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, base).ok()
}
