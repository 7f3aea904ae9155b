//! How browsers stand, in numbers: for the API, for whoever watches the node, and in its log.
//!
//! Pools answer some time later and those who ask here cannot wait, so what pools say is looked up
//! each second and kept (`size`), and what hosts count they are asked every five. Reading it costs
//! nobody anything.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use usher_api::wire::browsers::{BrowserPool, BrowserSession, HostState, Queue};
use usher_broker::{ACQUIRE_MS, Farewell, REFUSALS, Times};
use usher_browsers::host::wire::LAUNCH_MS;
use usher_core::lease::browser::Phase;
use usher_core::lease::close::CloseReason;

use super::{Browsers, RegionStanding};

/// Sessions of one region that are listed.
pub(super) const SESSIONS_MAX: u32 = 500;

impl RegionStanding {
    fn count(&self, phases: &[Phase]) -> u32 {
        let counts = self.counts.iter();
        let counts = counts.filter(|count| phases.contains(&count.phase));
        counts.map(|count| count.count).sum()
    }

    /// Since a page was drawn here, or a browser given away.
    fn drawn(&self) -> Option<Duration> {
        [self.drew, self.counted.given].into_iter().flatten().min()
    }

    fn host(&self) -> HostState {
        match (&self.trouble, self.slots) {
            (Some(why), _) => HostState::Missing(why.clone()),
            (None, 0) => HostState::Starting,
            (None, _) => HostState::Running,
        }
    }
}

/// Each region, as those outside are told of it.
pub(crate) fn pools(browsers: &Browsers) -> Vec<BrowserPool> {
    judged(browsers, &browsers.standing())
}

fn judged(browsers: &Browsers, standing: &[RegionStanding]) -> Vec<BrowserPool> {
    if standing.is_empty() {
        return Vec::new();
    }
    let queue = queue(browsers);
    let pool = |region: &RegionStanding| {
        let pool = BrowserPool {
            region: region.region.code().to_owned(),
            backend: region.backend.as_str().to_owned(),
            insecure_single_tenant: region.insecure_single_tenant,
            ready: region.count(&[Phase::Ready]),
            in_use: region.count(&[Phase::Picked, Phase::InUse]),
            starting: region.count(&[Phase::Starting]),
            closing: region.count(&[Phase::Closing]),
            min_ready: region.min_ready,
            wanted: region.wanted,
            max: region.slots,
            host: region.host(),
            warnings: region.warnings.clone(),
            failing: (region.heard.as_ref()).and_then(|heard| heard.figures.failing.clone()),
            queue,
            drawn: region.drawn(),
            sessions: sessions(browsers, region),
        };
        pool.judged(region.there)
    };
    standing.iter().map(pool).collect()
}

/// The line is one for all regions.
fn queue(browsers: &Browsers) -> Queue {
    let waiting = browsers.waiting();
    Queue {
        waiting: waiting.iter().map(|line| line.len).sum(),
        oldest: (waiting.iter().map(|line| line.age).max()).unwrap_or_default(),
    }
}

fn sessions(browsers: &Browsers, region: &RegionStanding) -> Vec<BrowserSession> {
    let sessions = region.sessions.iter();
    let sessions = sessions.map(|view| BrowserSession {
        id: usher_broker::wire::uuid(view.session.0),
        account: view.account,
        account_name: browsers.name(view.account),
        started: view.started,
        connections: browsers.clients_of(view.session),
        idle_at: view.commanded.after(view.keep_alive),
    });
    sessions.collect()
}

