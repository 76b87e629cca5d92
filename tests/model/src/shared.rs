//! Memory that both processes may hold: both halves of its protocol.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use tranche_domain::ledger::GrantLedger as Books;
use tranche_domain::slice::Seat;
use tranche_domain::units::Bytes;

use crate::charge::ShareReport;
use crate::common::Common;
use crate::credit::Units;
use crate::extent::{BLOCK, BLOCK_BYTES, Extent};
use crate::ledger::{Claim, Ledger, Owner};
use crate::message::ShareKey;
use crate::piece::{Gone, PASSED_ON};
use crate::shares::{Change, Legacy, replay};
use crate::table::EntryKind;
use crate::word::step;
use crate::world::{self, PROCESSES, Socket, Variant, World, device, seat};

/// Share key of the piece.
const KEY: ShareKey = ShareKey(7);

// The processes: the shim's ledger as it is, and a driver.

impl World {
    /// A world whose processes share memory, each with a table for its allocation ledger.
    pub fn sharing(blocks: u32, variant: Variant) -> Self {
        let table = || (0..Ledger::LEAST_WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut world = Self::new(blocks * BLOCK.get(), variant);
        world.tables = PROCESSES.map(|_| table());
        world
    }

    fn ledger(&self, process: usize) -> Ledger<'_> {
        let pause = |_| loom::thread::yield_now();
        Ledger::over(self.tenant(process), &self.tables[process], pause).expect("the table is long enough")
    }

    fn socket(&self, process: usize) -> Socket<'_> {
        Socket { world: self, process }
    }

    /// Charges, then takes blocks from the driver, at this address; `false` if the slice has no room.
    pub fn create(&self, process: usize, address: u64, blocks: u32) -> bool {
        let extent = Extent::blocks(u64::from(blocks) * BLOCK_BYTES).expect("it is little");
        let claim = Claim { device: device(), extent, owner: Owner::NOBODY };
        let driver = || {
            step();
            self.held[process].fetch_add(blocks * BLOCK.get(), Relaxed);
            Ok::<_, Gone>((address, extent))
        };
        let undo = |_| unreachable!("whole blocks cost what was charged");
        self.ledger(process).allocate(EntryKind::Memory, claim, &self.socket(process), driver, undo).is_ok()
    }

    /// Frees blocks that were created and not exported.
    pub fn destroy(&self, process: usize, address: u64, blocks: u32) {
        let driver = || {
            step();
            self.held[process].fetch_sub(blocks * BLOCK.get(), Relaxed);
            Ok::<_, Gone>(())
        };
        self.ledger(process).free(EntryKind::Memory, address, driver).expect("it is there");
        self.flush(process);
    }

    /// Exports created blocks, so that the other process can open them.
    pub fn export(&self, process: usize, address: u64, blocks: u32) {
        step();
        self.held[process].fetch_sub(blocks * BLOCK.get(), Relaxed);
        self.piece.units.store(blocks * BLOCK.get(), Relaxed);
        self.piece.holders.fetch_or(1 << process, AcqRel);
        let done = self.ledger(process).export(EntryKind::Memory, address, KEY, &self.socket(process));
        done.expect("whole blocks cost nothing more");
        self.piece.holders.fetch_or(PASSED_ON, AcqRel);
    }

    /// Frees the blocks that this process exported.
    pub fn free_exported(&self, process: usize, address: u64) {
        let driver = || self.let_go(process);
        self.ledger(process).free(EntryKind::Memory, address, driver).expect("it is there");
        self.flush(process);
    }

    /// Sends again what the daemon did not answer, as the shim does after each free.
    pub fn flush(&self, process: usize) {
        self.ledger(process).flush_shares(&self.socket(process));
    }

    /// Opens the other's export; `false` if there is none, or no room for it.
    pub fn open(&self, process: usize, address: u64) -> bool {
        if !self.piece.is_passed_on() {
            return false;
        }
        let driver = || {
            step();
            self.piece.join(process).map(|()| (address, Units::new(self.piece.units.load(Relaxed))))
        };
        let undo = |_| self.piece.leave(process);
        self.ledger(process)
            .import(EntryKind::Opened, device(), KEY, &self.socket(process), driver, undo)
            .is_ok()
    }

    /// Closes the opened piece.
    pub fn close(&self, process: usize, address: u64) {
        let closed =
            self.ledger(process).drop_import(address, &self.socket(process), || self.let_go(process));
        closed.expect("it is open");
    }

    fn let_go(&self, process: usize) -> Result<(), Gone> {
        step();
        self.piece.leave(process);
        Ok(())
    }

    /// Checks that charges are exactly what is held, when all processes live and have been answered.
    ///
    /// Each is charged for what it holds alone, and all together for what they share, once.
    pub fn check_exact(&self) {
        for process in PROCESSES {
            let held = self.held[process].load(Relaxed);
            assert_eq!(self.credit(process).used, Units::new(held), "{process} is charged for what it holds");
        }
        assert_eq!(self.charged(), self.held(), "all together are charged for what they hold");
    }

    /// Units charged to the slice, zero when nothing is held.
    pub fn charged(&self) -> u32 {
        self.words().used(self.reader(), device()).get()
    }
}

