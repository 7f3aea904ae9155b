//! Every schema that makers use, and files that are damaged, cut, swapped or made up.

mod mmdb;

use std::fs;

use proptest::prelude::*;
use usher_core::region::Region;

use super::*;
use mmdb::Value::{Double, Flag, Float, List, Map, Text, Unsigned};
use mmdb::{Form, Value};

const CITY: Form = Form {
    kind: "GeoLite2-City",
    ip_version: 6,
    record_bits: 28,
};

/// As GeoLite2 and GeoIP2 have it.
fn nested() -> Vec<(&'static str, Value)> {
    let country = |code| {
        (
            "country",
            Map(vec![("geoname_id", Unsigned(1)), ("iso_code", Text(code))]),
        )
    };
    let names = |en| ("names", Map(vec![("de", Text("?")), ("en", Text(en))]));
    let location = |latitude, longitude| {
        (
            "location",
            Map(vec![
                ("accuracy_radius", Unsigned(20)),
                ("latitude", Double(latitude)),
                ("longitude", Double(longitude)),
                ("time_zone", Text("Etc/UTC")),
            ]),
        )
    };
    let states = |first| {
        (
            "subdivisions",
            List(vec![Map(first), Map(vec![("iso_code", Text("XXX"))])]),
        )
    };
    vec![
        (
            "192.0.2.0/25",
            Map(vec![
                ("city", Map(vec![names("San Jose")])),
                country("US"),
                location(37.3, -121.9),
                states(vec![("iso_code", Text("CA")), names("California")]),
            ]),
        ),
        // DB-IP names the state and has no code for it.
        (
            "192.0.2.128/25",
            Map(vec![country("CA"), states(vec![names("Quebec")])]),
        ),
        (
            "198.51.100.0/24",
            Map(vec![country("US"), location(40.7, -74.0)]),
        ),
        (
            "203.0.113.0/24",
            Map(vec![
                country("DE"),
                ("registered_country", Map(vec![("iso_code", Text("FR"))])),
                ("traits", Map(vec![("is_anycast", Flag(true))])),
            ]),
        ),
        ("2001:db8::/33", Map(vec![country("JP")])),
        // Loopback, so that a test with real sockets has visitors from somewhere.
        ("127.0.0.2/32", Map(vec![country("DE")])),
        ("127.0.0.3/32", Map(vec![country("JP")])),
        (
            "127.0.0.4/32",
            Map(vec![country("US"), states(vec![("iso_code", Text("OR"))])]),
        ),
        // Known and without a country: a satellite, say.
        (
            "2001:db8:8000::/33",
            Map(vec![("continent", Map(vec![("code", Text("AF"))]))]),
        ),
    ]
}

#[test]
fn nested_records_are_understood() {
    check(
        &places(CITY, &nested()),
        &[
            ("192.0.2.1", "US CA WNAM 37.3,-121.9"),
            ("192.0.2.200", "CA QC ENAM -"),
            ("198.51.100.9", "US - ENAM 40.7,-74"),
            ("203.0.113.9", "DE - WEU -"),
            ("2001:db8::9", "JP - NEAS -"),
            ("2001:db8:8000::9", "none"),
            ("127.0.0.4", "US OR WNAM -"),
            ("127.0.0.1", "none"),
            ("10.0.0.1", "none"),
            ("::1", "none"),
            // The visitor of a dual-stack socket.
            ("::ffff:203.0.113.9", "DE - WEU -"),
        ],
    );
}

/// Tests of other crates read the file, which only this one can write.
#[test]
fn the_file_that_other_tests_read_is_what_we_write() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/places.mmdb");
    let bytes = mmdb::write(CITY, &nested());
    if std::env::var_os("USHER_WRITE_TESTDATA").is_some() {
        fs::write(&path, &bytes).expect("write");
    }
    let stale = "stale: run this test with USHER_WRITE_TESTDATA=1";
    assert!(
        fs::read(&path).is_ok_and(|kept| kept == bytes),
        "{} is {stale}",
        path.display()
    );
    check(
        &Places::load(&path).expect("a database"),
        &[("127.0.0.2", "DE - WEU -")],
    );
}

