//! Where on earth: the 13 regions that steering knows, and what lies in each.
//!
//! A region is known by its code only; the codes are flat, none holds another. What is broader than
//! a region is the United States or Canada when nobody knows which side of them is meant: such a
//! place is in a set of regions, see [`Regions`].

mod countries;
mod place;

use std::fmt;

pub use place::Place;

/// One of the 13 parts of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Western North America.
    Wnam,
    /// Eastern North America.
    Enam,
    /// Western Europe.
    Weu,
    /// Eastern Europe.
    Eeu,
    /// Northern South America.
    Nsam,
    /// Southern South America.
    Ssam,
    /// Oceania.
    Oc,
    /// Middle East.
    Me,
    /// Northern Africa.
    Naf,
    /// Southern Africa.
    Saf,
    /// Southern Asia.
    Sas,
    /// Southeast Asia.
    Seas,
    /// Northeast Asia.
    Neas,
}

impl Region {
    /// Every region, in the order in which the API lists them.
    pub const ALL: [Region; 13] = [
        Region::Wnam,
        Region::Enam,
        Region::Weu,
        Region::Eeu,
        Region::Nsam,
        Region::Ssam,
        Region::Oc,
        Region::Me,
        Region::Naf,
        Region::Saf,
        Region::Sas,
        Region::Seas,
        Region::Neas,
    ];

    /// The code, as configuration and API spell it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Region::Wnam => "WNAM",
            Region::Enam => "ENAM",
            Region::Weu => "WEU",
            Region::Eeu => "EEU",
            Region::Nsam => "NSAM",
            Region::Ssam => "SSAM",
            Region::Oc => "OC",
            Region::Me => "ME",
            Region::Naf => "NAF",
            Region::Saf => "SAF",
            Region::Sas => "SAS",
            Region::Seas => "SEAS",
            Region::Neas => "NEAS",
        }
    }

    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Region::Wnam => "Western North America",
            Region::Enam => "Eastern North America",
            Region::Weu => "Western Europe",
            Region::Eeu => "Eastern Europe",
            Region::Nsam => "Northern South America",
            Region::Ssam => "Southern South America",
            Region::Oc => "Oceania",
            Region::Me => "Middle East",
            Region::Naf => "Northern Africa",
            Region::Saf => "Southern Africa",
            Region::Sas => "Southern Asia",
            Region::Seas => "Southeast Asia",
            Region::Neas => "Northeast Asia",
        }
    }

    /// The region of this code, which is upper case.
    #[must_use]
    pub fn parse(code: &str) -> Option<Region> {
        Region::ALL.into_iter().find(|region| region.code() == code)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A set of regions: where something may be, or which regions something is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Regions(u16);

impl Regions {
    /// No region: nothing is known.
    pub const NONE: Regions = Regions(0);

    /// The regions in which a place of `country` may be.
    ///
    /// For the United States and Canada, `subdivision` decides; where it is missing or unknown, the
    /// `longitude` (degrees, west is negative) does; without both it is either side. None when the
    /// country is unknown.
    #[must_use]
    pub fn of(
        country: CountryCode,
        subdivision: Option<&Subdivision>,
        longitude: Option<f64>,
    ) -> Regions {
        // Through the middle of the continent, as in the table of states.
        const DIVIDE: f64 = -90.0;
        let Some(country) = Country::find(country) else {
            return Regions::NONE;
        };
        match (country.extent, subdivision, longitude) {
            (Extent::Whole(region), _, _) => region.into(),
            (Extent::Divided(_), Some(subdivision), _) => subdivision.region.into(),
            (Extent::Divided(_), None, Some(longitude)) if longitude < DIVIDE => {
                Region::Wnam.into()
            }
            // Alaska reaches beyond the line where longitudes change their sign.
            (Extent::Divided(_), None, Some(longitude)) if longitude > 0.0 => Region::Wnam.into(),
            (Extent::Divided(_), None, Some(_)) => Region::Enam.into(),
            (Extent::Divided(_), None, None) => [Region::Wnam, Region::Enam].into_iter().collect(),
        }
    }

    /// The region, if there is exactly one.
    #[must_use]
    pub fn only(self) -> Option<Region> {
        let mut regions = self.iter();
        regions.next().filter(|_| regions.next().is_none())
    }

    /// Whether `region` is among them.
    #[must_use]
    pub const fn contains(self, region: Region) -> bool {
        self.0 & bit(region) != 0
    }

    /// Whether whoever is in one of these regions is certainly in one of `listed`. Nobody knows
    /// that of a place without a region.
    ///
    /// So a visitor known to be in the United States, and no more, matches a list of both regions
    /// of North America and neither of them alone.
    #[must_use]
    pub const fn within(self, listed: Regions) -> bool {
        self.0 != 0 && self.0 & !listed.0 == 0
    }

    /// The regions, in the order of [`Region::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Region> {
        Region::ALL
            .into_iter()
            .filter(move |&region| self.contains(region))
    }
}

