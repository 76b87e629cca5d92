//! The picture: what the driver and the kernel say, beside what the books say.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tranche_domain::id::{GpuUuid, HostPid, SliceName};
use tranche_domain::request::Share;
use tranche_domain::slice::{ProcessId, Seat};
use tranche_domain::truth::{Charged, OnGpu, Picture, Served, User, Whose};
use tranche_domain::units::{Bytes, Permille};
use tranche_inventory::{GpuProcess, ProcessUtilization};
use tranche_shm::DeviceSlot;

use super::kin::{Kin, Kinship};
use crate::agent::Agent;
use crate::process;
use crate::tenancy::Tenancy;

/// When each GPU's last sample was taken, on the driver's clock.
pub(super) type Since = BTreeMap<GpuUuid, u64>;

/// A slice that has a part of the GPU.
struct Party {
    tenancy: Arc<Tenancy>,
    device: DeviceSlot,
    /// What a context was measured to cost there: a slice that shows more must not be believed more for it.
    reserve: Bytes,
    /// It has all of the GPU.
    whole: bool,
    /// It stays: containers may use all of the GPU that it has without the library.
    stays: bool,
}

/// The node as it is now, as far as slices are concerned; with `everywhere` also GPUs without any.
pub(super) fn picture(agent: &Agent, everywhere: bool, since: &mut Since) -> Picture {
    let tenancies = agent.tenancies();
    let found = tenancies.iter().flat_map(|tenancy| tenancy.deceits()).collect();
    let kin = Kin::of(&tenancies);
    let mut parties = parties(agent, &tenancies);
    let drawn = agent.gpus.iter().filter_map(|gpu| {
        let parties = parties.remove(&gpu.uuid).unwrap_or_default();
        (everywhere || !parties.is_empty()).then(|| on_gpu(agent, gpu.uuid, &parties, &kin, since))?
    });
    Picture { gpus: drawn.collect(), found }
}

fn parties(agent: &Agent, tenancies: &[Arc<Tenancy>]) -> BTreeMap<GpuUuid, Vec<Party>> {
    let core = agent.core();
    let mut parties: BTreeMap<GpuUuid, Vec<Party>> = BTreeMap::new();
    for tenancy in tenancies {
        let Ok(slice) = core.node.slice(&tenancy.name) else { continue };
        for (device, gpu) in tenancy.devices() {
            parties.entry(gpu).or_default().push(Party {
                tenancy: Arc::clone(tenancy),
                device,
                reserve: core.contexts.cost(gpu),
                whole: matches!(slice.share, Share::Whole(_)),
                stays: !slice.ephemeral,
            });
        }
    }
    parties
}

/// Nothing if the driver does not answer.
fn on_gpu(agent: &Agent, gpu: GpuUuid, parties: &[Party], kin: &Kin, since: &mut Since) -> Option<OnGpu> {
    let users = users(agent, gpu, parties, kin)?;
    let last = since.entry(gpu).or_default();
    let answer = agent.driver.process_utilization(gpu, *last);
    let can_say = answer.is_ok();
    let samples = answer.unwrap_or_default();
    *last = samples.iter().map(|sample| sample.timestamp_us).max().unwrap_or(*last);
    let slices: Vec<Served> = parties.iter().map(|party| served(agent, party, &samples)).collect();
    for its in slices.iter().filter(|its| its.worked.is_some() || !can_say) {
        agent.governor.confirm(&its.slice, gpu, its.worked);
    }
    Some(OnGpu { gpu, users, slices })
}

/// Who uses a GPU; what the slices' processes hold there is theirs from now on, whatever they say.
fn users(agent: &Agent, gpu: GpuUuid, parties: &[Party], kin: &Kin) -> Option<Vec<User>> {
    let mut members = Members::of(parties);
    let listed = agent.driver.processes(gpu).ok()?;
    // A process joins before it uses a GPU: one that is listed and was no member before is one by now, if it ever is.
    members.extend(Members::of(parties));
    let mut users: Vec<User> =
        listed.iter().filter_map(|listed| user(listed, parties, &members, kin)).collect();
    hear_again(&mut users, &members);
    for Party { tenancy, device, .. } in parties {
        tenancy.saw(*device, held(tenancy, *device, &users));
    }
    Some(users)
}

/// How often whoever seems to hold more than it says is heard again, and how long after the last time.
const AGAIN: usize = 24;
const AFTER: Duration = Duration::from_millis(1);

/// Whoever charges and frees all the time may have said less just before the driver was asked and just after, and more
/// then. What it says again and again tells how much that is; no more than it was granted is believed.
fn hear_again(users: &mut [User], members: &Members<'_>) {
    let is_more = |holds: Option<Bytes>, its: &Charged| {
        holds > Some(its.used.saturating_add(its.shared).saturating_add(its.reserve))
    };
    let mut moving: Vec<(&mut Charged, &Member<'_>)> = users
        .iter_mut()
        .filter_map(|user| match &mut user.whose {
            Whose::Member { charged, .. } if is_more(user.holds, charged) => {
                Some((charged, members.0.get(&user.id.pid)?))
            }
            _ => None,
        })
        .collect();
    let times = if moving.is_empty() { 0 } else { AGAIN };
    for _ in 0..times {
        std::thread::sleep(AFTER);
        for (charged, member) in &mut moving {
            let said = member.party.tenancy.claimed(member.seat, member.party.device);
            charged.used = charged.used.max(said.min(charged.granted));
        }
    }
}

/// What a slice's members hold together, at the least: what they share may be counted with any of them.
fn held(tenancy: &Tenancy, device: DeviceSlot, users: &[User]) -> Bytes {
    let shared = tenancy.beside(device).shared;
    let own = users.iter().filter_map(|user| match &user.whose {
        Whose::Member { slice, .. } if *slice == tenancy.name => user.holds,
        _ => None,
    });
    own.map(|holds| holds.saturating_sub(shared)).sum::<Bytes>().saturating_add(shared)
}

/// Looks anew at what a slice's processes hold.
pub(super) fn sight(agent: &Agent, tenancy: &Tenancy) {
    let tenancies = agent.tenancies();
    let (kin, mut parties) = (Kin::of(&tenancies), parties(agent, &tenancies));
    for gpu in &tenancy.gpus {
        users(agent, *gpu, &parties.remove(gpu).unwrap_or_default(), &kin);
    }
}

/// The members of all parties, and what each said to use before the driver was asked.
struct Members<'a>(BTreeMap<HostPid, Member<'a>>);

