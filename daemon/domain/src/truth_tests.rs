use super::*;
use crate::id::{GpuUuid, HostPid};
use crate::slice::ProcessId;
use crate::units::Permille;
use proptest::prelude::*;
use std::vec;

const GPU: GpuUuid = GpuUuid::from_bytes([7; 16]);
const CONTEXT: Bytes = Bytes::mib(308);

fn id(pid: u32) -> ProcessId {
    ProcessId { pid: HostPid::new(pid), start_time: 5 }
}

fn name(text: &str) -> SliceName {
    text.parse().unwrap()
}

fn user(pid: u32, holds: u64, whose: Whose) -> GpuUser {
    GpuUser { id: id(pid), command: "python3".into(), holds: Some(Bytes::mib(holds)), whose }
}

fn member(pid: u32, holds: u64, used: u64) -> GpuUser {
    let (used, granted) = (Bytes::mib(used), Bytes::mib(used));
    let charged = Charged { used, granted, reserve: CONTEXT, ..Charged::default() };
    user(pid, holds, Whose::Member { slice: name("a"), charged })
}

fn picture(users: Vec<GpuUser>) -> ObservedNode {
    ObservedNode { gpus: vec![OnGpu { gpu: GPU, users, slices: Vec::new() }], found: Vec::new() }
}

fn running(busy: Option<u32>, counted: u32) -> ObservedNode {
    let share = |permille: u32| Permille::try_from(permille).unwrap();
    let served = Served {
        slice: name("a"),
        busy: busy.map(share),
        worked: busy.map(share),
        counted: share(counted),
        kept: Permille::ZERO,
        moved: Permille::ZERO,
        busiest: busy.map(id), // another each time: what is found is the slice's
    };
    ObservedNode {
        gpus: vec![OnGpu { gpu: GPU, users: Vec::new(), slices: vec![served] }],
        found: Vec::new(),
    }
}

/// Others wait because of a slice for so much of the time.
fn keeping(busy: Option<u32>, kept: u32) -> ObservedNode {
    let mut picture = running(busy, 0);
    picture.gpus[0].slices[0].kept = Permille::try_from(kept).unwrap();
    picture
}

#[test]
fn slice_that_keeps_others_waiting_and_moves_memory_is_not_named() {
    let mut truth = Truth::new(ViolationPolicy::Report);
    let mut now = Duration::from_secs(100);
    let mut picture = keeping(Some(0), 900);
    picture.gpus[0].slices[0].worked = Permille::try_from(900).ok();
    for _ in 0..20 {
        let outcome = truth.look(&picture, now);
        assert!(outcome.news.is_empty() && outcome.hollow.is_empty(), "{:?}", outcome.news);
        now += outcome.again;
    }
}

#[test]
fn slice_that_keeps_others_waiting_and_computes_nothing_is_named_and_not_killed() {
    let mut truth = Truth::new(ViolationPolicy::Kill { grace: Duration::ZERO });
    let mut now = Duration::from_secs(100);
    let (mut news, mut hollow) = (Vec::new(), BTreeSet::new());
    for _ in 0..20 {
        let outcome = truth.look(&keeping(Some(0), 400), now);
        assert!(outcome.kill.is_empty() && outcome.end.is_empty() && outcome.hiding.is_empty());
        now += outcome.again;
        news.extend(outcome.news);
        hollow = outcome.hollow;
    }
    assert_eq!(news.len(), 1);
    assert_eq!((&news[0].subject.kind, &news[0].subject.slice), (&EventKind::GpuHeldIdle, &Some(name("a"))));
    assert_eq!(hollow, BTreeSet::from([name("a")]));
    let computes = truth.look(&keeping(Some(50), 400), now);
    assert!(computes.hollow.is_empty() && computes.over.len() == 1);
}

#[test]
fn slice_that_computes_or_keeps_little_or_of_which_the_driver_says_nothing_is_not_named() {
    for picture in [keeping(Some(10), 900), keeping(Some(0), 90), keeping(None, 900)] {
        let mut truth = calm(ViolationPolicy::Report);
        assert_eq!(time_to_news(&mut truth, &picture), None);
    }
    // It has just begun, and the driver's samples are of before.
    let mut truth = calm(ViolationPolicy::Report);
    for look in 0..6 {
        let at = Duration::from_secs(100) + DOUBT * look;
        assert!(truth.look(&keeping(Some(0), 900), at).news.is_empty());
    }
    assert!(truth.look(&keeping(Some(300), 900), Duration::from_secs(102)).news.is_empty());
}

