//! Tables and descriptions of jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tranche_domain::jobs::{JobState, JobView, MemberView};

use super::project::user;
use crate::table::{Side, draw, or_dash, printable};

const LIST: [(&str, Side); 9] = [
    ("Name", Side::Left),
    ("Status", Side::Left),
    ("Age", Side::Right),
    ("Type", Side::Left),
    ("Project", Side::Left),
    ("User", Side::Left),
    ("GPUs", Side::Right),
    ("Devices", Side::Left),
    ("Reason", Side::Left),
];

/// Jobs as a table.
pub(super) fn table(jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return "no jobs: `tranche submit NAME -g 0.5 -- CMD` hands one in".into();
    }
    // One lookup for each user, not for each job.
    let uids: BTreeSet<u32> = jobs.iter().map(|job| job.uid).collect();
    let users: Users = uids.into_iter().map(|uid| (uid, user(uid))).collect();
    draw(&LIST, jobs.iter().map(|job| row(job, &users)))
}

/// User names by uid.
type Users = BTreeMap<u32, String>;

fn row(job: &JobView, users: &Users) -> Vec<String> {
    vec![
        job.name.to_string(),
        job.state.to_string(),
        age(job),
        job.kind.to_string(),
        job.project.to_string(),
        or_dash(users.get(&job.uid)),
        gpus(job),
        devices(job),
        or_dash(reason(job)),
    ]
}

/// Reason of a job; for a running interactive job its address.
fn reason(job: &JobView) -> Option<String> {
    let url = job.url.as_deref().filter(|_| job.state == JobState::Running).map(whole);
    url.or_else(|| Some(whole(&job.reason)).filter(|reason| !reason.is_empty()))
}

/// Escaped in full: the text may be untrusted, and a cut address would be useless.
fn whole(text: &str) -> String {
    tranche_domain::text::visible(text)
}

/// GPUs in use, of the maximum for all members.
fn gpus(job: &JobView) -> String {
    let has = job.allocated();
    let wants = job.gpus_of_member.times(job.parallelism);
    if has == wants || job.parallelism == 1 { wants.to_string() } else { format!("{has}/{wants}") }
}

fn devices(job: &JobView) -> String {
    let with = job.members.iter().filter(|member| !member.gpus.is_empty());
    or_dash(Some(with.map(device).collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty()))
}

fn device(member: &MemberView) -> String {
    member.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn age(job: &JobView) -> String {
    let since = UNIX_EPOCH + Duration::from_millis(job.submitted_unix_ms);
    short(SystemTime::now().duration_since(since).unwrap_or_default())
}

/// Duration in its two largest units: `3d 4h`, `5m 6s`.
fn short(duration: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A job in detail.
pub(super) fn description(job: &JobView) -> String {
    let time = |unix_ms: u64| {
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(unix_ms)).to_string()
    };
    let mut lines = vec![
        ("Name", job.name.to_string()),
        ("Project", job.project.to_string()),
        ("Status", job.state.to_string()),
        ("Reason", whole(&job.reason)),
        ("Type", format!("{}{}", job.kind, if job.preemptible { ", preemptible" } else { "" })),
        ("User", user(job.uid)),
        (
            "GPUs",
            format!(
                "{} for each of {} members, {} at once",
                job.gpus_of_member, job.completions, job.parallelism
            ),
        ),
        ("Priority", job.priority.to_string()),
        ("Latency", job.latency.map(|target| target.to_string()).unwrap_or_default()),
        ("Gang", if job.gang { "all members".to_owned() } else { String::new() }),
        ("Submitted", time(job.submitted_unix_ms)),
        ("Ended", job.ended_unix_ms.map(time).unwrap_or_default()),
        ("Progress", format!("{} succeeded, {} failed", job.succeeded, job.failed)),
        ("Command", printable(&job.command.join(" "))),
        ("Folder", printable(&job.workdir)),
        ("URL", job.url.as_deref().map(whole).unwrap_or_default()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    let mut text: String = lines.iter().map(|(title, value)| format!("{title:<10}{value}\n")).collect();
    if !job.members.is_empty() {
        text += &draw(&MEMBERS, job.members.iter().map(member));
    }
    text
}

const MEMBERS: [(&str, Side); 7] = [
    ("Member", Side::Right),
    ("Status", Side::Left),
    ("Starts", Side::Right),
    ("Devices", Side::Left),
    ("Slice", Side::Left),
    ("PID", Side::Right),
    ("Reason", Side::Left),
];

fn member(member: &MemberView) -> Vec<String> {
    vec![
        member.index.to_string(),
        member.state.to_string(),
        member.starts.to_string(),
        or_dash(Some(device(member)).filter(|text| !text.is_empty())),
        or_dash(member.slice.as_ref()),
        or_dash(member.pid),
        or_dash(Some(whole(&member.reason)).filter(|reason| !reason.is_empty())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_domain::jobs::{JobKind, JobSpec, Size};

    fn job() -> JobView {
        let spec = JobSpec {
            project: "a".parse().unwrap(),
            name: "jupyter".parse().unwrap(),
            size: Size::Part(500.try_into().unwrap()),
            kind: JobKind::Interactive,
            preemptible: false,
            priority: Default::default(),
            parallelism: std::num::NonZeroU32::MIN,
            completions: std::num::NonZeroU32::MIN,
            latency: None,
            gang: false,
        };
        JobView {
            state: JobState::Running,
            url: Some("http://host:8888/?token=x".into()),
            ..JobView::of(&spec)
        }
    }

    #[test]
    fn interactive_job_shows_its_address() {
        let table = table(&[job()]);
        for part in ["jupyter", "Running", "interactive", "0.5", "http://host:8888/?token=x"] {
            assert!(table.contains(part), "{part} is missing from\n{table}");
        }
    }

    #[test]
    fn absent_values_take_no_line() {
        let text = description(&job());
        assert!(!text.contains("Ended") && !text.contains("Command"), "{text}");
        assert!(text.contains("URL       http://host"), "{text}");
    }

    #[test]
    fn age_has_two_units_at_most() {
        assert_eq!(short(Duration::from_secs(3 * 3600 + 62)), "3h 1m");
        assert_eq!(short(Duration::from_millis(5_900)), "5s");
    }
}
