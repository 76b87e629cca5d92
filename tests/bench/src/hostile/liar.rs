//! A process that attaches to a slice and then writes arbitrary words into its usage region.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::{BufRead, Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, mem, process, ptr, slice, thread};

use arena::{Chance, Lie, Lies, STRATEGIES, write};
use bench::Result;
use nix::time::{ClockId, clock_gettime};
use tranche_shm::compute::{FIRST_BYTE, RECORD_WORDS, REGION_WORDS};
use tranche_shm::control::Control;

use std::sync::atomic::AtomicU64;

/// Executes orders from standard input, `begin`, `lie KIND SEED` and `stop`, and answers each by a pid.
///
/// A strategy is written into the record of `slot`.
pub(crate) fn serve(slot: usize) -> Result<()> {
    let mut under_way: Option<(Arc<AtomicBool>, JoinHandle<()>)> = None;
    let mut pages = None;
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["begin"] => {
                attach()?;
                pages = Some(Pages::find()?);
            }
            ["lie", kind, seed] => {
                let pages = pages.ok_or("an order before `begin`")?;
                let manner = Manner::of(kind, seed.parse().map_err(|_| "no seed")?)?;
                let stop = Arc::new(AtomicBool::new(false));
                let stopped = Arc::clone(&stop);
                under_way = Some((stop, thread::spawn(move || manner.lie(pages, slot, &stopped))));
            }
            ["stop"] => {
                if let Some((stop, thread)) = under_way.take() {
                    stop.store(true, Release);
                    thread.join().map_err(|_| "the liar panicked")?;
                }
            }
            _ => return Err(format!("an unknown order: {line:?}")),
        }
        writeln!(stdout(), "{}", process::id()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Content of the writes.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// The steps of a strategy, into the record of the slot.
    Steps(Lies),
    /// Random words at random places of the whole region.
    Region(u64),
    /// Random bits, inverted one by one in the first four records.
    Flips(u64),
}

impl Manner {
    fn of(kind: &str, seed: u64) -> Result<Self> {
        Ok(match kind {
            "known" => {
                let (_, steps) = STRATEGIES.get(seed as usize).ok_or("there is no such strategy")?;
                Self::Steps(Lies::Steps(steps))
            }
            "drawn" => Self::Steps(Lies::Drawn(seed)),
            "words" => Self::Steps(Lies::Words(seed, 300_000)),
            "region" => Self::Region(seed),
            "flips" => Self::Flips(seed),
            _ => return Err(format!("an unknown kind of lie: {kind:?}")),
        })
    }

    fn lie(self, pages: Pages, slot: usize, stop: &AtomicBool) {
        let stopped = || stop.load(Acquire);
        match self {
            Self::Steps(lies) => pages.take_steps(&lies.steps(), slot, stopped),
            Self::Region(seed) => {
                let mut chance = Chance::new(seed);
                while !stopped() {
                    let at = chance.word() as usize % REGION_WORDS;
                    let word =
                        if chance.word().is_multiple_of(2) { chance.word() } else { chance.word() % 1000 };
                    pages.usage[at].store(word, Relaxed);
                    pause(100_000);
                }
            }
            Self::Flips(seed) => {
                let mut chance = Chance::new(seed);
                while !stopped() {
                    let record = pages.record(chance.word() as usize % 4);
                    record[chance.word() as usize % RECORD_WORDS]
                        .fetch_xor(1 << (chance.word() % 64), Relaxed);
                    pause(300_000);
                }
            }
        }
    }
}

/// The two regions that the shim shares with the daemon.
#[derive(Clone, Copy, Debug)]
struct Pages {
    usage: &'static [AtomicU64],
    control: &'static [AtomicU64],
}

impl Pages {
    fn find() -> Result<Self> {
        let usage = mapped("rw-s", "/usage")?;
        let control = mapped("r--s", "")?;
        match usage.len() >= REGION_WORDS && Control::known(control).is_some() {
            true => Ok(Self { usage, control }),
            false => Err(format!("regions of {} and {} words", usage.len(), control.len())),
        }
    }

