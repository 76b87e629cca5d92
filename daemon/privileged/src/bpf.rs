//! Commands of `bpf(2)` for the device rule, and the instructions of its program.
//!
//! Written by hand: libraries for this load object files of a BPF compiler, and the program has 27
//! instructions.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Size of the name of a program in bytes, including the final NUL.
const NAME: usize = 16;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_DETACH: libc::c_int = 9;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const MAP_GET_FD_BY_ID: libc::c_int = 14;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;

const HASH: u32 = 1;
const NO_PREALLOC: u32 = 1;
const CGROUP_DEVICE_PROGRAM: u32 = 15;
const CGROUP_DEVICE: u32 = 6;
/// Allows programs of other owners on the same cgroup; a device is accessible if all of them allow it.
const ALLOW_MULTI: u32 = 2;
/// Kernel's maximum number of programs on one cgroup.
const MOST_PROGRAMS: usize = 64;
/// Maximum number of maps of the program.
const MOST_TABLES: usize = 4;

/// A BPF hash map, with keys and values in native byte order.
#[derive(Debug)]
pub(crate) struct Map(OwnedFd);

impl Map {
    pub(crate) fn create(key: usize, value: usize, most: u32) -> io::Result<Self> {
        #[repr(C)]
        struct Create {
            kind: u32,
            key: u32,
            value: u32,
            most: u32,
            flags: u32,
        }
        let size = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
        let mut create =
            Create { kind: HASH, key: size(key)?, value: size(value)?, most, flags: NO_PREALLOC };
        // SAFETY: BPF_MAP_CREATE reads plain values only; `create` contains no pointer.
        unsafe { descriptor(MAP_CREATE, &mut create) }.map(Self)
    }

    /// Descriptor number, as instructions contain it.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sets the value of a key. Both have to have the lengths given at the map's creation.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let mut element = Element::of(self, key.as_ptr().addr(), value.as_ptr().addr());
        // SAFETY: the kernel reads the key and value sizes given at the map's creation, which are the lengths
        // of these slices; both outlive the call.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map(drop)
    }

    /// Removes a key, if it exists.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut element = Element::of(self, key.as_ptr().addr(), 0);
        // SAFETY: the kernel reads the key size given at the map's creation, which is the length of the
        // slice; it outlives the call.
        match unsafe { bpf(MAP_DELETE, &mut element) } {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map(drop),
        }
    }
}

#[repr(C)]
struct Element {
    map: u32,
    _unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Element {
    fn of(map: &Map, key: usize, value: usize) -> Self {
        Self { map: number(&map.0), _unused: 0, key: key as u64, value: value as u64, flags: 0 }
    }
}

/// An instruction: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination register in the low half, source register in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, immediate }
}