fn deceit(pid: u32) -> ObservedNode {
    let found =
        InvalidValue { slice: name("a"), who: Some(id(pid)), what: Deceit::Credit { beyond: Bytes::mib(9) } };
    ObservedNode { gpus: Vec::new(), found: vec![found] }
}

/// Audits the same picture, at the times of each outcome, until there is news.
fn time_to_news(truth: &mut Truth, picture: &ObservedNode) -> Option<(Duration, Finding)> {
    let mut passed = Duration::ZERO;
    while passed <= Duration::from_secs(5) {
        let outcome = truth.look(picture, Duration::from_secs(100) + passed);
        if let Some(finding) = outcome.news.into_iter().next() {
            return Some((passed, finding));
        }
        passed += outcome.again;
    }
    None
}

fn calm(violations: ViolationPolicy) -> Truth {
    let mut truth = Truth::new(violations);
    assert_eq!(truth.look(&picture(Vec::new()), Duration::ZERO).again, CALM);
    truth
}

fn each_violation() -> Vec<(EventKind, ObservedNode)> {
    vec![
        (EventKind::ForeignProcess, picture(vec![user(9, 100, Whose::Nobody)])),
        (EventKind::UnshimmedProcess, picture(vec![user(9, 100, Whose::Relative { slice: name("a") })])),
        (EventKind::UnderReported, picture(vec![member(9, 1400, 1000)])),
        (EventKind::GateBypassed, running(Some(300), 40)),
        (EventKind::UsageTampered, deceit(9)),
    ]
}

#[test]
fn whatever_is_wrong_is_known_within_two_seconds_of_its_beginning() {
    for (kind, picture) in each_violation() {
        let mut truth = calm(ViolationPolicy::Report);
        // It may begin right after a look, so that a whole pause passes before the first that shows it.
        let (passed, finding) = time_to_news(&mut truth, &picture).unwrap();
        assert_eq!(finding.subject.kind, kind);
        assert!(CALM + passed < Duration::from_secs(2), "{kind}: {passed:?}");
        assert_eq!(truth.standing().count(), 1);
    }
}

#[test]
fn what_is_found_is_told_once_and_that_it_is_over_once() {
    for (kind, picture) in each_violation() {
        let mut truth = calm(ViolationPolicy::Report);
        time_to_news(&mut truth, &picture).unwrap();
        let mut now = Duration::from_secs(200);
        assert_eq!(truth.look(&picture, now).news, [], "{kind}");
        let mut over = 0;
        for _ in 0..100 {
            now += Duration::from_secs(1);
            over += truth.look(&self::picture(Vec::new()), now).over.len();
        }
        assert_eq!((over, truth.standing().count()), (1, 0), "{kind}");
    }
}

#[test]
fn a_race_between_two_clocks_is_no_finding() {
    let never = [EventKind::UsageTampered, EventKind::UnshimmedProcess, EventKind::ForeignProcess];
    for (kind, picture) in each_violation().into_iter().filter(|(kind, _)| !never.contains(kind)) {
        let mut truth = calm(ViolationPolicy::Kill { grace: Duration::ZERO });
        for turn in 0..50 {
            // Every other time the driver lags behind, or is ahead.
            let shown = if turn % 2 == 0 { &picture } else { &self::picture(Vec::new()) };
            let outcome = truth.look(shown, Duration::from_millis(250 * turn));
            assert!(outcome.news.is_empty() && outcome.kill.is_empty(), "{kind}: {outcome:?}");
        }
    }
}

#[test]
fn a_driver_that_says_nothing_new_neither_shows_anything_nor_clears_it() {
    let mut truth = calm(ViolationPolicy::Report);
    let mut outcome = AuditOutcome::default();
    for (at, busy) in [Some(900), None, Some(900), None, None, Some(900)].into_iter().enumerate() {
        outcome = truth.look(&running(busy, 0), Duration::from_millis(250 * at as u64));
    }
    assert_eq!(outcome.news.len(), 1);
    assert_eq!(truth.look(&running(None, 0), Duration::from_secs(9)).over, []);
    assert_eq!(truth.look(&running(Some(0), 0), Duration::from_secs(10)).over.len(), 1);
}

