//! Places of bytes: of one allocation, or of mappings that lie one behind the other.

use std::sync::Arc;

use crate::memory::backing::Backing;
use crate::status::{Outcome, Status};
use crate::wall::Host;

/// Bytes of one holder.
#[derive(Clone)]
pub(crate) struct Part {
    /// Holder of the bytes; `None` for plain host memory.
    pub(crate) backing: Option<Arc<Backing>>,
    /// Offset in `backing`, or the host address.
    pub(crate) at: u64,
    /// Bytes from there on.
    pub(crate) length: u64,
}

/// Place of bytes.
#[derive(Clone)]
pub(crate) struct Place {
    /// The part in which they begin.
    first: Part,
    /// The parts behind it, if one mapping does not hold them all.
    rest: Vec<Part>,
    /// The device, if they are on one.
    pub(crate) on: Option<usize>,
    is_managed: bool,
}

impl Place {
    /// Bytes in the parts, in order.
    pub(crate) fn of_parts(first: Part, rest: Vec<Part>, on: Option<usize>, is_managed: bool) -> Self {
        Self { first, rest, on, is_managed }
    }

    /// A part of a backing.
    pub(crate) fn new(backing: Arc<Backing>, at: u64, on: usize) -> Self {
        let length = backing.size().saturating_sub(at);
        Self::of_parts(Part { backing: Some(backing), at, length }, Vec::new(), Some(on), false)
    }

    /// Plain memory of the host, at an address of the caller's.
    pub(crate) fn of_host(address: u64) -> Self {
        Self::of_parts(Part { backing: None, at: address, length: u64::MAX }, Vec::new(), None, false)
    }

    /// Tests if the host reaches it as any memory of its own.
    pub(crate) const fn is_the_hosts_too(&self) -> bool {
        self.on.is_none() || self.is_managed
    }

    /// The place this many bytes further on, in its first part.
    pub(crate) fn after(self, bytes: u64) -> Self {
        let first =
            Part { at: self.first.at + bytes, length: self.first.length.saturating_sub(bytes), ..self.first };
        Self { first, ..self }
    }

    /// Refuses address 0 as host memory.
    pub(crate) fn check(&self) -> Outcome {
        if self.first.backing.is_none() && self.first.at == 0 { Err(Status::InvalidValue) } else { Ok(()) }
    }

    /// The parts that `bytes` lie in which begin `into` it: holder, offset and length of each.
    fn parts(&self, into: u64, bytes: u64) -> Outcome<Vec<(&Part, u64, u64)>> {
        let (mut skip, mut left, mut found) = (into, bytes, Vec::new());
        for part in std::iter::once(&self.first).chain(&self.rest) {
            if skip >= part.length {
                skip -= part.length;
                continue;
            }
            let length = left.min(part.length - skip);
            found.push((part, part.at + skip, length));
            (skip, left) = (0, left - length);
            if left == 0 {
                return Ok(found);
            }
        }
        Err(Status::InvalidValue)
    }

    /// Host addresses and lengths of `bytes` that begin `into` it.
    pub(crate) fn pieces(&self, into: u64, bytes: u64) -> Outcome<Vec<(Host, u64)>> {
        let pieces = self.parts(into, bytes)?.into_iter().map(|(part, at, length)| match &part.backing {
            Some(backing) => Ok((backing.host(at, length)?, length)),
            None if at == 0 => Err(Status::InvalidValue),
            None => Ok((Host::at(at), length)),
        });
        pieces.collect()
    }

    /// The host address of `bytes` in one part that begin `into` it.
    pub(crate) fn bytes(&self, into: u64, bytes: u64) -> Outcome<Host> {
        match self.pieces(into, bytes)?[..] {
            [(at, _)] => Ok(at),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Tests if it is device memory that has not been written yet.
    pub(crate) fn is_untouched(&self) -> bool {
        let mut parts = std::iter::once(&self.first).chain(&self.rest);
        self.on.is_some()
            && parts.all(|part| part.backing.as_ref().is_some_and(|backing| backing.is_untouched()))
    }

    /// Fills `bytes` that begin `into` it. Parts begin at a multiple of any pattern's length.
    pub(crate) fn fill(&self, into: u64, bytes: u64, pattern: &[u8]) -> Outcome {
        self.parts(into, bytes)?.into_iter().try_for_each(|(part, at, length)| match &part.backing {
            Some(backing) => backing.fill(at, length, pattern),
            None => Err(Status::InvalidValue),
        })
    }
}

/// Copies a row of bytes from one place to another.
pub(crate) fn copy_row(from: (&Place, u64), to: (&Place, u64), bytes: u64) -> Outcome {
    let (from, to) = (from.0.pieces(from.1, bytes)?, to.0.pieces(to.1, bytes)?);
    let (mut reads, mut writes) = (from.into_iter(), to.into_iter());
    let (mut read, mut write) = (reads.next(), writes.next());
    while let (Some((source, readable)), Some((target, writable))) = (read, write) {
        let length = readable.min(writable);
        crate::wall::copy(source, target, length as usize);
        let after =
            |at: Host, left: u64| (left > length).then(|| (Host::at(at.address() + length), left - length));
        read = after(source, readable).or_else(|| reads.next());
        write = after(target, writable).or_else(|| writes.next());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Part, Place, copy_row};
    use crate::memory::backing::Backing;

    fn parts(lengths: &[u64]) -> Place {
        let part =
            |length: &u64| Part { backing: Some(Arc::new(Backing::sparse(*length))), at: 0, length: *length };
        Place::of_parts(part(&lengths[0]), lengths[1..].iter().map(part).collect(), Some(0), false)
    }

    #[test]
    fn bytes_cross_seams_on_either_side() {
        let (from, to) = (parts(&[16, 16, 16]), parts(&[24, 24]));
        (0..48).for_each(|at| from.fill(at, 1, &[at as u8 + 1]).unwrap());
        copy_row((&from, 3), (&to, 4), 40).unwrap();
        let read = |at| to.bytes(at, 1).unwrap().read::<u8>().unwrap();
        assert_eq!((read(3), read(4), read(24), read(43), read(44)), (0, 4, 24, 43, 0));
        assert!(to.pieces(9, 40).is_err(), "one byte too far");
        assert!(to.bytes(20, 8).is_err(), "no single address");
    }

    #[test]
    fn a_fill_goes_over_seams() {
        let place = parts(&[16, 16]);
        assert!(place.is_untouched());
        place.fill(8, 16, &[1, 2]).unwrap();
        let read = |at| place.bytes(at, 2).unwrap().read::<[u8; 2]>().unwrap();
        assert_eq!((read(6), read(14), read(16), read(24)), ([0, 0], [1, 2], [1, 2], [0, 0]));
    }
}
