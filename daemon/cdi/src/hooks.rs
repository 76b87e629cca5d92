//! Hooks of the node's file: recognition, and adaptation for slices.

use std::collections::BTreeSet;

use crate::library::{GovernedLibrary, is_clean};
use crate::spec::CdiHook;

/// Hooks that put the image's own driver first in the loader's cache, by both of their names.
const COMPAT: [&str; 2] = ["enable-cuda-compat", "cudacompat"];
/// Hook that creates links, given as `--link TARGET::LINK`.
const LINKS: &str = "create-symlinks";

/// Tests if a hook prefers the image's own driver.
pub(crate) fn prefers_image(hook: &CdiHook) -> bool {
    hook.args.iter().any(|argument| COMPAT.contains(&argument.as_str()))
}

/// The hook without the parts that would bypass the shim; `None` if nothing is left.
///
/// Links named like governed libraries are removed, since the shim is mounted there and a link cannot replace
/// a mount. Their paths are added to `places`.
pub(crate) fn harmless(
    mut hook: CdiHook,
    places: &mut BTreeSet<(GovernedLibrary, String)>,
) -> Option<CdiHook> {
    if !hook.args.iter().any(|argument| argument == LINKS) {
        return Some(hook);
    }
    let (arguments, left) = without_governed(&hook.args, places);
    hook.args = arguments;
    left.then_some(hook)
}

/// Arguments without links to governed names, and whether other links remain.
fn without_governed(
    arguments: &[String],
    places: &mut BTreeSet<(GovernedLibrary, String)>,
) -> (Vec<String>, bool) {
    let (mut kept, mut left) = (Vec::new(), false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let link = match argument.strip_prefix("--link") {
            Some("") => arguments.next().map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        let place = link.and_then(|link| link.rsplit_once("::")).map(|(_, place)| place);
        if let Some((library, place)) = place.and_then(|place| Some((GovernedLibrary::named(place)?, place)))
        {
            if is_clean(place) {
                places.insert((library, place.to_owned()));
            }
            continue;
        }
        left |= link.is_some();
        kept.push(argument.clone());
        kept.extend(link.filter(|_| argument == "--link").map(str::to_owned));
    }
    (kept, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(args: &[&str]) -> CdiHook {
        let args = args.iter().map(|&argument| argument.to_owned()).collect();
        CdiHook {
            hook_name: "createContainer".into(),
            path: "/usr/bin/nvidia-cdi-hook".into(),
            args,
            ..CdiHook::default()
        }
    }

    fn rest(args: &[&str]) -> (Option<Vec<String>>, Vec<String>) {
        let mut places = BTreeSet::new();
        let rest = harmless(hook(args), &mut places).map(|hook| hook.args);
        (rest, places.into_iter().map(|(_, place)| place).collect())
    }

    #[test]
    fn image_driver_hooks_are_recognised() {
        assert!(prefers_image(&hook(&[
            "nvidia-cdi-hook",
            "enable-cuda-compat",
            "--host-driver-version=550.163.01"
        ])));
        assert!(prefers_image(&hook(&["nvidia-ctk", "hook", "enable-cuda-compat"])));
        assert!(!prefers_image(&hook(&["nvidia-cdi-hook", "update-ldcache"])));
    }

    #[test]
    fn governed_links_become_shim_paths() {
        let (left, places) = rest(&[
            "nvidia-cdi-hook",
            "create-symlinks",
            "--link",
            "libcuda.so.1::/usr/lib64/libcuda.so",
            "--link=libnvidia-opticalflow.so.1::/usr/lib64/libnvidia-opticalflow.so",
        ]);
        let link = "--link=libnvidia-opticalflow.so.1::/usr/lib64/libnvidia-opticalflow.so";
        assert_eq!(left.unwrap(), ["nvidia-cdi-hook", "create-symlinks", link]);
        assert_eq!(places, ["/usr/lib64/libcuda.so"]);
    }

    #[test]
    fn empty_link_hook_is_dropped() {
        let args = ["nvidia-cdi-hook", "create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"];
        assert_eq!(rest(&args), (None, vec!["/usr/lib64/libcuda.so".to_owned()]));
    }

    #[test]
    fn other_hooks_are_unchanged() {
        let args = ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"];
        assert_eq!(rest(&args).0.unwrap(), args);
        let odd = ["nvidia-cdi-hook", "create-symlinks", "--link"];
        assert_eq!(rest(&odd).0, None, "nothing is linked");
    }
}