const fn bit(region: Region) -> u16 {
    1 << region as u16
}

impl From<Region> for Regions {
    fn from(region: Region) -> Regions {
        Regions(bit(region))
    }
}

impl FromIterator<Region> for Regions {
    fn from_iter<T: IntoIterator<Item = Region>>(regions: T) -> Regions {
        Regions(regions.into_iter().fold(0, |set, region| set | bit(region)))
    }
}

/// Two upper-case letters: an ISO 3166-1 alpha-2 code, or one that looks like it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CountryCode([u8; 2]);

impl CountryCode {
    /// From two ASCII letters of either case. Whether a country has the code is another question:
    /// databases and operators use some that ISO leaves to them.
    #[must_use]
    pub fn parse(code: &str) -> Option<CountryCode> {
        let letters: [u8; 2] = code.as_bytes().try_into().ok()?;
        let all = letters.iter().all(u8::is_ascii_alphabetic);
        all.then(|| CountryCode(letters.map(|letter| letter.to_ascii_uppercase())))
    }

    /// The letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("only ASCII is stored")
    }

    const fn literal(code: &str) -> CountryCode {
        let letters = code.as_bytes();
        assert!(letters.len() == 2);
        CountryCode([letters[0], letters[1]])
    }
}

impl fmt::Display for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CountryCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A country or a dependent territory that ISO 3166-1 lists.
#[derive(Debug, PartialEq, Eq)]
pub struct Country {
    /// Its code.
    pub code: CountryCode,
    /// Its usual English name.
    pub name: &'static str,
    /// What it lies in.
    pub extent: Extent,
}

impl Country {
    /// Every country, in the order of the codes.
    #[must_use]
    pub fn all() -> &'static [Country] {
        &countries::COUNTRIES
    }

    /// The country of this code.
    #[must_use]
    pub fn find(code: CountryCode) -> Option<&'static Country> {
        let all = Country::all();
        let found = all.binary_search_by_key(&code, |country| country.code);
        found.ok().map(|place| &all[place])
    }

    /// States or provinces; empty for all but the United States and Canada.
    #[must_use]
    pub const fn subdivisions(&self) -> &'static [Subdivision] {
        match self.extent {
            Extent::Whole(_) => &[],
            Extent::Divided(subdivisions) => subdivisions,
        }
    }

    /// The subdivision that a database means: `CA`, `US-CA`, or `California` in letters of any case.
    #[must_use]
    pub fn subdivision(&self, text: &str) -> Option<&'static Subdivision> {
        let country = self.code.as_str();
        let own = text
            .strip_prefix(country)
            .and_then(|rest| rest.strip_prefix('-'));
        let text = own.unwrap_or(text);
        let aliases = || {
            let mut aliases = countries::ALIASES.iter();
            aliases.find(|(of, alias, _)| *of == country && alias.eq_ignore_ascii_case(text))
        };
        let named = |text: &str| {
            let mut all = self.subdivisions().iter();
            all.find(|one| {
                one.code.eq_ignore_ascii_case(text) || one.name.eq_ignore_ascii_case(text)
            })
        };
        named(text).or_else(|| named(aliases()?.2))
    }
}

