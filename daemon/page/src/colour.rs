//! Colours of projects by their names.

use std::collections::BTreeMap;

/// Number of colours, `c0` to `c11` in the style sheet.
const COLOURS: usize = 12;

/// Class of each project's colour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Colours(BTreeMap<String, usize>);

impl Colours {
    /// Colours by the names alone: a name keeps its own unless one before it in the alphabet has the same.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let sorted: BTreeMap<&str, ()> = names.into_iter().map(|name| (name, ())).collect();
        let mut taken = [false; COLOURS];
        let mut colours = BTreeMap::new();
        for (name, ()) in sorted {
            let first = hash(name) % COLOURS;
            let free = (0..COLOURS).map(|step| (first + step) % COLOURS).find(|at| !taken[*at]);
            let colour = free.unwrap_or(first);
            taken[colour] = true;
            colours.insert(name.to_owned(), colour);
        }
        Self(colours)
    }

    /// Class of a project's colour, or of what has no project.
    pub(crate) fn class(&self, project: Option<&str>) -> String {
        match project.and_then(|project| self.0.get(project)) {
            Some(colour) => format!("c{colour}"),
            None => "c-none".into(),
        }
    }
}

/// FNV-1a in 32 bits, which is the same in every release.
fn hash(name: &str) -> usize {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    name.bytes().fold(2_166_136_261, mix) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_when_projects_come_and_go() {
        let few = Colours::of(["team-a", "team-b"]);
        let many = Colours::of(["team-a", "team-b", "team-z"]);
        for name in ["team-a", "team-b"] {
            assert_eq!(few.class(Some(name)), many.class(Some(name)));
        }
        assert_eq!(few.class(Some("unknown")), "c-none");
    }

    #[test]
    fn twelve_projects_have_twelve_colours() {
        let names: Vec<String> = (0..COLOURS).map(|number| format!("p{number}")).collect();
        let colours = Colours::of(names.iter().map(String::as_str));
        let classes: std::collections::BTreeSet<_> =
            names.iter().map(|name| colours.class(Some(name))).collect();
        assert_eq!(classes.len(), COLOURS);
    }
}
