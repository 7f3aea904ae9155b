//! The 13 regions, and what lies in them.

use http::Method;
use serde_json::{Value, json};
use usher_core::region::{Country, Extent, Region};

use super::{Call, Needs, Reply, Route, route};
use crate::access::Product;
use crate::envelope::ApiError;

pub(crate) fn routes() -> Vec<Route> {
    let path = "/accounts/{account_id}/load_balancers/regions";
    let read = Needs::Read(Product::LoadBalancing);
    vec![
        route(
            Method::GET,
            path,
            "list_regions",
            "Lists the regions",
            read,
            |call| Box::pin(async move { list(&call) }),
        ),
        route(
            Method::GET,
            &format!("{path}/{{region_id}}"),
            "get_region",
            "Shows one region",
            read,
            |call| Box::pin(async move { get(&call) }),
        ),
    ]
}

fn list(call: &Call) -> Result<Reply, ApiError> {
    let either = |one, other| call.query(one).or_else(|| call.query(other));
    let country = either("country_code_a2", "country_code");
    let subdivision = either("subdivision_code_a2", "subdivision_code");
    let regions = Region::ALL.into_iter();
    let regions = regions.map(|region| (region, of(region, country, subdivision)));
    let regions = regions.filter(|(_, countries)| !countries.is_empty());
    let regions: Vec<Value> = regions
        .map(|(region, countries)| json!({"region_code": region.code(), "countries": countries}))
        .collect();
    Ok(answer(regions))
}

fn get(call: &Call) -> Result<Reply, ApiError> {
    let region = Region::parse(call.param(0)).ok_or(ApiError::NotFound)?;
    Ok(answer(vec![
        json!({"region_code": region.code(), "countries": of(region, None, None)}),
    ]))
}

fn answer(regions: Vec<Value>) -> Reply {
    Reply::result(&json!({
        "iso_standard": "Country and subdivision codes follow ISO 3166-1 alpha-2 and ISO 3166-2",
        "regions": regions,
    }))
}

/// The countries in a region, less those that are not asked for.
fn of(region: Region, country: Option<&str>, subdivision: Option<&str>) -> Vec<Value> {
    let asked = |code: &str, wanted: Option<&str>| {
        wanted.is_none_or(|wanted| wanted.is_empty() || wanted.eq_ignore_ascii_case(code))
    };
    let countries = Country::all().iter();
    let countries = countries.filter(|one| asked(one.code.as_str(), country));
    let shown = countries.filter_map(|one| {
        let mut shown = json!({
            "country_code_a2": one.code.as_str(),
            "country_name": one.name,
        });
        match one.extent {
            Extent::Whole(own) => {
                let none = subdivision.is_none_or(str::is_empty);
                return (own == region && none).then_some(shown);
            }
            Extent::Divided(parts) => {
                let parts = parts.iter();
                let parts = parts.filter(|part| part.region == region && asked(part.code, subdivision));
                let parts: Vec<Value> = parts
                    .map(|part| json!({"subdivision_code_a2": part.code, "subdivision_name": part.name}))
                    .collect();
                if parts.is_empty() {
                    return None;
                }
                shown["country_subdivisions"] = parts.into();
            }
        }
        Some(shown)
    });
    shown.collect()
}