#[test]
fn what_was_taken_in_secret_is_told_once_and_its_slice_is_not_trusted_for_a_minute() {
    let mut truth = calm(ViolationPolicy::Report);
    let mut hidden = Vec::new();
    // It began half a second before the audit at the end of the first.
    for at in [1000, 1250, 1500, 2500] {
        let mut outcome = truth.look(&running(Some(640), 40), Duration::from_millis(at));
        hidden.push(outcome.hiding.remove(&name("a")));
    }
    let ms = |ms: u64| Some(Duration::from_millis(ms));
    assert_eq!(hidden, [None, None, ms(300 + 150 + 150), ms(0)]);
    let mut trusted =
        |picture: &ObservedNode, at| truth.look(picture, Duration::from_secs(at)).hiding.is_empty();
    assert!(!trusted(&running(Some(0), 0), 3) && !trusted(&running(Some(0), 0), 62));
    assert!(trusted(&running(Some(0), 0), 63));
}

#[test]
fn a_slice_of_the_name_of_one_that_hid_what_it_used_is_trusted() {
    let mut truth = calm(ViolationPolicy::Report);
    assert!(time_to_news(&mut truth, &running(Some(640), 40)).is_some());
    let mut trusted =
        |picture: &ObservedNode, at| truth.look(picture, Duration::from_secs(at)).hiding.is_empty();
    assert!(trusted(&picture(Vec::new()), 110) && trusted(&running(Some(0), 0), 111));
}

#[test]
fn time_in_which_memory_was_moved_is_nobodys_secret_and_all_beyond_is() {
    let mut moving = running(Some(950), 10);
    moving.gpus[0].slices[0].moved = Permille::try_from(500).unwrap();
    assert_eq!(time_to_news(&mut calm(ViolationPolicy::Report), &moving), None);
    moving.gpus[0].slices[0].moved = Permille::try_from(300).unwrap();
    let (_, found) = time_to_news(&mut calm(ViolationPolicy::Report), &moving).unwrap();
    assert!(found.evidence.contains("95 % of the time and moved memory for 30 %, and 1 % was"), "{found:?}");
}

#[test]
fn whoever_stops_within_the_grace_lives_but_a_deceit_is_not_undone() {
    let grace = Duration::from_secs(10);
    let mut truth = calm(ViolationPolicy::Kill { grace });
    let (_, found) = time_to_news(&mut truth, &picture(vec![member(9, 2000, 1000)])).unwrap();
    assert_eq!(found.excess, Bytes::mib(1000));
    let outcome = truth.look(&picture(vec![member(9, 1000, 1000)]), Duration::from_secs(300));
    assert_eq!((outcome.kill.len(), outcome.over.len()), (0, 1));

    let at = Duration::from_secs(400);
    truth.look(&deceit(8), at);
    assert!(truth.look(&picture(Vec::new()), at + grace / 2).kill.is_empty());
    let killed = truth.look(&picture(Vec::new()), at + grace).kill;
    assert_eq!(killed[0].who, Some(id(8)));
    assert!(killed[0].told_killed().evidence.contains("usage-tampered, and `violations` says so"));
}

/// Processes of 200 ms that do the same one after the other, each seen by one audit at most.
fn short_lives(now: Duration, every_ms: u64, picture: impl Fn(u32) -> ObservedNode) -> ObservedNode {
    let (life, at) = (now.as_millis() as u64 / every_ms, now.as_millis() as u64 % every_ms);
    if at < 200 { picture(1000 + life as u32) } else { self::picture(Vec::new()) }
}

/// The picture that a process with this pid makes.
type PictureOf = fn(u32) -> ObservedNode;

fn each_short_violation() -> Vec<(EventKind, PictureOf)> {
    vec![
        (EventKind::ForeignProcess, |pid| picture(vec![user(pid, 100, Whose::Nobody)])),
        (EventKind::UnshimmedProcess, |pid| {
            picture(vec![user(pid, 100, Whose::Relative { slice: name("a") })])
        }),
        (EventKind::UnderReported, |pid| picture(vec![member(pid, 1400, 1000)])),
    ]
}

#[test]
fn lives_too_short_to_be_found_alone_add_up() {
    for (kind, violation) in each_short_violation() {
        let (mut truth, mut now) = (calm(ViolationPolicy::Report), Duration::from_millis(100_037));
        let mut news = Vec::new();
        while news.is_empty() && now < Duration::from_secs(110) {
            let outcome = truth.look(&short_lives(now, 307, violation), now);
            news = outcome.news;
            now += outcome.again;
        }
        assert!(news.len() == 1 && news[0].subject.kind == kind, "{kind} until {now:?}: {news:?}");
        assert!(news[0].subject.whose.is_none() && news[0].evidence.contains("come and go"), "{news:?}");
        let mut over = 0;
        for second in 0..100 {
            over += truth.look(&picture(Vec::new()), now + Duration::from_secs(second)).over.len();
        }
        assert_eq!((over, truth.standing().count()), (1, 0), "{kind}");
    }
}

