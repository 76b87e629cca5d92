//! Folder of the store during a measurement, and the cost of a disk by itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bench::report::Report;
use bench::stats::{quantile, sorted};
use bench::{Result, interrupt};
use tempfile::TempDir;

/// A page of the store, in bytes.
const PAGE: usize = 4096;
/// Number of pages that are written in turns.
const PAGES: u64 = 256;

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// Name of the place in reports.
    pub(crate) name: &'static str,
    dir: TempDir,
}

/// A place on the disk of a folder, and one in memory if `/dev/shm` exists.
pub(crate) fn places(folder: &Path) -> Result<Vec<Place>> {
    let memory = Path::new("/dev/shm");
    let there = [("disk", folder), ("memory", memory)].into_iter();
    there
        .filter(|(_, path)| *path != memory || memory.is_dir())
        .map(|(name, path)| Place::make(name, path))
        .collect()
}

impl Place {
    fn make(name: &'static str, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let dir = tempfile::Builder::new().prefix("jobs-").tempdir_in(folder);
        let dir = dir.map_err(|error| format!("{}: {error}", folder.display()))?;
        interrupt::goes_with_us(dir.path());
        Ok(Self { name, dir })
    }

    /// Path of a file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Claims that the 99th percentile is within a goal in milliseconds.
    ///
    /// If a page on this disk takes more than half of the goal, the claim is reported only.
    pub(crate) fn within(
        &self,
        report: &mut Report,
        name: &str,
        took: &[f64],
        beside: &mut Beside,
        goal: f64,
    ) {
        report.figure(&format!("{name}_ms"), self.name, "ms", took);
        let disk = sorted(&beside.took);
        report.figure(&format!("{name}_beside_a_page_ms"), self.name, "ms", &disk);
        report.at_most(&format!("{name}_p99_ms_{}", self.name), quantile(&sorted(took), 0.99), "ms", goal);
        if quantile(&disk, 0.99) > goal / 2.0 {
            report.undecided_in_simulation();
        }
    }
}

/// Times of writing a page by itself meanwhile, in milliseconds.
#[derive(Debug)]
pub(crate) struct Beside {
    file: File,
    took: Vec<f64>,
}

impl Beside {
    pub(crate) fn of(place: &Place) -> Result<Self> {
        let path = place.path("pages");
        let failed = |error| format!("{}: {error}", path.display());
        let file = File::create(&path).map_err(failed)?;
        file.write_all_at(&vec![0; PAGE * PAGES as usize], 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(Self { file, took: Vec::new() })
    }

    /// Writes a page, and waits until it is on the disk.
    pub(crate) fn write(&mut self) -> Result<()> {
        let begun = Instant::now();
        let at = self.took.len() as u64 % PAGES * PAGE as u64;
        let written = self.file.write_all_at(&[1; PAGE], at).and_then(|()| self.file.sync_data());
        written.map_err(|error| format!("cannot write a page: {error}"))?;
        self.took.push(begun.elapsed().as_secs_f64() * 1e3);
        Ok(())
    }
}
