//! Access control: the whole rule is the table in [`allows`].

use alloc::string::String;
use core::fmt;

use crate::id::SliceName;
use crate::word::named;

named! {
    /// Operations that access control distinguishes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verb {
        /// Read the state of the node.
        Look = "look at",
        /// Creation of a slice.
        Create = "create",
        /// Run a program in a slice.
        Enter = "enter",
        /// Set the pod that a slice belongs to.
        Label = "label",
        /// Change a slice's size, limit or priority.
        Resize = "resize",
        /// Hold a slice's launches, or release them.
        Freeze = "freeze or thaw",
        /// Move a slice's device memory to host memory, or back.
        Park = "park or unpark",
        /// Delete a slice without processes.
        Delete = "delete",
        /// Delete a slice and kill its processes.
        Kill = "kill the processes of",
        /// Change the daemon itself, its GPUs or its projects.
        Administer = "administer",
    }
}

/// Role of a peer towards the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// Root, or the user whose own daemon it is.
    Operator,
    /// Member of the group that may create slices.
    Member,
    /// A user without any of the other roles.
    Stranger,
}

impl PeerRole {
    /// Role towards a slice that the peer created or not.
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

/// Role of a peer towards the object of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Root, or the user whose own daemon it is.
    Operator,
    /// Creator of the slice, in the group.
    Owner,
    /// Creator of the slice, no longer in the group.
    FormerOwner,
    /// In the group; the slice has another owner, or does not exist yet.
    Member,
    /// Neither in the group nor the creator.
    Stranger,
}

/// The access table. A user who left the group may still release what they have, and acquires nothing.
pub const fn allows(verb: Verb, relation: Relation) -> bool {
    match relation {
        Relation::Operator => true,
        Relation::Owner => !matches!(verb, Verb::Administer),
        Relation::FormerOwner => matches!(verb, Verb::Look | Verb::Delete | Verb::Kill),
        Relation::Member => matches!(verb, Verb::Look | Verb::Create),
        Relation::Stranger => matches!(verb, Verb::Look),
    }
}

/// Error for an operation that the table forbids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Operation that was requested.
    pub verb: Verb,
    /// User that requested it.
    pub uid: u32,
    /// Role of the user.
    pub relation: Relation,
    /// The slice and the uid of its owner, for an operation on a slice.
    pub slice: Option<(SliceName, u32)>,
    /// The group that may create slices, if one is configured.
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
    /// Writes how the user could get access.
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
    fn access_table_matches_each_expected_cell() {
        use Relation::{FormerOwner, Member, Operator, Owner, Stranger};
        let columns = [Operator, Owner, FormerOwner, Member, Stranger];
        let rows = [
            (Verb::Look, [true, true, true, true, true]),
            (Verb::Create, [true, true, false, true, false]),
            (Verb::Enter, [true, true, false, false, false]),
            (Verb::Label, [true, true, false, false, false]),
            (Verb::Resize, [true, true, false, false, false]),
            (Verb::Freeze, [true, true, false, false, false]),
            (Verb::Park, [true, true, false, false, false]),
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
    fn slice_role_depends_on_group_and_creator() {
        let all = |made_it| {
            [PeerRole::Operator, PeerRole::Member, PeerRole::Stranger]
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
    fn denial_outside_the_group_names_the_group() {
        let told = denied(Verb::Create, Relation::Stranger, None, Some("gpus"));
        assert!(told.contains("uid 7 may look") && told.contains("usermod -aG gpus USER"), "{told}");
        let told = denied(Verb::Create, Relation::Stranger, None, None);
        assert!(told.contains("only root") && told.contains("socket_group"), "{told}");
        let told = denied(Verb::Resize, Relation::FormerOwner, Some(7), Some("gpus"));
        assert!(told.contains("may delete it") && told.contains("usermod -aG gpus USER"), "{told}");
    }

    #[test]
    fn denial_inside_the_group_names_the_owner() {
        let told = denied(Verb::Kill, Relation::Member, Some(8), Some("gpus"));
        assert!(told.contains("belongs to uid 8") && told.contains("kill the processes of it"), "{told}");
        assert!(!told.contains("usermod"), "{told}");
        assert!(denied(Verb::Administer, Relation::Owner, None, Some("gpus")).contains("only root"));
    }
}
