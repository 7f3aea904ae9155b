//! Dynamic latency and proximity: the candidate with the least figure, be it a round trip or a way.
//!
//! Candidates without a figure come after all that have one; among equals the order of the list
//! decides.

use super::Weights;

/// Kilometres; the sphere of the specification.
const EARTH_RADIUS_KM: f64 = 6371.0;

/// Of candidates in order of preference: `None` is not usable, `Some(None)` has no figure.
pub(crate) fn least(candidates: impl Iterator<Item = Option<Option<f64>>>) -> Weights {
    let mut best: Option<(f64, usize)> = None;
    for (place, figure) in candidates.enumerate() {
        let Some(figure) = figure else { continue };
        let figure = figure.unwrap_or(f64::INFINITY);
        if best.is_none_or(|(least, _)| figure < least) {
            best = Some((figure, place));
        }
    }
    best.map_or_else(Weights::none, |(_, place)| Weights::certain(place))
}

/// A place on the earth as a point of the unit sphere: of two ways the shorter has the shorter
/// chord, and a chord costs no sine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point([f64; 3]);

/// The square of half a chord: the haversine of the angle, and what ways are compared by.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Distance(pub(crate) f64);

impl Point {
    /// From degrees of latitude and longitude.
    pub(crate) fn new((latitude, longitude): (f64, f64)) -> Point {
        let (sin, cos) = latitude.to_radians().sin_cos();
        let (east_sin, east_cos) = longitude.to_radians().sin_cos();
        Point([cos * east_cos, cos * east_sin, sin])
    }

    pub(crate) fn to(self, other: Point) -> Distance {
        let axes = self.0.iter().zip(other.0);
        Distance(axes.map(|(one, other)| (one - other).powi(2)).sum::<f64>() / 4.0)
    }
}

impl Distance {
    pub(crate) fn kilometres(self) -> f64 {
        2.0 * EARTH_RADIUS_KM * self.0.sqrt().min(1.0).asin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_figure_wins_and_none_comes_last() {
        let chosen = |each: &[Option<Option<f64>>]| least(each.iter().copied()).draw(0);
        assert_eq!(chosen(&[Some(Some(2.0)), Some(Some(1.0))]), Some(1));
        assert_eq!(chosen(&[Some(Some(1.0)), Some(Some(1.0))]), Some(0));
        assert_eq!(chosen(&[Some(None), Some(Some(9.0))]), Some(1));
        assert_eq!(chosen(&[None, Some(None), Some(None)]), Some(1));
        assert_eq!(chosen(&[None, None]), None);
    }

    #[test]
    fn ways_over_the_sphere() {
        let way = |from, to| Point::new(from).to(Point::new(to)).kilometres();
        let (amsterdam, frankfurt) = ((52.31, 4.76), (50.1, 8.7));
        // By the haversine formula, worked out apart from this code.
        assert!(
            (way(amsterdam, frankfurt) - 368.324).abs() < 0.001,
            "{}",
            way(amsterdam, frankfurt)
        );
        let half = std::f64::consts::PI * EARTH_RADIUS_KM;
        assert!((way((90.0, 0.0), (-90.0, 12.0)) - half).abs() < 1e-6);
        assert!((way((0.0, 179.5), (0.0, -179.5)) - half / 180.0).abs() < 1e-6);
        assert_eq!(way(amsterdam, amsterdam), 0.0);
    }
}
