//! Every language has every text, and finds the right form of it.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_language_has_every_text_and_no_other() {
    for language in Language::ALL {
        let categories = language.rule().categories();
        let units = ["minute", "hour"];
        let forms = units.iter().flat_map(|unit| {
            categories
                .iter()
                .map(move |category| format!("{unit}.{}", category.name()))
        });
        let wanted: BTreeSet<String> = Text::ALL
            .iter()
            .map(|text| text.key().to_owned())
            .chain(forms)
            .collect();
        let lines: Vec<&str> = language.file().lines().collect();
        let found: BTreeSet<String> = lines
            .iter()
            .map(|line| line.split_once(" = ").expect("key = text").0.to_owned())
            .collect();
        assert_eq!(found, wanted, "{}", language.tag());
        assert_eq!(lines.len(), found.len(), "{}: a text twice", language.tag());
        for text in Text::ALL {
            let words = language.words().text(*text);
            assert!(!words.is_empty(), "{}: {}", language.tag(), text.key());
            assert!(!words.contains(['<', '&']), "{}: {words}", language.tag());
        }
        let join = language.words().text(Text::HoursMinutes);
        assert!(join.contains("{h}") && join.contains("{m}"), "{join}");
    }
}

#[test]
fn no_two_languages_share_a_sentence() {
    for text in [Text::QueueLead, Text::FullLead, Text::Expired] {
        let all = Language::ALL.map(|language| language.words().text(text));
        assert_eq!(BTreeSet::from(all).len(), all.len());
    }
}

#[test]
fn numbers_take_their_form() {
    let minutes = |language: Language, cases: &[(u64, &str)]| {
        for (number, expected) in cases {
            assert_eq!(language.words().minutes(*number), *expected, "{number}");
        }
    };
    minutes(
        Language::EnUs,
        &[
            (1, "1 minute"),
            (2, "2 minutes"),
            (125, "2 hours 5 minutes"),
        ],
    );
    minutes(Language::FrFr, &[(0, "0 minute"), (2, "2 minutes")]);
    minutes(Language::JaJp, &[(125, "2時間5分")]);
    minutes(
        Language::PlPl,
        &[
            (1, "1 minuta"),
            (3, "3 minuty"),
            (5, "5 minut"),
            (13, "13 minut"),
            (22, "22 minuty"),
            (21, "21 minut"),
        ],
    );
    minutes(
        Language::RuRu,
        &[
            (1, "1 минута"),
            (2, "2 минуты"),
            (5, "5 минут"),
            (11, "11 минут"),
            (21, "21 минута"),
        ],
    );
    minutes(
        Language::HrHr,
        &[
            (1, "1 minuta"),
            (4, "4 minute"),
            (11, "11 minuta"),
            (21, "21 minuta"),
        ],
    );
    minutes(
        Language::CsCz,
        &[
            (1, "1 minuta"),
            (4, "4 minuty"),
            (5, "5 minut"),
            (22, "22 minut"),
        ],
    );
    minutes(
        Language::SlSi,
        &[
            (1, "1 minuta"),
            (2, "2 minuti"),
            (3, "3 minute"),
            (5, "5 minut"),
        ],
    );
    minutes(
        Language::LtLt,
        &[
            (1, "1 minutė"),
            (2, "2 minutės"),
            (11, "11 minučių"),
            (21, "21 minutė"),
        ],
    );
    minutes(
        Language::LvLv,
        &[
            (1, "1 minūte"),
            (2, "2 minūtes"),
            (11, "11 minūšu"),
            (20, "20 minūšu"),
        ],
    );
    minutes(
        Language::RoRo,
        &[
            (1, "1 minut"),
            (2, "2 minute"),
            (19, "19 minute"),
            (20, "20 de minute"),
        ],
    );
    minutes(
        Language::ArEg,
        &[
            (1, "دقيقة واحدة"),
            (2, "دقيقتان"),
            (5, "٥ دقائق"),
            (15, "١٥ دقيقة"),
            (63, "ساعة واحدة و٣ دقائق"),
        ],
    );
    minutes(
        Language::HeIl,
        &[(1, "דקה"), (2, "שתי דקות"), (121, "שעתיים ו־דקה")],
    );
    minutes(
        Language::TlPh,
        &[(1, "1 minuto"), (4, "4 na minuto"), (5, "5 minuto")],
    );
}

#[test]
fn a_range_counts_by_its_end() {
    let english = Language::EnUs.words();
    assert_eq!(english.range(5, 8), "5–8 minutes");
    assert_eq!(english.range(1, 1), "1 minute");
    assert_eq!(english.range(50, 70), "50 minutes – 1 hour 10 minutes");
    assert_eq!(Language::RuRu.words().range(5, 21), "5–21 минута");
    assert_eq!(Language::ArEg.words().range(1, 2), "دقيقة واحدة – دقيقتان");
}

#[test]
fn numbers_are_grouped_from_five_digits_on() {
    let number = |language: Language, number| language.words().number(number);
    assert_eq!(number(Language::EnUs, 9999), "9999");
    assert_eq!(number(Language::EnUs, 1_234_567), "1,234,567");
    assert_eq!(number(Language::DeDe, 12_345), "12.345");
    assert_eq!(number(Language::ArEg, 12_345), "١٢٬٣٤٥");
    assert_eq!(number(Language::FaIr, 70), "۷۰");
}

#[test]
fn readers_get_what_they_like_best_among_ours() {
    let cases = [
        ("", Language::NlNl),
        ("ko-KR,ko;q=0.9,en-US;q=0.8", Language::KoKr),
        ("de-CH", Language::DeDe),
        ("eo, en;q=0.1", Language::EnUs),
        ("en;q=0.5, fr;q=0.7", Language::FrFr),
        ("zh-Hant-HK", Language::ZhTw),
        ("zh", Language::ZhCn),
        ("nn,no", Language::NbNo),
        ("fil-PH", Language::TlPh),
        ("en;q=0, *;q=0.5", Language::NlNl),
        ("pt-PT", Language::PtBr),
        ("en;q=nan, th;q=x, vi;q=2", Language::NlNl),
        ("EN-us", Language::EnUs),
        (";;;,,,q=1;\u{fc}", Language::NlNl),
    ];
    for (header, expected) in cases {
        assert_eq!(negotiate(header, Language::NlNl), expected, "{header}");
    }
}
