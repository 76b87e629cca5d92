//! `tranche slice`: operations on slices.

mod listing;

use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

use serde_json::json;
use tranche_domain::compute::Priority;
use tranche_domain::id::SliceName;
use tranche_domain::park::{IdleTime, Park};
use tranche_domain::request::{ComputeMode, Resize, SliceRequest};
use tranche_domain::units::{Bytes, Permille};
use tranche_domain::view::{NodeView, ProcessView, SliceView};

use crate::cli::{
    CreateArgs, DeleteArgs, LabelArgs, ListForm, ListingArgs, OutputArgs, ResizeArgs, ShowArgs, SliceCommand,
};
use crate::client::Daemon;
use crate::errors::Failure;
use crate::listing::canvas;
use crate::out;
use crate::owners::Owners;
use crate::room;
use crate::table::Page;
use crate::waiting;
use crate::when::{self, Clock};

/// Carries out a command with the daemon at `socket`.
pub fn slice(command: SliceCommand, clock: Clock, socket: &Path) -> Result<(), Failure> {
    let mut daemon = Daemon::connect(socket)?;
    match command {
        SliceCommand::Create(args) => create(&mut daemon, args),
        SliceCommand::List(args) => list(&mut daemon, &args),
        SliceCommand::Show(args) => show(&mut daemon, args, clock),
        SliceCommand::Resize(args) => resize(&mut daemon, &args),
        SliceCommand::Freeze(args) => freeze(&mut daemon, &args, true),
        SliceCommand::Thaw(args) => freeze(&mut daemon, &args, false),
        SliceCommand::Park(args) => report("parked", &daemon.park(&args.name)?, args.output),
        SliceCommand::Unpark(args) => {
            let slice = daemon.unpark_patiently(&args.name, args.wait.unwrap_or_default())?;
            report("unparked", &slice, args.output)
        }
        SliceCommand::Label(args) => label(&mut daemon, args),
        SliceCommand::Delete(args) => delete(&mut daemon, &args),
    }
}

fn create(daemon: &mut Daemon, args: CreateArgs) -> Result<(), Failure> {
    let request = SliceRequest {
        pod: args.pod.pod(),
        several_containers: args.several_containers,
        ..args.size.request(args.name.or(args.named))
    };
    let created = daemon.create_patiently(&request, args.size.wait.unwrap_or_default());
    let slice = created.map_err(|failure| room::explained(daemon, &request, failure))?;
    report("created", &slice, args.output)
}

fn resize(daemon: &mut Daemon, args: &ResizeArgs) -> Result<(), Failure> {
    let change = Resize {
        fraction: args.fraction,
        memory: args.memory,
        compute: args.compute,
        limit: args.limit,
        priority: args.priority,
        latency: args.latency.map(|new| new.0),
        frozen: None,
    };
    let slice = daemon.resize(&args.name, change)?;
    report("resized", &slice, args.output)
}

fn freeze(daemon: &mut Daemon, args: &ShowArgs, frozen: bool) -> Result<(), Failure> {
    let slice = daemon.resize(&args.name, Resize { frozen: Some(frozen), ..Resize::default() })?;
    report(if frozen { "froze" } else { "thawed" }, &slice, args.output)
}

fn label(daemon: &mut Daemon, args: LabelArgs) -> Result<(), Failure> {
    let slice = daemon.label(&args.name, args.pod.pod())?;
    if args.output.json {
        return out::json(&slice);
    }
    let whose = slice.pod.as_ref().map_or_else(|| "no pod".into(), ToString::to_string);
    out::print(&format!("slice {} is for {whose}", slice.name))
}

fn report(done: &str, slice: &SliceView, output: OutputArgs) -> Result<(), Failure> {
    if output.json {
        out::json(slice)
    } else {
        out::print(&format!("{done} slice {}: {}{}", slice.name, size(slice), over(slice)))
    }
}

/// Remark on use beyond the cap.
fn over(slice: &SliceView) -> String {
    let over = slice.devices.iter().find(|device| device.used > device.cap);
    over.map_or_else(String::new, |device| {
        let (used, gpu) = (device.used, device.gpu_index);
        format!("; it uses {used} of GPU {gpu} and gets no more until that is less than its part")
    })
}

