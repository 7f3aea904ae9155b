//! The sections of the file that belong to the process: where it listens, whom it trusts, what it
//! writes down.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use usher_api::access::{Permission, Product, Secret, Token};
use usher_api::wire::reader::{Cursor, Object, Shape, Word, built, unbuilt};
use usher_api::wire::rooms;
use usher_core::catalog::{INTERVAL_MIN, Node, RoomProfile};
use usher_edge::http::{Limits, Timeouts};
use usher_edge::seal::{KEYS_MAX, Keys, SECRET_LEN_MIN, SecretFault, VARIETY_MIN};
use usher_edge::tls::KeyPair;
use usher_node::settings::{AccessLog, Account, Api, LogTarget, Place, Process, Seal, Shutdown};

use super::browsers;
use super::quantity::{bytes, duration, network, socket};

/// The file.
pub(super) static ROOT: Shape = Shape {
    name: "configuration file",
    keys: &[
        built("node"),
        built("listen"),
        built("certificates"),
        built("trusted_proxies"),
        built("api"),
        built("limits"),
        built("timeouts"),
        built("health"),
        built("shutdown"),
        built("access_log"),
        built("geo"),
        built("pid_file"),
        built("secrets"),
        built("state_folder"),
        built("store"),
        built("zones"),
        built("monitors"),
        built("monitor_groups"),
        built("pools"),
        built("load_balancers"),
        unbuilt("nodes", &[]),
        built("live_state"),
        built("accounts"),
        built("notifications"),
        built("waiting_rooms"),
        built("browsers"),
    ],
};

static NODE: Shape = Shape {
    name: "node",
    keys: &[
        built("name"),
        built("code"),
        built("region"),
        built("country"),
        built("city"),
        built("latitude"),
        built("longitude"),
    ],
};

static LISTEN: Shape = Shape {
    name: "listen",
    keys: &[
        built("http"),
        built("https"),
        unbuilt("dns", &[]),
        unbuilt("tcp", &[]),
        unbuilt("udp", &[]),
    ],
};

static CERTIFICATE: Shape = Shape {
    name: "certificate",
    keys: &[built("cert"), built("key")],
};

static API: Shape = Shape {
    name: "api",
    keys: &[
        built("listen"),
        built("tls"),
        built("allow_plain"),
        built("tokens"),
        built("public_origin"),
        unbuilt("live_origin", &[]),
        unbuilt("rate_limit", &[]),
        built("validation_profile"),
    ],
};

static TOKEN: Shape = Shape {
    name: "token of the api",
    keys: &[
        built("name"),
        built("token"),
        built("permissions"),
        built("accounts"),
    ],
};

static LIMITS: Shape = Shape {
    name: "limits",
    keys: &[
        built("header_bytes"),
        built("headers"),
        built("uri_bytes"),
        built("connections"),
        built("connections_per_client"),
        built("monitor_interval_min"),
        unbuilt("require_virtual_network_for_private", &["false"]),
    ],
};

static TIMEOUTS: Shape = Shape {
    name: "timeouts",
    keys: &[
        built("client_header"),
        built("client_body_idle"),
        built("keep_alive"),
        built("tls_handshake"),
        built("connect"),
        built("response_header"),
        built("body_idle"),
        built("upstream_keep_alive"),
    ],
};

static HEALTH: Shape = Shape {
    name: "health",
    keys: &[built("ready_timeout")],
};

static SHUTDOWN: Shape = Shape {
    name: "shutdown",
    keys: &[built("grace"), built("handover_grace")],
};

static ACCESS_LOG: Shape = Shape {
    name: "access_log",
    keys: &[built("path"), built("format"), built("query_strings")],
};

static GEO: Shape = Shape {
    name: "geo",
    keys: &[built("database"), unbuilt("asn_database", &[])],
};

static SECRETS: Shape = Shape {
    name: "secrets",
    keys: &[built("seal")],
};

static STORE: Shape = Shape {
    name: "store",
    keys: &[built("url")],
};

