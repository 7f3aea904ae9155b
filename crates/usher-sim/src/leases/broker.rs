//! Brokers: each leads its requests, and may die with all of them.

use std::collections::BTreeMap;

use usher_core::id::Id;
use usher_core::lease::acquire::{Event as Heard, Order, State};
use usher_core::lease::close::CloseReason;
use usher_core::lease::line::Class;
use usher_core::lease::region::{Picked, Wish};
use usher_core::lease::{RequestId, SessionId, Stock, session};
use usher_core::time::Mono;

use super::client::Does;
use super::node::ToNode;
use super::store::Call;
use super::{Event, Lending};

/// How long a broker waits for the store, and for its turn, in milliseconds.
const STORE_MS: u64 = 2_000;
const TURN_MS: u64 = 11_000;
const PREPARED_MS: u64 = 5_000;

#[derive(Debug)]
struct Request {
    state: State,
    account: Id,
    client: u64,
    session: SessionId,
    class: Class,
    /// The account has paid, as far as the broker knows.
    charged: bool,
    /// The number of the question that is under way.
    asked: u64,
    /// When it first stood in line; it does not wait longer for standing there again.
    waits_since: Option<Mono>,
}

#[derive(Debug, Default)]
pub(super) struct Broker {
    life: u64,
    requests: BTreeMap<u128, Request>,
    questions: u64,
}

impl Broker {
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }
}

impl Lending {
    /// A client's request begins.
    pub(super) fn request(&mut self, broker: usize, client: u64, account: Id) -> u128 {
        let (request, session) = (self.draw(), SessionId(self.draw()));
        // By the name, which costs the world no draw.
        let class = match (request >> 64) % 4 {
            0 => Class::QuickAction,
            _ => Class::Session,
        };
        let row = Request {
            state: State::Admitting,
            account,
            client,
            session,
            class,
            charged: false,
            asked: 0,
            waits_since: None,
        };
        self.brokers[broker].requests.insert(request, row);
        let asker = self.ask(broker, request, STORE_MS, Heard::NoAnswer);
        self.send(Event::ToStore(Call::Admit(asker, account, session, class)));
        request
    }

    /// Numbers a question, and says what is heard when nobody answers it.
    fn ask(
        &mut self,
        broker: usize,
        request: u128,
        wait: u64,
        none: Heard,
    ) -> (usize, u64, u128, u64) {
        let at = &mut self.brokers[broker];
        at.questions += 1;
        let (asked, life) = (at.questions, at.life);
        if let Some(row) = at.requests.get_mut(&request) {
            row.asked = asked;
        }
        let timeout = Event::ToBroker {
            broker,
            life,
            request,
            asked,
            event: none,
        };
        self.at(wait, timeout);
        (broker, life, request, asked)
    }

    pub(super) fn client_left(&mut self, broker: usize, life: u64, request: u128) {
        let asked = self.brokers[broker]
            .requests
            .get(&request)
            .map(|row| row.asked);
        if let Some(asked) = asked {
            self.figures.left += 1;
            self.heard(broker, life, request, asked, Heard::Left);
        }
    }

    pub(super) fn life(&self, broker: usize) -> u64 {
        self.brokers[broker].life
    }

    pub(super) fn heard(
        &mut self,
        broker: usize,
        life: u64,
        request: u128,
        asked: u64,
        event: Heard,
    ) {
        let at = &mut self.brokers[broker];
        let Some(row) = at.requests.get_mut(&request) else {
            return;
        };
        // What belongs to an earlier life or question comes too late; a session that it would have
        // brought ends by the deadlines of others.
        if at.life != life || row.asked != asked {
            return;
        }
        self.figures.unprepared += u64::from(event == Heard::NotPrepared);
        row.charged |= event == Heard::Admitted;
        let (state, orders) = row.state.next(event);
        row.state = state;
        for order in orders {
            self.carry_out(broker, request, order);
        }
        if state == State::Over {
            self.brokers[broker].requests.remove(&request);
        }
    }