/// Size as text: `16255 MiB of GPU 0, 50 % of its compute`, with deviations from the defaults.
fn size(slice: &SliceView) -> String {
    let parts: Vec<_> =
        slice.devices.iter().map(|device| format!("{} of GPU {}", device.cap, device.gpu_index)).collect();
    let whose = if slice.devices.len() == 1 { "its" } else { "their" };
    let mut text = format!("{}, {} of {whose} compute", parts.join(" and "), slice.compute);
    for term in terms(slice) {
        text += &format!(", {term}");
    }
    text
}

/// Compute settings that differ from the defaults: limit, priority, latency, gang, freeze.
fn terms(slice: &SliceView) -> Vec<String> {
    let mode = (slice.mode != ComputeMode::Fair).then(|| slice.mode.to_string());
    let limit = (slice.mode != ComputeMode::Strict && slice.limit < Permille::WHOLE)
        .then(|| format!("at most {}", slice.limit));
    let priority = (slice.priority != Priority::DEFAULT).then(|| format!("priority {}", slice.priority));
    let latency = slice.latency.map(|latency| format!("latency {latency}"));
    let gang = slice.gang.as_ref().map(|gang| format!("gang {}", gang.as_str()));
    let frozen = slice.frozen.then(|| "frozen".to_owned());
    let parked = slice.parked.map(|park| format!("{} ({} of host memory)", slice.state(), park.host));
    [mode, limit, priority, latency, gang, frozen, parked].into_iter().flatten().collect()
}

fn list(daemon: &mut Daemon, args: &ListingArgs) -> Result<(), Failure> {
    let node = daemon.snapshot()?;
    let owners = Owners::of(daemon, &node.slices);
    let waiting = waiting::requests(&node, &owners, SystemTime::now());
    listing::of(node.slices, &owners).print(args)?;
    // Requests are no slices: filters do not select them, and programs that read the list expect none.
    let is_for_people = matches!(args.form(), None | Some(ListForm::Wide));
    if waiting.1.is_empty() || !is_for_people || !args.filter.is_empty() {
        return Ok(());
    }
    let mut page = Page::on(canvas(args));
    page.table(&waiting.0, &waiting.1);
    out::page(&page)
}

fn show(daemon: &mut Daemon, args: ShowArgs, clock: Clock) -> Result<(), Failure> {
    let slice = find(daemon.snapshot()?, args.name)?;
    if args.output.json {
        return out::json(&slice);
    }
    let owners = Owners::of(daemon, std::slice::from_ref(&slice));
    out::print(&describe(&slice, &owners, clock))
}

/// The slice with this name, or an error that lists the existing ones.
fn find(node: NodeView, wanted: SliceName) -> Result<SliceView, Failure> {
    let there_are = node.slices.iter().map(|slice| slice.name.clone()).collect();
    let found = node.slices.into_iter().find(|slice| slice.name == wanted);
    found.ok_or(Failure::NoSuchSlice { wanted, there_are })
}

