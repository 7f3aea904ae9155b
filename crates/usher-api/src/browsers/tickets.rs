//! Addresses that open one WebSocket each, for clients that take no token along.
//!
//! Some clients ask for `/json/version` and go where `webSocketDebuggerUrl` leads, without a header
//! of their own. What can carry a secret then is the address. It is known to whoever asked with a
//! token that may connect, opens the browser of one session, and that once and soon. An address ends
//! up in logs and histories; one that is used up is worth nothing there.
//!
//! Only hashes are kept: to find one in a table tells nothing about the secret it is of.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use usher_core::id::Id;
use usher_core::time::Mono;

/// For a client to come.
const LIFE: Duration = Duration::from_secs(60);

/// Of one account at once. One more ends its oldest.
const OF_ACCOUNT_MAX: usize = 64;

/// The addresses that have not been used.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<HashMap<[u8; 32], Ticket>>);

#[derive(Debug)]
struct Ticket {
    account: Id,
    /// As it stood in the path, in lower case.
    session: String,
    ends: Mono,
}

impl Tickets {
    /// A secret that opens `session` once; `None` when the system gives no entropy.
    pub(super) fn issue(&self, account: Id, session: &str, now: Mono) -> Option<String> {
        let mut secret = [0; 32];
        rand::fill(&mut secret).ok()?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let mut tickets = self.lock();
        tickets.retain(|_, ticket| ticket.ends > now);
        let own = tickets.iter().filter(|(_, of)| of.account == account);
        let own: Vec<(Mono, [u8; 32])> = own.map(|(name, of)| (of.ends, *name)).collect();
        if own.len() >= OF_ACCOUNT_MAX {
            let oldest = own.into_iter().min();
            oldest.and_then(|(_, name)| tickets.remove(&name));
        }
        let ticket = Ticket {
            account,
            session: session.to_ascii_lowercase(),
            ends: now.after(LIFE),
        };
        tickets.insert(name(&secret), ticket);
        Some(secret)
    }

    /// Whether the secret opens that session now. It opens nothing any more afterwards.
    pub(super) fn redeem(&self, secret: &str, account: Id, session: &str, now: Mono) -> bool {
        let ticket = self.lock().remove(&name(secret));
        ticket.is_some_and(|ticket| {
            ticket.account == account
                && ticket.session.eq_ignore_ascii_case(session)
                && ticket.ends > now
        })
    }

    /// Nobody was told of it.
    pub(super) fn forget(&self, secret: &str) {
        self.lock().remove(&name(secret));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Ticket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(secret: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use usher_core::id::Kind;

    use super::*;

    const SESSION: &str = "1acf0ca1-b849-46bc-9f6a-349716f3cf5d";

    fn account(name: &str) -> Id {
        Id::derive("default", Kind::Account, name)
    }

    #[test]
    fn a_secret_opens_its_session_once_and_for_a_minute() {
        let (tickets, start) = (Tickets::default(), Mono::ZERO);
        let issue = || {
            tickets
                .issue(account("one"), SESSION, start)
                .expect("entropy")
        };
        let secret = issue();
        let opens = |secret: &str, at| tickets.redeem(secret, account("one"), SESSION, at);
        assert!(opens(&secret, start.after(LIFE - Duration::from_millis(1))));
        assert!(!opens(&secret, start), "twice");
        assert!(!opens(&issue(), start.after(LIFE)), "late");
        assert!(!opens("", start));
        assert_ne!(issue(), issue());
        let secret = issue();
        assert!(!tickets.redeem(&secret, account("two"), SESSION, start));
        assert!(!opens(&secret, start), "tried at another's");
        let secret = issue();
        assert!(!tickets.redeem(&secret, account("one"), "another", start));
        let secret = issue();
        tickets.forget(&secret);
        assert!(!opens(&secret, start));
        assert!(!format!("{tickets:?}").contains(&issue()));
    }

    #[test]
    fn no_account_has_more_than_its_share_or_another_ones() {
        let tickets = Tickets::default();
        let at = |second| Mono::ZERO.after(Duration::from_secs(second));
        let other = tickets
            .issue(account("two"), SESSION, at(0))
            .expect("entropy");
        let first = tickets
            .issue(account("one"), SESSION, at(0))
            .expect("entropy");
        let second = tickets
            .issue(account("one"), SESSION, at(1))
            .expect("entropy");
        for _ in 1..OF_ACCOUNT_MAX {
            tickets.issue(account("one"), SESSION, at(2));
        }
        assert_eq!(tickets.lock().len(), OF_ACCOUNT_MAX + 1);
        assert!(!tickets.redeem(&first, account("one"), SESSION, at(3)));
        assert!(tickets.redeem(&second, account("one"), SESSION, at(3)));
        assert!(tickets.redeem(&other, account("two"), SESSION, at(3)));
        // Those that nobody used do not stay.
        tickets.issue(account("one"), SESSION, at(120));
        assert_eq!(tickets.lock().len(), 1);
    }
}