/// Writes a line of the log for each session that ends, until there are none any more.
pub(super) async fn tell(browsers: Arc<Browsers>, mut ended: Receiver<Farewell>) {
    loop {
        match ended.recv().await {
            Ok(farewell) => {
                let region = browsers.code(farewell.region);
                line(
                    &farewell,
                    &browsers.name(farewell.account),
                    region.unwrap_or_default(),
                );
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "sessions ended without a line");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

fn line(farewell: &Farewell, account: &str, region: &str) {
    let took = farewell.took;
    let lived = farewell.view.and_then(|view| {
        let (ended, _) = view.ended?;
        Some(ended.since(view.started).as_secs_f64())
    });
    let (to_browser, from_browser) = farewell.carried;
    tracing::info!(
        target: "usher::sessions",
        session = farewell.name(),
        account,
        region,
        started_ms = farewell.view.map(|view| view.started.as_millis()),
        seconds = lived,
        reason = farewell.reason.as_str(),
        billed_seconds = farewell.billed.as_secs_f64(),
        to_browser,
        from_browser,
        commands = took.map(|took| took.commands),
        peak_mib = took.map(|took| took.peak_kib / 1_024),
        cpu_seconds = took.map(|took| took.cpu_ms as f64 / 1_000.0),
        sent = took.map(|took| took.sent),
        received = took.map(|took| took.received),
        "a session has ended"
    );
}

/// The metrics of browsers.
#[derive(Debug)]
pub(crate) struct BrowserMetrics(pub(crate) Arc<Browsers>);

/// A region with its code.
type Told<'a> = (&'static str, &'a RegionStanding, &'a BrowserPool);

/// A number that is read of a region.
type Read = fn(&Told<'_>) -> u64;

const GAUGES: [(&str, &str, Read); 4] = [
    (
        "usher_browser_max",
        "How many browsers there may be",
        |(_, region, _)| u64::from(region.slots),
    ),
    (
        "usher_browser_ready_wanted",
        "How many browsers are meant to be ready",
        |(_, _, pool)| u64::from(pool.wanted),
    ),
    (
        "usher_browser_up",
        "1 while browsers can be had, also where all are taken; 0 where none can",
        |(_, _, pool)| u64::from(pool.trouble().is_none()),
    ),
    (
        "usher_browser_heartbeats_waiting",
        "Heartbeats that wait to be written",
        |(_, region, _)| region.figures.waiting as u64,
    ),
];

const COUNTERS: [(&str, &str, Read); 8] = [
    (
        "usher_browser_picks",
        "Browsers that were picked",
        |(_, region, _)| region.counted.picks,
    ),
    (
        "usher_browser_picks_empty",
        "Looks for a browser that found none",
        |(_, region, _)| region.counted.empty,
    ),
    (
        "usher_browser_heartbeats_received",
        "Heartbeats of browsers that came in",
        |(_, region, _)| region.figures.received,
    ),
    (
        "usher_browser_heartbeats_late",
        "Heartbeats that said nothing new",
        |(_, region, _)| region.figures.outdated,
    ),
    (
        "usher_browser_heartbeat_batches",
        "Writes of heartbeats",
        |(_, region, _)| region.figures.batches,
    ),
    (
        "usher_browser_heartbeats_written",
        "Heartbeats that were written",
        |(_, region, _)| region.figures.counted + region.figures.outdated,
    ),
    (
        "usher_browser_launch_failures",
        "Browsers that did not come to draw a page",
        |(_, region, _)| (region.heard.as_ref()).map_or(0, |heard| heard.figures.failures),
    ),
    (
        "usher_browser_leaked",
        "Processes that an earlier host had left, ended when the next began",
        |(_, region, _)| (region.heard.as_ref()).map_or(0, |heard| heard.figures.leaked),
    ),
];

/// Numbers by a word, that are read of a region.
type Words = fn(&RegionStanding) -> Vec<(String, u64)>;

const BY_WORD: [(&str, &str, &str, Words); 5] = [
    (
        "usher_browser_heartbeats_dropped",
        "Heartbeats that were dropped",
        "cause",
        |region| {
            let figures = &region.figures;
            vec![
                ("full".to_owned(), figures.dropped_full),
                ("failed".to_owned(), figures.dropped_failed),
            ]
        },
    ),
    (
        "usher_browser_sessions_ended",
        "Sessions that ended",
        "reason",
        |region| {
            let ended = CloseReason::ALL.into_iter().zip(region.counted.ended);
            ended
                .map(|(reason, count)| (reason.as_str().to_owned(), count))
                .collect()
        },
    ),
    (
        "usher_browser_quick_actions",
        "Browsers of quick actions that ended",
        "reason",
        |region| {
            let ended = CloseReason::ALL.into_iter().zip(region.counted.quick);
            ended
                .map(|(reason, count)| (reason.as_str().to_owned(), count))
                .collect()
        },
    ),
    (
        "usher_browser_ended",
        "Browsers that worked and are gone",
        "reason",
        |region| {
            let ended = region.heard.as_ref().map(|heard| &heard.figures.ended);
            let count = |reason: &str| ended.and_then(|ended| ended.get(reason)).copied();
            let reasons = CloseReason::ALL.into_iter().map(CloseReason::as_str);
            reasons
                .map(|reason| (reason.to_owned(), count(reason).unwrap_or(0)))
                .collect()
        },
    ),
    (
        "usher_browser_egress_denied",
        "What pages asked for and did not get",
        "cause",
        |region| {
            let denied = region.heard.as_ref().map(|heard| &heard.figures.egress);
            let denied = denied.into_iter().flatten();
            denied
                .map(|(cause, &count)| (cause.clone(), count))
                .collect()
        },
    ),
];

impl Collector for BrowserMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let browsers = &*self.0;
        let standing = browsers.standing();
        if standing.is_empty() {
            return Ok(());
        }
        let pools = judged(browsers, &standing);
        let regions = standing.iter().zip(&pools);
        let regions: Vec<Told<'_>> = regions
            .map(|(region, pool)| (region.region.code(), region, pool))
            .collect();
        let encoder = &mut encoder;
        standings(&regions, encoder)?;
        for (name, help, read) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for told in &regions {
                gauge(&mut metric, &[("region", told.0)], read(told))?;
            }
        }
        for (name, help, read) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for told in &regions {
                counter(&mut metric, &[("region", told.0)], read(told))?;
            }
        }
        for (name, help, label, read) in BY_WORD {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for &(code, region, _) in &regions {
                for (word, count) in read(region) {
                    counter(&mut metric, &[("region", code), (label, &word)], count)?;
                }
            }
        }
        times(&regions, encoder)?;
        line_and_wire(browsers, encoder)
    }
}

