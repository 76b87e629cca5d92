//! Symbol tables of loaded objects, read without the dynamic linker's functions, which the shim hooks.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;
const PT_DYNAMIC: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ElfSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// A loaded object: valid while it stays loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    base: usize,
    dynamic: *const c_void,
    symbols: *const ElfSymbol,
    strings: *const c_char,
    name: *const c_char,
    gnu_hash: *const u32,
    hash: *const u32,
}

impl Object {
    /// The object with this load address and dynamic section.
    ///
    /// # Safety
    /// `dynamic` must be null or the dynamic section of an object that is loaded at `base` and stays so while
    /// the result is used.
    pub(crate) unsafe fn at(base: usize, dynamic: *const c_void) -> Option<Self> {
        if dynamic.is_null() {
            return None;
        }
        let mut object = Self {
            base,
            dynamic,
            symbols: ptr::null(),
            strings: ptr::null(),
            name: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
        };
        let mut soname = None;
        let mut entry = dynamic.cast::<Dynamic>();
        // SAFETY: a dynamic section is an array of entries that ends with DT_NULL.
        unsafe {
            while (*entry).tag != DT_NULL {
                let Dynamic { tag, value } = *entry;
                match tag {
                    DT_SYMTAB => object.symbols = relocated(base, value) as *const ElfSymbol,
                    DT_STRTAB => object.strings = relocated(base, value) as *const c_char,
                    DT_GNU_HASH => object.gnu_hash = relocated(base, value) as *const u32,
                    DT_HASH => object.hash = relocated(base, value) as *const u32,
                    DT_SONAME => soname = Some(value as usize),
                    _ => {}
                }
                entry = entry.add(1);
            }
            if object.symbols.is_null() || object.strings.is_null() {
                return None;
            }
            if let Some(offset) = soname {
                object.name = object.strings.add(offset);
            }
        }
        Some(object)
    }

    /// Load address of the object.
    pub(crate) const fn base(&self) -> usize {
        self.base
    }

    /// Address of its dynamic section.
    pub(crate) const fn dynamic(&self) -> *mut c_void {
        self.dynamic.cast_mut()
    }

    /// Name in the object's DT_SONAME.
    pub(crate) fn soname(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: it lies in the string table of an object that `at`'s caller keeps loaded; strings there end
        // with zeroes.
        unsafe { CStr::from_ptr(self.name) }
    }

    /// The address of a function that the object defines.
    pub(crate) fn function(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the tables belong to an object that `at`'s caller keeps loaded, and the dynamic linker has
        // used the same ones.
        let symbol = unsafe {
            match (self.gnu_hash.is_null(), self.hash.is_null()) {
                (false, _) => self.gnu_lookup(name),
                (true, false) => self.sysv_lookup(name),
                (true, true) => None,
            }
        }?;
        Some((self.base + symbol.value as usize) as *mut c_void)
    }

