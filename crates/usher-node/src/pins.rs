//! What the pins of visitors are sealed with.
//!
//! Only where something pins by cookie: a node without sessions writes no file.

use std::sync::Arc;

use usher_api::access::Secret;
use usher_core::catalog::{AffinityMode, Catalog};
use usher_edge::file::FileFault;
use usher_edge::seal::Keys;

use crate::settings::Seal;

/// The keys that `catalog` needs.
///
/// # Errors
/// A file of keys that cannot be read, made or used.
pub(crate) fn keys(seal: &Seal, catalog: &Catalog) -> Result<Option<Arc<Keys>>, FileFault> {
    if !pins_by_cookie(catalog) {
        return Ok(None);
    }
    let keys = match seal {
        Seal::Folder(folder) => Keys::load_or_make(folder)?,
        Seal::Secrets(secrets) => {
            let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
            Keys::new(&secrets).expect("who filled the settings checked that they make keys")
        }
    };
    Ok(Some(Arc::new(keys)))
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
