//! Sample overviews for tests: one with hostile names, and one of a large node.

use tranche_nodes::NodeFigures;

use crate::limits::{BINS_OF_DAY, COLUMNS};
use crate::overview::{
    Allocation, Band, GpuRow, JobRow, Overview, PartRow, PendingRow, ProjectRow, SliceRow,
};

/// Text that would run where it is not escaped.
pub(crate) const HOSTILE: &str = "<script>alert(\"1\")</script>'&\u{202e}";

/// A small node with a hostile name in each place that has one.
pub(crate) fn hostile() -> Overview {
    let name = || HOSTILE.to_owned();
    let overview = Overview {
        time_unix_ms: 1_767_323_045_000,
        daemon_version: "0.2.0".into(),
        simulated: true,
        figures: NodeFigures {
            gpus: 2,
            allocated_milligpus: 1500,
            idle_milligpus: 500,
            running: 1,
            pending: 1,
        },
        projects: vec![ProjectRow {
            name: name(),
            quota_milligpus: 1000,
            allocated_milligpus: 1500,
            idle_milligpus: 500,
            running: 1,
            pending: 1,
        }],
        jobs: vec![JobRow {
            project: name(),
            name: name(),
            user: name(),
            state: "Running".into(),
            milligpus: 1000,
            run_ms: Some(3_700_000),
            use_percent: Some(98),
            idle_ms: None,
            gpus: vec![0],
        }],
        pending: vec![PendingRow {
            project: Some(name()),
            name: name(),
            user: Some(name()),
            share: "2".into(),
            waiting_ms: 90_000,
            reason: name(),
        }],
        slices: vec![SliceRow {
            name: "half".into(),
            user: name(),
            project: None,
            milligpus: 500,
            age_ms: 86_400_000,
            idle_ms: Some(720_000),
            gpus: vec![1],
            ..SliceRow::default()
        }],
        gpus: vec![gpu(0), GpuRow { closed: Some(name()), foreign: 2, ..gpu(1) }],
        allocation: Some(Allocation {
            begin_unix_ms: 1_767_000_000_000,
            end_unix_ms: 1_767_323_045_000,
            bands: vec![Band { project: name(), milligpus: vec![1500; COLUMNS] }],
        }),
        omitted: 0,
    };
    overview.bounded()
}

fn gpu(index: u32) -> GpuRow {
    let mut day = vec![None; BINS_OF_DAY];
    day[BINS_OF_DAY - 2..].copy_from_slice(&[Some(0), Some(60)]);
    GpuRow {
        index,
        name: "Tesla V100".into(),
        used_bytes: 100 << 20,
        total_bytes: 32768 << 20,
        use_percent: Some(60),
        temperature_celsius: None,
        closed: None,
        foreign: 0,
        parts: vec![PartRow {
            slice: "half".into(),
            job: Some(format!("{HOSTILE}/{HOSTILE}")),
            project: Some(HOSTILE.into()),
            user: HOSTILE.into(),
            milligpus: 500,
            parked: false,
            idle_ms: Some(720_000),
        }],
        day,
    }
}

/// A node with 16 GPUs, 64 slices and 200 jobs of 4 projects, with names of usual length.
pub(crate) fn large() -> Overview {
    let project = |number: usize| format!("team-{}", number % 4);
    let job = |number: usize| JobRow {
        project: project(number),
        name: format!("train-resnet50-{number:04}"),
        user: format!("user{:02}", number % 20),
        state: "Running".into(),
        milligpus: 250,
        run_ms: Some(11_400_000),
        use_percent: Some(97),
        idle_ms: number.is_multiple_of(3).then_some(720_000),
        gpus: vec![15],
    };
    let part = |number: usize| PartRow {
        slice: format!("job-{number}-0"),
        job: Some(format!("{}/train-resnet50-{number:04}", project(number))),
        project: Some(project(number)),
        user: "user07".into(),
        milligpus: 250,
        idle_ms: Some(720_000),
        ..PartRow::default()
    };
    let gpu = |index: u32| GpuRow {
        parts: (0..4).map(part).collect(),
        day: (0..BINS_OF_DAY).map(|at| u8::try_from(at % 100).ok()).collect(),
        ..gpu(index)
    };
    let slice = |number: usize| SliceRow {
        name: format!("slice-{number}"),
        user: "user07".into(),
        project: Some(project(number)),
        ..hostile().slices[0].clone()
    };
    let pending = |number: usize| PendingRow {
        project: Some(project(number)),
        name: format!("train-bert-large-{number:04}"),
        user: Some("user07".into()),
        reason: "team-1 has its quota of 4 GPUs; 2 of 4 GPUs are free, and team-2's jobs are owed them first"
            .into(),
        ..hostile().pending[0].clone()
    };
    let band = |number: usize| Band {
        project: project(number),
        milligpus: (0..COLUMNS).map(|at| u32::try_from((at * 37 + number * 101) % 4000).unwrap()).collect(),
    };
    let mut overview = Overview {
        projects: (0..4)
            .map(|number| ProjectRow { name: project(number), ..hostile().projects[0].clone() })
            .collect(),
        jobs: (0..200).map(job).collect(),
        pending: (0..100).map(pending).collect(),
        slices: (0..64).map(slice).collect(),
        gpus: (0..16).map(gpu).collect(),
        ..hostile()
    };
    overview.figures.gpus = 16;
    overview.allocation =
        overview.allocation.map(|chart| Allocation { bands: (0..4).map(band).collect(), ..chart });
    overview
}