/// The program, which denies opening character devices of `majors` for reading or writing.
/// Processes whose cgroup is a key of `cgroups` are exempt.
pub(crate) fn device_program(majors: RawFd, cgroups: RawFd) -> Vec<Instruction> {
    const LOAD_32: u8 = 0x61;
    const STORE_32: u8 = 0x63;
    const STORE_64: u8 = 0x7b;
    const MOVE: u8 = 0xb7;
    const MOVE_FROM: u8 = 0xbf;
    const ADD: u8 = 0x07;
    const AND: u8 = 0x57;
    const SHIFT_RIGHT: u8 = 0x77;
    const IF_ZERO: u8 = 0x15;
    const IF_NOT: u8 = 0x55;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const LOOK_UP: i32 = 1;
    const CURRENT_CGROUP: i32 = 80;
    const CHARACTER_DEVICE: i32 = 2;
    const READ_OR_WRITE: i32 = 2 | 4;
    /// Placeholder for the distance of a jump to the end that allows.
    const TO_ALLOW: i16 = i16::MAX;
    // Register 0 is the result, 1 to 5 are arguments, 10 is the frame pointer, and the stack grows downwards.
    let map = |fd| [instruction(0x18, 1, 1, 0, fd), instruction(0, 0, 0, 0, 0)];
    let look_up = |fd, at| {
        let key = [instruction(MOVE_FROM, 2, 10, 0, 0), instruction(ADD, 2, 0, 0, at)];
        map(fd).into_iter().chain(key).chain([instruction(CALL, 0, 0, 0, LOOK_UP)])
    };
    let mut program = vec![
        // `bpf_cgroup_dev_ctx`: access (high half) and type of device (low half), major, minor.
        instruction(LOAD_32, 2, 1, 0, 0),
        instruction(LOAD_32, 3, 1, 4, 0),
        instruction(STORE_32, 10, 3, -4, 0),
        instruction(MOVE_FROM, 4, 2, 0, 0),
        instruction(AND, 4, 0, 0, 0xffff),
        instruction(IF_NOT, 4, 0, TO_ALLOW, CHARACTER_DEVICE),
        // mknod is not restricted: udev does it, outside any slice.
        instruction(SHIFT_RIGHT, 2, 0, 0, 16),
        instruction(AND, 2, 0, 0, READ_OR_WRITE),
        instruction(IF_ZERO, 2, 0, TO_ALLOW, 0),
    ];
    program.extend(look_up(majors, -4));
    program.push(instruction(IF_ZERO, 0, 0, TO_ALLOW, 0));
    program.push(instruction(CALL, 0, 0, 0, CURRENT_CGROUP));
    program.push(instruction(STORE_64, 10, 0, -16, 0));
    program.extend(look_up(cgroups, -16));
    program.push(instruction(IF_NOT, 0, 0, TO_ALLOW, 0));
    program.extend([instruction(MOVE, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)]);
    let allow = program.len();
    program.extend([instruction(MOVE, 0, 0, 0, 1), instruction(EXIT, 0, 0, 0, 0)]);
    for (at, jump) in program.iter_mut().enumerate().filter(|(_, jump)| jump.offset == TO_ALLOW) {
        jump.offset = i16::try_from(allow - at - 1).unwrap_or(TO_ALLOW);
    }
    program
}

/// Loads a program into the kernel, which verifies it and holds references to its maps.
pub(crate) fn load(program: &[Instruction], name: &str) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u32; 4],
        kernel: u32,
        flags: u32,
        name: [u8; NAME],
    }
    let mut load = Load {
        kind: CGROUP_DEVICE_PROGRAM,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        log: [0; 4],
        kernel: 0,
        flags: 0,
        name: [0; NAME],
    };
    load.name.iter_mut().zip(padded(name)).for_each(|(place, byte)| *place = byte);
    // SAFETY: `program` is borrowed for the call and has `count` instructions of eight bytes; the license is
    // a static C string; all other fields are plain values.
    unsafe { descriptor(PROG_LOAD, &mut load) }
}

#[repr(C)]
struct Attachment {
    cgroup: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Attaches a program to a cgroup; the attachment outlives this process.
pub(crate) fn attach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (cgroup, program) = (number(&cgroup), number(&program));
    let mut attachment = Attachment { cgroup, program, kind: CGROUP_DEVICE, flags: ALLOW_MULTI };
    // SAFETY: BPF_PROG_ATTACH reads plain values only; `attachment` contains no pointer.
    unsafe { bpf(PROG_ATTACH, &mut attachment) }.map(drop)
}

/// Detaches a program from a cgroup.
pub(crate) fn detach(cgroup: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (cgroup, program) = (number(&cgroup), number(&program));
    let mut attachment = Attachment { cgroup, program, kind: CGROUP_DEVICE, flags: 0 };
    // SAFETY: BPF_PROG_DETACH reads plain values only; `attachment` contains no pointer.
    unsafe { bpf(PROG_DETACH, &mut attachment) }.map(drop)
}

