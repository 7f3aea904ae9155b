//! What the pins of visitors are sealed with, and how those of a hypothetical request are found.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use usher_api::access::Secret;
use usher_core::affinity::{Pin, PinKey, Pins};
use usher_core::catalog::{AffinityMode, Catalog};
use usher_core::id::Id;
use usher_core::request::Headers;
use usher_edge::file::FileFault;
use usher_edge::http::{PinTable, pin_in_cookies};
use usher_edge::seal::{KEY_FILE_NAME, Keys};

use crate::settings::Seal;

/// The keys that `catalog` needs. Only where something pins by cookie, or where there are waiting
/// rooms that outlive the process (`keeps_rooms`): a node without sessions writes no file.
///
/// # Errors
/// A file of keys that cannot be read, made or used.
pub(crate) fn keys(
    seal: &Seal,
    catalog: &Catalog,
    keeps_rooms: bool,
) -> Result<Option<Arc<Keys>>, FileFault> {
    let of_rooms = keeps_rooms && !catalog.draft().rooms.is_empty();
    if !of_rooms && !pins_by_cookie(catalog) {
        return Ok(None);
    }
    let keys = match seal {
        Seal::Folder(folder) => Keys::load_or_make(folder)?,
        Seal::Secrets(secrets) => of_secrets(secrets),
    };
    Ok(Some(Arc::new(keys)))
}

/// The keys that a node with `seal` has, if it ever made or was given any. Makes none.
#[must_use]
pub fn known_keys(seal: &Seal) -> Option<Keys> {
    match seal {
        Seal::Secrets(secrets) => Some(of_secrets(secrets)),
        Seal::Folder(folder) => is_made(folder).then(|| Keys::load_or_make(folder).ok())?,
    }
}

fn is_made(folder: &Path) -> bool {
    folder.join(KEY_FILE_NAME).exists()
}

fn of_secrets(secrets: &[Secret]) -> Keys {
    let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
    Keys::new(&secrets).expect("who filled the settings checked that they make keys")
}

/// Whether any visitor may get a pin in a cookie.
fn pins_by_cookie(catalog: &Catalog) -> bool {
    let by_cookie = |mode| matches!(mode, AffinityMode::Cookie | AffinityMode::IpCookie);
    catalog.balancers().any(|(_, balancer)| {
        let mut rules = balancer.rules.as_written().iter();
        by_cookie(balancer.affinity.mode)
            || rules.any(|rule| rule.overrides.affinity.is_some_and(by_cookie))
    })
}

/// The pins of a request that nobody sent.
#[derive(Debug)]
pub struct Presented<'a> {
    /// What it would carry.
    pub headers: &'a dyn Headers,
    /// What opens its cookies.
    pub keys: Option<&'a Keys>,
    /// The pins that a node keeps; without one there are none.
    pub table: Option<&'a PinTable>,
}

impl Pins for Presented<'_> {
    fn in_cookie(&self, balancer: Id) -> Option<Pin> {
        let mut lines = Vec::new();
        self.headers.visit(&mut |name, value| {
            if name.eq_ignore_ascii_case(b"cookie") {
                lines.push(value);
            }
            ControlFlow::Continue(())
        });
        pin_in_cookies(self.keys?, balancer, lines.into_iter())
    }

    fn under_key(&self, key: PinKey) -> Option<Pin> {
        self.table?.find(key)
    }
}