    /// # Safety
    /// `gnu_hash` must be the GNU hash table of a loaded object.
    unsafe fn gnu_lookup(&self, name: &CStr) -> Option<ElfSymbol> {
        let wanted = gnu_hash(name.to_bytes());
        // SAFETY: the layout is: four counts, the Bloom filter in 64-bit words, the buckets, then for each
        // symbol from `first` on its hash, whose lowest bit ends the chain.
        unsafe {
            let table = self.gnu_hash;
            let (buckets, first, bloom) = (*table, *table.add(1), *table.add(2));
            if buckets == 0 {
                return None;
            }
            let bucket_at = table.add(4 + 2 * bloom as usize);
            let chain_at = bucket_at.add(buckets as usize);
            let mut index = *bucket_at.add((wanted % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let hash = *chain_at.add((index - first) as usize);
                if hash | 1 == wanted | 1
                    && let Some(symbol) = self.matching(index, name)
                {
                    return Some(symbol);
                }
                if hash & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// `hash` must be the SysV hash table of a loaded object.
    unsafe fn sysv_lookup(&self, name: &CStr) -> Option<ElfSymbol> {
        // SAFETY: the layout is: counts of buckets and symbols, the buckets, then one chain link per symbol;
        // link 0 ends a chain.
        unsafe {
            let table = self.hash;
            let (buckets, symbols) = (*table, *table.add(1));
            if buckets == 0 {
                return None;
            }
            let mut index = *table.add(2 + (sysv_hash(name.to_bytes()) % buckets) as usize);
            while index != 0 && index < symbols {
                if let Some(symbol) = self.matching(index, name) {
                    return Some(symbol);
                }
                index = *table.add(2 + (buckets + index) as usize);
            }
        }
        None
    }

    /// # Safety
    /// `index` must be one of the object's symbols.
    unsafe fn matching(&self, index: u32, name: &CStr) -> Option<ElfSymbol> {
        // SAFETY: the caller's index is in the symbol table, whose names lie in the string table.
        unsafe {
            let symbol = *self.symbols.add(index as usize);
            let defined = symbol.section != 0 && symbol.info & 0xf == STT_FUNC;
            (defined && CStr::from_ptr(self.strings.add(symbol.name as usize)) == name).then_some(symbol)
        }
    }
}

/// Linkers that relocate the dynamic section leave addresses there, others offsets.
const fn relocated(base: usize, value: u64) -> usize {
    let value = value as usize;
    if value < base { base + value } else { value }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

fn sysv_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    })
}

/// The first result of `found` for a loaded object.
///
/// The object must not be used afterwards unless something else keeps it loaded.
pub(crate) fn search<T, F: FnMut(Object) -> Option<T>>(found: F) -> Option<T> {
    let mut search = SymbolSearch { found, result: None };
    // SAFETY: the callback receives the search back, which lives until dl_iterate_phdr returns.
    unsafe { libc::dl_iterate_phdr(Some(visit::<T, F>), (&raw mut search).cast()) };
    search.result
}

/// A function of libc, or of the library where it lived before glibc 2.34.
pub(crate) fn in_libc(name: &CStr) -> Option<*mut c_void> {
    let homes = [c"libc.so.6", c"libdl.so.2"];
    homes
        .into_iter()
        .find_map(|home| search(|object| (object.soname() == home).then(|| object.function(name)).flatten()))
}

struct SymbolSearch<T, F> {
    found: F,
    result: Option<T>,
}

unsafe extern "C" fn visit<T, F: FnMut(Object) -> Option<T>>(
    info: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `search` is what `search` above passed; `info` describes an object that stays loaded while the
    // callback runs, with `dlpi_phnum` program headers.
    unsafe {
        let search = &mut *search.cast::<SymbolSearch<T, F>>();
        let info = &*info;
        let headers = core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let Some(dynamic) = headers.iter().find(|header| header.p_type == PT_DYNAMIC) else { return 0 };
        let base = info.dlpi_addr as usize;
        let dynamic = (base + dynamic.p_vaddr as usize) as *const c_void;
        search.result = Object::at(base, dynamic).and_then(&mut search.found);
        c_int::from(search.result.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_libc_are_found_where_the_linker_finds_them() {
        for name in [c"qsort", c"atoi", c"strtol"] {
            let found = in_libc(name);
            // SAFETY: `name` is a CStr, thus terminated, as dlsym requires.
            let linked = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(found, Some(linked), "{name:?}");
        }
    }

    #[test]
    fn undefined_names_are_not_found() {
        assert_eq!(search(|object| object.function(c"no_such_function_anywhere")), None);
    }

    #[test]
    fn both_hash_functions_agree_with_the_published_examples() {
        assert_eq!((gnu_hash(b"printf"), gnu_hash(b"")), (0x156b_2bb8, 5381));
        assert_eq!((sysv_hash(b"printf"), sysv_hash(b"")), (0x0779_05a6, 0));
    }
}
