//! Lists: everything, or a page of it where one is asked for.

use serde_json::{Value, json};

use super::Call;
use crate::envelope::ApiError;

/// Items of a page that does not say how many.
pub(crate) const PER_PAGE: usize = 25;

/// Items of a page at most.
const PER_PAGE_MAX: usize = 1000;

/// Which part of a list is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) skip: usize,
    pub(crate) take: usize,
    page: usize,
}

impl Window {
    /// What the query asks for: `page` and `per_page`, or `offset` and `limit`; `None` without any.
    pub(crate) fn asked(call: &Call) -> Result<Option<Window>, ApiError> {
        let number = |name: &str, min: usize, max: usize| match call.query(name) {
            None | Some("") => Ok(None),
            Some(text) => match text.parse::<usize>() {
                Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
                _ => Err(ApiError::wrong(
                    &format!("/{name}"),
                    format!("{name} {text:?} is not a whole number in {min}..{max}"),
                )),
            },
        };
        const FAR: usize = u32::MAX as usize;
        let (page, per_page) = (
            number("page", 1, FAR)?,
            number("per_page", 1, PER_PAGE_MAX)?,
        );
        let (offset, limit) = (number("offset", 0, FAR)?, number("limit", 1, PER_PAGE_MAX)?);
        if page.is_some() || per_page.is_some() {
            let (page, take) = (page.unwrap_or(1), per_page.unwrap_or(PER_PAGE));
            return Ok(Some(Window::page(page, take)));
        }
        Ok((offset.is_some() || limit.is_some()).then(|| {
            let (skip, take) = (offset.unwrap_or(0), limit.unwrap_or(PER_PAGE));
            Window {
                skip,
                take,
                page: skip / take + 1,
            }
        }))
    }

    pub(crate) const fn page(page: usize, take: usize) -> Window {
        Window {
            skip: (page - 1).saturating_mul(take),
            take,
            page,
        }
    }

    /// The part of `all` that is meant, and what `result_info` says about it.
    pub(crate) fn cut<T>(window: Option<Window>, all: Vec<T>) -> (Vec<T>, Value) {
        let total = all.len();
        let window = window.unwrap_or(Window::page(1, total.max(1)));
        let part: Vec<T> = all
            .into_iter()
            .skip(window.skip)
            .take(window.take)
            .collect();
        let info = window.info(part.len(), total);
        (part, info)
    }

    /// What `result_info` says.
    pub(crate) fn info(self, count: usize, total: usize) -> Value {
        json!({
            "page": self.page,
            "per_page": self.take,
            "count": count,
            "total_count": total,
            "total_pages": total.div_ceil(self.take),
        })
    }
}

/// Texts that are JSON, as a list.
pub(crate) fn joined(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cut_out_and_told() {
        let (all, info) = Window::cut(None, vec![1, 2, 3]);
        assert_eq!((all.len(), &info["total_pages"]), (3, &json!(1)));
        let (part, info) = Window::cut(Some(Window::page(2, 2)), vec![1, 2, 3]);
        assert_eq!(part, [3]);
        assert_eq!(
            info,
            json!({"page": 2, "per_page": 2, "count": 1, "total_count": 3, "total_pages": 2})
        );
        let (none, info) = Window::cut(Some(Window::page(9, 2)), vec![1]);
        assert_eq!((none, &info["count"]), (vec![], &json!(0)));
        let (_, info) = Window::cut(None, Vec::<u8>::new());
        assert_eq!(
            (&info["total_pages"], &info["per_page"]),
            (&json!(0), &json!(1))
        );
    }
}
