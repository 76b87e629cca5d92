//! Surroundings of the protocol: a driver that records holders, a daemon behind a socket, a reaper.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use loom::sync::Mutex;
use tranche_domain::ledger::GrantLedger;
use tranche_domain::sharing::Sharing;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;

use crate::account::LedgerAccount;
use crate::charge::{CreditResult, DaemonLink, Reservation, ShareReply, ShareReport, Tenant};
use crate::control::{self, Control, ControlWriter, DeviceLimits, ProcessIdentity};
use crate::credit::{Credit, CreditWord, Units};
use crate::piece::Piece;
use crate::shares::Change;
use crate::usage::{self, Usage};
use crate::word::{Actor, AtomicU64, live, step};
use crate::{DeviceSlot, Slot};

/// Numbers of the two processes.
pub const PROCESSES: [usize; 2] = [0, 1];

/// A slice on one GPU, with the driver and the daemon around it.
pub struct World {
    control: Vec<AtomicU64>,
    usage: Vec<AtomicU64>,
    books: Mutex<Books>,
    /// Units that the driver has given to each process alone: the truth to which the words refer.
    pub(crate) held: [AtomicU32; 2],
    /// Memory that the driver has given to both, counted once.
    pub(crate) piece: Piece,
    pub(crate) tables: [Vec<std::sync::atomic::AtomicU64>; 2],
    pub(crate) variant: Variant,
}

/// State of the daemon. One that died leaves only the words, its notes, and what is on disk.
pub(crate) struct Books {
    cap: Bytes,
    pub(crate) ledger: Option<GrantLedger>,
    pub(crate) sharing: Sharing,
    pub(crate) notes: Vec<Change>,
    pub(crate) seated: [bool; 2],
}

/// The protocol as it is, or with a mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The protocol without a mistake.
    Right,
    /// Credit is recalled by storing what was computed from an earlier read.
    RecallsWithoutComparing,
    /// A process releases its charge before the driver has freed the memory.
    ReleasesBeforeFreeing,
    /// The daemon frees a dead process's grant while the driver still holds its memory.
    ReapsBeforeTheDriver,
    /// A shrink sets the new cap and recalls nothing.
    ShrinksWithoutTrimming,
    /// A daemon's successor assumes that nothing is granted.
    ForgetsGrants,
    /// An exporter's charge is released before the slice is charged.
    HandsOverInTwoSteps,
    /// An export is recorded after it has taken effect.
    NotesExportsLast,
    /// A daemon's successor assumes that all recorded changes were carried out.
    BelievesEveryNote,
    /// The end of a share is recorded before it is published to all processes.
    SaysReleasesLast,
    /// A daemon's successor assumes that nothing is shared.
    ForgetsShares,
    /// The first holder that closes a share ends the charge for all.
    DropsForAll,
    /// Shares of a dead process end with it, whichever process holds them.
    BuriesShares,
}

impl World {
    /// Both processes attached, nothing granted.
    pub fn new(cap: u32, variant: Variant) -> Self {
        // Modelled in the usage region: the credit words, and their sum as it is remembered.
        let mut racing = PROCESSES.map(|process| usage::record(slot(process))).to_vec();
        racing.push(usage::total(device()));
        let word = |races: bool| if races { AtomicU64::modelled() } else { AtomicU64::plain() };
        // Modelled in the control region: the device's cap, the word that it is exceeded, and the common charge.
        let control: Vec<_> = (0..control::WORDS).map(|at| word([18, 20, 23].contains(&at))).collect();
        let usage: Vec<_> = (0..usage::WORDS).map(|at| word(racing.contains(&at))).collect();
        let writer = ControlWriter::init(&control, 1, 1).expect("as long as the region");
        let cap_bytes = Units::new(cap).bytes();
        writer.set_limits(device(), DeviceLimits { cap_bytes, ..DeviceLimits::default() });
        for process in PROCESSES {
            writer.occupy(
                slot(process),
                ProcessIdentity { pid: process as u32 + 1, ..ProcessIdentity::default() },
            );
        }
        Usage::init(&usage, 1).expect("as long as the region");
        let cap = Bytes::new(cap_bytes);
        let books = Books {
            cap,
            ledger: Some(GrantLedger::new(cap)),
            sharing: Sharing::default(),
            notes: Vec::new(),
            seated: [true; 2],
        };
        Self {
            control,
            usage,
            books: Mutex::new(books),
            held: [AtomicU32::new(0), AtomicU32::new(0)],
            piece: Piece::default(),
            tables: PROCESSES.map(|_| Vec::new()),
            variant,
        }
    }