/// The device programs with this name on a cgroup, with their ids.
pub(crate) fn attached(cgroup: BorrowedFd<'_>, name: &str) -> io::Result<Vec<(u32, OwnedFd)>> {
    #[repr(C)]
    struct Query {
        cgroup: u32,
        kind: u32,
        flags: [u32; 2],
        ids: u64,
        count: u32,
        _unused: u32,
    }
    let mut ids = [0u32; MOST_PROGRAMS];
    let mut query = Query {
        cgroup: number(&cgroup),
        kind: CGROUP_DEVICE,
        flags: [0; 2],
        ids: ids.as_mut_ptr().expose_provenance() as u64,
        count: MOST_PROGRAMS as u32,
        _unused: 0,
    };
    // SAFETY: the kernel writes at most `count` ids of four bytes; `ids` has room for them, outlives the call
    // and is not accessed meanwhile.
    unsafe { bpf(PROG_QUERY, &mut query) }?;
    let there = usize::try_from(query.count).unwrap_or_default();
    let mut named = Vec::new();
    for id in ids.into_iter().take(there) {
        let mut wanted = [id, 0, 0];
        // SAFETY: BPF_PROG_GET_FD_BY_ID reads an id, a next id and flags; no pointer.
        let program = unsafe { descriptor(PROG_GET_FD_BY_ID, &mut wanted) }?;
        if info(&program)?.name.into_iter().eq(padded(name)) {
            named.push((id, program));
        }
    }
    Ok(named)
}

/// Kernel's id of a program.
pub(crate) fn id_of(program: &OwnedFd) -> io::Result<u32> {
    Ok(info(program)?.id)
}

fn padded(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().take(NAME - 1).chain(std::iter::repeat(0)).take(NAME)
}

/// Beginning of `struct bpf_prog_info`, up to the name.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lengths: [u32; 2],
    code: [u64; 2],
    loaded: u64,
    user: u32,
    map_count: u32,
    maps: u64,
    name: [u8; NAME],
}

fn info(program: &OwnedFd) -> io::Result<Info> {
    let mut info = Info::default();
    // SAFETY: all lengths and pointers in `info` are zero, so the kernel writes to `info` only.
    unsafe { inform(program, &mut info) }?;
    Ok(info)
}