#[test]
fn grace_runs_on_while_processes_follow_each_other() {
    let grace = Duration::from_secs(10);
    for (kind, violation) in each_short_violation().into_iter().skip(1) {
        let (mut truth, mut now) = (calm(ViolationPolicy::Kill { grace }), Duration::from_secs(100));
        let (mut found, mut killed, mut ended) = (None, BTreeMap::new(), None);
        while ended.is_none() && now < Duration::from_secs(130) {
            let outcome = truth.look(&short_lives(now, 307, violation), now);
            found = found.or_else(|| outcome.news.first().map(|_| now));
            killed.extend(outcome.kill.iter().map(|finding| (finding.who, now)));
            ended = outcome.end.contains_key(&name("a")).then_some(now);
            now += outcome.again;
        }
        let first = *killed.values().min().unwrap_or(&now);
        assert!(
            found.is_some_and(|found| first >= found + grace && first < found + grace * 2),
            "{kind}: {first:?}"
        );
        assert_eq!(killed.len(), 4, "{kind}: three by themselves, and the slice with the next");
        assert!(ended.is_some(), "{kind}");
        let later = now + Duration::from_secs(100);
        assert!(
            truth.look(&short_lives(later, 1, violation), later).kill.is_empty(),
            "{kind}: it begins anew"
        );
    }
}

#[test]
fn process_that_stays_is_killed_alone() {
    let mut truth = calm(ViolationPolicy::Kill { grace: Duration::ZERO });
    for second in 0..100 {
        let stays = picture(vec![user(9, 100, Whose::Relative { slice: name("a") })]);
        let outcome = truth.look(&stays, Duration::from_secs(100 + second));
        assert!(outcome.end.is_empty() && outcome.kill.iter().all(|finding| finding.who == Some(id(9))));
    }
}

#[test]
fn the_least_excess_that_was_seen_is_what_is_charged() {
    let mut truth = calm(ViolationPolicy::Report);
    let mut news = Vec::new();
    for (at, holds) in [3000, 1500, 2000].into_iter().enumerate() {
        let seen = picture(vec![member(9, holds, 1000)]);
        news = truth.look(&seen, Duration::from_millis(250 * at as u64)).news;
    }
    assert_eq!(news[0].excess, Bytes::mib(500));
}

#[test]
fn who_takes_more_after_he_was_found_out_is_charged_for_that_too() {
    let mut truth = calm(ViolationPolicy::Report);
    let mut charged = Vec::new();
    for (at, holds) in [2000, 2000, 2000, 5000, 9000, 9000, 9000, 1000].into_iter().enumerate() {
        let outcome = truth.look(&picture(vec![member(9, holds, 1000)]), Duration::from_secs(at as u64));
        assert!(outcome.again == DOUBT || at == 2 || at >= 6, "while it grows it is looked at often");
        charged.extend(outcome.charge.into_iter().map(|finding| finding.excess.whole_mib()));
    }
    assert_eq!(truth.look(&picture(vec![member(9, 1000, 1000)]), Duration::from_secs(9)).again, CALM);
    assert_eq!(charged, [1000, 1000, 1000, 4000, 8000], "the least of three looks, while he is seen");
}

/// A slice whose processes each hold and record given amounts.
fn crowd(members: u32, holds: u64, used: u64) -> ObservedNode {
    let ObservedNode { mut gpus, .. } = running(None, 0);
    gpus[0].users = (1..=members).map(|pid| member(pid, holds, used)).collect();
    ObservedNode { gpus, found: Vec::new() }
}

#[test]
fn many_who_keep_a_little_secret_are_seen_together_and_nobody_is_killed_for_it() {
    let mut truth = calm(ViolationPolicy::Kill { grace: Duration::ZERO });
    let (passed, found) = time_to_news(&mut truth, &crowd(3, 300, 0)).unwrap();
    assert!(CALM + passed < Duration::from_secs(2), "{passed:?}");
    assert_eq!((found.subject.kind, found.who, found.excess), (EventKind::UnderReported, None, Bytes::ZERO));
    assert!(found.evidence.contains("its 3 processes hold 900 MiB together"), "{}", found.evidence);
    assert_eq!(truth.look(&crowd(3, 300, 0), Duration::from_secs(200)).kill, []);
}

