//! Pointers of pools in other processes: charged once, and never less than is held.

use super::*;
use tranche_shm::message::ShareKey;

const POOL: u64 = 5;

/// A piece of a pool's memory.
#[derive(Clone, Copy, Default)]
struct Piece {
    pointer: u64,
    bytes: u64,
    /// In use by the program that allocated it.
    live: bool,
    /// Kept by the pool after a free.
    kept: bool,
    /// Share key of its last export.
    key: Option<ShareKey>,
    /// Share key under which the other process has it open.
    opened: Option<ShareKey>,
}

/// A pool of process 0, some of which process 1 opens.
struct Lender<'a> {
    slice: &'a Slice,
    pieces: RefCell<Vec<Piece>>,
}

impl Lender<'_> {
    fn keeps(&self, _: u64) -> Option<u64> {
        Some(self.pieces.borrow().iter().filter(|piece| piece.kept).map(|piece| piece.bytes).sum())
    }

    /// Memory in use on the device, each piece counted once.
    fn held(&self) -> u64 {
        let held = |piece: &&Piece| piece.kept || piece.opened.is_some();
        self.pieces.borrow().iter().filter(held).map(|piece| piece.bytes).sum()
    }

    fn allocate(&self, bytes: u64, again: bool) {
        let idle =
            |piece: &Piece| !piece.live && piece.kept && piece.opened.is_none() && piece.bytes == bytes;
        let found = self.pieces.borrow().iter().position(|piece| again && idle(piece));
        let pointer = (1 << 40) + self.pieces.borrow().len() as u64 * 64 * MIB;
        let driver = || {
            let mut pieces = self.pieces.borrow_mut();
            let at = found.unwrap_or_else(|| {
                pieces.push(Piece { pointer, bytes, ..Piece::default() });
                pieces.len() - 1
            });
            pieces[at] = Piece { live: true, kept: true, key: None, ..pieces[at] };
            Ok::<_, i32>(pieces[at].pointer)
        };
        let undo = |pointer| {
            let mut pieces = self.pieces.borrow_mut();
            let piece = pieces.iter_mut().find(|piece| piece.pointer == pointer).unwrap();
            (piece.live, piece.kept) = (false, false);
        };
        let keeps = |pool| self.keeps(pool);
        let claim = Claim { extent: Extent::blocks(bytes).unwrap(), ..claim(0) };
        let daemon = self.slice.daemon();
        let _ = self.slice.ledger().allocate_from_pool(POOL, claim, &daemon, &keeps, driver, undo);
    }

    fn export(&self, at: usize, key: ShareKey) {
        let piece = self.pieces.borrow()[at];
        if piece.live {
            self.slice.ledger().export_streamed(piece.pointer, key, &self.slice.daemon()).unwrap();
            self.pieces.borrow_mut()[at].key = Some(key);
        }
    }

    fn open(&self, at: usize) {
        let piece = self.pieces.borrow()[at];
        let Some(key) = piece.key.filter(|_| piece.live && piece.opened.is_none()) else { return };
        let driver = || Ok::<_, i32>((piece.pointer << 1, Units::within(piece.bytes)));
        let daemon = self.slice.daemon_of(1);
        let opened =
            self.slice.ledger_of(1).import(EntryKind::Opened, device(), key, &daemon, driver, |_| {});
        self.pieces.borrow_mut()[at].opened = opened.ok().map(|_| key);
    }

    fn close(&self, at: usize) {
        let piece = self.pieces.borrow()[at];
        if piece.opened.is_some() {
            self.pieces.borrow_mut()[at].opened = None;
            let daemon = self.slice.daemon_of(1);
            self.slice.ledger_of(1).drop_import(piece.pointer << 1, &daemon, || Ok::<_, i32>(())).unwrap();
        }
    }

    fn free(&self, at: usize) {
        let piece = self.pieces.borrow()[at];
        if piece.live {
            let driver = || {
                self.pieces.borrow_mut()[at].live = false;
                Ok::<_, i32>(())
            };
            self.slice.ledger().free_to_pool(piece.pointer, &|pool| self.keeps(pool), driver).unwrap();
        }
    }

    fn trim(&self) {
        self.pieces.borrow_mut().iter_mut().filter(|piece| !piece.live).for_each(|piece| piece.kept = false);
    }

    fn settle(&self) {
        let (ledger, daemon) = (self.slice.ledger(), self.slice.daemon());
        ledger.return_lent(&daemon, &|pool| self.keeps(pool));
        ledger.settle_pools(&|pool| self.keeps(pool), |_| {});
        ledger.flush_shares(&daemon);
    }
}