/// The map of a program with this key size; a program of this module has one map for each key size.
pub(crate) fn table_of(program: &OwnedFd, key: usize) -> io::Result<Map> {
    /// Beginning of `struct bpf_map_info`.
    #[repr(C)]
    struct Table {
        kind: u32,
        id: u32,
        key: u32,
        value: u32,
    }
    let mut ids = [0u32; MOST_TABLES];
    let maps = ids.as_mut_ptr().expose_provenance() as u64;
    let mut info = Info { map_count: MOST_TABLES as u32, maps, ..Info::default() };
    // SAFETY: the kernel writes at most `map_count` ids of four bytes; `ids` has room for them, outlives the
    // call and is not accessed meanwhile. All other lengths and pointers are zero.
    unsafe { inform(program, &mut info) }?;
    for id in ids.into_iter().take(usize::try_from(info.map_count).unwrap_or_default()) {
        let mut wanted = [id, 0, 0];
        // SAFETY: BPF_MAP_GET_FD_BY_ID reads an id, a next id and flags; no pointer.
        let map = unsafe { descriptor(MAP_GET_FD_BY_ID, &mut wanted) }?;
        let mut table = Table { kind: 0, id: 0, key: 0, value: 0 };
        // SAFETY: `table` contains no pointer, so the kernel writes to `table` only.
        unsafe { inform(&map, &mut table) }?;
        if usize::try_from(table.key) == Ok(key) {
            return Ok(Map(map));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Reads the kernel's information about a program or map, as much of it as fits `info`.
///
/// # Safety
/// Every pointer in `info` is valid for the number of elements beside it.
unsafe fn inform<T>(of: &OwnedFd, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Ask {
        of: u32,
        length: u32,
        info: u64,
    }
    let length = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let place = std::ptr::from_mut(info).expose_provenance() as u64;
    let mut ask = Ask { of: number(of), length, info: place };
    // SAFETY: the kernel writes at most `length` bytes, the size of `info`, which outlives the call and is
    // not accessed meanwhile. The caller guarantees the pointers in it.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut ask) }.map(drop)
}

fn number(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// # Safety
/// Every pointer in `attributes` is valid for what the command reads or writes there.
unsafe fn descriptor<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the pointers in `attributes`.
    let fd = unsafe { bpf(command, attributes) }?;
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor with close-on-exec, and nothing else in the process
    // has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// As [`descriptor`].
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the size passed is that of `attributes`; the caller guarantees the pointers in it.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interpreter of the instructions used: registers, stack and two maps.
    fn run(program: &[Instruction], context: [u32; 3], majors: &[u32], cgroups: &[u64], current: u64) -> u64 {
        let (mut registers, mut frame, mut at) = ([0u64; 11], [0u8; 16], 0usize);
        let place = |offset: i64| usize::try_from(16 + offset).expect("within the frame");
        (registers[1], registers[10]) = (u64::MAX, 0);
        loop {
            let Instruction { code, registers: both, offset, immediate } = program[at];
            let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
            let value = i64::from(immediate).cast_unsigned();
            at += 1;
            let jumps = match code {
                0x61 => {
                    registers[to] = context[usize::try_from(offset).expect("of the context") / 4].into();
                    false
                }
                0x63 | 0x7b => {
                    let length = if code == 0x63 { 4 } else { 8 };
                    let start = place(offset.into());
                    frame[start..start + length].copy_from_slice(&registers[from].to_ne_bytes()[..length]);
                    false
                }
                0x18 => {
                    registers[to] = value;
                    at += 1;
                    false
                }
                0xb7 => {
                    registers[to] = value;
                    false
                }
                0xbf => {
                    registers[to] = registers[from];
                    false
                }
                0x07 => {
                    registers[to] = registers[to].wrapping_add(value);
                    false
                }
                0x57 => {
                    registers[to] &= value;
                    false
                }
                0x77 => {
                    registers[to] >>= value;
                    false
                }
                0x15 => registers[to] == value,
                0x55 => registers[to] != value,
                0x85 if immediate == 80 => {
                    registers[0] = current;
                    false
                }
                0x85 => {
                    let start = place(registers[2].cast_signed());
                    let found = match registers[1] {
                        1 => majors
                            .contains(&u32::from_ne_bytes(frame[start..start + 4].try_into().expect("4"))),
                        _ => cgroups
                            .contains(&u64::from_ne_bytes(frame[start..start + 8].try_into().expect("8"))),
                    };
                    registers[0] = found.into();
                    false
                }
                0x95 => return registers[0],
                other => panic!("instruction {other:#x}"),
            };
            if jumps {
                at += usize::try_from(offset).expect("only forwards");
            }
        }
    }

    const CHARACTER: u32 = 2;
    const BLOCK: u32 = 1;
    const MAKE: u32 = 1 << 16;
    const READ: u32 = 2 << 16;
    const WRITE: u32 = 4 << 16;

    #[test]
    fn program_denies_gpus_to_cgroups_not_listed() {
        let program = device_program(1, 2);
        let allows = |context, current| run(&program, context, &[195, 510], &[7], current) == 1;
        for access in [READ, WRITE, READ | WRITE, MAKE | READ] {
            for major in [195, 510] {
                assert!(!allows([CHARACTER | access, major, 0], 8), "{access:#x} of {major}");
                assert!(!allows([CHARACTER | access, major, 255], 1), "the root, {access:#x} of {major}");
                assert!(allows([CHARACTER | access, major, 0], 7), "{access:#x} of {major}");
            }
            assert!(allows([CHARACTER | access, 1, 3], 8), "another device");
            assert!(allows([BLOCK | access, 195, 0], 8), "a disk of that number");
        }
        assert!(allows([CHARACTER | MAKE, 195, 0], 8), "making a node opens nothing");
    }

    #[test]
    fn every_jump_of_the_program_ends_within_it() {
        let program = device_program(1, 2);
        assert_eq!(program.len(), 27);
        for (at, jump) in program.iter().enumerate().filter(|(_, jump)| [0x15, 0x55].contains(&jump.code)) {
            let to = at + 1 + usize::try_from(jump.offset).expect("only forwards");
            assert_eq!(program.get(to), Some(&instruction(0xb7, 0, 0, 0, 1)), "from {at}");
        }
    }
}
