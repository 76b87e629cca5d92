//! Licences and sources of the packages that the workspace is built from.

use std::collections::BTreeSet;

use architecture::Workspace;

/// Licences under which everything may be shipped with Tranche, by their SPDX names.
const ALLOWED: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0-WITH-LLVM-exception",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0", // data: the certificates of webpki-roots
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Licences of packages that only make the website, which is in no package or image.
const OF_THE_SITE: [&str; 2] = [
    "CC-BY-4.0", // pictures: the icons of Font Awesome
    "MPL-2.0",   // mdBook, unchanged
];

/// Makes the website, and is the only crate with packages under [`OF_THE_SITE`].
const SITE: &str = "site";

#[test]
fn every_package_has_an_allowed_licence() {
    let workspace = Workspace::survey();
    let packages: Vec<_> = workspace.foreign().collect();
    assert!(packages.len() > 100, "the packages are not found: {}", packages.len());
    let of_the_site = only_of_the_site(&workspace);
    let is_wrong = |package: &&cargo_metadata::Package| {
        let also: &[&str] = if of_the_site.contains(package.id.repr.as_str()) { &OF_THE_SITE } else { &[] };
        !package.license.as_deref().is_some_and(|expression| is_allowed(expression, also))
    };
    let wrong: Vec<_> = packages
        .into_iter()
        .filter(is_wrong)
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.license))
        .collect();
    assert!(wrong.is_empty(), "licences that {} does not allow: {wrong:#?}", file!());
}

/// Ids of the packages that no other crate than the website's contains or is built by.
fn only_of_the_site<'a>(workspace: &'a Workspace) -> BTreeSet<&'a str> {
    let (site, others): (Vec<_>, Vec<_>) =
        workspace.crates().into_iter().partition(|(name, _)| *name == SITE);
    let ids = |crates: Vec<(&str, &'a cargo_metadata::Package)>| -> BTreeSet<&'a str> {
        let reached = crates.into_iter().flat_map(|(_, package)| workspace.reached(package));
        reached.map(|package| package.id.repr.as_str()).collect()
    };
    let others = ids(others);
    ids(site).into_iter().filter(|id| !others.contains(id)).collect()
}

#[test]
fn every_package_comes_from_the_registry() {
    let workspace = Workspace::survey();
    let is_there = |package: &&cargo_metadata::Package| {
        package.source.as_ref().is_some_and(cargo_metadata::Source::is_crates_io)
    };
    let wrong: Vec<_> =
        workspace.foreign().filter(|package| !is_there(package)).map(|package| &package.id).collect();
    assert!(wrong.is_empty(), "packages from elsewhere: {wrong:#?}");
}

#[test]
fn alternatives_need_one_allowed_licence_and_parts_need_all() {
    for good in [
        "MIT",
        "MIT/GPL-3.0",
        "GPL-3.0 OR ISC",
        "(GPL-3.0) OR ISC",
        "(MIT OR GPL-3.0) AND Zlib",
        "Apache-2.0 WITH X OR MIT",
    ] {
        assert!(is_allowed(good, &[]), "{good}");
    }
    for bad in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR AGPL-3.0", "MIT AND (GPL-2.0 OR GPL-3.0)"]
    {
        assert!(!is_allowed(bad, &[]), "{bad}");
    }
    assert!(!is_allowed("Apache-2.0 WITH X", &[]), "an exception is another licence");
    assert!(is_allowed("GPL-3.0 AND MIT", &["GPL-3.0"]), "a further one is allowed");
}

/// Tests if an SPDX expression permits the use under allowed licences and some others. A slash is an old form of OR.
fn is_allowed(expression: &str, also: &[&str]) -> bool {
    // An exception belongs to its licence: they are one word here.
    let spaced =
        expression.replace(" WITH ", "-WITH-").replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = alternatives(&mut words, also);
    allowed && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn alternatives(words: &mut Words<'_>, also: &[&str]) -> bool {
    let mut allowed = parts(words, also);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= parts(words, also);
    }
    allowed
}

fn parts(words: &mut Words<'_>, also: &[&str]) -> bool {
    let mut allowed = licence(words, also);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= licence(words, also);
    }
    allowed
}

fn licence(words: &mut Words<'_>, also: &[&str]) -> bool {
    match words.next() {
        Some("(") => {
            let allowed = alternatives(words, also);
            words.next_if_eq(&")").is_some() && allowed
        }
        Some(name) => {
            let excepted = words.next_if_eq(&"WITH").and_then(|_| words.next());
            (ALLOWED.contains(&name) || also.contains(&name)) && excepted.is_none()
        }
        None => false,
    }
}
