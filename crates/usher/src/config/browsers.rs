//! `browsers` and `accounts`: where browsers run, and who may have how many.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;

use ipnet::IpNet;
use usher_api::access::Secret;
use usher_api::wire::reader::{ACCOUNT, Cursor, Object, Shape, Word, built, nearest, unbuilt};
use usher_browsers::lacks::is_program;
use usher_browsers::settings::{Kind, keeps_metadata, slots};
use usher_core::lease::bucket::Rate;
use usher_core::lease::limits::{AccountKind, Limits};
use usher_core::region::Region;
use usher_node::settings::{Account, BrowserPool, Browsers};

use super::process::{path, read_listener};
use super::quantity::network;

pub(super) static BROWSERS: Shape = Shape {
    name: "browsers",
    keys: &[
        built("listen"),
        built("insecure_single_tenant"),
        built("chromium"),
        built("pools"),
        unbuilt("migration", &[]),
        unbuilt("flavours", &[]),
        unbuilt("recordings", &[]),
    ],
};

pub(super) static POOL: Shape = Shape {
    name: "browser pool",
    keys: &[
        built("backend"),
        built("min_ready"),
        built("max_ready"),
        built("max"),
        built("socket"),
        unbuilt("flavour", &["stable"]),
    ],
};

pub(super) static ACCOUNTS: Shape = Shape {
    name: "account",
    keys: &[
        built("kind"),
        built("binding_secret"),
        built("allow_private"),
        built("weight"),
        built("limits"),
    ],
};

pub(super) static LIMITS: Shape = Shape {
    name: "limits of an account",
    keys: &[
        built("concurrent_browsers"),
        built("browsers_per_second"),
        built("browsers_burst"),
        built("quick_actions_per_second"),
        built("quick_actions_burst"),
        built("browser_seconds_per_day"),
    ],
};

/// Browsers of one region at most.
const MAX: u32 = 1_000;
/// Turns of one account in a round of the line at most.
const WEIGHT_MAX: u32 = 1_000;
/// Ready ones, where nothing is said.
const MIN_READY: u32 = 2;
/// Characters of what a Worker shows: fewer can be guessed.
const SECRET_LEN_MIN: usize = 16;
/// Bytes of the path of a socket that the system takes, less the zero at its end.
const SOCKET_PATH_MAX: usize = 107;
/// Sessions or requests that an account may have.
const COUNT_MAX: u32 = 1_000_000;

/// Reads `browsers`. Its files are kept in `state`; paths in it are relative to `folder`.
pub(super) fn read(
    browsers: &Object<'_>,
    folder: &Path,
    state: &Path,
    accounts: &[Account],
    taken: &mut Vec<SocketAddr>,
) -> Option<Browsers> {
    let kept = state.join("browsers");
    let listen = browsers.get("listen");
    let address = listen.as_ref().and_then(|it| read_listener(it, taken));
    if let (Some(listen), Some(address)) = (&listen, address) {
        if !address.ip().is_loopback() {
            listen.note(format_args!(
                "{address} can be reached from other machines, and binding secrets would cross the network in the clear"
            ));
        }
        if accounts.iter().all(|account| account.secret.is_none()) {
            listen.note("is of use to nobody: no account has a binding_secret");
        }
    }
    let trusts = browsers.flag_or("insecure_single_tenant", false);
    let chromium = browsers.get("chromium");
    let chromium = chromium.and_then(|it| {
        let program = path(&it, folder)?;
        if !is_program(&program) {
            it.note(format_args!(
                "{} is no program on this machine: without it no browser starts",
                program.display()
            ));
        }
        Some(program)
    });
    let listed = browsers.need("pools")?;
    let entries = listed.entries();
    if entries.is_empty() && listed.value().is_object() {
        listed.fault("is empty: name a region, as in {WEU: {}}");
    }
    let mut pools = BTreeMap::new();
    for (code, cursor) in entries {
        let region = read_region(code, &cursor);
        let pool = read_pool(&cursor, folder, trusts);
        let Some((region, pool)) = region.zip(pool) else {
            continue;
        };
        let socket = kept.join(code).join(usher_browsers::folder::SOCKET);
        if pool.socket.is_none() && socket.as_os_str().len() > SOCKET_PATH_MAX {
            cursor.fault_at_key(format_args!(
                "has its socket at {}, {} bytes, more than {SOCKET_PATH_MAX}: name a shorter state_folder",
                socket.display(),
                socket.as_os_str().len()
            ));
        }
        pools.insert(region, pool);
    }
    Some(Browsers {
        listen: address,
        insecure_single_tenant: trusts,
        chromium,
        folder: kept,
        pools,
    })
}

