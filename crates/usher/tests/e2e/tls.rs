//! TLS from clients: certificates by name, renewed without a restart, never across names.

use serde_json::json;

use crate::support::config::HOST;
use crate::support::http2::{Client, block_on};
use crate::support::process::Folder;
use crate::support::tls::{Authority, Pair};
use crate::support::{Config, Endpoint, Usher, Wire, eventually};

struct Site {
    authority: Authority,
    shop: Pair,
    _endpoint: Endpoint,
    config: Config,
    usher: Usher,
}

/// `shop.example.com` and `other.example.com` with a certificate each, `*.wild.example.com` with one.
fn site() -> Site {
    site_with(|config| config)
}

fn site_with(change: impl FnOnce(Config) -> Config) -> Site {
    let authority = Authority::new();
    let names = [
        ("shop", HOST),
        ("other", "other.example.com"),
        ("wild", "*.wild.example.com"),
    ];
    let folder = Folder::new();
    let [shop, ..] = names.map(|(file, name)| {
        let pair = authority.pair(&[name]);
        folder.write(&format!("{file}.pem"), &pair.certificate);
        folder.write(&format!("{file}.key"), &pair.key);
        pair
    });
    let endpoint = Endpoint::named("a");
    let config = Config::serving([endpoint.origin("a")])
        .balancer("other.example.com", &["main"])
        .balancer("*.wild.example.com", &["main"])
        .set(&["listen", "https"], json!(["127.0.0.1:0"]))
        .set(
            &["certificates"],
            json!(names.map(|(file, _)| {
                json!({"cert": format!("{file}.pem"), "key": format!("{file}.key")})
            })),
        );
    let config = change(config);
    folder.write("usher.yaml", config.text());
    let usher = Usher::start_in(folder);
    Site {
        authority,
        shop,
        _endpoint: endpoint,
        config,
        usher,
    }
}

impl Site {
    fn connect(&self, name: &str) -> Wire {
        self.authority.connect(self.usher.address("https"), name)
    }
}

#[test]
fn each_name_gets_its_certificate() {
    let site = site();
    // The client's own check of the name is the assertion: it fails on any other certificate.
    for name in [
        HOST,
        "other.example.com",
        "any.wild.example.com",
        "SHOP.example.com",
    ] {
        assert_eq!(site.connect(name).get(name, "/").status(), 200, "{name}");
    }
}

#[test]
fn a_name_without_a_certificate_gets_no_foreign_one() {
    let site = site();
    for name in ["stranger.example.net", "deep.any.wild.example.com"] {
        let attempt = site
            .authority
            .try_connect(site.usher.address("https"), name, &["http/1.1"]);
        assert!(attempt.is_err(), "{name}");
    }
}

#[test]
fn https_is_told_to_the_endpoint_and_the_log() {
    let site = site();
    assert_eq!(site.connect(HOST).get(HOST, "/").status(), 200);
    assert_eq!(
        site._endpoint.next().field("x-forwarded-proto"),
        Some("https")
    );
    let line = &site.usher.access_log(1)[0];
    assert!(
        line["tls"]
            .as_str()
            .is_some_and(|version| version.contains("1.3")),
        "{line}"
    );
}

#[test]
fn a_host_that_belongs_to_another_certificate_is_421() {
    let site = site();
    let mut wire = site.connect(HOST);
    assert_eq!(wire.get("other.example.com", "/").status(), 421);
    let mut wire = site.connect("one.wild.example.com");
    let within = wire.get("two.wild.example.com", "/");
    assert_eq!(
        within.status(),
        200,
        "the same certificate covers both names"
    );
    assert_eq!(site.connect(HOST).get(HOST, "/").status(), 200);
}

