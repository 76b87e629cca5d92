//! User names by uid, each looked up once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use nix::unistd::{Uid, User};

/// Maximum number of names that are kept.
const MOST: usize = 4_096;

/// Names of users, each looked up once, since a directory service may be slow.
#[derive(Debug, Default)]
pub(crate) struct UserDirectory {
    known: Mutex<BTreeMap<u32, String>>,
}

impl UserDirectory {
    /// Name of a user, or the uid if it has none.
    pub(crate) fn name(&self, uid: u32) -> String {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).cloned();
        known.unwrap_or_else(|| self.look_up(uid))
    }

    fn look_up(&self, uid: u32) -> String {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.map_or_else(|| uid.to_string(), |user| user.name);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(uid, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_others_their_uid() {
        let names = UserDirectory::default();
        assert_eq!((names.name(0), names.name(0)), ("root".into(), "root".into()));
        assert_eq!(names.name(4_000_000_123), "4000000123");
    }
}
