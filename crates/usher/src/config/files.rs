//! The files that a configuration names: each is read and checked now, not at the first handshake.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use usher_api::wire::places;
use usher_api::wire::reader::{Object, Report};
use usher_core::catalog::{Draft, EndpointTls, Field, Subject, TlsField};
use usher_edge::geo::Places;
use usher_edge::tls::{Certificates, ClientConfigs, FileFault, KeyPair, TrustProfile};

use super::process;

/// Tells `report` about every file that cannot be used. The database of places is large: what was
/// read to check it is what will be looked into.
pub(super) fn check(
    report: &Report,
    root: &Object<'_>,
    folder: &Path,
    draft: &Draft,
    places: &places::Places,
) -> Option<(PathBuf, Arc<Places>)> {
    for (cert, key) in process::certificates(root) {
        let [cert_path, key_path] = [&cert, &key].map(|file| {
            file.value()
                .as_str()
                .filter(|path| !path.is_empty())
                .map(|path| folder.join(path))
        });
        // Where a path is missing, that has been said.
        let (Some(cert_path), Some(key_path)) = (cert_path, key_path) else {
            continue;
        };
        let pair = KeyPair {
            cert: cert_path.clone(),
            key: key_path,
        };
        for fault in Certificates::load(&[pair]).err().into_iter().flatten() {
            let named = if fault.path == cert_path { &cert } else { &key };
            named.fault(fault);
        }
    }
    let database = process::database(root).and_then(|database| {
        let path = database.value().as_str().filter(|path| !path.is_empty())?;
        let path = folder.join(path);
        match Places::load(&path) {
            Ok(places) => Some((path, Arc::new(places))),
            Err(fault) => {
                database.fault(fault);
                None
            }
        }
    });
    let mut known = HashMap::new();
    let zones = draft
        .zones
        .iter()
        .enumerate()
        .map(|(index, zone)| (Subject::Zone(index), &zone.tls));
    let pools = draft
        .pools
        .iter()
        .enumerate()
        .map(|(index, pool)| (Subject::Pool(index), &pool.tls));
    for (subject, tls) in zones.chain(pools) {
        for (field, message) in trust(tls, &mut known) {
            report.consequence(
                places.finding(draft, subject, Field::Tls(field), message),
                &[],
            );
        }
    }
    database
}

type Known = HashMap<TrustProfile, Vec<(PathBuf, String)>>;

/// What is wrong with the files of `tls`; many pools may name the same ones.
fn trust(tls: &EndpointTls, known: &mut Known) -> Vec<(TlsField, String)> {
    let path = |file: &Option<String>| file.as_ref().map(PathBuf::from);
    // Half of a pair is a fault that the core tells.
    let pair = path(&tls.client_cert).zip(path(&tls.client_key));
    let (client_cert, client_key) = pair.unzip();
    let ca = path(&tls.ca);
    if ca.is_none() && client_cert.is_none() {
        return Vec::new();
    }
    let profile = TrustProfile {
        verify: ca.is_some(),
        ca,
        client_cert,
        client_key,
    };
    let faults = known.entry(profile.clone()).or_insert_with(|| {
        let faults = ClientConfigs::load([profile.clone()])
            .err()
            .unwrap_or_default();
        faults
            .into_iter()
            .map(|fault: FileFault| (fault.path.clone(), fault.to_string()))
            .collect()
    });
    let field = |path: &PathBuf| match Some(path) {
        path if path == profile.ca.as_ref() => (TlsField::Ca, "ca"),
        path if path == profile.client_cert.as_ref() => (TlsField::ClientCert, "client_cert"),
        _ => (TlsField::ClientKey, "client_key"),
    };
    let told = faults.iter().map(|(path, fault)| {
        let (field, name) = field(path);
        (field, format!("{name} {fault}"))
    });
    told.collect()
}