fn read_region(code: &str, cursor: &Cursor<'_>) -> Option<Region> {
    let region = Region::parse(code);
    if region.is_none() {
        let codes = Region::ALL.map(Region::code);
        let near = nearest(code, codes.into_iter());
        let near = near.map(|near| format!("; the nearest is {near}"));
        cursor.fault_at_key(format_args!(
            "is none of the {} region codes ({}){}",
            codes.len(),
            codes.join(", "),
            near.unwrap_or_default()
        ));
    }
    region
}

fn read_pool(cursor: &Cursor<'_>, folder: &Path, trusts: bool) -> Option<BrowserPool> {
    let pool = cursor.object(&POOL)?;
    let words = Kind::ALL.map(|kind| (kind.as_str(), Word::Means(kind)));
    let backend = pool.get("backend");
    let kind = backend.as_ref().and_then(|it| it.word(&words));
    let kind = kind.unwrap_or_default();
    if let Some(backend) = backend
        .as_ref()
        .filter(|_| kind == Kind::Process && !trusts)
    {
        backend.fault(
            "process runs without a sandbox: it needs browsers.insecure_single_tenant: true, which says that one trusted tenant owns every session",
        );
    }
    let count = |key, min| {
        let cursor = pool.get(key)?;
        let count = cursor.whole(min, MAX)?;
        Some((cursor, count))
    };
    let (min, max_ready, max) = (
        count("min_ready", 0),
        count("max_ready", 0),
        count("max", 1),
    );
    let number = |of: &Option<(Cursor<'_>, u32)>| of.as_ref().map(|&(_, count)| count);
    let least = number(&min);
    for (cursor, most) in [&max_ready, &max].into_iter().flatten() {
        if let Some(least) = least.filter(|least| least > most) {
            cursor.fault(format_args!("{most} is below min_ready {least}"));
        }
    }
    let socket = pool.get("socket");
    if let Some((cursor, most)) = max.as_ref().filter(|_| socket.is_none()) {
        let slots = slots();
        if *most > slots {
            cursor.note(format_args!(
                "{most} is above the {slots} that cores and memory of this machine allow"
            ));
        }
    }
    if socket.is_some() {
        let max = max.as_ref().map(|(cursor, _)| cursor);
        for cursor in [backend.as_ref(), max].into_iter().flatten() {
            cursor.note("has no effect beside socket: whoever started that host has said it");
        }
    }
    let most = number(&max).or(number(&max_ready)).unwrap_or(MAX);
    Some(BrowserPool {
        backend: kind,
        min_ready: least.unwrap_or(MIN_READY.min(most)),
        max_ready: number(&max_ready),
        max: number(&max),
        socket: socket.and_then(|it| path(&it, folder)),
    })
}

/// The accounts of a file: those that it names, and the one that there always is.
pub(super) fn read_accounts(root: &Object<'_>) -> Vec<Account> {
    let mut accounts: Vec<Account> = Vec::new();
    let mut secrets: HashMap<&str, &str> = HashMap::new();
    for (name, cursor) in root.get("accounts").iter().flat_map(Cursor::entries) {
        let cursor = cursor.as_resource(&format!("account {name}"));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
            cursor.fault_at_key("has a name that is not 1 to 64 letters, digits, \"_\" and \"-\"");
        }
        let Some(object) = cursor.object(&ACCOUNTS) else {
            continue;
        };
        let secret = object.get("binding_secret").and_then(|it| {
            let secret = read_secret(&it)?;
            if let Some(other) = secrets.insert(secret, name) {
                it.fault(format_args!("is also that of account {other}"));
            }
            Some(Secret::new(secret))
        });
        accounts.push(read_account(&object, name, secret));
    }
    if accounts.iter().all(|account| account.name != ACCOUNT) {
        accounts.insert(0, Account::new(ACCOUNT));
    }
    accounts
}