/// How a country lies in the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// In one region.
    Whole(Region),
    /// Each subdivision in a region of its own.
    Divided(&'static [Subdivision]),
}

/// A state, province or territory of the United States or Canada.
#[derive(Debug, PartialEq, Eq)]
pub struct Subdivision {
    /// Two letters: the ISO 3166-2 code without the country.
    pub code: &'static str,
    /// Its English name.
    pub name: &'static str,
    /// The region it lies in.
    pub region: Region,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_found_by_its_code_and_by_nothing_else() {
        for region in Region::ALL {
            assert_eq!(Region::parse(region.code()), Some(region));
        }
        for code in ["", "weu", "EU", "NAM", "ALL_REGIONS", "WEU "] {
            assert_eq!(Region::parse(code), None, "{code}");
        }
    }

    #[test]
    fn every_country_is_in_exactly_one_region_or_divided() {
        // 249 of ISO 3166-1, and Kosovo. Strictly ascending: each once, and a search finds it.
        assert_eq!(Country::all().len(), 250);
        assert!(Country::all().is_sorted_by(|a, b| a.code < b.code));
        for country in Country::all() {
            assert_eq!(Country::find(country.code), Some(country));
            let divided = ["CA", "US"].contains(&country.code.as_str());
            assert_eq!(
                divided,
                !country.subdivisions().is_empty(),
                "{}",
                country.code
            );
            assert_eq!(
                divided,
                regions(country.code.as_str(), None, None).only().is_none()
            );
        }
        for region in Region::ALL {
            let holds = |country: &Country| country.extent == Extent::Whole(region);
            let count = Country::all()
                .iter()
                .filter(|country| holds(country))
                .count();
            assert!(count >= 2, "{region} holds {count} countries");
        }
    }

    #[test]
    fn the_published_rows_are_kept() {
        let west = [("CA", "AB BC"), ("US", "AZ CA CO HI MN MO NV OR TX UT WA")];
        for (country, states) in west {
            for state in states.split(' ') {
                assert_eq!(
                    region(country, Some(state), None),
                    "WNAM",
                    "{country}-{state}"
                );
            }
        }
        for country in ["HT", "MX"] {
            assert_eq!(region(country, None, None), "WNAM", "{country}");
        }
    }

    #[test]
    fn well_known_countries_are_where_people_look_for_them() {
        let rows = "BR SSAM, CO NSAM, GB WEU, DE WEU, PL EEU, RU EEU, TR ME, AE ME, IR ME, EG NAF, \
                    NG NAF, KE SAF, ZA SAF, IN SAS, PK SAS, SG SEAS, ID SEAS, JP NEAS, CN NEAS, \
                    AU OC, NZ OC, KZ EEU, CU ENAM, PR ENAM, XK EEU";
        for row in rows.split(", ") {
            let (country, expected) = row.split_once(' ').expect("two words");
            assert_eq!(region(country, None, None), expected, "{country}");
        }
    }

    /// The middle of every state and province, in degrees west: the rule of the table, checked
    /// against the earth.
    #[test]
    fn a_state_is_on_the_side_of_90_degrees_west_where_its_middle_lies() {
        let middles = [
            (
                "US",
                "AK 153 AL 87 AR 92 AZ 112 CA 119 CO 106 CT 73 DC 77 DE 76 FL 82 GA 83 HI 156 \
                 IA 93 ID 114 IL 89 IN 86 KS 98 KY 85 LA 92 MA 72 MD 77 ME 69 MI 85 MN 94 MO 92 \
                 MS 89.7 MT 110 NC 79 ND 100 NE 100 NH 72 NJ 75 NM 106 NV 117 NY 76 OH 83 OK 97 \
                 OR 120 PA 78 RI 71 SC 81 SD 100 TN 86 TX 99 UT 112 VA 79 VT 73 WA 120 WI 89.7 \
                 WV 81 WY 107",
            ),
            (
                "CA",
                "AB 115 BC 125 MB 98 NB 66 NL 57 NS 63 NT 119 NU 87 ON 86 PE 63 QC 72 SK 106 YT 135",
            ),
        ];
        for (country, rows) in middles {
            let words: Vec<_> = rows.split(' ').collect();
            let code = CountryCode::parse(country).expect("code");
            let all = Country::find(code).expect("country").subdivisions();
            assert_eq!(all.len() * 2, words.len());
            for row in words.chunks_exact(2) {
                let west: f64 = row[1].parse().expect("degrees");
                let by_state = region(country, Some(row[0]), None);
                assert_eq!(
                    by_state,
                    region(country, None, Some(-west)),
                    "{country}-{}",
                    row[0]
                );
            }
        }
    }

