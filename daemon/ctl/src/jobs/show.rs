//! Descriptions of single jobs, with their members.

use std::time::{Duration, SystemTime};

use tranche_domain::jobs::{JobState, JobView, MemberView};
use tranche_domain::text::visible;

use super::listing::{devices, state, word};
use crate::table::{Cell, Column, Page, or_dash, printable};
use crate::terminal::Canvas;
use crate::users::user;
use crate::when::{self, Clock};

/// A job in detail.
pub(super) fn description(job: &JobView, clock: Clock, canvas: Canvas) -> Page {
    let time = |unix_ms: u64| clock.seconds(when::at(unix_ms));
    let mut lines = vec![
        ("Name", job.name.to_string()),
        ("Project", job.project.to_string()),
        ("Status", word(job)),
        ("Reason", visible(&job.reason)),
        ("Type", format!("{}{}", job.purpose(), if job.preemptible { ", preemptible" } else { "" })),
        ("Health", health(job).unwrap_or_default()),
        ("Idle", job.idle_ms().map(|idle_ms| format!("for {}", when::length(idle_ms))).unwrap_or_default()),
        ("User", user(job.uid)),
        ("GPUs", gpus(job)),
        ("Memory", job.memory.map(|memory| format!("{memory} on the GPU of each")).unwrap_or_default()),
        ("Compute", job.compute.map(|compute| format!("{compute} of the GPU of each")).unwrap_or_default()),
        ("CPUs", job.cpus.map(|cpus| format!("{cpus} for each")).unwrap_or_default()),
        ("Host mem.", job.host_memory.map(|memory| format!("{memory} for each")).unwrap_or_default()),
        ("Priority", job.priority.to_string()),
        ("Latency", job.latency.map(|target| target.to_string()).unwrap_or_default()),
        ("Gang", if job.gang { "all members, or none".to_owned() } else { String::new() }),
        ("After", job.after.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ("Queue", queue(job)),
        ("Starts", start(job, clock, SystemTime::now())),
        ("Submitted", time(job.submitted_unix_ms)),
        ("Started", started(job).map(time).unwrap_or_default()),
        ("Ended", job.ended_unix_ms.map(time).unwrap_or_default()),
        ("Waited", waited(job).map(when::short).unwrap_or_default()),
        ("Ran", ran(job).map(when::short).unwrap_or_default()),
        ("Last end", last_end(job).unwrap_or_default()),
        ("Exit code", exit_code(job).unwrap_or_default()),
        ("Progress", format!("{} succeeded, {} failed", job.succeeded, job.failed)),
        ("Image", job.image.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("Mounts", visible(&listed(&job.mounts))),
        ("Ports", listed(&job.ports)),
        ("Command", printable(&job.command.join(" "))),
        ("Folder", printable(&job.workdir)),
        ("URL", job.url.as_deref().map(visible).unwrap_or_default()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    let mut page = Page::on(canvas);
    lines.iter().for_each(|(title, value)| page.line(&format!("{title:<10}{value}")));
    if !job.members.is_empty() {
        page.table(&MEMBERS, &job.members.iter().map(member).collect::<Vec<_>>());
    }
    page
}

/// GPUs of each member, with the number of members.
fn gpus(job: &JobView) -> String {
    match (job.completions, job.parallelism) {
        (1, _) => format!("{} for each member, of which there is one", job.gpus_of_member),
        (all, _) if job.gang => format!("{} for each of {all} members, all at once", job.gpus_of_member),
        (all, at_once) => format!("{} for each of {all} members, {at_once} at once", job.gpus_of_member),
    }
}

/// Health of a running service, by its check.
fn health(job: &JobView) -> Option<String> {
    let healthy = job.members.first()?.healthy?;
    let word = if healthy { "healthy" } else { "not healthy yet" };
    let check = job.service.as_ref().and_then(|service| service.health.as_ref());
    Some(check.map_or_else(
        || word.into(),
        |check| format!("{word}; port {check}, every {} s", check.interval.as_secs()),
    ))
}

/// Position of a pending job in its project's queue.
fn queue(job: &JobView) -> String {
    match (job.queue_position, job.queue_length) {
        (Some(position), Some(length)) => format!("{position} of {length} in project {}", job.project),
        _ => String::new(),
    }
}

/// Range of the next start of a pending job.
fn start(job: &JobView, clock: Clock, now: SystemTime) -> String {
    let at = |ms: u64| clock.seconds(now.checked_add(Duration::from_millis(ms)).unwrap_or(now));
    match (job.starts_after_ms, job.starts_within_ms) {
        (Some(earliest), Some(latest)) if earliest < latest => {
            format!("between {} and {}, unless others come first", at(earliest), at(latest))
        }
        (_, Some(latest)) => format!("about {}, unless others come first", at(latest)),
        (Some(earliest), None) if earliest > 0 => {
            format!("{} at the earliest; {UNBOUNDED}", at(earliest))
        }
        (Some(_), None) => format!("not known: {UNBOUNDED}"),
        (None, None) => String::new(),
    }
}

const UNBOUNDED: &str = "what is in the way has no --max-runtime, and too few jobs like it have ended";

/// Mounts or ports, separated by commas.
fn listed<T: ToString>(all: &[T]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Exit code of a job with one member that has ended by itself.
fn exit_code(job: &JobView) -> Option<String> {
    let reason = match job.state {
        JobState::Succeeded if job.completions == 1 => return Some("0".into()),
        JobState::Failed if job.completions == 1 => &job.reason,
        _ => return None,
    };
    let (_, code) = reason.split_once("exited with status ")?;
    let digits: String = code.chars().take_while(char::is_ascii_digit).collect();
    Some(digits).filter(|digits| !digits.is_empty())
}

/// Latest end of the member that was started most often, of a job that has not ended.
fn last_end(job: &JobView) -> Option<String> {
    let again = job.members.iter().filter(|member| member.last_end.is_some() && !member.state.is_final());
    let most = again.max_by_key(|member| member.starts)?;
    most.last_end.as_deref().map(visible)
}

/// Time of the latest start of a member.
fn started(job: &JobView) -> Option<u64> {
    job.members.iter().filter_map(|member| member.started_unix_ms).max()
}

/// Time between submission and the start, of a job that was started once.
fn waited(job: &JobView) -> Option<Duration> {
    let is_first = job.members.iter().all(|member| member.starts <= 1);
    let start = job.members.iter().filter_map(|member| member.started_unix_ms).min()?;
    is_first.then(|| Duration::from_millis(start.saturating_sub(job.submitted_unix_ms)))
}

/// Time between the latest start and the end, or now for a job that runs.
fn ran(job: &JobView) -> Option<Duration> {
    let start = started(job)?;
    match job.ended_unix_ms {
        Some(end) => Some(Duration::from_millis(end.saturating_sub(start))),
        None => (job.state == JobState::Running).then(|| when::since(start, SystemTime::now())),
    }
}

const MEMBERS: [Column; 7] = [
    Column::right("Member"),
    Column::left("Status"),
    Column::right("Starts").drop(2),
    Column::left("Devices").cut(8),
    Column::left("Slice").cut(12),
    Column::right("PID").drop(1),
    Column::prose("Reason"),
];

fn member(member: &MemberView) -> Vec<Cell> {
    vec![
        member.index.to_string().into(),
        state(member.state, member.overdue, member.idle_ms),
        member.starts.to_string().into(),
        or_dash(devices(member)).into(),
        or_dash(member.slice.as_ref()).into(),
        or_dash(member.pid).into(),
        or_dash(Some(&member.reason).filter(|reason| !reason.is_empty())).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn gpus_are_those_of_each_member() {
        let members = |completions, parallelism, gang| {
            gpus(&JobView { completions, parallelism, gang, ..sample::job("a", "b") })
        };
        assert_eq!(members(1, 1, false), "0.5 for each member, of which there is one");
        assert_eq!(members(9, 2, false), "0.5 for each of 9 members, 2 at once");
        assert_eq!(members(4, 4, true), "0.5 for each of 4 members, all at once");
    }

    #[test]
    fn exit_code_is_that_of_a_job_with_one_member() {
        let failed = |reason: &str| JobView {
            state: JobState::Failed,
            reason: reason.into(),
            ..sample::job("a", "b")
        };
        assert_eq!(exit_code(&failed("exited with status 7 after 2 restarts")).as_deref(), Some("7"));
        assert_eq!(exit_code(&failed("killed by SIGKILL")), None);
        let ended = JobView { state: JobState::Succeeded, ..sample::job("a", "b") };
        assert_eq!(exit_code(&ended).as_deref(), Some("0"));
        assert_eq!(exit_code(&JobView { completions: 2, ..ended }), None);
        assert_eq!(exit_code(&sample::job("a", "b")), None);
    }

    #[test]
    fn start_of_a_pending_job_is_a_range_where_that_is_known() {
        let noon = when::at(1_767_268_800_000);
        let pending = |starts_after_ms, starts_within_ms| JobView {
            starts_after_ms,
            starts_within_ms,
            ..sample::job("a", "b")
        };
        let text = |after, within| start(&pending(after, within), Clock::Utc, noon);
        let range = text(Some(60_000), Some(3_600_000));
        assert!(range.contains("12:01:00") && range.contains("13:00:00"), "{range}");
        assert!(text(Some(5_000), Some(5_000)).contains("12:00:05"));
        assert!(text(Some(60_000), None).contains("12:01:00Z at the earliest"));
        assert!(text(Some(0), None).starts_with("not known"));
        assert_eq!(text(None, None), "");
        assert!(!text(Some(u64::MAX), Some(u64::MAX)).is_empty());
    }

    #[test]
    fn absent_values_take_no_line() {
        let url = Some("http://host:8888/?token=x".into());
        let job = JobView { state: JobState::Running, url, ..sample::job("a", "jupyter") };
        let page = description(&job, Clock::Utc, Canvas::PLAIN);
        let text = page.text();
        assert!(!text.contains("Ended") && !text.contains("Command"), "{text}");
        assert!(text.contains("URL       http://host"), "{text}");
    }
}