fn lender(slice: &Slice) -> Lender<'_> {
    Lender { slice, pieces: RefCell::default() }
}

#[test]
fn pool_memory_of_two_processes_is_charged_once() {
    let slice = Slice::of(128 * MIB, Units::ZERO);
    let lender = lender(&slice);
    lender.allocate(40 * MIB, false);
    lender.export(0, ShareKey(7));
    lender.export(0, ShareKey(7));
    assert_eq!((slice.used(), slice.charged()), (0, 40 * MIB));
    lender.open(0);
    assert_eq!(slice.charged(), 40 * MIB);
    lender.close(0);
    lender.free(0);
    lender.settle();
    assert_eq!((slice.used(), slice.charged()), (40 * MIB, 40 * MIB), "its pool keeps it");
    lender.trim();
    lender.settle();
    assert_eq!(slice.charged(), 0);
}

#[test]
fn imported_memory_outlives_trim_and_end_of_pool() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let lender = lender(&slice);
    for at in 0..2 {
        lender.allocate(20 * MIB, false);
        lender.export(at, ShareKey(7 + at as u64));
        lender.open(at);
    }
    lender.free(0);
    lender.trim();
    lender.settle();
    assert_eq!(slice.charged(), 40 * MIB);
    slice.bury(0);
    assert_eq!(slice.charged(), 40 * MIB);
    lender.close(0);
    lender.close(1);
    assert_eq!(slice.charged(), 0);
}

#[test]
fn reused_and_reexported_memory_is_charged_once() {
    let slice = Slice::of(128 * MIB, Units::ZERO);
    let lender = lender(&slice);
    for round in 0..20 {
        lender.allocate(40 * MIB, true);
        lender.export(0, ShareKey(100 + round));
        lender.open(0);
        assert!(lender.pieces.borrow()[0].opened.is_some());
        assert_eq!((lender.held(), slice.charged()), (40 * MIB, 40 * MIB));
        lender.close(0);
        lender.free(0);
        lender.settle();
    }
    assert_eq!(slice.charged(), 40 * MIB);
}

#[test]
fn destroyed_pool_leaves_imported_memory_charged() {
    let slice = Slice::of(64 * MIB, Units::ZERO);
    let lender = lender(&slice);
    for at in 0..2 {
        lender.allocate(20 * MIB, false);
        lender.export(at, ShareKey(7 + at as u64));
    }
    lender.open(1);
    let destroy = || slice.ledger().destroy_pool(POOL, || Ok::<_, i32>(())).unwrap();
    destroy();
    lender.free(0);
    lender.settle();
    assert_eq!(slice.charged(), 40 * MIB, "one of its pointers is in use");
    lender.free(1);
    lender.settle();
    assert_eq!(slice.charged(), 20 * MIB);
    lender.close(1);
    assert_eq!(slice.charged(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lent_memory_is_never_more_than_is_charged(steps in vec((0u8..9, 0usize..8, 1u64..6), 1..150)) {
        let cap = 48 * MIB;
        let slice = Slice::of(cap, Units::ZERO);
        let lender = lender(&slice);
        for (number, (step, which, blocks)) in steps.into_iter().enumerate() {
            let count = lender.pieces.borrow().len();
            let at = which % count.max(1);
            match step {
                0 | 1 => lender.allocate(blocks * BLOCK_BYTES, step == 1),
                _ if count == 0 => {}
                2 => lender.export(at, ShareKey(1000 + number as u64)),
                3 => lender.open(at),
                4 => lender.close(at),
                5 | 6 => lender.free(at),
                7 => lender.trim(),
                _ => lender.settle(),
            }
            prop_assert!(lender.held() <= slice.charged(), "{} > {}", lender.held(), slice.charged());
            prop_assert!(slice.charged() <= cap);
        }
        let count = lender.pieces.borrow().len();
        (0..count).for_each(|at| lender.close(at));
        (0..count).for_each(|at| lender.free(at));
        lender.trim();
        lender.settle();
        prop_assert_eq!(slice.charged(), 0);
    }
}
