//! Who may use a GPU now: shares of GPU time, decided by virtual time.
//!
//! The arbiter is told what each slice was promised ([`Terms`]) and what was seen of it ([`Observed`]), and says
//! who may launch how much ([`Lease`]). It acts on nothing and measures nothing; every moment is an argument.

mod arbiter;
mod charge;
mod gpu;
mod history;
mod member;
mod rules;
mod terms;
mod time;
mod turns;
mod verdict;

pub use arbiter::Arbiter;
pub use rules::Rules;
pub use terms::{Decision, Gang, GangName, Lease, Observed, Priority, Terms, Why, Window};
pub use time::{Instant, Nanos};
