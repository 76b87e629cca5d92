//! The two libraries that the shim stands in for, and the names they go by.

/// A library that the shim stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Governed {
    /// The driver's.
    Cuda,
    /// NVML.
    Nvml,
}

/// Where the shim's libraries look for the driver's own; see `shim/libcuda/build.rs`.
pub(crate) const DRIVER_HOME: &str = "/run/tranche/driver";

impl Governed {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cuda, Self::Nvml];

    /// The name that programs are linked with.
    pub const fn plain(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so",
            Self::Nvml => "libnvidia-ml.so",
        }
    }

    /// The name that the loader looks for.
    pub const fn soname(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Nvml => "libnvidia-ml.so.1",
        }
    }

    /// Where the driver's own file is in a container.
    pub fn alias(self) -> String {
        let name = match self {
            Self::Cuda => "libcuda-real.so.1",
            Self::Nvml => "libnvidia-ml-real.so.1",
        };
        format!("{DRIVER_HOME}/{name}")
    }

    /// Which of them a path names, by its last part: `libcuda.so`, `libcuda.so.1`, `libcuda.so.550.163.01`.
    pub fn named(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        Self::ALL.into_iter().find(|library| {
            name.strip_prefix(library.plain()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// The folder of a path that has one.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a path lies in a folder, or is it. Both are clean.
pub(crate) fn within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path is absolute and says where it leads: without `.`, `..`, empty parts and control characters.
pub(crate) fn is_clean(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !["", ".", ".."].contains(&part)) && !rest.contains(char::is_control)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_known_by_every_name_it_goes_by() {
        for name in ["libcuda.so", "/usr/lib64/libcuda.so.1", "/l/libcuda.so.550.163.01"] {
            assert_eq!(Governed::named(name), Some(Governed::Cuda), "{name}");
        }
        assert_eq!(Governed::named("/l/libnvidia-ml.so.1"), Some(Governed::Nvml));
        for other in
            ["/l/libcudadebugger.so.1", "/libcuda.so/x", "/l/libcuda.sox", "/l/libcuda-real.so.1", ""]
        {
            assert_eq!(Governed::named(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_path_that_leads_straight_is_clean() {
        assert!(is_clean("/a/b.c"));
        for odd in ["", "/", "a", "/a/", "//a", "/a/../b", "/./a", "/a\n"] {
            assert!(!is_clean(odd), "{odd:?}");
        }
    }
}
