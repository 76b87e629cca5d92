//! Tests of the tree itself: dependencies between crates, places of files and unsafe code, prose.
//!
//! Law: it reads tracked files and the output of `cargo metadata`, and knows no crate from the inside.
#![forbid(unsafe_code)]

pub mod imports;
pub mod prose;
pub mod third_party;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Node, NodeDep, Package, PackageId};

/// The root of the tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies two folders below the root").to_path_buf()
}

/// Every tracked file that is there, relative to the root.
///
/// # Panics
/// Where this is no git checkout: the tests have nothing to judge then.
pub fn tracked() -> Vec<PathBuf> {
    let listing = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let listing = listing.expect("git lists the tracked files");
    assert!(listing.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listing.stderr));
    let names = String::from_utf8(listing.stdout).expect("tracked files have UTF-8 names");
    names.split_terminator('\0').map(PathBuf::from).filter(|path| root().join(path).exists()).collect()
}

/// A tracked file's text, or nothing if it is not text.
pub fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// Tracked Rust sources of the crates that are shipped, without their tests and examples.
pub fn sources() -> Vec<PathBuf> {
    let is_test = |part: &str| {
        part == "examples" || part == "tests" || part.ends_with("tests.rs") || part.ends_with("_tests")
    };
    let is_source = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs")
            && !path.iter().any(|part| is_test(&part.to_string_lossy()))
    };
    tracked().into_iter().filter(is_source).collect()
}

/// The workspace as cargo resolves it for this platform.
pub struct Workspace {
    metadata: Metadata,
}

impl Workspace {
    /// Runs `cargo metadata` for this platform.
    ///
    /// # Panics
    /// If it fails.
    pub fn survey() -> Self {
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let metadata = MetadataCommand::new()
            .manifest_path(root().join("Cargo.toml"))
            .other_options(["--filter-platform".to_string(), platform])
            .exec();
        Self { metadata: metadata.expect("cargo metadata reads the workspace") }
    }

    /// Crates of the workspace, by name.
    pub fn crates(&self) -> BTreeMap<&str, &Package> {
        self.metadata
            .workspace_packages()
            .into_iter()
            .map(|package| (package.name.as_str(), package))
            .collect()
    }

    /// Packages that are not of the workspace.
    pub fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.metadata.packages.iter().filter(|package| !self.metadata.workspace_members.contains(&package.id))
    }

    /// A package's folder, relative to the root.
    pub fn folder(&self, package: &Package) -> PathBuf {
        let manifest = package.manifest_path.as_std_path();
        let folder = manifest.parent().expect("a manifest lies in a folder");
        let inside = folder.strip_prefix(self.metadata.workspace_root.as_std_path());
        inside.expect("our packages lie in the workspace").to_path_buf()
    }

    /// Direct dependencies of a package of every kind, as (name, version).
    pub fn direct(&self, package: &Package) -> BTreeSet<(String, String)> {
        let found = self.node(&package.id).deps.iter().map(|dependency| &self.metadata[&dependency.pkg]);
        found.map(|found| (found.name.to_string(), found.version.to_string())).collect()
    }

    /// Everything that becomes part of a package or builds it, however far down; not what only tests it.
    pub fn closure(&self, package: &Package) -> BTreeSet<String> {
        self.reached(package).map(|package| package.name.to_string()).collect()
    }

    /// The packages of [`Workspace::closure`].
    pub fn reached<'a>(&'a self, package: &'a Package) -> impl Iterator<Item = &'a Package> {
        let mut reached = BTreeSet::new();
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            open.extend(self.needed(id).filter(|id| reached.insert(*id)));
        }
        reached.into_iter().map(|id| &self.metadata[id])
    }

    /// Packages that a package directly contains or is built by.
    pub fn needs<'a>(&'a self, package: &'a Package) -> impl Iterator<Item = &'a Package> {
        self.needed(&package.id).map(|id| &self.metadata[id])
    }

    fn needed<'a>(&'a self, id: &'a PackageId) -> impl Iterator<Item = &'a PackageId> {
        let is_needed = |dependency: &&NodeDep| {
            dependency.dep_kinds.iter().any(|info| info.kind != DependencyKind::Development)
        };
        self.node(id).deps.iter().filter(is_needed).map(|dependency| &dependency.pkg)
    }

    fn node(&self, id: &PackageId) -> &Node {
        let resolve = self.metadata.resolve.as_ref().expect("cargo metadata resolves unless told not to");
        resolve.nodes.iter().find(|node| &node.id == id).expect("every resolved package has a node")
    }
}