fn read_account(object: &Object<'_>, name: &str, secret: Option<Secret>) -> Account {
    let kinds = AccountKind::ALL.map(|kind| (kind.as_str(), Word::Means(kind)));
    let kind = object.get("kind").and_then(|it| it.word(&kinds));
    let kind = kind.unwrap_or(AccountKind::Paygo);
    let networks = object.get("allow_private");
    let networks = networks.iter().flat_map(Cursor::list);
    let weight = object.get("weight").and_then(|it| it.whole(1, WEIGHT_MAX));
    let limits = object.get("limits").and_then(|it| it.object(&LIMITS));
    Account {
        kind,
        secret,
        allow_private: networks.filter_map(|item| opened(&item)).collect(),
        weight: weight.unwrap_or(kind.weight()),
        limits: limits.map_or(Limits::of(kind), |limits| read_limits(&limits, kind)),
        ..Account::new(name)
    }
}

/// A network that browsers may reach, unless it is one that nothing opens.
fn opened(item: &Cursor<'_>) -> Option<IpNet> {
    let network = network(item)?;
    let written = item.text().and_then(|text| text.parse::<IpNet>().ok());
    if let Some(written) = written.filter(|written| *written != network) {
        item.note(format_args!("{written} is read as {network}"));
    }
    let is_one = network.prefix_len() == network.max_prefix_len();
    if is_one && keeps_metadata(network.addr()) {
        item.note(format_args!(
            "{} stays denied: clouds keep metadata there",
            network.addr()
        ));
    }
    Some(network)
}

fn read_limits(object: &Object<'_>, kind: AccountKind) -> Limits {
    let base = Limits::of(kind);
    let count = |key, min| object.get(key).and_then(|it| it.whole(min, COUNT_MAX));
    let rate = |key| object.get(key).and_then(|it| it.number_in(0.001, 1_000.0));
    let of = |base: Rate, each: Option<f64>, burst: Option<u32>| {
        let burst = burst.unwrap_or(base.burst);
        match each {
            Some(each) => Rate::per_second(each, burst),
            None => Rate { burst, ..base },
        }
    };
    let browsers = of(
        base.browsers,
        rate("browsers_per_second"),
        count("browsers_burst", 1),
    );
    let limits = base.with_browsers(browsers);
    let a_day = count("browser_seconds_per_day", 1);
    Limits {
        concurrent: count("concurrent_browsers", 1).unwrap_or(limits.concurrent),
        quick_actions: of(
            base.quick_actions,
            rate("quick_actions_per_second"),
            count("quick_actions_burst", 1),
        ),
        a_day: a_day
            .map(|seconds| std::time::Duration::from_secs(seconds.into()))
            .or(limits.a_day),
        ..limits
    }
}

/// What a Worker shows. The value is never part of a message.
fn read_secret<'a>(value: &Cursor<'a>) -> Option<&'a str> {
    let text = value.text()?;
    if text.len() < SECRET_LEN_MIN {
        value.fault(format_args!(
            "has {} characters, fewer than {SECRET_LEN_MIN}",
            text.chars().count()
        ));
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        value.fault("has a character that is not visible ASCII");
        return None;
    }
    Some(text)
}
