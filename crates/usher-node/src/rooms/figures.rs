//! How rooms stand, in numbers: for the API, and for whoever watches the node.
//!
//! Read from what the owners let everybody know, so asking costs them nothing; it is half a second
//! old at most.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use usher_api::wire::rooms::{RoomStatus, RoomTally};
use usher_core::admission::End;
use usher_rooms::owner::{Bulletin, Tally, WAITS_MS};

use super::keeper::{Placed, Standing};

/// What is true of a room right now.
pub(crate) fn status(placed: &Placed) -> RoomStatus {
    let bulletin = placed.post.bulletin();
    let counts = bulletin.summary.counts;
    let (longest, tally) = (bulletin.summary.longest, &bulletin.tally);
    RoomStatus {
        seats: seats(&bulletin),
        waiting: counts.present + counts.away,
        admitted_last_minute: counts.window,
        wait_max: longest.map(|wait| Duration::from_secs(wait.minutes() * 60)),
        estimate: longest,
        tally: RoomTally {
            admitted: tally.admitted,
            entered: tally.waits.iter().sum(),
            waited_ms: tally.waited_ms,
            abandoned: tally.abandoned,
        },
        trouble: match (placed.post.is_gone(), bulletin.degraded) {
            (true, _) => {
                Some("it has no owner, its journal cannot be used: nobody new can be told a place")
            }
            (false, true) => {
                Some("its journal cannot be written: a crash forgets what happens now")
            }
            (false, false) => None,
        },
    }
}

/// Held, reserved, or kept free for somebody whom a crash forgot.
fn seats(bulletin: &Bulletin) -> u64 {
    let counts = bulletin.summary.counts;
    counts.seated + counts.called + counts.ghosts
}

/// The metrics of rooms.
#[derive(Debug)]
pub(crate) struct RoomMetrics(pub(crate) Arc<ArcSwap<Standing>>);

/// A number that is read from a bulletin.
type Read = fn(&Bulletin) -> u64;

const GAUGES: [(&str, &str, Read); 8] = [
    (
        "usher_room_seats",
        "Seats held or reserved, and those kept free after a crash",
        seats,
    ),
    (
        "usher_room_seats_reserved",
        "Seats reserved for visitors who were called and have not come yet",
        |bulletin| bulletin.summary.counts.called,
    ),
    (
        "usher_room_seats_kept_free",
        "Seats kept free after a crash for visitors who may have got them",
        |bulletin| bulletin.summary.counts.ghosts,
    ),
    (
        "usher_room_seats_max",
        "Seats that may be held at once",
        |bulletin| bulletin.settings.total,
    ),
    (
        "usher_room_waiting",
        "Visitors who wait, present or silent for a while",
        |bulletin| bulletin.summary.counts.present + bulletin.summary.counts.away,
    ),
    (
        "usher_room_waiting_present",
        "Visitors who wait and were heard of lately",
        |bulletin| bulletin.summary.counts.present,
    ),
    (
        "usher_room_admissions_last_minute",
        "Admissions that count against the limit of a minute",
        |bulletin| bulletin.summary.counts.window,
    ),
    (
        "usher_room_admissions_per_minute_max",
        "Admissions that there may be in any minute",
        |bulletin| bulletin.settings.per_minute,
    ),
];

/// A number that is read from a tally.
type Counted = fn(&Tally) -> u64;

const COUNTERS: [(&str, &str, Counted); 6] = [
    (
        "usher_room_admissions",
        "Visitors without a seat who got one",
        |tally| tally.admitted,
    ),
    (
        "usher_room_queued",
        "Visitors who got a place in line",
        |tally| tally.queued,
    ),
    (
        "usher_room_abandoned",
        "Places in line that were given up",
        |tally| tally.abandoned,
    ),
    (
        "usher_room_calls_missed",
        "Seats that were reserved for somebody who did not come in time",
        |tally| tally.missed,
    ),
    (
        "usher_room_journal_commits",
        "Commits of the journal",
        |tally| tally.disk.commits,
    ),
    (
        "usher_room_journal_failures",
        "Commits of the journal that failed",
        |tally| tally.disk.failed,
    ),
];

impl Collector for RoomMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let standing = self.0.load();
        if standing.is_empty() {
            return Ok(());
        }
        // Each room at one moment.
        let rooms: Vec<(&str, bool, Arc<Bulletin>)> = (standing.values())
            .map(|placed| {
                let bulletin = Arc::clone(&placed.post.bulletin());
                (placed.name.as_str(), placed.post.is_gone(), bulletin)
            })
            .collect();
        for (name, help, read) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (room, _, bulletin) in &rooms {
                gauge(&mut metric, &[("room", room)], read(bulletin))?;
            }
        }
        self.degraded(&rooms, &mut encoder)?;
        for (name, help, counted) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (room, _, bulletin) in &rooms {
                (metric.encode_family(&[("room", *room)])?)
                    .encode_counter::<NoLabelSet, _, u64>(&counted(&bulletin.tally), None)?;
            }
        }
        let (name, help) = (
            "usher_room_journal_commit_seconds",
            "How long commits of the journal took, together",
        );
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (room, _, bulletin) in &rooms {
            let took = bulletin.tally.disk.took.as_secs_f64();
            (metric.encode_family(&[("room", *room)])?)
                .encode_counter::<NoLabelSet, _, u64>(&took, None)?;
        }
        let (name, help) = ("usher_room_seats_ended", "Seats that ended, by cause");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (room, _, bulletin) in &rooms {
            for (cause, count) in End::ALL.into_iter().zip(bulletin.tally.ended) {
                (metric.encode_family(&[("room", *room), ("cause", cause.word())])?)
                    .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        waits(&rooms, &mut encoder)
    }
}

impl RoomMetrics {
    fn degraded(
        &self,
        rooms: &[(&str, bool, Arc<Bulletin>)],
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let (name, help) = (
            "usher_room_degraded",
            "1 while what the room decides would not outlive the process, or it has no owner",
        );
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (room, gone, bulletin) in rooms {
            let degraded = u64::from(*gone || bulletin.degraded);
            gauge(&mut metric, &[("room", room)], degraded)?;
        }
        let (name, help) = (
            "usher_room_wait_estimate_seconds",
            "How long the last in line will wait, where that can be told: one in ten less than low, one in ten more than high",
        );
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (room, _, bulletin) in rooms {
            let Some(wait) = bulletin.summary.longest else {
                continue;
            };
            for (bound, ms) in [
                ("low", wait.low_ms),
                ("mid", wait.mid_ms),
                ("high", wait.high_ms),
            ] {
                gauge(&mut metric, &[("room", room), ("bound", bound)], ms / 1000)?;
            }
        }
        Ok(())
    }
}

/// How long those waited who were let in from the line.
fn waits(
    rooms: &[(&str, bool, Arc<Bulletin>)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let (name, help) = (
        "usher_room_wait_seconds",
        "How long visitors waited who were let in from the line",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (room, _, bulletin) in rooms {
        let tally = &bulletin.tally;
        let bounds = WAITS_MS.into_iter().map(|ms| ms as f64 / 1000.0);
        let bounds = bounds.chain([f64::INFINITY]);
        let classes: Vec<(f64, u64)> = bounds.zip(tally.waits).collect();
        let count = tally.waits.iter().sum();
        let sum = tally.waited_ms as f64 / 1000.0;
        (metric.encode_family(&[("room", *room)])?)
            .encode_histogram::<NoLabelSet>(sum, count, &classes, None)?;
    }
    Ok(())
}

fn gauge(metric: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    metric.encode_family(&labels)?.encode_gauge(&value)
}
