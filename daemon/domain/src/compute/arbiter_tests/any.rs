//! Anything that tenants may be promised, do and claim.

use super::game::{Player, gpu, share};
use super::*;

/// Of a few slices, in permille; together the whole at most.
pub(super) fn requests() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(20u32..400, 2..7).prop_map(|parts| {
        let sum: u32 = parts.iter().sum();
        parts.into_iter().map(|part| (part * 1000 / sum).max(10)).collect()
    })
}

/// Work and rest in turns, or work alone.
pub(super) fn habit() -> impl Strategy<Value = Vec<(Nanos, Nanos)>> {
    let length = prop_oneof![1u64..20, 20u64..400];
    let turn = (length.clone(), length).prop_map(|(work, rest)| (Nanos::millis(work), Nanos::millis(rest)));
    prop_oneof![1 => Just(Vec::new()), 3 => prop::collection::vec(turn, 1..6)]
}

/// A latency target, or more often none.
fn latency() -> impl Strategy<Value = Option<Latency>> {
    let target = (2_000u32..100_000).prop_map(|micros| Latency::try_from(micros).expect("in range"));
    prop::option::weighted(0.3, target)
}

/// Fair slices with habits.
pub(super) fn fair_players() -> impl Strategy<Value = Vec<Player>> {
    let slice = (habit(), latency());
    (requests(), prop::collection::vec(slice, 7)).prop_map(|(requests, slices)| {
        let terms = requests.into_iter().map(|request| terms(ComputeMode::Fair, request));
        let player = |(terms, (habit, latency))| Player { terms: ComputeTerms { latency, ..terms }, habit };
        terms.zip(slices).map(player).collect()
    })
}

/// Slices of GPU 0 of any mode, limit and rank, some of them frozen.
pub(super) fn any_players() -> impl Strategy<Value = Vec<Player>> {
    let limit = prop_oneof![2 => Just(1000u32), 1 => 20u32..1000];
    let slice = (limit, -3i8..=3, prop::bool::weighted(0.1), any::<bool>(), habit(), latency());
    (requests(), prop::collection::vec(slice, 7)).prop_map(|(requests, slices)| {
        let slices = requests.into_iter().zip(slices);
        let player = |(request, (limit, rank, frozen, asks, habit, latency)): (u32, _)| {
            let request = if asks { share(request) } else { Permille::ZERO };
            let (gpus, limit) = (vec![gpu(0)], share(limit));
            let priority = Priority::new(rank);
            Player {
                terms: ComputeTerms { gpus, request, limit, priority, frozen, latency, gang: None },
                habit,
            }
        };
        slices.map(player).collect()
    })
}

/// Call of an arbiter.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Admit(usize, ComputeTerms),
    Change(usize, ComputeTerms),
    Leave(usize),
    Observe(usize, Observed),
    Decide,
}

fn any_terms() -> impl Strategy<Value = ComputeTerms> {
    let gpus = prop::collection::btree_set(0u8..3, 0..3);
    let gang = prop::option::of(
        prop_oneof![Just("a"), Just("b")]
            .prop_map(|name| Gang { owner_uid: 1, name: name.parse().expect("a label") }),
    );
    (gpus, 0u32..=1000, 0u32..=1000, -2i8..=2, any::<bool>(), latency(), gang).prop_map(
        |(gpus, request, limit, rank, frozen, latency, gang)| ComputeTerms {
            gpus: gpus.into_iter().map(gpu).collect(),
            request: share(request),
            limit: share(limit),
            priority: Priority::new(rank),
            frozen,
            latency,
            gang,
        },
    )
}

fn any_nanos() -> impl Strategy<Value = Nanos> {
    prop_oneof![0u64..20_000_000, any::<u64>(), Just(0)].prop_map(Nanos::new)
}

fn any_observed() -> impl Strategy<Value = Observed> {
    let busy = prop::collection::vec(any_nanos(), 0..4);
    let state = any::<(bool, bool, u32, bool)>();
    (busy, any_nanos(), state, any_nanos(), any_nanos(), any::<u64>()).prop_map(
        |(busy, outstanding, (claims_work, waiting, contexts, in_order), kernel, longest, progress)| {
            Observed {
                busy,
                outstanding,
                claims_work,
                waiting,
                contexts,
                in_order,
                kernel,
                longest,
                progress,
            }
        },
    )
}

pub(super) fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0usize..5, any_terms()).prop_map(|(at, terms)| Event::Admit(at, terms)),
        (0usize..5, any_terms()).prop_map(|(at, terms)| Event::Change(at, terms)),
        (0usize..5).prop_map(Event::Leave),
        (0usize..5, any_observed()).prop_map(|(at, seen)| Event::Observe(at, seen)),
        Just(Event::Decide),
        Just(Event::Decide),
    ]
}
