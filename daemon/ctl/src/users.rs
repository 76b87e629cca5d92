//! Names of users, from their uids.

use std::cell::RefCell;
use std::collections::BTreeMap;

use nix::unistd::{Uid, User};

/// Name of a user, or the uid if it has none.
pub fn user(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Names by uid, each looked up once.
#[derive(Debug, Default)]
pub struct Names {
    known: RefCell<BTreeMap<u32, String>>,
}

impl Names {
    /// Name of a user, or the uid if it has none.
    pub fn of(&self, uid: u32) -> String {
        self.known.borrow_mut().entry(uid).or_insert_with(|| user(uid)).clone()
    }
}

impl FromIterator<(u32, String)> for Names {
    fn from_iter<T: IntoIterator<Item = (u32, String)>>(names: T) -> Self {
        Self { known: RefCell::new(names.into_iter().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_without_a_name_is_a_number() {
        let names = Names::from_iter([(7, "ann".to_owned())]);
        assert_eq!((names.of(7), names.of(0)), ("ann".into(), "root".into()));
        assert_eq!(names.of(3_999_999_999), "3999999999");
    }
}
