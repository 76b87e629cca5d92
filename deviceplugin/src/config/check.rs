//! Checks of a configuration that need no GPU.

use std::collections::BTreeSet;

use tranche_domain::word::is_subdomain;

use super::settings::Config;
use crate::layout::{Division, Layout};
use crate::placement;

/// Checks that the settings describe a possible division.
///
/// # Errors
/// The first problem.
pub(super) fn check(config: &Config) -> Result<(), String> {
    check_domain(&config.resource_domain)?;
    if config.profiles.is_empty() {
        return Err(
            "there is no [[profile]]: nothing would be offered; add one with a name and a fraction".into()
        );
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = config.profiles.iter().find(|profile| !names.insert(&profile.name)) {
        return Err(format!("profile {} is there twice: give one of them another name", twice.name));
    }
    for profile in &config.profiles {
        placement::check_profile(profile).map_err(|why| format!("profile {}: {why}", profile.name))?;
    }
    match &config.division {
        Division::Static(layouts) => check_layouts(config, layouts),
        Division::Dynamic => Ok(()),
    }
}

fn check_layouts(config: &Config, layouts: &[Layout]) -> Result<(), String> {
    if layouts.is_empty() {
        return Err("there is no [[layout]]: say which profiles each GPU is divided into, \
                    or set `dynamic = true`"
            .into());
    }
    for (at, layout) in layouts.iter().enumerate() {
        if layouts[..at].iter().any(|other| other.of == layout.of) {
            return Err(format!("there are two layouts for {}: keep one", layout.of));
        }
        if let Some(unknown) = layout.profiles.iter().find(|name| config.profile(name).is_none()) {
            return Err(format!(
                "the layout for {} names profile {unknown}, which is not defined",
                layout.of
            ));
        }
        placement::check_layout(&config.profiles, layout)
            .map_err(|why| format!("the layout for {}: {why}", layout.of))?;
    }
    Ok(())
}

/// Checks a DNS name, as Kubernetes requires before the slash of a resource.
fn check_domain(domain: &str) -> Result<(), String> {
    if !is_subdomain(domain, 253) || !domain.contains('.') {
        return Err(format!("resource_domain {domain:?} is not a domain name such as tranche.dev"));
    }
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return Err(format!("resource_domain {domain:?} is reserved to Kubernetes: use one of your own"));
    }
    Ok(())
}
