//! Containers of jobs: domain to wire and back.

use std::collections::{BTreeMap, BTreeSet};

use tranche_domain::jobs::{BadContainer, ContainerSpec, PullPolicy};
use tranche_domain::units::Bytes;

use crate::bad_message::BadMessage;
use crate::mirror::Field;
use crate::v1;

/// Reads a container of a request.
pub(super) fn read(wire: v1::ContainerSpec) -> Result<ContainerSpec, BadMessage> {
    let spec = ContainerSpec {
        image: wire.image.parse()?,
        mounts: Field::from_wire(wire.mounts)?,
        ports: Field::from_wire(wire.ports)?,
        shm: wire.shm_bytes.map(Bytes::new),
        pull: if wire.pull.is_empty() { PullPolicy::default() } else { wire.pull.parse()? },
        workdir: wire.workdir,
        // The wire's map has no order.
        engine: wire.engine_environment.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect(),
    };
    if spec.mounts.len() > ContainerSpec::MOST || spec.ports.len() > ContainerSpec::MOST {
        return Err(BadContainer::TooMany.into());
    }
    let mut hosts = BTreeSet::new();
    if let Some(port) = spec.ports.iter().find(|port| !hosts.insert(port.host)) {
        return Err(BadContainer::SamePort(port.host).into());
    }
    if let Some(folder) =
        spec.workdir.as_ref().filter(|folder| !folder.starts_with('/') || folder.contains('\0'))
    {
        return Err(BadContainer::Workdir(folder.clone()).into());
    }
    let zero = |text: &String| text.contains('\0');
    if spec
        .engine
        .iter()
        .any(|(name, value)| name.is_empty() || name.contains('=') || zero(name) || zero(value))
    {
        return Err(BadMessage::Unprintable);
    }
    Ok(spec)
}

/// Writes a container into a request.
pub(super) fn written(spec: ContainerSpec) -> v1::ContainerSpec {
    v1::ContainerSpec {
        image: spec.image.into(),
        mounts: Field::into_wire(spec.mounts),
        ports: Field::into_wire(spec.ports),
        shm_bytes: spec.shm.map(Bytes::get),
        pull: spec.pull.to_string(),
        workdir: spec.workdir,
        engine_environment: spec.engine.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ContainerSpec {
        ContainerSpec {
            image: "jupyter/base-notebook".parse().unwrap(),
            mounts: vec!["/nfs:/nfs".parse().unwrap(), "claim:/path:ro".parse().unwrap()],
            ports: vec!["80:8888".parse().unwrap()],
            shm: Some(Bytes::mib(8192)),
            pull: PullPolicy::Never,
            workdir: Some("/home/jovyan".into()),
            engine: vec![("HOME".into(), "/home/ann".into())],
        }
    }

    #[test]
    fn container_survives_the_wire() {
        assert_eq!(read(written(spec())), Ok(spec()));
        let wire = v1::ContainerSpec { image: "a".into(), ..Default::default() };
        assert_eq!(read(wire).unwrap().pull, PullPolicy::Missing);
    }

    #[test]
    fn malformed_container_is_refused_with_a_reason() {
        type Spoil = fn(&mut v1::ContainerSpec);
        let cases: [(Spoil, &str); 8] = [
            (|wire| wire.image = "--privileged".into(), "container image"),
            (|wire| wire.mounts.push("/a".into()), "no mount"),
            (|wire| wire.mounts.push("/a:/run/tranche/slice".into()), "the slice's own files"),
            (|wire| wire.ports.push("80:1".into()), "published twice"),
            (|wire| wire.ports.push("99999".into()), "no port"),
            (|wire| wire.pull = "maybe".into(), "newer"),
            (|wire| wire.workdir = Some("here".into()), "absolute path"),
            (|wire| wire.mounts = (0..65).map(|number| format!("/a:/m{number}")).collect(), "at most 64"),
        ];
        for (spoil, told) in cases {
            let mut wire = written(spec());
            spoil(&mut wire);
            let refused = read(wire).unwrap_err().to_string();
            assert!(refused.contains(told), "{refused} does not say {told}");
        }
    }
}
