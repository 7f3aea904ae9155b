//! What is known about where an address is.

use super::{Country, CountryCode, Region, Regions, Subdivision};

/// Where an address is, as far as a database knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The country.
    pub country: CountryCode,
    /// Its state or province; known for the United States and Canada only.
    pub subdivision: Option<&'static Subdivision>,
    /// The regions that it may lie in: one, or both of North America when the side is unknown, or
    /// none for a code that is no country's.
    pub regions: Regions,
    /// Degrees: latitude -90..=90 and longitude -180..=180.
    pub coordinates: Option<(f64, f64)>,
}

impl Place {
    /// A place in `country`.
    ///
    /// `subdivision` is a code or a name, in the words of a database; one that is unknown counts as
    /// missing, and so do coordinates that are not on the earth.
    #[must_use]
    pub fn new(
        country: CountryCode,
        subdivision: Option<&str>,
        coordinates: Option<(f64, f64)>,
    ) -> Place {
        let on_earth = |(latitude, longitude): &(f64, f64)| {
            (-90.0..=90.0).contains(latitude) && (-180.0..=180.0).contains(longitude)
        };
        let subdivision = subdivision.and_then(|text| Country::find(country)?.subdivision(text));
        let coordinates = coordinates.filter(on_earth);
        let longitude = coordinates.map(|(_, longitude)| longitude);
        Place {
            country,
            subdivision,
            regions: Regions::of(country, subdivision, longitude),
            coordinates,
        }
    }

    /// The region, if it is certain.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        self.regions.only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_the_earth_is_not_known() {
        let us = CountryCode::parse("US").expect("code");
        for coordinates in [
            (91.0, 0.0),
            (0.0, -180.5),
            (f64::NAN, 0.0),
            (0.0, f64::INFINITY),
        ] {
            let place = Place::new(us, None, Some(coordinates));
            assert_eq!(place.coordinates, None, "{coordinates:?}");
            assert_eq!(place.region(), None);
        }
        let place = Place::new(us, Some("Atlantis"), Some((40.7, -74.0)));
        assert_eq!(
            (place.subdivision, place.region()),
            (None, Some(Region::Enam))
        );
    }
}