/// Where browsers stand, and who has them.
fn standings(regions: &[Told<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (name, help) = ("usher_browser_count", "Browsers, by where they stand");
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (code, _, pool) in regions {
        for (state, count) in [
            ("starting", pool.starting),
            ("ready", pool.ready),
            ("in_use", pool.in_use),
            ("closing", pool.closing),
        ] {
            let labels = [("region", *code), ("state", state)];
            gauge(&mut metric, &labels, u64::from(count))?;
        }
    }
    let (name, help) = ("usher_browser_sessions", "Sessions that live");
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (code, _, pool) in regions {
        for (account, count) in pool.by_account() {
            gauge(
                &mut metric,
                &[("region", code), ("account", account)],
                count,
            )?;
        }
    }
    let (name, help) = (
        "usher_browser_heartbeats_age_seconds",
        "How long the oldest heartbeat has waited to be written",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (code, region, _) in regions {
        let age = region.figures.age.as_secs_f64();
        metric
            .encode_family(&[("region", *code)])?
            .encode_gauge(&age)?;
    }
    let (name, help) = (
        "usher_browser_heartbeat_write_seconds",
        "How long writes of heartbeats took, together",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (code, region, _) in regions {
        let took = region.figures.writing.as_secs_f64();
        (metric.encode_family(&[("region", *code)])?)
            .encode_counter::<NoLabelSet, _, u64>(&took, None)?;
    }
    Ok(())
}

/// How long browsers took to start, and callers waited for one.
fn times(regions: &[Told<'_>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let (name, help) = (
        "usher_browser_acquire_seconds",
        "From the wish for a browser to its offer: one that was ready, or that somebody stood in line for",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (code, region, _) in regions {
        let counted = &region.counted;
        for (from, Times { counts, sum }) in [("ready", &counted.ready), ("cold", &counted.cold)] {
            let labels = [("region", *code), ("from", from)];
            histogram(&mut metric, &labels, &ACQUIRE_MS, counts, sum.as_secs_f64())?;
        }
    }
    let (name, help) = (
        "usher_browser_launch_seconds",
        "From the launch of a browser to its first page",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (code, region, _) in regions {
        if let Some(heard) = &region.heard {
            let (counts, sum) = (
                &heard.figures.launched,
                heard.figures.launch_ms as f64 / 1e3,
            );
            histogram(&mut metric, &[("region", *code)], &LAUNCH_MS, counts, sum)?;
        }
    }
    let (name, help) = (
        "usher_browser_launches",
        "Browsers that came to draw a page",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (code, region, _) in regions {
        let launched = region
            .heard
            .as_ref()
            .map(|heard| heard.figures.launched.iter().sum());
        counter(&mut metric, &[("region", *code)], launched.unwrap_or(0))?;
    }
    Ok(())
}

/// What belongs to no region: the line, refusals, and what goes between clients and browsers.
fn line_and_wire(browsers: &Browsers, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let queue = queue(browsers);
    let (name, help) = ("usher_browser_queue_length", "Who waits for a browser");
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    gauge(&mut metric, &[], queue.waiting as u64)?;
    let (name, help) = (
        "usher_browser_queue_age_seconds",
        "How long the first has waited for a browser",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    metric.encode_gauge(&queue.oldest.as_secs_f64())?;
    let (name, help) = (
        "usher_browser_clients",
        "Clients that are connected to browsers through this process",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    gauge(&mut metric, &[], browsers.clients() as u64)?;

    let carried = browsers.carried();
    let (name, help) = (
        "usher_browser_refusals",
        "Wishes for a browser that were refused",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for ((cause, status), count) in REFUSALS.into_iter().zip(carried.refusals) {
        let code = status.to_string();
        counter(&mut metric, &[("code", &code), ("cause", cause)], count)?;
    }
    let (name, help) = (
        "usher_browser_cdp_bytes",
        "Bytes between clients and browsers",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    let (to_browser, from_browser) = carried.bytes;
    for (direction, count) in [("to_browser", to_browser), ("from_browser", from_browser)] {
        counter(&mut metric, &[("direction", direction)], count)?;
    }
    let (name, help) = (
        "usher_browser_cdp_oversize",
        "Messages that were left out because their client takes none so long",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    counter(&mut metric, &[], carried.left_out)
}

fn histogram(
    metric: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    bounds_ms: &[u64],
    counts: &[u64],
    sum: f64,
) -> fmt::Result {
    let bounds = bounds_ms.iter().map(|&bound| bound as f64 / 1e3);
    let bounds = bounds.chain([f64::INFINITY]);
    let classes: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
    let count = counts.iter().sum();
    (metric.encode_family(&labels)?).encode_histogram::<NoLabelSet>(sum, count, &classes, None)
}

fn gauge(metric: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    metric.encode_family(&labels)?.encode_gauge(&value)
}

fn counter(metric: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    (metric.encode_family(&labels)?).encode_counter::<NoLabelSet, _, u64>(&value, None)
}
