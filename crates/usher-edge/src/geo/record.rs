//! What a record may look like.
//!
//! Makers of databases agree on the container and not on what is in it: a country is
//! `country.iso_code`, `country_code`, or `country`; a state has a code or only a name; a latitude is
//! a number of some width, or a text. So a record is read leniently: what has an unexpected shape
//! counts as absent, and the rest of the record still counts. Texts are borrowed from the file.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use usher_core::region::{CountryCode, Place};

/// The parts of a record, of any schema, that are of use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Record<'a> {
    #[serde(borrow)]
    country: Part<'a>,
    #[serde(borrow)]
    country_code: Part<'a>,
    #[serde(borrow)]
    subdivisions: Part<'a>,
    #[serde(borrow)]
    state1: Part<'a>,
    #[serde(borrow)]
    location: Part<'a>,
    #[serde(borrow)]
    latitude: Part<'a>,
    #[serde(borrow)]
    longitude: Part<'a>,
    #[serde(borrow)]
    autonomous_system_number: Part<'a>,
    #[serde(borrow)]
    asn: Part<'a>,
}

impl<'a> Record<'a> {
    pub(super) fn place(&self) -> Option<Place> {
        let codes = [
            self.country.iso_code,
            self.country_code.text(),
            self.country.text(),
        ];
        let country = codes.into_iter().flatten().find_map(CountryCode::parse)?;
        let state = self.subdivisions.iso_code.or(self.subdivisions.name);
        let nested = self.location.latitude.zip(self.location.longitude);
        let flat = || self.latitude.number().zip(self.longitude.number());
        Some(Place::new(
            country,
            state.or(self.state1.text()),
            nested.or_else(flat),
        ))
    }

    pub(super) fn system(&self) -> Option<u32> {
        let text = || self.asn.text()?.strip_prefix("AS")?.parse().ok();
        let number = self.autonomous_system_number.number().or(self.asn.number());
        // All numbers of this size are exact in a float; what is none ends up at an end, and both
        // ends are reserved.
        let system = number.map(|number| number as u32).or_else(text)?;
        (1..u32::MAX).contains(&system).then_some(system)
    }
}

/// A value of any shape, of which we keep what one of our questions could ask for.
#[derive(Debug, Default, Clone, Copy)]
struct Part<'a> {
    value: Scalar<'a>,
    iso_code: Option<&'a str>,
    /// In English.
    name: Option<&'a str>,
    latitude: Option<f64>,
    longitude: Option<f64>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Scalar<'a> {
    #[default]
    Absent,
    Text(&'a str),
    Number(f64),
}

impl<'a> Part<'a> {
    fn text(&self) -> Option<&'a str> {
        match self.value {
            Scalar::Text(text) => Some(text),
            Scalar::Absent | Scalar::Number(_) => None,
        }
    }

    fn number(&self) -> Option<f64> {
        match self.value {
            Scalar::Absent => None,
            Scalar::Text(text) => text.parse().ok(),
            Scalar::Number(number) => Some(number),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Part<'a>, D::Error> {
        deserializer.deserialize_any(AnyShape)
    }
}

struct AnyShape;

impl<'de> Visitor<'de> for AnyShape {
    type Value = Part<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Part<'de>, E> {
        Ok(scalar(Scalar::Text(text)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Part<'de>, E> {
        Ok(scalar(Scalar::Number(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Part<'de>, E> {
        Ok(scalar(Scalar::Number(number as f64)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Part<'de>, E> {
        Ok(scalar(Scalar::Number(number as f64)))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Part<'de>, E> {
        Ok(Part::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Part<'de>, E> {
        Ok(Part::default())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Part<'de>, E> {
        Ok(Part::default())
    }

    /// The first of a list: subdivisions are listed from the largest to the smallest.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Part<'de>, A::Error> {
        let first = list.next_element()?.unwrap_or_default();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'de>, A::Error> {
        let mut part = Part::default();
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "iso_code" => part.iso_code = map.next_value::<Part<'_>>()?.text(),
                // Eight languages; of use only where there is no code, which is written first.
                "names" if part.iso_code.is_none() => {
                    part.name = map.next_value::<Part<'_>>()?.name;
                }
                "en" => part.name = map.next_value::<Part<'_>>()?.text(),
                "latitude" => part.latitude = map.next_value::<Part<'_>>()?.number(),
                "longitude" => part.longitude = map.next_value::<Part<'_>>()?.number(),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(part)
    }
}

fn scalar(value: Scalar<'_>) -> Part<'_> {
    Part {
        value,
        ..Part::default()
    }
}
