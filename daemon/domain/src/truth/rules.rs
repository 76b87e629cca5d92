//! Rules that find discrepancies in a picture.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::finding::{Finding, FindingKey};
use super::picture::{Charged, Deceit, GpuUser, InvalidValue, ObservedNode, OnGpu, Served, Whose};
use crate::event::EventKind;
use crate::id::{GpuUuid, SliceName};
use crate::slice::ProcessId;
use crate::units::{Bytes, Permille};

/// Memory that the driver may hold for a process beyond its charge.
///
/// The context reserve counts if it is larger.
/// Excess below is charged without a finding once the process is quiescent.
const DRIVERS_OWN: Bytes = Bytes::mib(256);
/// Tolerance for each process when the excess of many is summed.
const EACH: Bytes = Bytes::mib(32);
/// Tolerance in permille for GPU time that the driver counts over other intervals.
const UNSEEN: u32 = 200;

/// Consecutive observations for a finding. A process that has just started is listed before it is known.
const STRANGERS: u32 = 2;
const AMOUNTS: u32 = 3;
const AT_ONCE: u32 = 1;
/// Observations for GPU time: the driver's samples lag by up to a second.
const SAMPLES: u32 = 8;

/// Fraction of time, in permille, in which others wait for an idle slice, from which on it counts.
const HELD: u32 = 100;

/// A discrepancy in one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) evidence: String,
    /// Offending process, if identified.
    pub(super) who: Option<ProcessId>,
    pub(super) excess: Bytes,
    /// Fraction of GPU time used beyond the charged time.
    pub(super) unsaid: Permille,
    /// Number of consecutive observations for a finding.
    pub(super) patience: u32,
}

impl Doubt {
    /// A discrepancy without an identified process.
    pub(super) const fn new(evidence: String) -> Self {
        Self { evidence, who: None, excess: Bytes::ZERO, unsaid: Permille::ZERO, patience: AMOUNTS }
    }
}

impl Doubt {
    /// The finding that this discrepancy becomes.
    pub(super) fn finding(&self, subject: &FindingKey) -> Finding {
        let Self { evidence, who, excess, .. } = self.clone();
        Finding { subject: subject.clone(), who, evidence, excess }
    }
}

/// All discrepancies in a picture.
pub(super) fn doubts(picture: &ObservedNode) -> BTreeMap<FindingKey, Doubt> {
    let of_gpu = |on: &OnGpu| {
        let users = on.users.iter().filter_map(|user| of_user(on, user));
        let users = users.chain(on.slices.iter().filter_map(|served| of_crowd(on, &served.slice)));
        let users = users.chain(on.slices.iter().filter_map(|served| of_slice(on.gpu, served)));
        users.chain(on.slices.iter().filter_map(|served| of_holder(on.gpu, served))).collect::<Vec<_>>()
    };
    picture.gpus.iter().flat_map(of_gpu).chain(picture.found.iter().map(of_page)).collect()
}

/// Subjects about which this picture has no data.
pub(super) fn unsure(picture: &ObservedNode) -> impl Iterator<Item = FindingKey> + '_ {
    let slices = picture.gpus.iter().flat_map(|on| on.slices.iter().map(|served| (on.gpu, served)));
    let unknown = slices.filter(|(_, served)| served.busy.is_none());
    unknown.flat_map(|(gpu, served)| {
        [EventKind::GateBypassed, EventKind::GpuHeldIdle].map(|kind| about(kind, gpu, served))
    })
}

fn of_user(on: &OnGpu, user: &GpuUser) -> Option<(FindingKey, Doubt)> {
    let subject = |kind, slice: Option<&SliceName>| FindingKey {
        kind,
        slice: slice.cloned(),
        gpu: Some(on.gpu),
        whose: Some(user.id),
    };
    let stranger = |evidence| Doubt { who: Some(user.id), patience: STRANGERS, ..Doubt::new(evidence) };
    let (name, holds) = (&user.command, amount(user.holds));
    match &user.whose {
        Whose::Member { slice, charged } => {
            let doubt = of_member(user, *charged)?;
            Some((subject(EventKind::UnderReported, Some(slice)), doubt))
        }
        Whose::Relative { slice } => {
            let evidence =
                format!("{name} belongs to the slice and uses its GPU without the library: it holds {holds}");
            Some((subject(EventKind::UnshimmedProcess, Some(slice)), stranger(evidence)))
        }
        Whose::Nobody => {
            let evidence =
                format!("{name} is in no slice and uses a GPU that is for slices: it holds {holds}");
            Some((subject(EventKind::ForeignProcess, None), stranger(evidence)))
        }
    }
}

fn amount(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "what the driver does not tell".into(), |bytes| format!("{bytes}"))
}

