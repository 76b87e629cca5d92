//! The list of projects.

use tranche_domain::jobs::{MilliGpus, ProjectView};

use crate::listing::{Entry, Listing, NAME, PROJECT, STATE, USER};
use crate::table::{Cell, Column, Tint, or_dash};
use crate::users::Names;

const COLUMNS: [Column; 8] = [
    Column::left("Project").cut(12),
    Column::right("Allocated"),
    Column::right("Idle"),
    Column::right("Quota"),
    Column::right("Weight").drop(1),
    Column::right("Running"),
    Column::right("Queued"),
    Column::prose("Members"),
];

/// The projects with quota, use and queue.
pub(super) fn of(projects: Vec<ProjectView>, names: &Names) -> Listing<ProjectView> {
    let entry = |view: ProjectView| {
        let (name, members) = (view.project.name.to_string(), &view.project.members);
        let users: Vec<String> = members.iter().map(|uid| names.of(*uid)).collect();
        let mut traits = vec![(NAME, name.clone()), (PROJECT, name.clone())];
        traits.extend(users.iter().map(|user| (USER, user.clone())));
        traits.extend(members.iter().map(|uid| (USER, uid.to_string())));
        traits.extend((view.idle > MilliGpus::ZERO).then(|| (STATE, "idle".to_owned())));
        traits.extend((view.queued > 0).then(|| (STATE, "queued".to_owned())));
        traits.extend((view.running > 0).then(|| (STATE, "running".to_owned())));
        Entry { name, cells: cells(&view, &users), traits, view }
    };
    let empty = "no projects: `tranche project create NAME --quota 4` makes one";
    Listing { columns: COLUMNS.to_vec(), entries: projects.into_iter().map(entry).collect(), empty }
}

fn cells(view: &ProjectView, users: &[String]) -> Vec<Cell> {
    let idle = if view.idle > MilliGpus::ZERO { Tint::Yellow } else { Tint::Plain };
    vec![
        view.project.name.to_string().into(),
        view.allocated.to_string().into(),
        Cell::from(view.idle.to_string()).tinted(idle),
        view.project.quota.to_string().into(),
        or_dash(view.project.weight).into(),
        view.running.to_string().into(),
        view.queued.to_string().into(),
        match view.implicit {
            // Slices of theirs count for it, and it takes no jobs.
            true => "users in no project".into(),
            false => or_dash(Some(users.join(", ")).filter(|users| !users.is_empty())).into(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::terminal::Canvas;
    use tranche_domain::jobs::Project;

    #[test]
    fn default_project_is_of_the_users_in_none() {
        let project = Project::new("default".parse().unwrap(), MilliGpus::ONE);
        let (allocated, idle) = (MilliGpus::ONE, MilliGpus::ZERO);
        let view = ProjectView { project, implicit: true, allocated, idle, running: 0, queued: 0 };
        let page = of(vec![view], &Names::default()).page(Canvas::PLAIN);
        assert!(page.text().contains("users in no project"), "{}", page.text());
    }

    #[test]
    fn projects_fit_the_terminal() {
        let names: Names = (0..9).map(|uid| (uid, format!("user-{uid}"))).collect();
        let project = |name: &str, idle: u32, members: u32| ProjectView {
            project: Project {
                members: (0..members).collect(),
                ..Project::new(name.parse().unwrap(), MilliGpus::new(4000))
            },
            implicit: false,
            allocated: MilliGpus::new(2500),
            idle: MilliGpus::new(idle),
            running: 3,
            queued: 1,
        };
        let listing = of(vec![project("vision", 500, 9), project("speech-recognition", 0, 0)], &names);
        for (width, golden) in [
            (80, include_str!("golden/projects-80.txt")),
            (120, include_str!("golden/projects-120.txt")),
            (200, include_str!("golden/projects-200.txt")),
        ] {
            let page = listing.page(Canvas::of_width(width));
            sample::assert_golden(page.text(), golden, &format!("jobs/golden/projects-{width}.txt"));
            assert!(page.text().lines().all(|line| line.len() <= width));
        }
    }
}
