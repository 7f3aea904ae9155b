//! What an exchange has to do beside moving bytes: changes of the request and of the answer that
//! rules ask for, and what becomes of the visitor's pin when an endpoint answers.
//!
//! Everything depends on which endpoint that is, so it is made ready for each attempt.

use usher_core::affinity::Pin;
use usher_core::decision::{Attempt, Forward, PinOrder, PinOutcome, Served};
use usher_core::rules::Values;

use super::{Client, Exchange, RequestFields};
use crate::http::changes::{AnswerChanges, RequestChanges};
use crate::http::pinning;
use crate::http::plane::View;

/// What one request has beside its bytes.
#[derive(Debug)]
pub(super) struct Beside<'a> {
    forward: Forward,
    /// The pin that the visitor came with.
    pin: Option<Pin>,
    /// What becomes of it if this attempt's endpoint answers.
    outcome: PinOutcome,
    order: Option<PinOrder>,
    pub(super) request: RequestChanges,
    pub(super) answer: AnswerChanges<'a>,
}

impl Beside<'_> {
    /// `None` where no rule, no affinity and no setting asks for anything.
    pub(super) fn of(view: &View, forward: &Forward, pin: Option<Pin>) -> Option<Box<Self>> {
        let balancer = view.snapshot.catalog().balancer(forward.balancer);
        let is_plain = forward.affinity.first.outcome == PinOutcome::None
            && forward.transforms.is_empty()
            && balancer.endpoint_header.is_none();
        let beside = || Beside {
            forward: *forward,
            pin,
            outcome: PinOutcome::None,
            order: None,
            request: RequestChanges::default(),
            answer: AnswerChanges::default(),
        };
        (!is_plain).then(|| Box::new(beside()))
    }
}

impl<C: Client, F: RequestFields> Exchange<'_, C, F> {
    /// Makes ready what goes with `attempt`.
    pub(super) fn prepare(&mut self, attempt: Attempt, served: Served) {
        let (view, worker) = (self.view, self.worker);
        let Some(beside) = &mut self.beside else {
            return;
        };
        let forward = beside.forward;
        let snapshot = &view.snapshot;
        let pool = snapshot.pool(attempt.pool).name;
        let endpoint = &*snapshot.endpoint(attempt.endpoint).name;
        let balancer = snapshot.catalog().balancer(forward.balancer);

        let mut answer = AnswerChanges::default();
        if !forward.transforms.is_empty() {
            let place = view.place(self.visitor.address);
            let location = view.location(self.visitor.address);
            let region = match &place {
                Some(place) => place.region(),
                None => location.region,
            };
            let country = location.country.as_ref();
            let values = Values {
                country: country.map(|country| country.as_str()),
                region: region.map(|region| region.code()),
                client: self.visitor.address,
                host: self.asked.host,
                uri: self.asked.uri,
                balancer: &balancer.name,
                node: location.node,
                served_by: None,
            };
            let transforms = || snapshot.transforms(forward.balancer, forward.transforms);
            beside.request = RequestChanges::of(transforms(), &values);
            let served_by = Some((pool, endpoint));
            answer = AnswerChanges::of(
                transforms(),
                &Values {
                    served_by,
                    ..values
                },
            );
        }
        if let Some(header) = &balancer.endpoint_header {
            answer.name_endpoint(header, pool, endpoint);
        }

        let change = forward.affinity.of(served);
        let action = change.action.as_ref();
        beside.outcome = change.outcome;
        beside.order = action.map(|action| snapshot.pin(forward.balancer, action));
        match beside.order {
            Some(PinOrder::Remember(key, pin)) => {
                answer.remember = Some((worker.plane().pins(), key, pin));
            }
            Some(PinOrder::SetCookie {
                pin,
                secure,
                same_site,
            }) => {
                let keys = view.keys.as_ref();
                answer.set_cookie = keys.map(|keys| pinning::cookie(keys, &pin, secure, same_site));
            }
            None => {}
        }
        beside.answer = answer;
    }

    /// What became of the visitor's pin. One whose endpoint does not answer has its pin all the
    /// same, and nobody has a new one.
    pub(super) fn session(&self) -> PinOutcome {
        let outcome = self.beside.as_ref().map(|beside| beside.outcome);
        let happened = |outcome: &PinOutcome| self.is_answered() || *outcome == PinOutcome::Kept;
        outcome.filter(happened).unwrap_or(PinOutcome::None)
    }

    /// Counts the cookie that the visitor got, if it got one.
    pub(super) fn count_cookie(&self) {
        let Some(beside) = self.beside.as_ref().filter(|_| self.is_answered()) else {
            return;
        };
        if let Some(PinOrder::SetCookie { pin, .. }) = beside.order {
            self.worker.tally().cookie_given(beside.pin, pin);
        }
    }

    /// Whether the head of an endpoint's answer came.
    fn is_answered(&self) -> bool {
        self.report.upstream.is_some()
    }
}
