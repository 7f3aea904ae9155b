//! How the pin of a visitor is found for a decision, and given to it as a cookie.
//!
//! A pin is in the sealed cookie `__cflb` or in the table of this process; which of them is looked
//! at, and whether at all, is the core's to say. What does not open, because it is forged, cut
//! short, of another load balancer or of a key that is gone, is no pin, and the visitor gets a new
//! one.

use std::cell::Cell;

use usher_core::affinity::{Pin, PinKey, Pins};
use usher_core::catalog::SameSite;
use usher_core::id::Id;

use super::affinity_cookie;
use super::client::RequestFields;
use super::pin_table::PinTable;
use crate::seal::{Keys, Purpose, Scope};

/// The pins that one request may have.
pub(crate) struct Carried<'a, F> {
    fields: &'a F,
    keys: Option<&'a Keys>,
    table: &'a PinTable,
    found: Cell<Option<Pin>>,
}

impl<'a, F: RequestFields> Carried<'a, F> {
    pub(crate) fn new(
        fields: &'a F,
        keys: Option<&'a Keys>,
        table: &'a PinTable,
    ) -> Carried<'a, F> {
        Carried {
            fields,
            keys,
            table,
            found: Cell::new(None),
        }
    }

    /// The pin that was found when one was asked for.
    pub(crate) fn found(&self) -> Option<Pin> {
        self.found.get()
    }
}

impl<F: RequestFields> Pins for Carried<'_, F> {
    fn in_cookie(&self, balancer: Id) -> Option<Pin> {
        let lines = self.fields.all().filter(|(name, _)| is_cookie(name));
        let pin = pin_in_cookies(self.keys?, balancer, lines.map(|(_, value)| value));
        self.found.set(pin);
        pin
    }

    fn under_key(&self, key: PinKey) -> Option<Pin> {
        let pin = self.table.find(key);
        self.found.set(pin);
        pin
    }
}

/// The pin in these `Cookie` lines of a visitor that one of `keys` sealed for `balancer`.
#[must_use]
pub fn pin_in_cookies<'a>(
    keys: &Keys,
    balancer: Id,
    lines: impl Iterator<Item = &'a [u8]>,
) -> Option<Pin> {
    let scope = scope(balancer);
    affinity_cookie::values(lines).find_map(|value| {
        Pin::decode(&keys.open(scope, value)?).filter(|pin| pin.balancer == balancer)
    })
}

const fn scope(balancer: Id) -> Scope {
    Scope {
        purpose: Purpose::Pin,
        of: balancer,
    }
}

/// Whether a field holds cookies.
pub(crate) fn is_cookie(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"cookie")
}

/// The value of the `Set-Cookie` that gives a visitor `pin`.
pub(crate) fn cookie(keys: &Keys, pin: &Pin, secure: bool, same_site: SameSite) -> String {
    let value = keys.seal(scope(pin.balancer), &pin.encode());
    affinity_cookie::set_cookie(&value, secure, same_site, pin.since, pin.ttl)
}