#[test]
fn many_for_whom_the_driver_takes_a_little_more_are_accused_of_nothing() {
    let mut truth = calm(ViolationPolicy::Report);
    assert_eq!(time_to_news(&mut truth, &crowd(40, 1032, 1000)), None);
    let mut charged = crowd(40, 1250, 1000);
    for user in &mut charged.gpus[0].users {
        let Whose::Member { charged, .. } = &mut user.whose else { unreachable!("all are members") };
        charged.beyond = Bytes::mib(250);
    }
    assert_eq!(time_to_news(&mut truth, &charged), None, "what was charged since is no secret");
}

#[test]
fn the_evidence_has_the_figures() {
    let mut truth = calm(ViolationPolicy::Report);
    let (_, finding) = time_to_news(&mut truth, &picture(vec![member(9, 1400, 1000)])).unwrap();
    let told = finding.told();
    assert_eq!(told.evidence, "python3 holds 1400 MiB, says that it holds 1000 MiB and was granted 1000 MiB");
    assert_eq!((told.pid, told.gpu, told.slice), (Some(HostPid::new(9)), Some(GPU), Some(name("a"))));
}

fn any_whose() -> impl Strategy<Value = Whose> {
    let amount = || (0u64..5000).prop_map(Bytes::mib);
    let charged = (amount(), amount(), amount(), amount()).prop_map(|(used, granted, shared, reserve)| {
        Charged { used, granted, shared, reserve, beyond: used }
    });
    prop_oneof![
        charged.prop_map(|charged| Whose::Member { slice: name("a"), charged }),
        Just(Whose::Relative { slice: name("a") }),
        Just(Whose::Nobody),
    ]
}

fn any_picture() -> impl Strategy<Value = ObservedNode> {
    let user = (1u32..5, 0u64..9000, any_whose()).prop_map(|(pid, holds, whose)| user(pid, holds, whose));
    let running =
        (proptest::option::of(0u32..=1000), 0u32..=1000).prop_map(|(busy, counted)| running(busy, counted));
    let users = proptest::collection::vec(user, 0..4).prop_map(picture);
    prop_oneof![users, running, (1u32..5).prop_map(deceit)]
}

proptest! {
    #[test]
    fn who_is_honest_is_never_found_out_whatever_he_holds(
        amounts in proptest::collection::vec((0u64..30_000, 0u64..=256), 1..40),
    ) {
        let mut truth = calm(ViolationPolicy::Kill { grace: Duration::ZERO });
        for (at, (used, drivers_own)) in amounts.into_iter().enumerate() {
            let honest = picture(vec![member(9, used + drivers_own, used)]);
            let outcome = truth.look(&honest, Duration::from_secs(at as u64));
            prop_assert_eq!(outcome, AuditOutcome { again: CALM, ..AuditOutcome::default() });
        }
    }

    #[test]
    fn nobody_is_killed_who_is_in_no_slice_or_before_the_grace_or_where_it_is_not_said(
        pictures in proptest::collection::vec((any_picture(), 0u64..3000), 0..60), grace in 0u64..20, kill: bool,
    ) {
        let grace = Duration::from_secs(grace);
        let violations = if kill { ViolationPolicy::Kill { grace } } else { ViolationPolicy::Report };
        let (mut truth, mut now) = (Truth::new(violations), Duration::ZERO);
        let mut found: BTreeMap<FindingKey, Duration> = BTreeMap::new();
        let mut first: BTreeMap<(EventKind, Option<SliceName>), Duration> = BTreeMap::new();
        for (picture, millis) in pictures {
            now += Duration::from_millis(millis);
            let outcome = truth.look(&picture, now);
            for over in &outcome.over {
                prop_assert!(found.remove(&over.subject).is_some(), "over without having begun: {:?}", over);
            }
            for news in &outcome.news {
                prop_assert!(found.insert(news.subject.clone(), now).is_none(), "told twice: {:?}", news);
                first.entry((news.subject.kind.clone(), news.subject.slice.clone())).or_insert(now);
            }
            for killed in &outcome.kill {
                prop_assert!(kill && killed.who.is_some() && killed.subject.slice.is_some());
                prop_assert!(killed.subject.kind != EventKind::ForeignProcess);
                let offender = (killed.subject.kind.clone(), killed.subject.slice.clone());
                prop_assert!(first.get(&offender).is_some_and(|first| now - *first >= grace));
            }
            for (slice, last) in &outcome.end {
                prop_assert!(last.subject.slice.as_ref() == Some(slice) && outcome.kill.contains(last));
            }
            let standing: BTreeSet<_> = truth.standing().map(|finding| &finding.subject).collect();
            prop_assert_eq!(standing, found.keys().collect::<BTreeSet<_>>());
        }
    }
}