fn describe(slice: &SliceView, owners: &Owners, clock: Clock) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<10}{value}").expect("a string takes every text");
    };
    line("slice", slice.name.to_string());
    line("share", slice.share.to_string());
    for device in &slice.devices {
        let (used, cap) = (device.used.whole_mib(), device.cap.whole_mib());
        line("memory", format!("{used} of {cap} MiB used on GPU {} ({})", device.gpu_index, device.gpu_uuid));
    }
    line("compute", format!("{} guaranteed, at most {}, {}", slice.compute, slice.limit, slice.mode));
    line("priority", slice.priority.to_string());
    if let Some(latency) = slice.latency {
        let (waits, longest) = (slice.waits, slice.waits.longest_us as f64 / 1000.0);
        let late = format!("{} of {} waits longer, the longest {longest} ms", waits.late, waits.count);
        line("latency", format!("{latency}; {late}"));
    }
    if let Some(gang) = &slice.gang {
        line("gang", gang.as_str().to_owned());
    }
    if let Some(purpose) = owners.purpose(slice) {
        line(if slice.project.is_some() { "project" } else { "job" }, purpose);
    }
    for device in &slice.devices {
        let (second, minute) = (device.compute_used_1s, device.compute_used_60s);
        line(
            "used",
            format!("{second} of GPU {} in the last second, {minute} in the last minute", device.gpu_index),
        );
    }
    let behind = slice.waits_for.iter().map(|name| format!(" (waits for {name})"));
    line("state", slice.state() + &behind.collect::<String>());
    if let Some(idle_ms) = slice.idle_ms {
        line("idle", format!("for {}", when::length(idle_ms)));
    }
    if (slice.launches_passed, slice.launches_degraded) != (0, 0) {
        let (passed, degraded) = (slice.launches_passed, slice.launches_degraded);
        line("launches", format!("{passed} let through out of turn, {degraded} while the daemon was away"));
    }
    if slice.frozen {
        line("frozen", format!("until `tranche slice thaw {}`", slice.name));
    }
    parking(slice, clock).into_iter().for_each(|(key, value)| line(key, value));
    line("tier", format!("{} ({})", slice.tier, slice.tier_reason));
    containers(slice).into_iter().for_each(|(key, value)| line(key, value));
    let (owner, uid) = (owners.user(slice), slice.owner_uid.to_string());
    line("owner", if owner == uid { format!("user {uid}") } else { format!("{owner} (uid {uid})") });
    line("created", clock.seconds(when::at(slice.created_unix_ms)));
    line("ends", listing::lifetime(slice).into());
    for process in &slice.processes {
        line("process", process_line(process));
    }
    text
}

/// Pod that a slice is for, and the use by several containers if that is permitted.
fn containers(slice: &SliceView) -> Vec<(&'static str, String)> {
    let pod = slice.pod.as_ref().map(|pod| {
        let uid = pod.uid.as_ref().map(|uid| format!(" (uid {uid})")).unwrap_or_default();
        ("pod", format!("{pod}{uid}"))
    });
    let several = slice.several_containers.then(|| ("open to", "several containers at a time".into()));
    pod.into_iter().chain(several).collect()
}

/// Idle time of a slice, and its stage while it is not on its GPUs.
fn parking(slice: &SliceView, clock: Clock) -> Vec<(&'static str, String)> {
    let length = |time: IdleTime| when::length(u64::from(time.seconds()) * 1000);
    let idle = |time| format!("after {} without use of its GPUs, until its next call", length(time));
    let idle = slice.park_idle.map(|time| ("parks", idle(time)));
    let rotates = slice.rotates.then(|| ("rotates", "with others that have no room beside it".into()));
    let key = if slice.is_away_by_turn() { "away" } else { "parked" };
    let stage = slice.parked.as_ref().map(|park| (key, parked(slice, park, clock)));
    idle.into_iter().chain(rotates).chain(stage).collect()
}

/// Stage of a slice that is not on its GPUs, and its return.
fn parked(slice: &SliceView, park: &Park, clock: Clock) -> String {
    let since = clock.seconds(when::at(park.since_unix_ms));
    if slice.is_away_by_turn() {
        let back = match slice.returns_in_ms {
            Some(ms) => format!("wanted, and back in {} at the earliest", when::length(ms)),
            None => "back for a stay after the next call of its programs".to_owned(),
        };
        return format!("since {since}, with {} of host memory; {back}", park.host);
    }
    let until = match &slice.cannot_return {
        Some(reason) => format!(", though a call of its program waits: {reason}"),
        None if park.wakes => ", until its next call".to_owned(),
        None => String::new(),
    };
    format!("{} since {since}, with {} of host memory{until}", park.stage, park.host)
}

fn process_line(process: &ProcessView) -> String {
    let inner = process.inner_pid.map(|pid| format!(" (inside: {pid})")).unwrap_or_default();
    let used: Bytes = process.used.iter().copied().sum();
    format!("{}{inner} {}, {} MiB", process.pid, process.command, used.whole_mib())
}

