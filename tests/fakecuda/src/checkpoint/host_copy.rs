//! Device memory of a process that is kept in the host's, and its return to the GPUs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use simgpu::{Blocks, Context, Gpu, Lane, Ticket, Work, WorkKind};

use crate::driver::{Driver, Table, status};
use crate::memory::backing::Backing;
use crate::memory::ranges::{Kind, Range};
use crate::state::location::Site;
use crate::state::physical::Payment;
use crate::state::stream::{State, Stream};
use crate::status::Outcome;
use crate::timing::over_the_bus;

/// A stream that no program has, for copies of the driver's own.
const OWN_LANE: Lane = Lane::Free((1 << 62) - 1);

/// Everything that a process gave up.
pub(super) struct HostCopy {
    /// Memory of each GPU, contexts aside.
    memory: BTreeMap<usize, (Gpu, Blocks)>,
    /// Contexts in the engine that are gone; green ones share them.
    engines: Vec<Context>,
    backings: Vec<Arc<Backing>>,
    /// Memory of the host beyond the bytes that were written, where images are full.
    _ballast: Vec<Backing>,
}

impl HostCopy {
    /// Copies everything to the host, and then gives the GPUs up.
    pub(super) fn take(driver: &Driver) -> Outcome<Self> {
        let (memory, engines, backings) = {
            let table = driver.table();
            (footprint(driver, &table), engines(&table), backings(&table))
        };
        cross(driver, &memory, &engines, WorkKind::Download)?;
        let full = |gpu: Gpu| driver.node().settings(gpu).full_images;
        let ballast = memory.values().filter(|(gpu, _)| full(*gpu)).map(|(_, blocks)| filled(blocks.bytes()));
        let ballast = ballast.collect::<Outcome<Vec<_>>>()?;
        let mut table = driver.table();
        backings.iter().try_for_each(|backing| backing.leave())?;
        settle_events(driver, &table);
        leave_shared(driver, &mut table);
        engines.iter().for_each(|engine| driver.process.destroy_context(*engine));
        for (gpu, _) in memory.values() {
            driver.process.give_blocks(*gpu, driver.process.blocks(*gpu));
            driver.process.note_restored(*gpu, false);
        }
        driver.process.note_kept(memory.values().map(|(_, blocks)| blocks.bytes()).sum());
        Ok(Self { memory, engines, backings, _ballast: ballast })
    }

    /// Takes memory and contexts again, all or nothing, and brings the bytes back to their addresses.
    pub(super) fn restore(&mut self, driver: &Driver, places: Option<&[Gpu]>) -> Outcome {
        let place = |gpu: Gpu| places.and_then(|places| places.get(gpu.index())).copied().unwrap_or(gpu);
        let mut memory = self.memory.clone();
        memory.values_mut().for_each(|(gpu, _)| *gpu = place(*gpu));
        let engines = acquire(driver, &memory, &self.engines, place)?;
        {
            let mut table = driver.table();
            for device in &mut table.devices {
                device.gpu = place(device.gpu);
            }
            move_contexts(&mut table, &self.engines, &engines);
            self.backings.iter().try_for_each(|backing| backing.come_back())?;
        }
        cross(driver, &memory, &engines, WorkKind::Upload)?;
        memory.values().for_each(|(gpu, _)| driver.process.note_restored(*gpu, true));
        driver.process.note_kept(0);
        Ok(())
    }
}

/// Memory of each device, with what others hold too, of which a copy of its own comes back.
fn footprint(driver: &Driver, table: &Table) -> BTreeMap<usize, (Gpu, Blocks)> {
    let mut memory = BTreeMap::new();
    for (index, device) in table.devices.iter().enumerate() {
        let shared = |payment: &Payment| matches!(payment, Payment::Shared(_));
        let pieces = table.physical.values().filter(|one| one.device == index && shared(&one.payment));
        let blocks = driver.process.blocks(device.gpu) + pieces.map(|one| Blocks::holding(one.size)).sum();
        memory.insert(index, (device.gpu, blocks));
    }
    memory
}

/// Contexts of the engine, each once.
fn engines(table: &Table) -> Vec<Context> {
    table.contexts.values().filter(|context| !context.green).map(|context| context.engine).collect()
}