    #[test]
    fn the_subdivision_goes_before_the_longitude() {
        assert_eq!(region("US", Some("NY"), Some(-120.0)), "ENAM");
        assert_eq!(region("US", Some("Atlantis"), Some(-120.0)), "WNAM");
        assert_eq!(region("US", None, Some(-90.0)), "ENAM");
        assert_eq!(region("US", None, Some(-90.1)), "WNAM");
        // Attu, the westernmost island of Alaska, is east of the line where the sign changes.
        assert_eq!(region("US", None, Some(172.9)), "WNAM");
        assert_eq!(region("DE", Some("BE"), Some(-120.0)), "WEU");
    }

    #[test]
    fn a_country_of_unknown_side_is_within_both_sides_only() {
        let us = regions("US", None, None);
        let listed = |codes: &[Region]| codes.iter().copied().collect::<Regions>();
        assert!(us.within(listed(&[Region::Wnam, Region::Enam])));
        assert!(us.within(listed(&[Region::Weu, Region::Wnam, Region::Enam])));
        assert!(!us.within(listed(&[Region::Wnam])));
        assert!(!us.within(Regions::NONE));
        assert!(regions("DE", None, None).within(listed(&[Region::Weu, Region::Eeu])));
        let nowhere = regions("ZZ", None, Some(-120.0));
        assert_eq!(nowhere, Regions::NONE);
        assert!(!nowhere.within(listed(&Region::ALL)));
        assert_eq!(listed(&Region::ALL).iter().count(), 13);
    }

    #[test]
    fn a_subdivision_is_found_by_code_and_by_name() {
        let rows = [
            ("US", "CA", "CA"),
            ("US", "ca", "CA"),
            ("US", "US-CA", "CA"),
            ("US", "California", "CA"),
            ("US", "district of columbia", "DC"),
            ("US", "Washington, D.C.", "DC"),
            ("US", "Washington", "WA"),
            ("CA", "CA-QC", "QC"),
            ("CA", "Québec", "QC"),
            ("CA", "Quebec", "QC"),
            ("CA", "Yukon", "YT"),
        ];
        for (country, text, code) in rows {
            assert_eq!(
                subdivision(country, text).map(|one| one.code),
                Some(code),
                "{text}"
            );
        }
        for (country, text) in [
            ("US", ""),
            ("US", "CA-QC"),
            ("US", "Ontario"),
            ("US", "US-"),
            ("CA", "CA"),
            ("DE", "BE"),
        ] {
            assert_eq!(subdivision(country, text), None, "{country} {text}");
        }
    }

    #[test]
    fn a_country_code_is_two_letters() {
        assert_eq!(
            CountryCode::parse("de").map(|code| code.to_string()),
            Some("DE".to_owned())
        );
        for text in ["", "D", "DEU", "D1", "ä", "D\0"] {
            assert_eq!(CountryCode::parse(text), None, "{text}");
        }
    }

    fn subdivision(country: &str, text: &str) -> Option<&'static Subdivision> {
        Country::find(CountryCode::parse(country)?)?.subdivision(text)
    }

    fn regions(country: &str, state: Option<&str>, longitude: Option<f64>) -> Regions {
        let state = state.and_then(|state| subdivision(country, state));
        let code = CountryCode::parse(country).expect("two letters");
        Regions::of(code, state, longitude)
    }

    fn region(country: &str, state: Option<&str>, longitude: Option<f64>) -> &'static str {
        regions(country, state, longitude)
            .only()
            .map_or("", Region::code)
    }
}
