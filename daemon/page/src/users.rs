//! Names of users, looked up once in a while.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

/// Time after which a name is looked up again.
const FRESH: Duration = Duration::from_secs(600);

/// Names by uid, with the time of the look-up.
#[derive(Debug, Default)]
pub(crate) struct UserNames(BTreeMap<u32, (String, Instant)>);

impl UserNames {
    /// Name of a user, or the uid where there is none. May wait for a directory service.
    pub(crate) fn of(&mut self, uid: u32) -> String {
        self.0.retain(|_, (_, at)| at.elapsed() < FRESH);
        let look_up = || {
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            (user.map_or_else(|| uid.to_string(), |user| user.name), Instant::now())
        };
        self.0.entry(uid).or_insert_with(look_up).0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_without_a_name_is_a_number() {
        let mut names = UserNames::default();
        assert_eq!(names.of(0), "root");
        assert_eq!(names.of(4_123_456_789), "4123456789");
    }
}
