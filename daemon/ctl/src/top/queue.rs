//! Lines of the queue: jobs and requests that wait, with the reason.

use tranche_domain::jobs::JobView;
use tranche_domain::view::WaitingView;

use super::columns::{Grid, ScreenColumn};
use super::rows::ScreenRow;
use super::scene::Scene;
use super::sheet::{Strip, Tone};
use super::state::ScreenState;
use super::text::span;

const QUEUE: [ScreenColumn; 6] = [
    ScreenColumn { title: "Waiting", widths: (15, 28), from: 0, right: false },
    ScreenColumn { title: "User", widths: (8, 16), from: 0, right: false },
    ScreenColumn { title: "Project", widths: (10, 24), from: 0, right: false },
    ScreenColumn { title: "GPUs", widths: (5, 5), from: 0, right: true },
    ScreenColumn { title: "Since", widths: (6, 6), from: 0, right: true },
    ScreenColumn { title: "Reason", widths: (29, 400), from: 0, right: false },
];

/// Heading and lines of the queue on a screen of this width.
pub(super) fn strips(
    state: &ScreenState,
    rows: &[ScreenRow<'_>],
    width: u16,
    unix_ms: u64,
) -> (Strip, Vec<Strip>) {
    let grid = Grid::new(&QUEUE, 1, width);
    let Some(scene) = &state.scene else { return (grid.heading(), Vec::new()) };
    let strip = |row: &ScreenRow<'_>| {
        let cells = match row {
            ScreenRow::Job(job) => of_job(scene, job, unix_ms),
            ScreenRow::Request(request) => of_request(scene, request, unix_ms),
            ScreenRow::Gpu(_) | ScreenRow::Part(..) | ScreenRow::User(_) => Default::default(),
        };
        let mut strip = Strip::default();
        strip.mark(state.selected.as_ref() == Some(&row.subject()));
        cells.iter().enumerate().for_each(|(at, text)| grid.put(&mut strip, at, text, Tone::Plain));
        strip
    };
    (grid.heading(), rows.iter().map(strip).collect())
}

fn of_job(scene: &Scene, job: &JobView, unix_ms: u64) -> [String; 6] {
    [
        job.name.to_string(),
        scene.user(job.uid),
        job.project.to_string(),
        job.gpus_of_member.times(job.parallelism).to_string(),
        span(unix_ms.saturating_sub(job.submitted_unix_ms)),
        job.reason.clone(),
    ]
}

fn of_request(scene: &Scene, request: &WaitingView, unix_ms: u64) -> [String; 6] {
    let name = request.name.as_ref().map_or_else(|| format!("pid {}", request.pid), ToString::to_string);
    let user = scene.requester(request.pid).map(|uid| scene.user(uid));
    [
        name,
        user.unwrap_or_else(|| "-".into()),
        "-".into(),
        request.share.to_string(),
        span(unix_ms.saturating_sub(request.since_unix_ms)),
        request.reason.clone(),
    ]
}