    /// A process's view of its slice.
    pub(crate) fn tenant(&self, process: usize) -> Tenant<'_> {
        Tenant { control: self.reader(), usage: self.words(), slot: slot(process) }
    }

    pub(crate) fn reader(&self) -> Control<'_> {
        Control::attach(&self.control).expect("made whole")
    }

    pub(crate) fn words(&self) -> Usage<'_> {
        Usage::attach(&self.usage).expect("made whole")
    }

    /// Content of a process's credit word.
    pub fn credit(&self, process: usize) -> Credit {
        self.words().credit(slot(process), device()).load()
    }

    /// Units that the driver has given to all processes.
    pub fn held(&self) -> u32 {
        self.held.iter().map(|held| held.load(Relaxed)).sum::<u32>() + self.piece.held()
    }

    // A process

    /// Charges, then takes memory from the driver; `false` if the slice has no room.
    pub fn allocate(&self, process: usize, units: u32) -> bool {
        let tenant = self.tenant(process);
        let socket = Socket { world: self, process };
        match tenant.charge(device(), Units::new(units), &socket) {
            Ok(reserved) => {
                step();
                self.held[process].fetch_add(units, Relaxed);
                Reservation::keep(reserved, Units::new(units));
                true
            }
            Err(_) => false,
        }
    }

    /// Frees memory with the driver, then releases the charge.
    pub fn free(&self, process: usize, units: u32) {
        let release = || self.tenant(process).release(device(), Units::new(units));
        let free = || {
            step();
            self.held[process].fetch_sub(units, Relaxed);
        };
        if self.variant == Variant::ReleasesBeforeFreeing {
            release();
            loom::thread::yield_now();
            free();
        } else {
            free();
            release();
        }
    }

    // The daemon

    /// Takes a step of the daemon, after a successor's recovery if it has died; `None` if it dies of it.
    pub(crate) fn serve<T>(&self, serve: impl FnOnce(&mut Books) -> T) -> Option<T> {
        let mut books = self.books.lock().expect("loom poisons nothing");
        let served = live(Actor::Daemon, || {
            if books.ledger.is_none() {
                self.recover(&mut books);
            }
            let served = serve(&mut books);
            self.publish(books.ledger.as_slice());
            served
        });
        if served.is_none() {
            books.ledger = None;
        }
        served
    }

    fn account<'a>(
        &'a self,
        ledger: &'a mut GrantLedger,
    ) -> LedgerAccount<'a, impl Fn(Seat) -> CreditWord<'a>> {
        LedgerAccount { ledger, words: move |seat: Seat| self.words().credit(slot(seat.0.into()), device()) }
    }

    /// Recovers as a successor does that finds the slice, before any answer.
    fn recover(&self, books: &mut Books) {
        let mut ledger = GrantLedger::new(books.cap);
        if self.variant != Variant::ForgetsShares {
            ledger.restore_shared(Bytes::new(self.reader().common(device()).bytes()));
        }
        for process in PROCESSES.into_iter().filter(|process| books.seated[*process]) {
            if self.variant != Variant::ForgetsGrants {
                self.account(&mut ledger).take_over(seat(process), None);
            }
        }
        self.recover_shares(&mut ledger, books);
        self.settle(&mut ledger, books.seated);
        books.ledger = Some(ledger);
    }

    /// Publishes the common charge to all processes.
    pub(crate) fn publish(&self, ledgers: &[GrantLedger]) {
        let common: Bytes = ledgers.iter().map(GrantLedger::common).sum();
        let common = Units::within(common.get());
        if self.reader().common(device()) != common {
            let writer = ControlWriter::attach(&self.control).expect("made whole");
            writer.set_common(device(), common);
        }
    }

    pub(crate) fn members(books: &Books) -> Vec<Seat> {
        PROCESSES.into_iter().filter(|process| books.seated[*process]).map(seat).collect()
    }

    /// Settles as the daemon does: observes releases, recalls what is over the cap, publishes the excess.
    fn settle(&self, ledger: &mut GrantLedger, seated: [bool; 2]) {
        self.observe(ledger, seated);
        let mut account = self.account(ledger);
        let over = if self.variant == Variant::ShrinksWithoutTrimming { Bytes::ZERO } else { account.trim() };
        let over = over > Bytes::ZERO;
        if self.reader().over_cap(device()) != over {
            let writer = ControlWriter::attach(&self.control).expect("made whole");
            writer.set_over_cap(device(), over);
        }
    }

    pub(crate) fn observe(&self, ledger: &mut GrantLedger, seated: [bool; 2]) {
        for process in PROCESSES.into_iter().filter(|process| seated[*process]) {
            self.account(ledger).observe(seat(process));
        }
    }

    /// Sets another cap. Repeated by a successor, as the cap is on disk first.
    pub fn resize(&self, cap: u32) {
        let bytes = Units::new(cap).bytes();
        let resize = |books: &mut Books| {
            books.cap = Bytes::new(bytes);
            let writer = ControlWriter::attach(&self.control).expect("made whole");
            writer.set_limits(device(), DeviceLimits { cap_bytes: bytes, ..DeviceLimits::default() });
            let mut ledger = books.ledger.take().expect("serve restores it");
            ledger.set_cap(books.cap);
            self.settle(&mut ledger, books.seated);
            books.ledger = Some(ledger);
        };
        while self.serve(resize).is_none() {}
    }

    /// Reaps an ended process: the driver frees its memory, then the daemon its grant.
    pub fn reap(&self, process: usize) {
        let let_go = || {
            self.held[process].store(0, Relaxed);
            self.piece.leave(process);
        };
        let vacate = |books: &mut Books| {
            let mut ledger = books.ledger.take().expect("serve restores it");
            self.words().clear(slot(process));
            books.seated[process] = false;
            self.leave_shares(&mut ledger, books, process);
            ledger.release(seat(process));
            self.settle(&mut ledger, books.seated);
            books.ledger = Some(ledger);
        };
        if self.variant == Variant::ReapsBeforeTheDriver {
            while self.serve(vacate).is_none() {}
            loom::thread::yield_now();
            let_go();
        } else {
            let_go();
            while self.serve(vacate).is_none() {}
        }
    }

    // What must hold

    /// Checks what holds at every instant, within any call: all memory held is within the cap.
    pub fn check(&self, cap: u32) {
        assert!(self.held() <= cap, "the processes hold {} of {cap} units", self.held());
    }

    /// Checks what holds while no call is in progress.
    ///
    /// Ledger and words are equal, nothing is granted twice, and no free credit is lost.
    pub fn check_at_rest(&self) {
        let settled = self.serve(|books| {
            let mut ledger = books.ledger.take().expect("serve restores it");
            self.settle(&mut ledger, books.seated);
            for process in PROCESSES {
                let word = self.credit(process);
                let granted = Bytes::new(word.granted.bytes());
                assert_eq!(ledger.granted(seat(process)), granted, "the word is a copy of the ledger");
                assert!(word.used <= word.granted, "{word:?}");
                assert!(
                    self.held[process].load(Relaxed) <= word.used.get(),
                    "held and not charged: {word:?}"
                );
            }
            let charged = self.words().used(self.reader(), device());
            assert!(self.held() <= charged.get(), "{} are held, {charged:?} charged", self.held());
            assert!(ledger.total() <= ledger.cap(), "granted beyond the cap");
            books.ledger = Some(ledger);
        });
        assert!(settled.is_some(), "the daemon lives by now");
    }
}