#[test]
fn flat_records_are_understood() {
    let city = |country, state, latitude, longitude| {
        Map(vec![
            ("city", Text("somewhere")),
            ("country_code", Text(country)),
            ("latitude", latitude),
            ("longitude", longitude),
            ("postcode", Text("")),
            ("state1", Text(state)),
            ("state2", Text("")),
            ("timezone", Text("Etc/UTC")),
        ])
    };
    let records = [
        (
            "192.0.2.0/24",
            city("US", "California", Float(37.5), Float(-122.0)),
        ),
        (
            "198.51.100.0/24",
            city("FR", "Bretagne", Text("48.5"), Text("-3.0")),
        ),
        ("203.0.113.0/24", city("AU", "", Text("south"), Unsigned(7))),
        ("2001:db8::/32", Map(vec![("country_code", Text("KE"))])),
        // The name in `country` is not mistaken for a code, a code in it is one.
        (
            "10.0.0.0/24",
            Map(vec![
                ("country", Text("Peru")),
                ("country_code", Text("PE")),
            ]),
        ),
        ("10.0.1.0/24", Map(vec![("country", Text("PE"))])),
    ];
    check(
        &places(CITY, &records),
        &[
            ("192.0.2.1", "US CA WNAM 37.5,-122"),
            ("198.51.100.1", "FR - WEU 48.5,-3"),
            ("203.0.113.1", "AU - OC -"),
            ("2001:db8::1", "KE - SAF -"),
            ("10.0.0.1", "PE - NSAM -"),
            ("10.0.1.1", "PE - NSAM -"),
        ],
    );
}

#[test]
fn a_value_of_unexpected_shape_is_absent_and_the_rest_counts() {
    let records = [
        (
            "192.0.2.0/24",
            Map(vec![
                ("country_code", Text("IN")),
                ("country", List(Vec::new())),
                (
                    "subdivisions",
                    Map(vec![
                        ("names", Text("x")),
                        ("iso_code", List(vec![Flag(true)])),
                    ]),
                ),
                ("location", Unsigned(4)),
                ("latitude", Map(Vec::new())),
            ]),
        ),
        (
            "198.51.100.0/24",
            Map(vec![("country_code", Text("three"))]),
        ),
        (
            "203.0.113.0/24",
            Map(vec![
                ("country_code", Text("US")),
                (
                    "location",
                    Map(vec![
                        ("latitude", Double(91.0)),
                        ("longitude", Double(f64::NAN)),
                    ]),
                ),
            ]),
        ),
    ];
    check(
        &places(CITY, &records),
        &[
            ("192.0.2.1", "IN - SAS -"),
            ("198.51.100.1", "none"),
            ("203.0.113.1", "US - ENAM or WNAM -"),
        ],
    );
}

#[test]
fn every_size_of_record_and_both_families_are_read() {
    let records = [("192.0.2.0/24", Map(vec![("country_code", Text("BR"))]))];
    for record_bits in [24, 28, 32] {
        for ip_version in [4, 6] {
            let places = places(
                Form {
                    kind: "flat",
                    ip_version,
                    record_bits,
                },
                &records,
            );
            check(
                &places,
                &[
                    ("192.0.2.255", "BR - SSAM -"),
                    ("192.0.3.0", "none"),
                    ("2001:db8::1", "none"),
                    ("::ffff:192.0.2.1", "BR - SSAM -"),
                ],
            );
        }
    }
}

#[test]
fn systems_are_read_from_every_schema() {
    let records = [
        (
            "192.0.2.0/24",
            Map(vec![
                ("autonomous_system_number", Unsigned(64_496)),
                ("autonomous_system_organization", Text("Example")),
            ]),
        ),
        ("198.51.100.0/24", Map(vec![("asn", Text("AS64497"))])),
        (
            "203.0.113.0/24",
            Map(vec![("autonomous_system_number", Unsigned(0))]),
        ),
        ("2001:db8::/32", Map(vec![("asn", Unsigned(4_200_000_000))])),
    ];
    let networks = Networks::parse(mmdb::write(CITY, &records)).expect("a database");
    let rows = [
        ("192.0.2.1", Some(64_496)),
        ("198.51.100.1", Some(64_497)),
        ("203.0.113.1", None),
        ("2001:db8::1", Some(4_200_000_000)),
        ("10.0.0.1", None),
    ];
    for (address, expected) in rows {
        assert_eq!(
            networks.system(address.parse().expect("address")),
            expected,
            "{address}"
        );
    }
}

