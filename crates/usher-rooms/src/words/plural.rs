//! Which form of a text goes with a number: the rules of CLDR 46 for whole numbers.

/// A plural category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    Zero,
    One,
    Two,
    Few,
    Many,
    Other,
}

impl Category {
    pub(super) const ALL: [Category; 6] = [
        Category::Zero,
        Category::One,
        Category::Two,
        Category::Few,
        Category::Many,
        Category::Other,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Category::Zero => "zero",
            Category::One => "one",
            Category::Two => "two",
            Category::Few => "few",
            Category::Many => "many",
            Category::Other => "other",
        }
    }
}

/// How a language picks the category. Rules that only concern millions are left out: nobody waits
/// that many minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// One form for all.
    Other,
    /// 1 and the rest.
    One,
    /// 0 and 1, and the rest.
    ZeroOne,
    Polish,
    EastSlavic,
    SouthSlavic,
    /// Slovak counts alike.
    Czech,
    Slovenian,
    Lithuanian,
    Latvian,
    Romanian,
    Hebrew,
    Arabic,
    Filipino,
}

impl Rule {
    pub(super) fn category(self, number: u64) -> Category {
        use Category::{Few, Many, One, Other, Two, Zero};
        let (tens, ones) = (number % 100, number % 10);
        let teen = (11..=19).contains(&tens);
        match self {
            Rule::Other => Other,
            Rule::One if number == 1 => One,
            Rule::ZeroOne if number <= 1 => One,
            Rule::One | Rule::ZeroOne => Other,
            Rule::Polish => match ones {
                _ if number == 1 => One,
                2..=4 if !(12..=14).contains(&tens) => Few,
                _ => Many,
            },
            Rule::EastSlavic => match ones {
                1 if tens != 11 => One,
                2..=4 if !(12..=14).contains(&tens) => Few,
                _ => Many,
            },
            Rule::SouthSlavic => match ones {
                1 if tens != 11 => One,
                2..=4 if !(12..=14).contains(&tens) => Few,
                _ => Other,
            },
            Rule::Czech => match number {
                1 => One,
                2..=4 => Few,
                _ => Other,
            },
            Rule::Slovenian => match tens {
                1 => One,
                2 => Two,
                3 | 4 => Few,
                _ => Other,
            },
            Rule::Lithuanian => match ones {
                1 if !teen => One,
                2..=9 if !teen => Few,
                _ => Other,
            },
            Rule::Latvian => match ones {
                0 => Zero,
                _ if teen => Zero,
                1 => One,
                _ => Other,
            },
            Rule::Romanian => match tens {
                _ if number == 1 => One,
                1..=19 => Few,
                _ if number == 0 => Few,
                _ => Other,
            },
            Rule::Hebrew => match number {
                1 => One,
                2 => Two,
                _ => Other,
            },
            Rule::Arabic => match tens {
                _ if number == 0 => Zero,
                _ if number == 1 => One,
                _ if number == 2 => Two,
                3..=10 => Few,
                11..=99 => Many,
                _ => Other,
            },
            Rule::Filipino => match ones {
                _ if (1..=3).contains(&number) => One,
                4 | 6 | 9 => Other,
                _ => One,
            },
        }
    }

    /// Every category that the rule can give.
    #[cfg(test)]
    pub(super) fn categories(self) -> Vec<Category> {
        let given: Vec<_> = (0..1000).map(|number| self.category(number)).collect();
        let all = Category::ALL.into_iter();
        all.filter(|category| given.contains(category)).collect()
    }
}
