//! All fields, always, and what they say.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::view::{Event, Reason, Wait};

fn written(view: &View<'_>, beside: Beside) -> Value {
    let mut out = Vec::new();
    write(view, beside, &mut out);
    serde_json::from_slice(&out).unwrap()
}

fn plain(view: &View<'_>) -> Value {
    written(view, Beside::default())["cfWaitingRoom"].take()
}

#[test]
fn a_visitor_in_line_is_told_everything() {
    let mut view = View::in_line();
    view.turnstile = "<div class=\"x\">\n\\</div>\u{1}";
    assert_eq!(
        written(&view, Beside::default()),
        json!({"cfWaitingRoom": {
            "inWaitingRoom": true, "waitTimeKnown": true, "waitTime": 7,
            "waitTime25Percentile": 0, "waitTime50Percentile": 0, "waitTime75Percentile": 0,
            "waitTimeFormatted": "7 minutes", "queueIsFull": false, "queueAll": false,
            "lastUpdated": "2026-12-01T10:00:00.000Z", "refreshIntervalSeconds": 20,
            "queueingMethod": "fifo", "isFIFOQueue": true, "isRandomQueue": false,
            "isPassthroughQueue": false, "isRejectQueue": false, "isEventActive": false,
            "isEventPrequeueing": false, "timeUntilEventStart": 0,
            "timeUntilEventStartFormatted": "unavailable", "timeUntilEventEnd": 0,
            "timeUntilEventEndFormatted": "unavailable", "shuffleAtEventStart": false,
            "turnstile": "<div class=\"x\">\n\\</div>\u{1}", "infiniteQueue": false,
        }})
    );
}

#[test]
fn every_stage_and_method_has_the_same_fields() {
    let names = |view: &View<'_>| {
        let object = plain(view);
        let fields = object.as_object().unwrap().keys().cloned();
        fields.collect::<Vec<_>>()
    };
    let expected = names(&View::in_line());
    for stage in Stage::ALL {
        for method in Method::ALL {
            let view = View {
                stage,
                method,
                wait: None,
                position: None,
                ..View::in_line()
            };
            assert_eq!(names(&view), expected);
        }
    }
}

#[test]
fn a_draw_says_its_percentiles_and_the_middle_one_as_the_wait() {
    let mut view = View::in_line();
    view.method = Method::Random;
    view.wait = view.wait.map(|wait| Wait {
        percentiles: Some([5, 11, 75]),
        ..wait
    });
    let said = plain(&view);
    assert_eq!(said["waitTime"], 11);
    assert_eq!(said["waitTime75Percentile"], 75);
    assert_eq!(said["waitTimeFormatted"], "5 minutes to 1 hour 15 minutes");
}

#[test]
fn times_of_events_are_rounded_up_and_end_with_them() {
    let mut view = View::in_line();
    let secs = Duration::from_secs;
    view.event = Some(Event {
        starts: view.now.after(secs(61)),
        ends: view.now.after(secs(7500)),
        shuffle: true,
    });
    let said = plain(&view);
    assert_eq!(said["isEventPrequeueing"], true);
    assert_eq!(said["timeUntilEventStartFormatted"], "2 minutes");
    assert_eq!(said["timeUntilEventEndFormatted"], "2 hours 5 minutes");
    view.now = view.now.after(secs(61));
    let said = plain(&view);
    assert_eq!(said["isEventPrequeueing"], false);
    assert_eq!(said["isEventActive"], true);
    assert_eq!(said["timeUntilEventStart"], 0);
    assert_eq!(said["timeUntilEventStartFormatted"], "unavailable");
}

#[test]
fn the_siblings_stand_where_they_are_asked_for() {
    let mut view = View::in_line();
    view.reason = Some(Reason::SettingsChanged);
    let both = Beside {
        usher: true,
        page: Some(Language::KoKr),
    };
    let said = written(&view, both);
    assert_eq!(
        said["usher"],
        json!({"state": "waiting", "position": 42, "aheadPresent": 41, "aheadAway": 3,
               "waitSecondsLow": 290, "waitSecondsMid": 400, "waitSecondsHigh": 470,
               "guaranteedBy": null, "claimBy": null, "lastMovement": null,
               "reason": "settings_changed"})
    );
    assert_eq!(said["page"]["wait"], "5–8분");
    assert_eq!(said["page"]["place"], "42");
    let plain = written(&view, Beside::default());
    assert_eq!(plain.as_object().unwrap().len(), 1);
}

#[test]
fn english_durations() {
    let cases = [
        (None, "unavailable"),
        (Some(0), "0 minutes"),
        (Some(1), "1 minute"),
        (Some(10), "10 minutes"),
        (Some(60), "1 hour"),
        (Some(61), "1 hour 1 minute"),
        (Some(125), "2 hours 5 minutes"),
    ];
    for (minutes, expected) in cases {
        assert_eq!(english::minutes(minutes), expected);
    }
}

#[test]
fn moments_are_written_as_they_are_read() {
    for text in [
        "1970-01-01T00:00:00.000Z",
        "2000-02-29T23:59:59.999Z",
        "2100-03-01T00:00:00.001Z",
    ] {
        assert_eq!(iso(Wall::parse(text).unwrap()), text);
    }
    assert_eq!(iso(Wall::from_millis(-1)), "1969-12-31T23:59:59.999Z");
    for millis in [i64::MIN, i64::MAX] {
        assert!(iso(Wall::from_millis(millis)).ends_with('Z'));
    }
}