#[test]
fn a_file_that_is_no_such_database_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("places.mmdb");
    let asn = [(
        "192.0.2.0/24",
        Map(vec![("autonomous_system_number", Unsigned(64_496))]),
    )];
    let whole = mmdb::write(CITY, &nested());
    let rows: [(&[u8], &str); 5] = [
        (b"", "is no complete MMDB database: "),
        (
            b"network,country\n192.0.2.0/24,DE\n",
            "is no complete MMDB database: ",
        ),
        (&whole[..whole.len() / 2], "is no complete MMDB database: "),
        (&whole[..whole.len() - 3], "is damaged: "),
        (
            &mmdb::write(CITY, &asn),
            "holds no countries; its type is \"GeoLite2-City\"",
        ),
    ];
    for (bytes, expected) in rows {
        fs::write(&path, bytes).expect("write");
        let fault = Places::load(&path).expect_err("a fault").to_string();
        let expected = format!("{}: {expected}", path.display());
        assert!(fault.starts_with(&expected), "{fault}\n{expected}");
    }
    let none = Networks::load(&folder.path().join("none")).expect_err("a fault");
    assert_eq!(none.what, "no such file");
    let none = Networks::parse(whole).expect_err("a fault");
    assert_eq!(
        none,
        "holds no autonomous systems; its type is \"GeoLite2-City\""
    );
}

#[test]
fn a_database_says_what_it_is() {
    let places = places(CITY, &nested());
    let edition = places.edition();
    assert_eq!(
        (edition.kind, edition.built.as_millis()),
        ("GeoLite2-City", 1_780_000_000_000)
    );
}

#[test]
fn a_file_that_is_replaced_or_cut_does_not_change_what_was_loaded() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("places.mmdb");
    fs::write(&path, mmdb::write(CITY, &nested())).expect("write");
    let places = Places::load(&path).expect("a database");
    fs::write(&path, b"cut").expect("write");
    check(&places, &[("203.0.113.9", "DE - WEU -")]);
    fs::remove_file(&path).expect("remove");
    check(&places, &[("2001:db8::9", "JP - NEAS -")]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = mmdb::write(CITY, &nested());
    for len in 0..whole.len() {
        assert!(
            Places::parse(whole[..len].to_vec()).is_err(),
            "{len} of {}",
            whole.len()
        );
    }
}

#[test]
fn a_tree_that_runs_in_a_circle_ends() {
    let mut file = mmdb::write(
        Form {
            record_bits: 32,
            ..CITY
        },
        &nested(),
    );
    let nodes = file.windows(16).position(|zeros| zeros == [0; 16]);
    // Every branch of every node back to the first node.
    file[..nodes.expect("the end of the tree") / 8 * 8].fill(0);
    let fault = Places::parse(file).expect_err("no address leads to a record");
    assert!(!fault.is_empty());
}

/// Whatever is in a file, loading it ends and looking into it does not panic.
fn survives(file: Vec<u8>) {
    if let Ok(places) = Places::parse(file) {
        for (address, _) in nested() {
            let network: ipnet::IpNet = address.parse().expect("network");
            let _ = places.place(network.addr());
        }
        let _ = (places.edition(), format!("{places:?}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn damaged_bytes_do_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        record_bits in prop::sample::select(vec![24, 28, 32]),
    ) {
        let mut file = mmdb::write(Form { record_bits, ..CITY }, &nested());
        for (place, byte) in damage {
            let place = place.index(file.len());
            file[place] = byte;
        }
        survives(file);
    }

    #[test]
    fn noise_between_the_tree_and_the_metadata_does_no_harm(
        noise in prop::collection::vec(any::<u8>(), 0..2048),
    ) {
        let whole = mmdb::write(CITY, &nested());
        let marker = whole.windows(14).rposition(|bytes| bytes == b"\xab\xcd\xefMaxMind.com");
        let tail = &whole[marker.expect("marker")..];
        survives([noise.as_slice(), tail].concat());
        let mut file = whole.clone();
        let len = noise.len().min(file.len() - tail.len());
        file[..len].copy_from_slice(&noise[..len]);
        survives(file);
    }

    #[test]
    fn noise_is_no_database(noise in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(Places::parse(noise).is_err());
    }
}

fn places(form: Form, records: &[(&str, Value)]) -> Places {
    Places::parse(mmdb::write(form, records)).expect("a database")
}

fn check(places: &Places, rows: &[(&str, &str)]) {
    for (address, expected) in rows {
        let place = places.place(address.parse().expect("address"));
        assert_eq!(
            place.map_or("none".to_owned(), |place| told(&place)),
            *expected,
            "{address}"
        );
    }
}

fn told(place: &Place) -> String {
    let mut regions: Vec<_> = place.regions.iter().map(Region::code).collect();
    regions.sort_unstable();
    format!(
        "{} {} {} {}",
        place.country,
        place.subdivision.map_or("-", |state| state.code),
        regions.join(" or "),
        place
            .coordinates
            .map_or("-".to_owned(), |(latitude, longitude)| format!(
                "{latitude},{longitude}"
            )),
    )
}
