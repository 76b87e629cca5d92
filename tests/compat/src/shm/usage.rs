//! Operations of processes: the usage region, and the records of their outstanding work.

use std::sync::atomic::Ordering::SeqCst;

use tranche_shm::compute::{CompletionMark, ComputeRecords, MarkRing, REGION_WORDS, Tally};
use tranche_shm::credit::{Credit, CreditWord, Units};
use tranche_shm::parking::Hindrance;
use tranche_shm::usage::{Counter, Usage};

use super::region::{Region, device, slot};
use crate::Description;

pub(super) fn describe(description: &mut Description) {
    let region = Region::of(REGION_WORDS);
    let made = region.while_doing(|| _ = Usage::init(&region.0, 0x1112_1314));
    description.add("usage made: init(generation 0x11121314)", made);
    description.add("always usage: words of magic and ABI", region.heading());
    credit(description, &region);
    numbers(description, &region);
    marks(description, &region);
}

fn credit(description: &mut Description, region: &Region) {
    let usage = Usage::attach(&region.0).expect("it was just made");
    let word = usage.credit(slot(5), device(2));
    let mut act = |what: &str, act: &dyn Fn(CreditWord<'_>)| {
        description
            .add(format!("usage credit of slot 5, device 2: {what}"), region.while_doing(|| act(word)));
    };
    act("1. grant(0x64)", &|word| _ = word.grant(Units::new(0x64)));
    act("2. charge(0x32)", &|word| _ = word.charge(Units::new(0x32)));
    act("3. release(0x2)", &|word| word.release(Units::new(2)));
    act("4. release_with_credit(0x10)", &|word| word.release_with_credit(Units::new(0x10)));
    act("5. recall(0x4)", &|word| _ = word.recall(Units::new(4)));
    act("6. hand_over(0x10)", &|word| _ = word.hand_over(Units::new(0x10)));
    act("7. reset(granted 0x9, used 0x7, turn)", &|word| {
        word.reset(Credit { granted: Units::new(9), used: Units::new(7), turn: true });
    });
    let control = Region::of(tranche_shm::control::WORDS);
    let writer = tranche_shm::control::ControlWriter::init(&control.0, 1, 3).expect("long enough");
    writer.occupy(slot(5), tranche_shm::control::ProcessIdentity { pid: 1, ..Default::default() });
    let total = region.while_doing(|| _ = usage.used(writer.reader(), device(2)));
    description.add("usage total of device 2: used()", total);
    description
        .add("usage total of device 2: may_have_changed()", region.while_doing(|| word.may_have_changed()));
    let lowered = region.while_doing(|| word.lower(Units::new(5)));
    description.add("usage credit of slot 5, device 2: 8. lower(0x5)", lowered);
}

fn numbers(description: &mut Description, region: &Region) {
    let usage = Usage::attach(&region.0).expect("it was made");
    let context = region.while_doing(|| usage.context(slot(5), device(2)).store(0x81, SeqCst));
    description.add("usage context of slot 5, device 2", context);
    for counter in [Counter::Refusals, Counter::Asked, Counter::Unanswered, Counter::Charges] {
        let changed = region.while_doing(|| usage.counter(slot(5), counter).store(0x91, SeqCst));
        description.add(format!("usage counter of slot 5: {counter:?}"), changed);
    }
    let begun = region.while_doing(|| usage.hindrances(slot(5)).begin());
    description.add("usage hindrances of slot 5: begin()", begun);
    for hindrance in Hindrance::ALL {
        let changed = region.while_doing(|| usage.hindrances(slot(5)).add(hindrance));
        description.add(format!("usage hindrances of slot 5: add({hindrance:?})"), changed);
        usage.clear(slot(5));
    }
    let record = ComputeRecords::known(&region.0).expect("long enough").record(slot(5));
    for tally in TALLIES {
        let changed = region.while_doing(|| record.tally(tally).store(0xa1, SeqCst));
        description.add(format!("compute tally of slot 5: {tally:?}"), changed);
    }
    let busy = region.while_doing(|| record.busy_ns(device(2)).store(0xb1, SeqCst));
    description.add("compute busy_ns of slot 5, device 2", busy);
    let since = region.while_doing(|| record.busy_since_ns(device(2)).store(0xb2, SeqCst));
    description.add("compute busy_since_ns of slot 5, device 2", since);
}

const TALLIES: [Tally; 10] = [
    Tally::Waiting,
    Tally::Sequence,
    Tally::Launches,
    Tally::KernelNs,
    Tally::LongestNs,
    Tally::Passes,
    Tally::Degraded,
    Tally::WaitedNs,
    Tally::Graphs,
    Tally::Streams,
];

fn marks(description: &mut Description, region: &Region) {
    let marks = ComputeRecords::known(&region.0).expect("long enough").record(slot(5)).marks();
    let mark = |sequence| CompletionMark { sequence, device: device(2), estimate_us: 0xc1_c2c3 };
    let submitted = region.while_doing(|| marks.submit(mark(0x21)));
    description.add("compute mark of slot 5: 1. submit(0x21, device 2, 0xc1c2c3 us)", submitted);
    let reached = region.while_doing(|| marks.done(0x21).store(0x21, SeqCst));
    description.add("compute mark of slot 5: 2. done(0x21)", reached);
    let _ = region.while_doing(|| marks.submit(mark(0x22)));
    description.add("compute mark of slot 5: 3. finish(0x22)", region.while_doing(|| marks.finish(0x22)));
    description.add("compute mark: done_offset(0x22) in bytes", MarkRing::done_offset(0x22).to_string());
}