/// Deletes slices; continues after a failure.
fn delete(daemon: &mut Daemon, args: &DeleteArgs) -> Result<(), Failure> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for name in &args.names {
        match daemon.delete(name, args.force) {
            Ok(killed) if args.output.json => done.push(json!({"deleted": name, "killed": killed})),
            Ok(killed) => out::print(&deleted(name, &killed))?,
            Err(failure) => failed.push(failure),
        }
    }
    match (args.output.json, args.names.len()) {
        (false, _) => {}
        // One name has the form that it had before there could be several.
        (true, 1) => done.iter().try_for_each(out::json)?,
        (true, _) => out::json(&done)?,
    }
    out::failures(failed)
}

fn deleted(name: &SliceName, killed: &[u32]) -> String {
    let pids: Vec<_> = killed.iter().map(ToString::to_string).collect();
    match pids.as_slice() {
        [] => format!("deleted slice {name}"),
        [one] => format!("deleted slice {name} and killed its process {one}"),
        many => format!("deleted slice {name} and killed its processes {}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use tranche_domain::view::ComputeState;

    use super::*;
    use crate::sample;

    #[test]
    fn new_slice_is_reported_in_one_line() {
        let node = sample::node();
        assert_eq!(size(&node.slices[0]), "9753 MiB of GPU 0, 30 % of its compute");
        let slice = SliceView {
            limit: Permille::try_from(400).unwrap(),
            priority: Priority::new(5),
            frozen: true,
            ..node.slices[0].clone()
        };
        assert!(size(&slice).ends_with("30 % of its compute, at most 40 %, priority 5, frozen"));
    }

    #[test]
    fn a_slice_is_described_line_by_line() {
        let text = describe(&sample::node().slices[1], &sample::owners(), Clock::Utc);
        assert_eq!(
            text,
            "slice     frac05\n\
             share     0.5\n\
             memory    8500 of 16255 MiB used on GPU 0 (GPU-00000000-0000-0000-0000-000000000000)\n\
             compute   50 % guaranteed, at most 100 %, fair\n\
             priority  0\n\
             job       vision/train\n\
             used      41.2 % of GPU 0 in the last second, 39 % in the last minute\n\
             state     over its share (waits for frac03)\n\
             launches  3 let through out of turn, 0 while the daemon was away\n\
             tier      preload (the daemon serves one user)\n\
             pod       default/train-0/main (uid 7-a)\n\
             owner     ann (uid 1000)\n\
             created   2026-01-02T03:04:05Z\n\
             ends      with its last process\n\
             process   4242 (inside: 7) python3 train.py, 8500 MiB\n"
        );
    }

    #[test]
    fn state_of_a_parked_slice_is_its_stage() {
        let slice = SliceView { compute_state: ComputeState::Frozen, ..sample::parked() };
        let text = describe(&slice, &sample::owners(), Clock::Utc);
        assert!(text.contains("\nstate     parked\n") && !text.contains("frozen"), "{text}");
        assert!(text.contains("\nparked    parked since 2026-01-02T03:04:05Z"), "{text}");
    }

    #[test]
    fn slice_that_is_away_by_its_turn_is_not_shown_as_parked() {
        let text = describe(&sample::away(), &sample::owners(), Clock::Utc);
        assert!(text.contains("\nstate     away (rotates)\n") && !text.contains("parked"), "{text}");
        let expected = "since 2026-01-02T03:04:05Z, with 8500 MiB of host memory; wanted, and back in ";
        assert!(text.contains(expected), "{text}");
        let unwanted = SliceView { returns_in_ms: None, ..sample::away() };
        let text = describe(&unwanted, &sample::owners(), Clock::Utc);
        assert!(text.contains("back for a stay after the next call of its programs"), "{text}");
    }

    #[test]
    fn deletion_lists_killed_processes() {
        let name = "a".parse().unwrap();
        assert_eq!(deleted(&name, &[]), "deleted slice a");
        assert_eq!(deleted(&name, &[7]), "deleted slice a and killed its process 7");
        assert_eq!(deleted(&name, &[7, 8]), "deleted slice a and killed its processes 7, 8");
    }

    #[test]
    fn missing_slice_is_not_found() {
        let failure = find(sample::node(), "nobody".parse().unwrap()).unwrap_err();
        assert_eq!(failure.to_string(), "there is no slice named nobody; there are: frac03, frac05, pair");
    }
}