    fn carry_out(&mut self, broker: usize, request: u128, order: Order) {
        let (next_session, now) = (SessionId(self.draw()), self.mono());
        let Some(row) = self.brokers[broker].requests.get_mut(&request) else {
            return;
        };
        let (account, client, session) = (row.account, row.client, row.session);
        let (class, charged) = (row.class, row.charged);
        match order {
            Order::Pick { attempt } => {
                let wish = Wish {
                    request: RequestId(request),
                    attempt,
                    session,
                    account,
                    stock: Stock::default(),
                    class,
                    keep_alive: session::keep_alive(Some(20_000)),
                };
                let asker = self.ask(broker, request, STORE_MS, Heard::NoAnswer);
                self.send(Event::ToStore(Call::Pick(asker, wish)));
            }
            Order::Wait => {
                let since = *row.waits_since.get_or_insert(now);
                let asker = self.ask(broker, request, TURN_MS, Heard::NotCalled);
                self.send(Event::ToStore(Call::Wait(asker, account, class, since)));
            }
            Order::LeaveLine => self.send(Event::ToStore(Call::LeaveLine(request))),
            Order::Prepare(picked) => {
                let asker = self.ask(broker, request, PREPARED_MS, Heard::NotPrepared);
                self.broker_to_node(picked, ToNode::Prepare(asker, picked));
            }
            Order::Mark(picked) => {
                let asker = self.ask(broker, request, STORE_MS, Heard::NoAnswer);
                self.send(Event::ToStore(Call::Mark(
                    asker,
                    picked.browser,
                    picked.epoch,
                )));
            }
            Order::Answer(picked) => {
                let life = self.brokers[broker].life;
                let asked = self.brokers[broker].requests[&request].asked;
                let event = if self.rng.percent(90) {
                    self.figures.answers += 1;
                    let does = Does::GotIt(picked);
                    self.later(50, Event::Client { client, does });
                    Heard::Written
                } else {
                    Heard::Left
                };
                // At once: the answer was put on the wire, or could not be.
                self.at(
                    0,
                    Event::ToBroker {
                        broker,
                        life,
                        request,
                        asked,
                        event,
                    },
                );
            }
            Order::RefuseLimits | Order::RefuseCapacity => {
                self.figures.refusals += 1;
                self.clients.remove(&client);
            }
            Order::Close(picked) => self.close(picked),
            Order::HandOn(picked) => {
                row.session = next_session;
                if class == Class::Session {
                    let call = Call::HandOn(account, picked.session, next_session);
                    self.send(Event::ToStore(call));
                }
            }
            Order::Refund if class == Class::Session => {
                self.send(Event::ToStore(Call::Refund(account, session)));
            }
            // Without a slot there is nothing by which a second time would be known.
            Order::Refund if charged => self.send(Event::ToStore(Call::RefundQuick(account))),
            Order::Release if class == Class::Session => {
                self.send(Event::ToStore(Call::Release(account, session)));
            }
            Order::Refund | Order::Release => {}
        }
    }

    /// Ends a session, at its node and in the store; either may not hear of it.
    pub(super) fn close(&mut self, picked: Picked) {
        let reason = CloseReason::NormalClosure;
        let call = Call::Close(picked.browser, picked.epoch, reason);
        self.send(Event::ToStore(call));
        let close = ToNode::Close(picked.browser, picked.epoch, reason);
        self.broker_to_node(picked, close);
    }

    fn broker_to_node(&mut self, picked: Picked, what: ToNode) {
        let node = picked.node.0 as usize;
        if !self.machines[node].cut_brokers {
            self.send(Event::ToNode { node, what });
        }
    }

    /// It is gone with all its requests and connections, and another takes its place.
    pub(super) fn broker_dies(&mut self, broker: usize) {
        let at = &mut self.brokers[broker];
        at.life += 1;
        at.requests.clear();
        self.connections_break(broker);
    }
}
