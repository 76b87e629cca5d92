//! Events for new and changed slices.

use tranche_domain::event::{EventKind, Happening};
use tranche_domain::request::Resize;
use tranche_domain::slice::Slice;

/// Event for a new slice.
pub(super) fn created(slice: &Slice) -> Happening {
    let evidence = format!("{} for user {}: {}", slice.share, slice.owner_uid, size(slice));
    Happening::new(EventKind::SliceCreated, evidence).of(&slice.name)
}

/// Events for the changed terms of a slice.
pub(super) fn changed(resize: &Resize, slice: &Slice) -> Vec<Happening> {
    let tell = |kind, evidence| Happening::new(kind, evidence).of(&slice.name);
    let frozen = resize.frozen.map(|frozen| match frozen {
        true => tell(EventKind::SliceFrozen, "its launches are held until it is thawed".to_string()),
        false => tell(EventKind::SliceThawed, "its launches go on".to_string()),
    });
    let rest = Resize { frozen: None, ..*resize };
    let resized = (rest != Resize::default()).then(|| tell(EventKind::SliceResized, size(slice)));
    frozen.into_iter().chain(resized).collect()
}

/// Event for a changed label.
pub(super) fn labelled(slice: &Slice) -> Happening {
    let pod = slice.pod.as_ref().map_or("no pod".into(), |pod| format!("pod {pod}"));
    Happening::new(EventKind::SliceLabelled, format!("it is for {pod}")).of(&slice.name)
}

fn size(slice: &Slice) -> String {
    let parts: Vec<String> = slice.parts.iter().map(|part| format!("{} of {}", part.cap, part.gpu)).collect();
    let (compute, limit, priority) = (slice.compute, slice.limit, slice.priority);
    let latency = slice.latency.map_or(String::new(), |latency| format!(", latency {latency}"));
    let gang = slice.gang.as_ref().map_or(String::new(), |gang| format!(", gang {}", gang.as_str()));
    format!("{}; {compute} of compute, at most {limit}, priority {priority}{latency}{gang}", parts.join(", "))
}
