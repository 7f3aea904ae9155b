//! Which language a visitor reads.

use super::Language;

/// Ranges of `Accept-Language` that are looked at; nobody reads more languages.
const RANGES_MAX: usize = 32;

/// The language that `Accept-Language` likes best among ours, or else `default`.
#[must_use]
pub fn negotiate(accept_language: &str, default: Language) -> Language {
    let mut best: Option<(u16, Language)> = None;
    for range in accept_language.split(',').take(RANGES_MAX) {
        let mut parts = range.split(';');
        let tag = parts.next().unwrap_or_default().trim();
        let quality = parts.find_map(|part| part.trim().strip_prefix("q="));
        let Some(quality) = quality.map_or(Some(1000), thousandths) else {
            continue;
        };
        let language = if tag == "*" {
            Some(default)
        } else {
            nearest(tag)
        };
        // The first of equals stands.
        if let Some(language) = language
            && quality > best.map_or(0, |(known, _)| known)
        {
            best = Some((quality, language));
        }
    }
    best.map_or(default, |(_, language)| language)
}

/// `0.8` is 800; `None` for what is no weight.
fn thousandths(text: &str) -> Option<u16> {
    let weight: f32 = text.trim().parse().ok()?;
    // In this range the product is a whole number of thousandths.
    (0.0..=1.0)
        .contains(&weight)
        .then(|| (weight * 1000.0).round() as u16)
}

/// Ours that a reader of `tag` reads: the same one, or one of the same language and script.
fn nearest(tag: &str) -> Option<Language> {
    if let Some(exact) = Language::parse(tag) {
        return Some(exact);
    }
    let mut subtags = tag.split(['-', '_']).map(str::to_ascii_lowercase);
    let primary = subtags.next()?;
    match primary.as_str() {
        "zh" => {
            let traditional =
                subtags.any(|tag| matches!(tag.as_str(), "hant" | "tw" | "hk" | "mo"));
            Some(if traditional {
                Language::ZhTw
            } else {
                Language::ZhCn
            })
        }
        "no" | "nn" => Some(Language::NbNo),
        "fil" => Some(Language::TlPh),
        "iw" => Some(Language::HeIl),
        "in" => Some(Language::IdId),
        primary => {
            let mut all = Language::ALL.into_iter();
            all.find(|language| language.tag().split('-').next() == Some(primary))
        }
    }
}
