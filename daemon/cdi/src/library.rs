//! The two libraries that the shim replaces, with their names.

/// A library that the shim replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GovernedLibrary {
    /// Library of the driver API.
    Cuda,
    /// Library of the management API.
    Nvml,
}

/// Folder in which the shim's libraries expect the driver's own; see `shim/libcuda/build.rs`.
pub(crate) const DRIVER_HOME: &str = "/run/tranche/driver";

impl GovernedLibrary {
    /// Libraries that the shim stands in for.
    pub const ALL: [Self; 2] = [Self::Cuda, Self::Nvml];

    /// File name without a version, by which programs are linked.
    pub const fn plain(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so",
            Self::Nvml => "libnvidia-ml.so",
        }
    }

    /// File name with the major version, by which programs load it.
    pub const fn soname(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Nvml => "libnvidia-ml.so.1",
        }
    }

    /// Path of the driver's own file in a container.
    pub fn alias(self) -> String {
        let name = match self {
            Self::Cuda => "libcuda-real.so.1",
            Self::Nvml => "libnvidia-ml-real.so.1",
        };
        format!("{DRIVER_HOME}/{name}")
    }

    /// The library with this file name: `libcuda.so`, `libcuda.so.1`, `libcuda.so.550.163.01`.
    pub fn named(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        Self::ALL.into_iter().find(|library| {
            name.strip_prefix(library.plain()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// Parent folder of a path.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Tests if a normalised path is a folder or inside it.
pub(crate) fn within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Tests if a path is absolute and normalised: without `.`, `..`, empty parts and control characters.
pub(crate) fn is_clean(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !["", ".", ".."].contains(&part)) && !rest.contains(char::is_control)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_recognised_by_all_names() {
        for name in ["libcuda.so", "/usr/lib64/libcuda.so.1", "/l/libcuda.so.550.163.01"] {
            assert_eq!(GovernedLibrary::named(name), Some(GovernedLibrary::Cuda), "{name}");
        }
        assert_eq!(GovernedLibrary::named("/l/libnvidia-ml.so.1"), Some(GovernedLibrary::Nvml));
        for other in
            ["/l/libcudadebugger.so.1", "/libcuda.so/x", "/l/libcuda.sox", "/l/libcuda-real.so.1", ""]
        {
            assert_eq!(GovernedLibrary::named(other), None, "{other}");
        }
    }

    #[test]
    fn only_normalised_absolute_paths_are_clean() {
        assert!(is_clean("/a/b.c"));
        for odd in ["", "/", "a", "/a/", "//a", "/a/../b", "/./a", "/a\n"] {
            assert!(!is_clean(odd), "{odd:?}");
        }
    }
}
