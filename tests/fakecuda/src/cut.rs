//! The library as one driver version has it: exports that came later are taken out of the file.
//!
//! An ELF file's exports can't depend on the process that loads it, so each personality gets a copy of its own. A
//! symbol that is taken out loses its name, value and section: the loader, `nm` and other readers of symbol tables find
//! nothing of it.

use simgpu::Personality;
use thiserror::Error;

use crate::personality::{KEY, MAGIC};
use crate::symbols;

/// Reason why a library can't be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadLibrary {
    /// Not ELF, or not for 64 bits, little endian.
    #[error("it is not an ELF library of 64 bits, little endian")]
    Format,
    /// A table that the header names is not in the file.
    #[error("it is cut off, or a table of it lies outside")]
    Truncated,
    /// The file is not this library.
    #[error("it has no place for a driver's key, or several")]
    Mark,
    /// The key is too long.
    #[error("the driver's key has more than {KEY} bytes")]
    Key,
}

/// The section type of dynamic symbols.
const DYNAMIC_SYMBOLS: u32 = 11;
/// Bytes of a symbol and of a section header.
const SYMBOL: usize = 24;
const SECTION: usize = 64;

fn field<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N], BadLibrary> {
    let bytes = at.checked_add(N).and_then(|end| file.get(at..end)).ok_or(BadLibrary::Truncated)?;
    bytes.try_into().map_err(|_| BadLibrary::Truncated)
}

fn offset(file: &[u8], at: usize) -> Result<usize, BadLibrary> {
    usize::try_from(u64::from_le_bytes(field(file, at)?)).map_err(|_| BadLibrary::Truncated)
}

/// Section: offset, bytes, number of the section that it refers to.
fn section(file: &[u8], table: usize, index: usize) -> Result<(u32, usize, usize, usize), BadLibrary> {
    let at = index.checked_mul(SECTION).and_then(|from| table.checked_add(from));
    let at = at.filter(|at| *at < file.len()).ok_or(BadLibrary::Truncated)?;
    let kind = u32::from_le_bytes(field(file, at + 4)?);
    let link = u32::from_le_bytes(field(file, at + 40)?) as usize;
    Ok((kind, offset(file, at + 24)?, offset(file, at + 32)?, link))
}

/// Turns the library into that of one driver; returns the names that were taken out.
pub fn cut(file: &mut [u8], driver: &Personality) -> Result<Vec<String>, BadLibrary> {
    if field::<6>(file, 0)? != *b"\x7fELF\x02\x01" {
        return Err(BadLibrary::Format);
    }
    mark(file, &driver.key)?;
    let (table, count) = (offset(file, 40)?, u16::from_le_bytes(field(file, 60)?));
    let mut gone = Vec::new();
    for index in 0..usize::from(count) {
        let (kind, start, bytes, link) = section(file, table, index)?;
        if kind == DYNAMIC_SYMBOLS {
            let (_, names, _, _) = section(file, table, link)?;
            for symbol in (start..start.checked_add(bytes).ok_or(BadLibrary::Truncated)?).step_by(SYMBOL) {
                let name = u32::from_le_bytes(field(file, symbol)?) as usize;
                let name = text(file, names.checked_add(name).ok_or(BadLibrary::Truncated)?)?;
                if symbols::since(&name).is_some_and(|since| !driver.has(since)) {
                    // A weak symbol of no type, no name and no section: undefined, and needed by no relocation and
                    // no linker.
                    file[symbol..symbol + SYMBOL].fill(0);
                    file[symbol + 4] = 2 << 4;
                    gone.push(name);
                }
            }
        }
    }
    Ok(gone)
}

fn text(file: &[u8], at: usize) -> Result<String, BadLibrary> {
    let rest = file.get(at..).ok_or(BadLibrary::Truncated)?;
    let end = rest.iter().position(|byte| *byte == 0).ok_or(BadLibrary::Truncated)?;
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

/// Writes the key behind the one place that is made for it.
fn mark(file: &mut [u8], key: &str) -> Result<(), BadLibrary> {
    if key.len() > KEY {
        return Err(BadLibrary::Key);
    }
    let is_mark = |at: &usize| {
        file[*at..].starts_with(&MAGIC)
            && file.get(at + MAGIC.len()..at + MAGIC.len() + KEY) == Some(&[0; KEY])
    };
    let places: Vec<usize> = (0..file.len()).filter(|at| file[*at] == MAGIC[0]).filter(is_mark).collect();
    let [place] = places[..] else { return Err(BadLibrary::Mark) };
    file[place + MAGIC.len()..][..key.len()].copy_from_slice(key.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let driver = Personality::default();
        assert_eq!(cut(&mut [], &driver), Err(BadLibrary::Truncated));
        assert_eq!(cut(&mut [0; 64], &driver), Err(BadLibrary::Format));
        let mut header = [0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(cut(&mut header, &driver), Err(BadLibrary::Mark));
    }

    #[test]
    fn tables_outside_the_file_are_refused() {
        let driver = Personality::default();
        let mut file = [0; 128];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        file[60] = 1;
        file[100..116].copy_from_slice(&MAGIC);
        assert_eq!(cut(&mut file, &driver), Err(BadLibrary::Truncated));
    }
}