static LIVE_STATE: Shape = Shape {
    name: "live_state",
    keys: &[built("url"), built("journal"), unbuilt("max_nodes", &["8"])],
};

static NOTIFICATIONS: Shape = Shape {
    name: "notifications",
    keys: &[built("allow_private")],
};

/// The shape of every object of these sections, for the reference.
#[cfg(test)]
pub(super) const SHAPES: [&Shape; 20] = [
    &ROOT,
    &NODE,
    &LISTEN,
    &CERTIFICATE,
    &API,
    &TOKEN,
    &LIMITS,
    &TIMEOUTS,
    &HEALTH,
    &SHUTDOWN,
    &ACCESS_LOG,
    &GEO,
    &SECRETS,
    &STORE,
    &LIVE_STATE,
    &NOTIFICATIONS,
    &browsers::BROWSERS,
    &browsers::POOL,
    &browsers::ACCOUNTS,
    &browsers::LIMITS,
];

/// Where state is kept unless the file says otherwise.
const STATE_FOLDER: &str = "var";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Reads the sections of the process. Paths in them are relative to `folder`.
pub(super) fn read(root: &Object<'_>, folder: &Path) -> Process {
    let mut process = Process::default();
    let mut taken = Vec::new();
    let section = |key, shape| {
        root.get(key)
            .and_then(|value: Cursor<'_>| value.object(shape))
    };
    let certificates = root.get("certificates").map(|list| list.list());
    let listed = certificates.iter().flatten();
    process.certificates = listed
        .filter_map(|item| read_certificate(item, folder))
        .collect();
    let bare = certificates.is_none_or(|list| list.is_empty());
    if let Some(listen) = section("listen", &LISTEN) {
        process.listen.http = read_listeners(listen.get("http"), &mut taken);
        process.listen.https = read_listeners(listen.get("https"), &mut taken);
        if let Some(https) = listen
            .get("https")
            .filter(|_| bare && !process.listen.https.is_empty())
        {
            https.fault_at_key("has no certificate to show: list one in certificates");
        }
    }
    let proxies = root.get("trusted_proxies");
    let proxies = proxies.iter().flat_map(Cursor::list);
    process.front.trusted_proxies = proxies.filter_map(|item| network(&item)).collect();
    process.accounts = browsers::read_accounts(root);
    if let Some(api) = section("api", &API) {
        process.api = read_api(&api, &process.accounts, &mut taken);
        let tls = api.get("tls").filter(|tls| tls.flag() == Some(true));
        if let Some(tls) = tls.filter(|_| bare) {
            tls.fault_at_key("has no certificate to show: list one in certificates");
        }
    }
    let state = root.get("state_folder");
    let state = state.and_then(|state| state_folder(&state, folder));
    let state = state.unwrap_or_else(|| folder.join(STATE_FOLDER));
    if let Some(url) = section("store", &STORE).and_then(|store| store.need("url"))
        && let Some(text) = url.text()
    {
        match Place::parse(text, folder) {
            Ok(place) => process.store = Some(place),
            Err(fault) => url.fault(fault.to_string().trim_start_matches("store ")),
        }
    }
    if let Some(section) = section("browsers", &browsers::BROWSERS) {
        let beside = process.beside_store().unwrap_or_else(|| state.clone());
        let accounts = &process.accounts;
        process.browsers = browsers::read(&section, folder, &beside, accounts, &mut taken);
    }
    if !process.listens()
        && ["listen", "api", "browsers"]
            .iter()
            .all(|key| root.get(key).is_none())
    {
        root.cursor()
            .note("nothing listens: name an address in listen or api");
    }
    if let Some(limits) = section("limits", &LIMITS) {
        read_limits(&limits, &mut process.front.limits);
    }
    if let Some(timeouts) = section("timeouts", &TIMEOUTS) {
        read_timeouts(&timeouts, &mut process.front.timeouts);
    }
    if let Some(health) = section("health", &HEALTH) {
        let range = MILLISECOND..=Duration::from_secs(600);
        let timeout = health
            .get("ready_timeout")
            .and_then(|value| duration(&value, range));
        process.ready_timeout = timeout.unwrap_or(process.ready_timeout);
    }
    if let Some(shutdown) = section("shutdown", &SHUTDOWN) {
        let Shutdown {
            grace,
            handover_grace,
        } = &mut process.shutdown;
        for (key, into) in [("grace", grace), ("handover_grace", handover_grace)] {
            let found = shutdown
                .get(key)
                .and_then(|value| duration(&value, Duration::ZERO..=DAY));
            *into = found.unwrap_or(*into);
        }
    }
    process.pid_file = root
        .get("pid_file")
        .and_then(|file| path_to_write(&file, folder));
    if let Some(log) = root.get("access_log") {
        process.access_log = read_access_log(&log, folder);
    }
    if let Some(database) = section("geo", &GEO).and_then(|geo| geo.need("database")) {
        // Read with the other files; here only what is not even a path is told.
        let _ = path(&database, folder);
    }
    let seal = section("secrets", &SECRETS).and_then(|secrets| secrets.need("seal"));
    process.seal = match seal {
        Some(seal) => Seal::Secrets(read_seal(&seal)),
        None => Seal::Folder(state),
    };
    if let Some(live) = section("live_state", &LIVE_STATE) {
        process.journal = read_live_state(&live).unwrap_or(process.journal);
    }
    let notifications = section("notifications", &NOTIFICATIONS);
    process.post_privately = notifications.is_some_and(|it| it.flag_or("allow_private", false));
    process
}

/// Reads the node, which belongs to the catalog: steering and reports look at it.
pub(super) fn read_node(root: &Object<'_>) -> Node {
    let node = root.get("node").and_then(|node| node.object(&NODE));
    let text = |key| node.as_ref().and_then(|node: &Object<'_>| node.text(key));
    let degrees = |key, limit: f64| {
        node.as_ref()
            .and_then(|node| node.get(key))
            .and_then(|value| value.number_in(-limit, limit))
    };
    let name = text("name").unwrap_or_else(|| "usher".to_owned());
    let (latitude, longitude) = (degrees("latitude", 90.0), degrees("longitude", 180.0));
    if let Some(node) = &node {
        match (node.get("latitude"), node.get("longitude")) {
            (Some(latitude), None) => latitude.fault_at_key("is set without longitude"),
            (None, Some(longitude)) => longitude.fault_at_key("is set without latitude"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    Node {
        code: text("code")
            .filter(|code| !code.is_empty())
            .unwrap_or_else(|| name.clone())
            .to_ascii_uppercase(),
        name,
        region: text("region"),
        country: text("country"),
        city: text("city"),
        coordinates: latitude.zip(longitude),
    }
}

/// The operator's own floor for the interval of monitors.
pub(super) fn read_interval_min(root: &Object<'_>) -> Duration {
    // The rest of the section is read, and complained about, with the process.
    let limits = root
        .get("limits")
        .and_then(|limits| limits.quiet_object(&LIMITS));
    let range = Duration::from_secs(1)..=Duration::from_secs(3600);
    let floor = limits.and_then(|limits| limits.get("monitor_interval_min"));
    floor
        .and_then(|value| duration(&value, range))
        .unwrap_or(INTERVAL_MIN)
}

/// Which limits waiting rooms have to keep.
pub(super) fn read_room_profile(root: &Object<'_>) -> RoomProfile {
    let api = root.get("api").and_then(|api| api.quiet_object(&API));
    let profile = api.and_then(|api| api.get("validation_profile"));
    profile
        .and_then(|word| word.word(&rooms::PROFILES))
        .unwrap_or_default()
}

fn read_listeners(list: Option<Cursor<'_>>, taken: &mut Vec<SocketAddr>) -> Vec<SocketAddr> {
    let items = list.iter().flat_map(Cursor::list);
    items
        .filter_map(|item| read_listener(&item, taken))
        .collect()
}

pub(super) fn read_listener(item: &Cursor<'_>, taken: &mut Vec<SocketAddr>) -> Option<SocketAddr> {
    let address = socket(item)?;
    // Port 0 takes another one each time.
    if address.port() != 0 {
        let other = taken
            .iter()
            .find(|&&other| covers(other, address) || covers(address, other));
        match other {
            Some(other) if *other == address => {
                item.fault(format_args!("{address} is listed twice"));
            }
            Some(other) if covers(*other, address) => item.fault(format_args!(
                "{address} is covered by {other}, which is listed, too"
            )),
            Some(other) => item.fault(format_args!(
                "{address} covers {other}, which is listed, too"
            )),
            None => {}
        }
        taken.push(address);
    }
    Some(address)
}

/// Whether whoever listens at `wide` has the connections of `narrow`.
fn covers(wide: SocketAddr, narrow: SocketAddr) -> bool {
    // Our sockets of IPv6 take IPv4, too.
    let all = wide.ip().is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4());
    wide.port() == narrow.port() && (all || wide.ip() == narrow.ip())
}

fn read_certificate(item: &Cursor<'_>, folder: &Path) -> Option<KeyPair> {
    let object = item.object(&CERTIFICATE)?;
    let (cert, key) = (object.need("cert"), object.need("key"));
    Some(KeyPair {
        cert: path(&cert?, folder)?,
        key: path(&key?, folder)?,
    })
}

/// The certificates whose files are named in full: certificate, then key.
pub(super) fn certificates<'a>(root: &Object<'a>) -> Vec<(Cursor<'a>, Cursor<'a>)> {
    let list = root
        .get("certificates")
        .filter(|list| list.value().is_array());
    let items = list.iter().flat_map(Cursor::list);
    let pair = |item: Cursor<'a>| {
        let object = item.quiet_object(&CERTIFICATE)?;
        object.get("cert").zip(object.get("key"))
    };
    items.filter_map(pair).collect()
}

/// A file, relative to the folder of the configuration file.
pub(super) fn path(value: &Cursor<'_>, folder: &Path) -> Option<PathBuf> {
    let text = value.text()?;
    if text.is_empty() {
        value.fault("is empty");
        return None;
    }
    Some(folder.join(text))
}

/// A file that is going to be written: its folder is not made for it.
fn path_to_write(value: &Cursor<'_>, folder: &Path) -> Option<PathBuf> {
    let path = path(value, folder)?;
    match path.parent() {
        Some(parent) if !parent.is_dir() => {
            value.fault(format_args!(
                "{} is in a folder that does not exist",
                path.display()
            ));
        }
        _ if path.is_dir() => value.fault(format_args!("{} is a folder", path.display())),
        _ => {}
    }
    Some(path)
}

/// A folder that is made when it is needed, with those above it.
fn state_folder(value: &Cursor<'_>, folder: &Path) -> Option<PathBuf> {
    let path = path(value, folder)?;
    let mut above = path.ancestors();
    // The first that is there: it must be a folder for the others to be made in.
    if let Some(there) = above.find(|place| place.exists())
        && !there.is_dir()
    {
        value.fault(format_args!("{} is not a folder", there.display()));
    }
    Some(path)
}

fn read_api(api: &Object<'_>, accounts: &[Account], taken: &mut Vec<SocketAddr>) -> Option<Api> {
    let listen = api
        .need("listen")
        .and_then(|value| read_listener(&value, taken));
    let flag = |key| api.get(key).and_then(|value| value.flag()).unwrap_or(false);
    let (tls, allow_plain) = (flag("tls"), flag("allow_plain"));
    if let (Some(address), Some(value)) = (listen, api.get("listen"))
        && !(address.ip().is_loopback() || tls || allow_plain)
    {
        value.fault(format_args!(
            "{address} can be reached from other machines, and tokens would cross the network in the clear: set tls: true, or allow_plain: true where something else encrypts"
        ));
    }
    let (mut names, mut secrets) = (HashSet::new(), HashSet::new());
    let mut tokens = Vec::new();
    for item in api.get("tokens").iter().flat_map(Cursor::list) {
        let Some(token) = read_token(&item, accounts) else {
            continue;
        };
        if !names.insert(token.name.clone()) {
            item.fault(format_args!("name {:?} is not unique", token.name));
        }
        if !secrets.insert(token.secret.expose().to_owned()) {
            item.fault("token is also that of another name");
        }
        tokens.push(token);
    }
    let public_origin = api.get("public_origin");
    let public_origin = public_origin.and_then(|value| read_origin(&value));
    Some(Api {
        listen: listen?,
        tls,
        public_origin,
        tokens,
    })
}

/// Scheme, host and port of a URL, and nothing behind them.
fn read_origin(value: &Cursor<'_>) -> Option<String> {
    let text = value.text()?;
    let origin = text.strip_suffix('/').unwrap_or(text);
    let rest = ["http://", "https://"].into_iter();
    let rest = rest.filter_map(|scheme| origin.strip_prefix(scheme)).next();
    let of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if rest.is_none_or(|rest| rest.is_empty() || !rest.bytes().all(of_host)) {
        value.fault(format_args!(
            "{text:?} is not http:// or https:// with a host, a port at most, and nothing behind them"
        ));
        return None;
    }
    Some(origin.to_owned())
}

fn read_token(item: &Cursor<'_>, known: &[Account]) -> Option<Token> {
    let object = item.object(&TOKEN)?;
    let name = object
        .need("name")
        .and_then(|value| value.text().map(str::to_owned));
    let secret = object.need("token").and_then(|value| read_secret(&value));
    let permissions = object.need("permissions").map(|list| {
        let items = list.list();
        if items.is_empty() && list.value().is_array() {
            list.fault("is empty: the token could do nothing");
        }
        items.iter().filter_map(read_permission).collect()
    });
    let accounts = object.get("accounts");
    let accounts = accounts.iter().flat_map(Cursor::list);
    let accounts = accounts.filter_map(|item| read_account(&item, known));
    let accounts = accounts.collect();
    Some(Token {
        name: name?,
        secret: secret?,
        permissions: permissions?,
        accounts,
    })
}

/// What a header can carry. The value is never part of a message.
fn read_secret(value: &Cursor<'_>) -> Option<Secret> {
    let text = value.text()?;
    if text.is_empty() {
        value.fault("is empty");
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        value.fault("has a character that is not visible ASCII");
        return None;
    }
    Some(Secret::new(text))
}

/// Secrets that seal. Their values are never part of a message.
fn read_seal(list: &Cursor<'_>) -> Vec<Secret> {
    let items = list.list();
    let texts: Vec<&str> = items.iter().filter_map(Cursor::text).collect();
    // With a place missing, what is said of the others would name the wrong ones.
    let fault = (texts.len() == items.len() && list.value().is_array())
        .then(|| Keys::new(&texts).err())
        .flatten();
    match fault {
        None => {}
        Some(SecretFault::None) => list.fault("is empty"),
        Some(SecretFault::Many { found }) => {
            list.fault(format_args!("has {found} keys, more than {KEYS_MAX}"));
        }
        Some(SecretFault::Short { place, found }) => items[place].fault(format_args!(
            "has {found} characters, fewer than {SECRET_LEN_MIN}"
        )),
        Some(SecretFault::Monotonous { place, found }) => items[place].fault(format_args!(
            "has {found} different characters, fewer than {VARIETY_MIN}"
        )),
        Some(SecretFault::Twice { place, first }) => {
            items[place].fault(format_args!("is the same key as seal[{first}]"));
        }
    }
    texts.into_iter().map(Secret::new).collect()
}

/// The database of places, if its file is named in full.
pub(super) fn database<'a>(root: &Object<'a>) -> Option<Cursor<'a>> {
    root.get("geo")?.quiet_object(&GEO)?.get("database")
}