struct Member<'a> {
    id: ProcessId,
    seat: Seat,
    party: &'a Party,
    used: Bytes,
}

impl<'a> Members<'a> {
    fn of(parties: &'a [Party]) -> Self {
        let of_party = |party: &'a Party| {
            let members = party.tenancy.occupants().members.into_iter();
            members.map(move |(seat, id)| {
                let used = party.tenancy.claimed(seat, party.device);
                (id.pid, Member { id, seat, party, used })
            })
        };
        Self(parties.iter().flat_map(of_party).collect())
    }

    /// Adds those that have come meanwhile.
    fn extend(&mut self, later: Self) {
        for (pid, member) in later.0 {
            match self.0.entry(pid) {
                Entry::Occupied(mut known) if known.get().id != member.id => _ = known.insert(member),
                Entry::Occupied(_) => {}
                Entry::Vacant(place) => _ = place.insert(member),
            }
        }
    }
}

fn user(listed: &GpuProcess, parties: &[Party], members: &Members<'_>, kin: &Kin) -> Option<User> {
    let (id, kinship) = kin.find(listed.pid)?;
    let member = members.0.get(&listed.pid).filter(|member| member.id == id);
    let whose = match (member, kinship) {
        (Some(member), _) => {
            let slice = member.party.tenancy.name.clone();
            Whose::Member { slice, charged: charged(member)? }
        }
        (None, Kinship::Ours) => return None,
        (None, Kinship::Of(tenancy)) => relative(&tenancy, parties)?,
        (None, Kinship::None) => stranger(parties)?,
    };
    Some(User { id, command: process::command(id.pid), holds: listed.used, whose })
}

/// What a member is charged now, or was just before, whichever is more; nothing if it left meanwhile.
fn charged(member: &Member<'_>) -> Option<Charged> {
    let Party { tenancy, device, reserve, .. } = member.party;
    let now = tenancy.charged(member.seat, *device);
    (tenancy.seat_of(member.id) == Some(member.seat)).then(|| Charged {
        used: now.used.max(member.used).min(now.granted),
        reserve: *reserve,
        ..now
    })
}

/// Who has all of a GPU needs no library to be kept to it.
fn relative(tenancy: &Tenancy, parties: &[Party]) -> Option<Whose> {
    let its = parties.iter().find(|party| party.tenancy.name == tenancy.name);
    if its.is_some_and(|party| party.whole) {
        return None;
    }
    Some(Whose::Relative { slice: tenancy.name.clone() })
}

/// The container of a slice that has all of a GPU uses it without the library, and is not known.
fn stranger(parties: &[Party]) -> Option<Whose> {
    let is_unknown_container = parties.iter().any(|party| party.whole && party.stays);
    (!is_unknown_container).then_some(Whose::Nobody)
}

fn served(agent: &Agent, party: &Party, samples: &[ProcessUtilization]) -> Served {
    let tenancy = &party.tenancy;
    let newest = |id: &ProcessId| {
        let its = samples.iter().filter(|sample| sample.pid == id.pid);
        its.max_by_key(|sample| sample.timestamp_us).map(|sample| (*id, *sample))
    };
    let ran: Vec<(ProcessId, ProcessUtilization)> =
        tenancy.occupants().members.values().filter_map(newest).collect();
    let sum = |of: fn(&ProcessUtilization) -> u32| {
        let percent = ran.iter().map(|(_, sample)| of(sample).min(100)).sum::<u32>().min(100);
        Permille::try_from(percent * 10).unwrap_or(Permille::WHOLE)
    };
    let busy = (!samples.is_empty()).then(|| sum(|sample| sample.sm_percent));
    let worked = (!samples.is_empty()).then(|| sum(|sample| sample.sm_percent.max(sample.memory_percent)));
    let moved =
        if agent.governor.counts_transfers() { Permille::ZERO } else { sum(|sample| sample.memory_percent) };
    let busiest = ran.iter().max_by_key(|(_, sample)| sample.sm_percent).map(|(id, _)| *id);
    let counted = counted(agent, &tenancy.name, party.device);
    let kept = agent.governor.kept(&tenancy.name);
    Served { slice: tenancy.name.clone(), busy, worked, moved, counted, kept, busiest }
}

/// What was counted of a slice's time on a device over the last second.
fn counted(agent: &Agent, name: &SliceName, device: DeviceSlot) -> Permille {
    let shown = agent.governor.show(name);
    shown.and_then(|shown| shown.used.get(device.index()).copied()).unwrap_or_default().0
}
