//! The list of jobs.

use std::time::SystemTime;

use tranche_domain::jobs::{JobState, JobView, MemberView};
use tranche_domain::units::Bytes;

use crate::listing::{Entry, GPU, Listing, NAME, PROJECT, STATE, USER};
use crate::table::{Cell, Column, Tint, or_dash};
use crate::users::Names;
use crate::when;

const COLUMNS: [Column; 14] = [
    Column::left("Name").cut(12),
    Column::left("Status"),
    Column::right("Age").drop(2),
    Column::left("Type").drop(1),
    Column::left("Project").cut(8),
    Column::left("User").cut(8),
    Column::right("GPUs"),
    Column::right("Memory").wide(),
    Column::right("Compute").wide(),
    Column::right("CPUs").wide(),
    Column::right("Host memory").wide(),
    Column::left("Devices").cut(7),
    Column::left("Image").wide(),
    Column::prose("Reason"),
];

/// Jobs as a list.
pub(super) fn of(jobs: Vec<JobView>, names: &Names, now: SystemTime) -> Listing<JobView> {
    let entry = |job: JobView| Entry {
        name: job.name.to_string(),
        cells: cells(&job, names, now),
        traits: traits(&job, names),
        view: job,
    };
    let empty = "no jobs: `tranche submit NAME -g 0.5 -- CMD` hands one in";
    Listing { columns: COLUMNS.to_vec(), entries: jobs.into_iter().map(entry).collect(), empty }
}

fn cells(job: &JobView, names: &Names, now: SystemTime) -> Vec<Cell> {
    let age = when::since(job.submitted_unix_ms, now);
    vec![
        job.name.to_string().into(),
        state(job.state, job.overdue, job.idle_ms()),
        Cell::from(when::short(age)).ranked(age.as_secs()),
        job.purpose().into(),
        job.project.to_string().into(),
        names.of(job.uid).into(),
        gpus(job).into(),
        memory(job.memory),
        or_dash(job.compute).into(),
        or_dash(job.cpus).into(),
        memory(job.host_memory),
        or_dash(devices_of_all(job)).into(),
        or_dash(job.image.as_ref()).into(),
        or_dash(reason(job)).into(),
    ]
}

fn traits(job: &JobView, names: &Names) -> Vec<(&'static str, String)> {
    let mut traits = vec![
        (NAME, job.name.to_string()),
        (STATE, word(job)),
        (USER, names.of(job.uid)),
        (USER, job.uid.to_string()),
        (PROJECT, job.project.to_string()),
    ];
    // A job that is overdue has failed too, as it has in JSON.
    traits.extend(job.overdue.then(|| (STATE, job.state.to_string())));
    traits.extend(job.idle_ms().map(|_| (STATE, "idle".to_owned())));
    let gpus = job.members.iter().flat_map(|member| &member.gpus);
    traits.extend(gpus.map(|gpu| (GPU, gpu.to_string())));
    traits
}

/// State of a job in a word, in lists, descriptions and messages.
pub(super) fn word(job: &JobView) -> String {
    job.state.word(job.overdue)
}

/// State of a job or member, with the time for which it is idle.
pub(super) fn state(state: JobState, overdue: bool, idle_ms: Option<u64>) -> Cell {
    match (state, idle_ms) {
        (JobState::Running, Some(idle_ms)) => {
            Cell::from(format!("{state}, {}", when::idle(idle_ms))).tinted(Tint::Yellow)
        }
        (JobState::Running, None) => Cell::from(state.to_string()).tinted(Tint::Green),
        (JobState::Failed, _) => Cell::from(state.word(overdue)).tinted(Tint::Red),
        _ => state.to_string().into(),
    }
}

/// Reason of a job; for a running interactive job without one its address.
fn reason(job: &JobView) -> Option<&str> {
    let url = job.url.as_deref().filter(|_| job.state == JobState::Running);
    Some(job.reason.as_str()).filter(|reason| !reason.is_empty()).or(url)
}

/// GPUs in use, of the maximum for all members.
fn gpus(job: &JobView) -> String {
    let has = job.allocated();
    let wants = job.gpus_of_member.times(job.parallelism);
    if has == wants || job.parallelism == 1 { wants.to_string() } else { format!("{has}/{wants}") }
}

/// Memory of a member.
fn memory(memory: Option<Bytes>) -> Cell {
    Cell::from(or_dash(memory)).ranked(memory.unwrap_or_default().get())
}

fn devices_of_all(job: &JobView) -> Option<String> {
    let all: Vec<_> = job.members.iter().filter_map(devices).collect();
    Some(all.join(" ")).filter(|text| !text.is_empty())
}

/// GPUs of a member, such as `0,1`.
pub(super) fn devices(member: &MemberView) -> Option<String> {
    let gpus: Vec<_> = member.gpus.iter().map(u32::to_string).collect();
    Some(gpus.join(",")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Condition, ListingArgs};
    use crate::sample;
    use crate::terminal::Canvas;

    fn listed(jobs: Vec<JobView>) -> Listing<JobView> {
        of(jobs, &Names::default(), SystemTime::now())
    }

    #[test]
    fn interactive_job_shows_its_address() {
        let url = Some("http://host:8888/?token=x".into());
        let job = JobView { state: JobState::Running, url, ..sample::job("a", "jupyter") };
        let page = listed(vec![job]).page(Canvas::PLAIN);
        for part in ["jupyter", "Running", "training", "0.5", "http://host:8888/?token=x"] {
            assert!(page.text().contains(part), "{part} is missing from\n{}", page.text());
        }
    }

    #[test]
    fn overdue_job_is_found_as_such_and_as_failed() {
        let failed = JobView { state: JobState::Failed, ..sample::job("a", "broken") };
        let late = JobView { state: JobState::Failed, overdue: true, ..sample::job("a", "late") };
        let found = |state: &str| {
            let condition = Condition { key: STATE.into(), value: state.into() };
            let args = ListingArgs { filter: vec![condition], ..ListingArgs::default() };
            let listing = listed(vec![failed.clone(), late.clone()]).selected(&args).unwrap();
            listing.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        assert_eq!(found("failed"), ["broken", "late"]);
        assert_eq!(found("overdue"), ["late"]);
        assert_eq!(found("running"), [""; 0]);
    }

    #[test]
    fn limits_of_members_are_in_wide_lists() {
        let job = JobView {
            memory: Some(Bytes::mib(12_288)),
            compute: 300.try_into().ok(),
            cpus: "2.5".parse().ok(),
            host_memory: Some(Bytes::mib(8192)),
            ..sample::job("a", "train")
        };
        let page = listed(vec![job]).page(Canvas::PLAIN);
        assert!(
            page.text().contains("|  0.5 | 12288 MiB |    30 % |  2.5 |    8192 MiB |"),
            "{}",
            page.text()
        );
    }

    #[test]
    fn jobs_fit_the_terminal() {
        let names = [(1000, "ann".to_owned()), (1001, "bartholomew".to_owned())].into_iter().collect();
        let listing = of(sample::jobs(), &names, when::at(1_767_323_090_000));
        for (width, golden) in [
            (80, include_str!("golden/list-80.txt")),
            (120, include_str!("golden/list-120.txt")),
            (200, include_str!("golden/list-200.txt")),
        ] {
            let page = listing.page(Canvas::of_width(width));
            sample::assert_golden(page.text(), golden, &format!("jobs/golden/list-{width}.txt"));
            assert!(page.text().lines().all(|line| line.len() <= width));
        }
    }
}