fn of_member(user: &GpuUser, charged: Charged) -> Option<Doubt> {
    let Charged { used, granted, shared, reserve, .. } = charged;
    let holds = user.holds?;
    let excess = holds.saturating_sub(used).saturating_sub(shared);
    let name = &user.command;
    (excess > reserve.max(DRIVERS_OWN)).then(|| {
        let evidence = format!("{name} holds {holds}, says that it holds {used} and was granted {granted}");
        Doubt { who: Some(user.id), excess, ..Doubt::new(evidence) }
    })
}

/// Sum of small excesses over many processes of a slice.
fn of_crowd(on: &OnGpu, slice: &SliceName) -> Option<(FindingKey, Doubt)> {
    let members: Vec<_> = on.users.iter().filter_map(|user| unsuspected(user, slice)).collect();
    let sum = |of: fn(&Held) -> Bytes| members.iter().map(of).sum::<Bytes>();
    let (holds, known) = (sum(|(holds, _)| *holds), sum(|(_, its)| its.used.saturating_add(its.beyond)));
    // The driver may count the shared memory for each of them.
    let excess = holds.saturating_sub(known).saturating_sub(sum(|(_, its)| its.shared));
    let most = members.iter().map(|(_, its)| its.reserve).max().unwrap_or_default().max(DRIVERS_OWN);
    (excess > most.saturating_add(sum(|_| EACH))).then(|| {
        let evidence = format!(
            "its {} processes hold {holds} together, and {known} of that is known: each keeps a little secret",
            members.len()
        );
        let (kind, slice) = (EventKind::UnderReported, Some(slice.clone()));
        let subject = FindingKey { kind, slice, gpu: Some(on.gpu), whose: None };
        (subject, Doubt::new(evidence))
    })
}

/// Memory that a process holds, and its charges.
type Held = (Bytes, Charged);

/// Memory of an attached process without a discrepancy of its own.
fn unsuspected(user: &GpuUser, of: &SliceName) -> Option<Held> {
    match &user.whose {
        Whose::Member { slice, charged } if slice == of && of_member(user, *charged).is_none() => {
            Some((user.holds?, *charged))
        }
        _ => None,
    }
}

fn about(kind: EventKind, gpu: GpuUuid, served: &Served) -> FindingKey {
    FindingKey { kind, slice: Some(served.slice.clone()), gpu: Some(gpu), whose: None }
}

/// A slice that claims to use the GPU and keeps others from it.
fn of_holder(gpu: GpuUuid, served: &Served) -> Option<(FindingKey, Doubt)> {
    let kept = served.kept;
    (served.worked == Some(Permille::ZERO) && kept.get() >= HELD).then(|| {
        let evidence = format!(
            "others waited for {kept} of the time because of the slice, and the driver saw none of its processes \
             compute or move memory: its work is not waited for until it does"
        );
        (about(EventKind::GpuHeldIdle, gpu, served), Doubt { patience: SAMPLES, ..Doubt::new(evidence) })
    })
}

fn of_slice(gpu: GpuUuid, served: &Served) -> Option<(FindingKey, Doubt)> {
    let (busy, counted) = (served.busy?, served.counted);
    let (moved, most) = (served.moved, counted.get() * 2 + UNSEEN);
    // Memory traffic at full rate shows as most of the time, not all of it.
    let excused = moved.get() + moved.get() / 2;
    let unexcused = busy.get().saturating_sub(excused);
    (unexcused >= most).then(|| {
        let evidence = format!(
            "the slice's processes ran for {busy} of the time and moved memory for {moved}, and {counted} was counted: \
             some launches do not wait for their turn, or are not told"
        );
        let unsaid = Permille::try_from(unexcused.saturating_sub(counted.get())).unwrap_or(Permille::WHOLE);
        (about(EventKind::GateBypassed, gpu, served), Doubt { who: served.busiest, unsaid, ..Doubt::new(evidence) })
    })
}

fn of_page(found: &InvalidValue) -> (FindingKey, Doubt) {
    let (kind, slice) = (EventKind::UsageTampered, Some(found.slice.clone()));
    let subject = FindingKey { kind, slice, gpu: None, whose: found.who };
    let evidence = match found.what {
        Deceit::Credit { beyond } => format!("its page claims {beyond} of credit that it was not granted"),
        Deceit::Use { used, granted } => {
            format!("its page says that {used} are used of {granted} that were granted")
        }
        Deceit::Header => "a process overwrote the head of the slice's usage region".into(),
        Deceit::Time => "its page says that it is busy since some time in the future".into(),
    };
    (subject, Doubt { who: found.who, patience: AT_ONCE, ..Doubt::new(evidence) })
}
