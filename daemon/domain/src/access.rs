//! Who may do what: the whole rule is the table in [`allows`].

use alloc::string::String;
use core::fmt;

use crate::id::SliceName;

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// See what there is.
    Look,
    /// Make a slice.
    Create,
    /// Run a program in a slice.
    Enter,
    /// Say whom a slice is for.
    Label,
    /// Change a slice's size, limit or priority.
    Resize,
    /// Hold a slice's launches, or let them go on.
    Freeze,
    /// End a slice that nobody uses.
    Delete,
    /// End a slice and kill who uses it.
    Kill,
    /// Change the daemon itself, or what it does with a GPU.
    Administer,
}

impl Verb {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::Look,
        Self::Create,
        Self::Enter,
        Self::Label,
        Self::Resize,
        Self::Freeze,
        Self::Delete,
        Self::Kill,
        Self::Administer,
    ];
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Look => "look at",
            Self::Create => "create",
            Self::Enter => "enter",
            Self::Label => "label",
            Self::Resize => "resize",
            Self::Freeze => "freeze or thaw",
            Self::Delete => "delete",
            Self::Kill => "kill the processes of",
            Self::Administer => "administer",
        })
    }
}

/// What somebody is to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Root, or the user whose own daemon it is.
    Operator,
    /// In the group that may make slices.
    Member,
    /// Anybody else.
    Stranger,
}

impl Standing {
    /// What they are to a slice, which they made or not.
    pub const fn to_slice(self, made_it: bool) -> Relation {
        match (self, made_it) {
            (Self::Operator, _) => Relation::Operator,
            (Self::Member, true) => Relation::Owner,
            (Self::Member, false) => Relation::Member,
            (Self::Stranger, true) => Relation::FormerOwner,
            (Self::Stranger, false) => Relation::Stranger,
        }
    }
}

/// What somebody is to what they want to do something with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Root, or the user whose own daemon it is.
    Operator,
    /// Made the slice and is in the group.
    Owner,
    /// Made the slice and is not in the group any more.
    FormerOwner,
    /// Is in the group, and the slice is somebody else's, or there is none yet.
    Member,
    /// Has nothing to do with it.
    Stranger,
}

/// The table. Whoever lost the group may still give back what they have, and take no more.
pub const fn allows(verb: Verb, relation: Relation) -> bool {
    match relation {
        Relation::Operator => true,
        Relation::Owner => !matches!(verb, Verb::Administer),
        Relation::FormerOwner => matches!(verb, Verb::Look | Verb::Delete | Verb::Kill),
        Relation::Member => matches!(verb, Verb::Look | Verb::Create),
        Relation::Stranger => matches!(verb, Verb::Look),
    }
}

/// Somebody may not do what they want to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// What they wanted.
    pub verb: Verb,
    /// The user.
    pub uid: u32,
    /// What they are to it.
    pub relation: Relation,
    /// The slice and the user who made it, where it is about one.
    pub slice: Option<(SliceName, u32)>,
    /// The group that may make slices, where there is one.
    pub group: Option<String>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (uid, verb) = (self.uid, self.verb);
        match &self.slice {
            Some((name, owner)) if *owner != uid => {
                write!(
                    f,
                    "slice {name} belongs to uid {owner}: uid {uid} may not {verb} it; ask its owner or root"
                )?;
            }
            Some((name, _)) => {
                write!(f, "uid {uid} made slice {name} and may delete it, but may not {verb} it any more")?;
            }
            None if self.verb == Verb::Administer => {
                return write!(
                    f,
                    "only root may change the daemon, its GPUs and its projects, not uid {uid}"
                );
            }
            None => write!(f, "uid {uid} may look, but may not {verb} slices")?,
        }
        self.way_in(f)
    }
}

impl Denied {
    /// What would let them have slices of their own.
    fn way_in(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.relation, &self.group) {
            (Relation::Operator | Relation::Owner | Relation::Member, _) => Ok(()),
            (_, Some(group)) => write!(
                f,
                "; members of the group {group} have slices of their own: `sudo usermod -aG {group} USER`, then log in \
                 again"
            ),
            (_, None) => f.write_str(
                "; only root has slices here: a group may as well once `socket_group` in the daemon's configuration \
                 names one",
            ),
        }
    }
}

impl core::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn each_cell_of_the_table_is_as_written_here() {
        use Relation::{FormerOwner, Member, Operator, Owner, Stranger};
        let columns = [Operator, Owner, FormerOwner, Member, Stranger];
        let rows = [
            (Verb::Look, [true, true, true, true, true]),
            (Verb::Create, [true, true, false, true, false]),
            (Verb::Enter, [true, true, false, false, false]),
            (Verb::Label, [true, true, false, false, false]),
            (Verb::Resize, [true, true, false, false, false]),
            (Verb::Freeze, [true, true, false, false, false]),
            (Verb::Delete, [true, true, true, false, false]),
            (Verb::Kill, [true, true, true, false, false]),
            (Verb::Administer, [true, false, false, false, false]),
        ];
        assert!(Verb::ALL.iter().all(|verb| rows.iter().filter(|(row, _)| row == verb).count() == 1));
        for (verb, cells) in rows {
            for (relation, cell) in columns.into_iter().zip(cells) {
                assert_eq!(allows(verb, relation), cell, "{verb:?} by {relation:?}");
            }
        }
    }

    #[test]
    fn what_somebody_is_to_a_slice_depends_on_the_group_and_on_who_made_it() {
        let all = |made_it| {
            [Standing::Operator, Standing::Member, Standing::Stranger]
                .map(|standing| standing.to_slice(made_it))
        };
        assert_eq!(all(true), [Relation::Operator, Relation::Owner, Relation::FormerOwner]);
        assert_eq!(all(false), [Relation::Operator, Relation::Member, Relation::Stranger]);
    }

    fn denied(verb: Verb, relation: Relation, slice: Option<u32>, group: Option<&str>) -> String {
        let slice = slice.map(|owner| ("a".parse().unwrap(), owner));
        Denied { verb, uid: 7, relation, slice, group: group.map(Into::into) }.to_string()
    }

    #[test]
    fn a_stranger_is_told_which_group_is_needed_and_how_to_get_in() {
        let told = denied(Verb::Create, Relation::Stranger, None, Some("gpus"));
        assert!(told.contains("uid 7 may look") && told.contains("usermod -aG gpus USER"), "{told}");
        let told = denied(Verb::Create, Relation::Stranger, None, None);
        assert!(told.contains("only root") && told.contains("socket_group"), "{told}");
        let told = denied(Verb::Resize, Relation::FormerOwner, Some(7), Some("gpus"));
        assert!(told.contains("may delete it") && told.contains("usermod -aG gpus USER"), "{told}");
    }

    #[test]
    fn a_member_is_told_whose_slice_it_is_and_not_of_a_group_that_would_not_help() {
        let told = denied(Verb::Kill, Relation::Member, Some(8), Some("gpus"));
        assert!(told.contains("belongs to uid 8") && told.contains("kill the processes of it"), "{told}");
        assert!(!told.contains("usermod"), "{told}");
        assert!(denied(Verb::Administer, Relation::Owner, None, Some("gpus")).contains("only root"));
    }
}