// The daemon: its account as it is, and a disk.

impl World {
    /// Carries out a process's message about the piece; true if the daemon has recorded it.
    pub(crate) fn carry_out(&self, books: &mut world::Books, process: usize, message: ShareReport) -> bool {
        let mut ledger = books.ledger.take().expect("serve restores it");
        self.observe(&mut ledger, books.seated);
        let word = self.tenant(process).usage.credit(world::slot(process), device());
        let (who, seats, mut late) = (seat(process), World::members(books), Vec::new());
        let mut common = Common {
            ledgers: std::slice::from_mut(&mut ledger),
            sharing: &mut books.sharing,
            note: |change| match change {
                Change::Export { .. } if self.variant == Variant::NotesExportsLast => {
                    late.push(change);
                    true
                }
                _ => write_down(&mut books.notes, change),
            },
            publish: |ledgers: &[Books]| self.publish_unless_late(ledgers),
        };
        let done = match message {
            ShareReport::Export(_, key, units) if self.variant == Variant::HandsOverInTwoSteps => {
                word.release(units);
                loom::thread::yield_now();
                word.recall(units);
                common.ledgers[0].hand_over(who, Bytes::new(units.bytes()));
                common.sharing.export(who, key.0, 0, Bytes::new(units.bytes()));
                true
            }
            ShareReport::Export(_, key, units) => common.export(who, 0, key.0, units, word),
            ShareReport::Import(key) => common.import(who, key.0),
            ShareReport::Drop(_) if self.variant == Variant::DropsForAll => {
                seats.into_iter().for_each(|seat| common.leave(seat));
                true
            }
            ShareReport::Drop(key) => {
                common.drop_one(who, key.0);
                true
            }
        };
        step();
        for change in late {
            write_down(&mut books.notes, change);
        }
        books.ledger = Some(ledger);
        done
    }

    fn publish_unless_late(&self, ledgers: &[Books]) {
        if self.variant != Variant::SaysReleasesLast {
            self.publish(ledgers);
        }
    }

    /// Removes an ended process from the holders of shared memory.
    pub(crate) fn leave_shares(&self, ledger: &mut Books, books: &mut world::Books, process: usize) {
        let everybody = self.variant == Variant::BuriesShares;
        let leavers = PROCESSES.into_iter().filter(|other| everybody || *other == process);
        let mut common = Common {
            ledgers: std::slice::from_mut(ledger),
            sharing: &mut books.sharing,
            note: |change| write_down(&mut books.notes, change),
            publish: |ledgers: &[Books]| self.publish_unless_late(ledgers),
        };
        leavers.for_each(|process| common.leave(seat(process)));
    }

    /// Restores the record of shared memory, as a successor does that finds the slice.
    pub(crate) fn recover_shares(&self, ledger: &mut Books, books: &mut world::Books) {
        let (members, mut legacy) = (World::members(books), Legacy::default());
        books.sharing = Default::default();
        if self.variant == Variant::ForgetsShares {
            return;
        }
        books.notes.iter().for_each(|change| replay(&mut books.sharing, &mut legacy, *change));
        if self.variant == Variant::BelievesEveryNote {
            legacy.doubtful = None;
        }
        let mut common = Common {
            ledgers: std::slice::from_mut(ledger),
            sharing: &mut books.sharing,
            note: |change| write_down(&mut books.notes, change),
            publish: |ledgers: &[Books]| self.publish_unless_late(ledgers),
        };
        let turn = |seat: Seat, _| self.words().credit(world::slot(seat.0.into()), device()).load().turn;
        common.take_over(&members, &legacy, turn);
    }
}

/// Records a change; the daemon may die before and after.
fn write_down(notes: &mut Vec<Change>, change: Change) -> bool {
    step();
    notes.push(change);
    step();
    true
}