/// Holders of all bytes that lie on devices, each once.
fn backings(table: &Table) -> Vec<Arc<Backing>> {
    let of_host = |range: &Range| match range.kind {
        Kind::Pool(pool) => table.pools.get(&pool).is_some_and(|pool| pool.site == Site::Host),
        Kind::Virtual(memory) => table.physical.get(&memory).is_some_and(|one| is_hosts(&one.payment)),
        _ => range.is_host(),
    };
    let ranges = table.ranges.iter().filter(|range| !of_host(range)).map(|range| &range.backing);
    let physical = table.physical.values().filter(|one| !is_hosts(&one.payment)).map(|one| &one.backing);
    let all = ranges.chain(physical).map(|backing| (Arc::as_ptr(backing), backing.clone()));
    all.collect::<BTreeMap<_, _>>().into_values().collect()
}

const fn is_hosts(payment: &Payment) -> bool {
    matches!(payment, Payment::Host)
}

/// Host memory whose every page is there.
fn filled(bytes: u64) -> Outcome<Backing> {
    let ballast = Backing::sparse(bytes);
    if bytes > 0 {
        ballast.fill(0, bytes, &[1])?;
    }
    Ok(ballast)
}

/// Passes the time that the bytes take over each GPU's bus, beside other copies in that direction.
fn cross(
    driver: &Driver,
    memory: &BTreeMap<usize, (Gpu, Blocks)>,
    engines: &[Context],
    kind: WorkKind,
) -> Outcome {
    let mut tickets: Vec<Ticket> = Vec::new();
    let mut without_context = Duration::ZERO;
    for (gpu, blocks) in memory.values() {
        let duration = over_the_bus(driver, *gpu, blocks.bytes());
        match engines.iter().find(|engine| engine.gpu() == *gpu) {
            Some(engine) => {
                let work = Work { lane: OWN_LANE, kind, duration, after: None };
                tickets.push(driver.process.submit(*engine, work).map_err(status)?);
            }
            None => without_context = without_context.max(duration),
        }
    }
    thread::sleep(without_context);
    tickets.into_iter().try_for_each(|ticket| driver.node().wait(ticket).map_err(status))
}

/// Gives every recorded event the time at which it was reached: its mark goes with the context.
fn settle_events(driver: &Driver, table: &Table) {
    for event in table.events.values() {
        if let State::Recorded(mark, _) = event.state(driver.node())
            && let Some(time) = driver.node().finished_at(mark)
        {
            event.set(State::Done(time));
        }
    }
}

/// Lets go of memory that other processes hold too; it is this process's alone from then on.
fn leave_shared(driver: &Driver, table: &mut Table) {
    let shared: Vec<_> = table
        .physical
        .values_mut()
        .filter_map(|one| match one.payment {
            Payment::Shared(piece) => {
                one.payment = Payment::Own;
                Some(piece)
            }
            Payment::Own | Payment::Host => None,
        })
        .collect();
    for piece in shared {
        crate::memory::shared::leave(driver, table, piece);
    }
}

/// Takes memory and contexts of the GPUs, all or nothing.
fn acquire(
    driver: &Driver,
    memory: &BTreeMap<usize, (Gpu, Blocks)>,
    former: &[Context],
    place: impl Fn(Gpu) -> Gpu,
) -> Outcome<Vec<Context>> {
    let process = &driver.process;
    let mut engines = Vec::new();
    let mut refusal = None;
    for engine in former {
        match process.create_context(place(engine.gpu())) {
            Ok(engine) => engines.push(engine),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    let mut taken = Vec::new();
    for (gpu, blocks) in memory.values() {
        match process.take_blocks(*gpu, *blocks) {
            Ok(()) => taken.push((*gpu, *blocks)),
            Err(refused) => refusal = refusal.or(Some(refused)),
        }
    }
    let Some(refused) = refusal else { return Ok(engines) };
    taken.into_iter().for_each(|(gpu, blocks)| process.give_blocks(gpu, blocks));
    engines.into_iter().for_each(|engine| process.destroy_context(engine));
    Err(status(refused))
}

/// Puts contexts and streams into the new contexts of the engine.
fn move_contexts(table: &mut Table, former: &[Context], engines: &[Context]) {
    let new_of = |old: Context| former.iter().position(|one| *one == old).map(|at| engines[at]);
    for context in table.contexts.values_mut() {
        if let Some(new) = new_of(context.engine) {
            context.engine = new;
            context.legacy.move_to(new);
        }
    }
    let move_stream = |stream: &Arc<Stream>| {
        if let Some(new) = new_of(stream.engine()) {
            stream.move_to(new);
        }
    };
    table.streams.values().chain(table.thread_streams.values()).for_each(move_stream);
}