/// Connection of a process to the daemon.
pub(crate) struct Socket<'a> {
    pub(crate) world: &'a World,
    pub(crate) process: usize,
}

impl DaemonLink for Socket<'_> {
    fn ask(&self, _: DeviceSlot, want: Units, _: u64) -> CreditResult {
        let world = self.world;
        let answered = world.serve(|books| {
            let mut ledger = books.ledger.take().expect("serve restores it");
            world.observe(&mut ledger, books.seated);
            if world.variant == Variant::RecallsWithoutComparing {
                world.steal(&mut ledger, self.process);
            }
            let granted = world.account(&mut ledger).credit(seat(self.process), Bytes::new(want.bytes()));
            books.ledger = Some(ledger);
            granted
        });
        match answered {
            Some(true) => CreditResult::Granted,
            Some(false) => CreditResult::Exhausted,
            None => CreditResult::Away,
        }
    }

    fn share(&self, message: ShareReport, _: u64) -> ShareReply {
        match self.world.serve(|books| self.world.carry_out(books, self.process, message)) {
            Some(true) => ShareReply::Noted,
            Some(false) => ShareReply::Unknown,
            None => ShareReply::Away,
        }
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn pause(&self) {
        loom::thread::yield_now();
    }
}

impl World {
    /// The mistake of [`Variant::RecallsWithoutComparing`].
    fn steal(&self, ledger: &mut GrantLedger, asker: usize) {
        for process in PROCESSES.into_iter().filter(|process| *process != asker) {
            let word = self.words().credit(slot(process), device());
            let seen = word.load();
            word.reset(Credit { granted: seen.used, ..seen });
            ledger.give_back(seat(process), Bytes::new(seen.unused().bytes()));
        }
    }
}

pub(crate) fn device() -> DeviceSlot {
    DeviceSlot::new(0).expect("there is one")
}

pub(crate) fn slot(process: usize) -> Slot {
    Slot::new(process).expect("there are two")
}

pub(crate) fn seat(process: usize) -> Seat {
    Seat(u16::try_from(process).expect("there are two"))
}