    fn record(self, slot: usize) -> &'static [AtomicU64; RECORD_WORDS] {
        let words = &self.usage[FIRST_BYTE / 8 + slot * RECORD_WORDS..];
        words.first_chunk().expect("the region was found to be as long as all records")
    }

    fn take_steps(self, steps: &[Lie], slot: usize, stopped: impl Fn() -> bool) {
        let (record, wakeups) = (self.record(slot), wakeups());
        let is_open = || Control::known(self.control).is_some_and(|control| control.lease().open);
        let mut skips = false;
        for lie in steps.iter().cycle() {
            if mem::take(&mut skips) && !matches!(lie, Lie::Sleep(_)) {
                continue;
            }
            match *lie {
                Lie::Sleep(length) => {
                    pause(length);
                    if stopped() {
                        return;
                    }
                }
                Lie::Wakeup => wakeups.iter().for_each(|fd| ring(*fd)),
                Lie::If(open) => skips = is_open() != open,
                lie => write(record, lie, now()),
            }
        }
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    Duration::from(time).as_nanos() as u64
}

fn pause(length: u64) {
    thread::sleep(Duration::from_nanos(length.min(50_000_000)));
}

/// Words of the first mapping with these rights of a file whose name ends with `file`.
fn mapped(rights: &str, file: &str) -> Result<&'static [AtomicU64]> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(|error| error.to_string())?;
    let line = maps.lines().find(|line| {
        let line = line.trim_end_matches(" (deleted)");
        line.split(' ').nth(1) == Some(rights) && line.ends_with(file)
    });
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let (from, to) = range.ok_or_else(|| format!("nothing is mapped {rights} of {file:?}"))?;
    let number = |text| usize::from_str_radix(text, 16).map_err(|_| format!("no address: {text}"));
    let (from, to) = (number(from)?, number(to)?);
    // SAFETY: the kernel listed this range as a mapping with these rights; the library that mapped it keeps it until the
    // process ends. It begins at a page, so that it is aligned, and other processes and the library access it by atomic
    // words only. A mapping without the right to write is never written: only `Control` is made of it.
    Ok(unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(from), (to - from) / 8) })
}

/// Every eventfd of the process: one is the slice's wakeup.
fn wakeups() -> Vec<c_int> {
    let fds = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let is_event =
        |path: &std::path::Path| fs::read_link(path).is_ok_and(|to| to.ends_with("anon_inode:[eventfd]"));
    fds.filter(|fd| is_event(&fd.path())).filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect()
}

fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: the call reads eight bytes from a number of that size, which outlives it. A descriptor that was closed
    // meanwhile makes the call fail; this process opens nothing else under numbers that change.
    unsafe { libc::write(fd, (&raw const one).cast::<c_void>(), 8) };
}

/// Attaches to the slice as a program does, by the first calls of the driver that the loader finds.
fn attach() -> Result<()> {
    type Init = unsafe extern "C" fn(c_uint) -> c_int;
    type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
    type Current = unsafe extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: the name is a C string; the driver, or the library in its place, is loaded as any program loads it.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr().cast::<c_char>(), libc::RTLD_NOW) };
    if library.is_null() {
        return Err("there is no driver".into());
    }
    let symbol = |name: &CStr| {
        // SAFETY: the handle is of a library that stays loaded, and the name is a C string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found).ok_or_else(|| format!("the driver has no {name:?}"))
    };
    let mut context = ptr::null_mut();
    // SAFETY: these are functions of the driver's API, with the types that its documentation gives them; what is written
    // is a pointer, into a variable that lives as long as the calls.
    let errors = unsafe {
        let init = mem::transmute::<*mut c_void, Init>(symbol(c"cuInit")?);
        let retain = mem::transmute::<*mut c_void, Retain>(symbol(c"cuDevicePrimaryCtxRetain")?);
        let current = mem::transmute::<*mut c_void, Current>(symbol(c"cuCtxSetCurrent")?);
        [init(0), retain(&mut context, 0), current(context)]
    };
    if errors == [0; 3] { Ok(()) } else { Err(format!("the driver answers {errors:?}")) }
}