#[test]
fn http_2_is_agreed_on_when_both_can() {
    let site = site();
    let address = site.usher.address("https");
    let answer = block_on(async {
        let mut client = Client::secure(&site.authority, address, HOST).await;
        client.get(&format!("https://{HOST}/")).await.unwrap()
    });
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"a"[..]));
    let agreed = |alpn: &[&str]| {
        site.authority
            .try_connect(address, HOST, alpn)
            .unwrap()
            .alpn
    };
    assert_eq!(agreed(&["h2", "http/1.1"]).as_deref(), Some("h2"));
    assert_eq!(agreed(&["http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(agreed(&[]), None);
}

#[test]
fn over_http_2_too_an_authority_of_another_certificate_is_421() {
    let site = site();
    let address = site.usher.address("https");
    let answer = block_on(async {
        let mut client = Client::secure(&site.authority, address, HOST).await;
        client.get("https://other.example.com/").await.unwrap()
    });
    assert_eq!(answer.status.as_u16(), 421);
}

#[test]
fn a_renewed_certificate_is_shown_after_a_reload_and_cuts_nobody() {
    let site = site();
    let mut before = site.connect(HOST);
    assert_eq!(before.get(HOST, "/").status(), 200);

    let renewed = site.authority.pair(&[HOST]);
    site.usher.folder().write("shop.pem", &renewed.certificate);
    site.usher.folder().write("shop.key", &renewed.key);
    site.usher.reload(&site.config);
    let address = site.usher.address("https");
    let shown = site
        .authority
        .try_connect(address, HOST, &["http/1.1"])
        .unwrap()
        .certificate;
    assert!(renewed.is(&shown) && !site.shop.is(&shown));
    assert_eq!(
        before.get(HOST, "/").status(),
        200,
        "the old connection lives on"
    );
}

#[test]
fn a_certificate_that_cannot_be_used_does_not_replace_one_that_can() {
    let site = site();
    let address = site.usher.address("https");
    site.usher.folder().write("shop.key", "not a key");
    site.usher.reload_text(&site.config.text(), "rejected");
    let shown = site
        .authority
        .try_connect(address, HOST, &["http/1.1"])
        .unwrap()
        .certificate;
    assert!(site.shop.is(&shown));
    // A key of another certificate is as unusable as none.
    let stranger = site.authority.pair(&[HOST]);
    site.usher.folder().write("shop.key", &stranger.key);
    site.usher.reload_text(&site.config.text(), "rejected");
    let shown = site
        .authority
        .try_connect(address, HOST, &["http/1.1"])
        .unwrap()
        .certificate;
    assert!(site.shop.is(&shown));
}

#[test]
fn plain_http_on_the_tls_port_is_no_crash() {
    let site = site();
    let mut wire = Wire::connect(site.usher.address("https"));
    wire.send(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    wire.rest();
    eventually("a sound client is served", || {
        (site.connect(HOST).get(HOST, "/").status() == 200).then_some(())
    });
}

#[test]
fn a_zone_may_insist_on_https() {
    let site = site();
    let insisting = site
        .config
        .clone()
        .set(&["zones", "example.com", "always_use_https"], json!(true));
    site.usher.reload(&insisting);
    let answer = site.usher.get("/path?q=1");
    assert_eq!(answer.status(), 301);
    assert_eq!(
        answer.field("location"),
        Some("https://shop.example.com/path?q=1")
    );
    assert_eq!(site.connect(HOST).get(HOST, "/").status(), 200);
}

#[test]
fn a_port_goes_from_https_to_http_and_back_without_closing() {
    let site = site();
    let address = site.usher.address("https");
    let only = |kind: &str| {
        let listen = json!({kind: ["127.0.0.1:0"]});
        site.config.clone().set(&["listen"], listen)
    };
    site.usher.reload(&only("https"));
    let mut before = site.connect(HOST);
    assert_eq!(before.get(HOST, "/").text(), "a");
    site.usher.reload(&only("http"));
    assert_eq!(Wire::connect(address).get(HOST, "/").text(), "a");
    assert_eq!(before.get(HOST, "/").text(), "a", "as it began");
    site.usher.reload(&only("https"));
    assert_eq!(site.connect(HOST).get(HOST, "/").text(), "a");
}

#[test]
fn why_an_endpoint_is_not_trusted_is_in_the_log_once() {
    let pair = Authority::new().pair(&[HOST]);
    let endpoint = Endpoint::scripted(move |visit| {
        let _distrusted = pair.accept(visit.take_socket());
    });
    let config = Config::serving([endpoint.origin("a")])
        .set(&["zones", "example.com", "ssl"], json!("strict"));
    let usher = Usher::start(&config);
    for _ in 0..3 {
        assert_eq!(usher.get("/").status(), 526);
    }
    let address = endpoint.address();
    let line = format!("endpoint main/a at {address}: TLS: invalid peer certificate: ");
    let said = eventually("the reason", || {
        Some(usher.stderr()).filter(|said| said.contains(&line))
    });
    assert_eq!(said.matches("TLS: ").count(), 1, "{said}");
}

#[test]
fn the_api_shows_the_certificates_of_the_file() {
    let site = site_with(|config| config.set(&["api", "tls"], json!(true)));
    let address = site.usher.address("api");
    // The client's own check of the name is half of the assertion.
    let mut wire = site.authority.connect(address, HOST);
    assert_eq!(wire.get(HOST, "/readyz").status(), 200);
    // In the clear nothing is answered.
    let mut plain = Wire::connect(address);
    plain.send(format!("GET /readyz HTTP/1.1\r\nHost: {HOST}\r\n\r\n"));
    let (told, _) = plain.rest();
    assert!(!told.starts_with(b"HTTP"), "{told:?}");
}
