//! Amounts of jobs and projects.

/// Numbers of projects, queued jobs and measured decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) projects: u32,
    pub(crate) jobs: usize,
    /// Decisions of the main measurement; a point of a curve has a third of them.
    pub(crate) decisions: usize,
}

impl Scale {
    pub(crate) const fn of(quick: bool) -> Self {
        match quick {
            true => Self { projects: 20, jobs: 1000, decisions: 300 },
            false => Self { projects: 200, jobs: 10_000, decisions: 3000 },
        }
    }
}