fn read_permission(item: &Cursor<'_>) -> Option<Permission> {
    let text = item.text()?;
    let permission = Permission::parse(text);
    if permission.is_none() {
        let products = Product::ALL.map(Product::name).join(", ");
        item.fault(format_args!(
            "{text:?} is not admin, <product>:read or <product>:edit; products are {products}"
        ));
    }
    permission
}

fn read_account(item: &Cursor<'_>, known: &[Account]) -> Option<String> {
    let text = item.text()?;
    if known.iter().any(|account| account.name == text) {
        return Some(text.to_owned());
    }
    match known {
        [only] => item.fault(format_args!(
            "account {text:?} does not exist; there is only {:?}",
            only.name
        )),
        all => {
            let names: Vec<&str> = all.iter().map(|account| account.name.as_str()).collect();
            item.fault(format_args!(
                "account {text:?} does not exist; there are {}",
                names.join(", ")
            ));
        }
    }
    None
}

/// Whether waiting rooms write down what they decide, if that is said.
fn read_live_state(live: &Object<'_>) -> Option<bool> {
    if let Some(url) = live.get("url") {
        match url.text() {
            Some("memory:") | None => {}
            // What stands behind the scheme may hold a password.
            Some(text) if text.starts_with("redis:") || text.starts_with("rediss:") => {
                url.fault("redis is not built yet; use memory:");
            }
            Some(_) => url.fault("is not memory:"),
        }
    }
    let journal = live.get("journal")?;
    // YAML 1.1 readers spell the words as truth values.
    match journal.value() {
        Value::Bool(on) => Some(*on),
        Value::String(word) if word == "off" => Some(false),
        Value::String(word) if word == "on" => Some(true),
        _ => {
            journal.fault("is not one of on, off");
            None
        }
    }
}

