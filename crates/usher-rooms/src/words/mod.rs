//! The languages of the built-in page.
//!
//! A language is a file of texts, one a line, compiled in. Every text is whole: no sentence is put
//! together from parts, because word order and endings differ; where a number stands in a text,
//! the text has a form for each plural category that the language tells apart. Moments are shown
//! beside a label for the same reason.

mod duration;
mod negotiate;
mod plural;

pub use negotiate::negotiate;

use std::sync::LazyLock;

use plural::{Category, Rule};

macro_rules! languages {
    ($($(#[$attribute:meta])* $variant:ident $tag:literal $rule:ident,)*) => {
        /// A language of the built-in page.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub enum Language {
            $($(#[$attribute])* #[doc = $tag] $variant,)*
        }

        impl Language {
            /// Every language.
            pub const ALL: [Language; 39] = [$(Language::$variant),*];

            /// Its tag, such as `en-US`.
            #[must_use]
            pub const fn tag(self) -> &'static str {
                match self {
                    $(Language::$variant => $tag,)*
                }
            }

            const fn rule(self) -> Rule {
                match self {
                    $(Language::$variant => Rule::$rule,)*
                }
            }

            const fn file(self) -> &'static str {
                match self {
                    $(Language::$variant => include_str!(concat!("languages/", $tag, ".txt")),)*
                }
            }
        }
    };
}

languages! {
    #[default]
    EnUs "en-US" One,
    EsEs "es-ES" One,
    DeDe "de-DE" One,
    FrFr "fr-FR" ZeroOne,
    ItIt "it-IT" One,
    JaJp "ja-JP" Other,
    KoKr "ko-KR" Other,
    PtBr "pt-BR" ZeroOne,
    ZhCn "zh-CN" Other,
    ZhTw "zh-TW" Other,
    NlNl "nl-NL" One,
    PlPl "pl-PL" Polish,
    IdId "id-ID" Other,
    TrTr "tr-TR" One,
    ArEg "ar-EG" Arabic,
    RuRu "ru-RU" EastSlavic,
    FaIr "fa-IR" ZeroOne,
    BgBg "bg-BG" One,
    HrHr "hr-HR" SouthSlavic,
    CsCz "cs-CZ" Czech,
    DaDk "da-DK" One,
    FiFi "fi-FI" One,
    LtLt "lt-LT" Lithuanian,
    LvLv "lv-LV" Latvian,
    MsMy "ms-MY" Other,
    NbNo "nb-NO" One,
    RoRo "ro-RO" Romanian,
    ElGr "el-GR" One,
    HeIl "he-IL" Hebrew,
    HiIn "hi-IN" ZeroOne,
    HuHu "hu-HU" One,
    SrBa "sr-BA" SouthSlavic,
    SkSk "sk-SK" Czech,
    SlSi "sl-SI" Slovenian,
    SvSe "sv-SE" One,
    TlPh "tl-PH" Filipino,
    ThTh "th-TH" Other,
    UkUa "uk-UA" EastSlavic,
    ViVn "vi-VN" Other,
}

impl Language {
    /// The language of a tag, whatever its case.
    #[must_use]
    pub fn parse(tag: &str) -> Option<Language> {
        let mut all = Language::ALL.into_iter();
        all.find(|language| language.tag().eq_ignore_ascii_case(tag))
    }

    /// The direction of its script, as HTML names it.
    #[must_use]
    pub const fn direction(self) -> &'static str {
        match self {
            Language::ArEg | Language::FaIr | Language::HeIl => "rtl",
            _ => "ltr",
        }
    }

    /// Its texts.
    #[must_use]
    pub fn words(self) -> &'static Words {
        static WORDS: LazyLock<Vec<Words>> =
            LazyLock::new(|| Language::ALL.into_iter().map(Words::read).collect());
        &WORDS[self as usize]
    }

    /// The first of the ten digits.
    const fn zero(self) -> char {
        match self {
            Language::ArEg => '\u{660}',
            Language::FaIr => '\u{6f0}',
            _ => '0',
        }
    }
}

macro_rules! texts {
    ($($variant:ident $key:literal,)*) => {
        /// A text of the built-in page.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Text {
            $(#[doc = $key] $variant,)*
        }

        impl Text {
            /// Every text.
            pub const ALL: &'static [Text] = &[$(Text::$variant),*];

            /// The key in the language's file.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self {
                    $(Text::$variant => $key,)*
                }
            }
        }
    };
}

texts! {
    Title "title",
    Queue "queue",
    QueueLead "queue.lead",
    RandomLead "random.lead",
    Held "held",
    HeldLead "held.lead",
    Soon "soon",
    SoonLead "soon.lead",
    Full "full",
    FullLead "full.lead",
    Closed "closed",
    ClosedLead "closed.lead",
    Cookies "cookies",
    CookiesLead "cookies.lead",
    Turn "turn",
    TurnLead "turn.lead",
    Expired "expired",
    Slower "slower",
    Changed "changed",
    Place "place",
    Wait "wait",
    Latest "latest",
    Moved "moved",
    Starts "starts",
    EnterBy "enter_by",
    Unknown "unknown",
    Pause "pause",
    Resume "resume",
    Paused "paused",
    Notify "notify",
    Offline "offline",
    Enter "enter",
    HoursMinutes "hours_minutes",
    Group "group",
}

/// The texts of one language.
#[derive(Debug)]
pub struct Words {
    language: Language,
    texts: Vec<&'static str>,
    minute: Forms,
    hour: Forms,
}

/// The forms of a text with a number in it, by category.
type Forms = [Option<&'static str>; Category::ALL.len()];

impl Words {
    /// A text that a file lacks is empty; a test holds that none does.
    fn read(language: Language) -> Words {
        let lines = language.file().lines();
        let entries: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(" = ")).collect();
        let find = |key: &str| {
            let found = entries.iter().find(|(known, _)| *known == key);
            found.map(|(_, text)| *text)
        };
        let forms =
            |unit: &str| Category::ALL.map(|category| find(&format!("{unit}.{}", category.name())));
        Words {
            language,
            texts: Text::ALL
                .iter()
                .map(|text| find(text.key()).unwrap_or_default())
                .collect(),
            minute: forms("minute"),
            hour: forms("hour"),
        }
    }

    /// One text.
    #[must_use]
    pub fn text(&self, text: Text) -> &'static str {
        self.texts[text as usize]
    }

    /// A number in the language's digits; from 10,000 on in groups of three.
    #[must_use]
    pub fn number(&self, number: u64) -> String {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number);
        let zero = self.language.zero();
        let mut text = String::with_capacity(digits.len() * 2);
        for (at, digit) in digits.bytes().enumerate() {
            let left = digits.len() - at;
            if at > 0 && digits.len() > 4 && left.is_multiple_of(3) {
                text.push_str(self.text(Text::Group));
            }
            let digit = u32::from(digit - b'0');
            text.extend(char::from_u32(u32::from(zero) + digit));
        }
        text
    }

    fn form(&self, forms: &Forms, number: u64) -> &'static str {
        let category = self.language.rule().category(number);
        forms[category as usize].unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