fn read_limits(object: &Object<'_>, limits: &mut Limits) {
    let size = |key, max: usize, min: usize, into: &mut usize| {
        let found = object.get(key).and_then(|value| bytes(&value, min..=max));
        *into = found.unwrap_or(*into);
    };
    size("header_bytes", 1 << 20, 1 << 10, &mut limits.header_bytes);
    size("uri_bytes", 64 << 10, 64, &mut limits.uri_bytes);
    let count = |key, min: u32, max: u32, into: &mut usize| {
        let found = object.get(key).and_then(|value| value.whole(min, max));
        *into = found.map_or(*into, |found| found as usize);
    };
    count("headers", 1, 1024, &mut limits.headers);
    count("connections", 1, 1_000_000, &mut limits.connections);
    count(
        "connections_per_client",
        0,
        1_000_000,
        &mut limits.connections_per_client,
    );
}

fn read_timeouts(object: &Object<'_>, timeouts: &mut Timeouts) {
    for (key, into) in [
        ("client_header", &mut timeouts.client_header),
        ("client_body_idle", &mut timeouts.client_body_idle),
        ("keep_alive", &mut timeouts.keep_alive),
        ("tls_handshake", &mut timeouts.tls_handshake),
        ("connect", &mut timeouts.connect),
        ("response_header", &mut timeouts.response_header),
        ("body_idle", &mut timeouts.body_idle),
        ("upstream_keep_alive", &mut timeouts.upstream_keep_alive),
    ] {
        let found = object
            .get(key)
            .and_then(|value| duration(&value, MILLISECOND..=DAY));
        *into = found.unwrap_or(*into);
    }
}

fn read_access_log(value: &Cursor<'_>, folder: &Path) -> Option<AccessLog> {
    // YAML 1.1 readers spell the word `off` as false.
    if value.value() == "off" || value.value() == false {
        return None;
    }
    let mut log = AccessLog::default();
    let object = value.object(&ACCESS_LOG)?;
    if let Some(target) = object.get("path").filter(|path| path.value() != "-") {
        log.target = path_to_write(&target, folder).map_or(LogTarget::Stdout, LogTarget::File);
    }
    if let Some(format) = object.get("format") {
        let _ = format.word(&[("json", Word::Means(())), ("replay", Word::Unbuilt)]);
    }
    log.query_strings = object.flag_or("query_strings", false);
    Some(log)
}
