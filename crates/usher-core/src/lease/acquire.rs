//! One request for a browser, from its account's limits to the answer.
//!
//! The broker that leads it may hear that the client has gone at any moment, also while a question
//! of its own is under way whose answer brings a browser. So the machine knows what it has taken,
//! and wherever it ends, that was handed over or is given back. It answers only after the node has
//! prepared the browser and the store knows that: the next thing a client does is to connect.
//!
//! What it cannot give back because nobody answers, ends by the deadlines of the others.
//! Source: browser specification 9.3, 9.4, 11.4.

use super::region::Picked;

/// Browsers that are tried before the request is refused.
pub const ATTEMPTS_MAX: u8 = 3;
/// How often a question to the store is asked again that was not answered; it may have been done.
pub const STORE_TRIES_MAX: u8 = 3;

/// What was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The account's home.
    Admitting,
    /// The store, for a browser.
    Picking {
        /// Which one of this request, from 0.
        attempt: u8,
        /// Questions without an answer.
        unanswered: u8,
    },
    /// The line.
    Waiting {
        /// See [`State::Picking`].
        attempt: u8,
    },
    /// The node, to prepare the browser.
    Preparing {
        /// See [`State::Picking`].
        attempt: u8,
        /// The browser.
        picked: Picked,
    },
    /// The store, to note that it is prepared.
    Marking {
        /// See [`State::Picking`].
        attempt: u8,
        /// The browser.
        picked: Picked,
        /// Questions without an answer.
        unanswered: u8,
    },
    /// The client: the answer is being written.
    Answering {
        /// The browser.
        picked: Picked,
    },
    /// Nobody waits any more, but what was asked of the account's home is still to be heard.
    LeftAdmitting,
    /// Nobody waits any more, but the store may still come with a browser.
    LeftPicking,
    /// All is done.
    Over,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The account may have a browser.
    Admitted,
    /// It may not.
    NotAdmitted,
    /// The store gave one.
    Picked(Picked),
    /// The store has none that is ready.
    NoneReady,
    /// The line says that it is this one's turn.
    Called,
    /// The line says that the wait is over, or that there is no place in it.
    NotCalled,
    /// The node has prepared the browser.
    Prepared,
    /// The node has refused, or said nothing for [`super::browser::PICKED_MAX`].
    NotPrepared,
    /// The store has noted it.
    Marked,
    /// The store says that the browser was taken away.
    NotMarked,
    /// The store has not answered.
    NoAnswer,
    /// The answer was written.
    Written,
    /// The client has gone, or the answer could not be written.
    Left,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Ask the store for a browser.
    Pick {
        /// Which one of this request; the same number is the same question.
        attempt: u8,
    },
    /// Stand in line, for what is left of the wait that began when it first did.
    Wait,
    /// Leave the line.
    LeaveLine,
    /// Have the node prepare it.
    Prepare(Picked),
    /// Have the store note that it is prepared.
    Mark(Picked),
    /// Tell the client.
    Answer(Picked),
    /// Tell the client that the account's limits say no.
    RefuseLimits,
    /// Tell the client that there is no browser.
    RefuseCapacity,
    /// End the browser, at its node and in the store.
    Close(Picked),
    /// The place of that session goes on to the next try.
    HandOn(Picked),
    /// What the account has paid is given back.
    Refund,
    /// The account gets its place back; the price it has paid.
    Release,
}

impl State {
    /// How it goes on after `event`, and what is to be done for that, in order. What does not belong
    /// to a state changes nothing: it is late.
    #[must_use]
    pub fn next(self, event: Event) -> (State, Vec<Order>) {
        let over = |orders: &[Order]| (State::Over, orders.to_vec());
        let pick = |attempt, unanswered| State::Picking {
            attempt,
            unanswered,
        };
        match (self, event) {
            (State::Admitting, Event::Admitted) => (pick(0, 0), vec![Order::Pick { attempt: 0 }]),
            (State::Admitting, Event::NotAdmitted) => over(&[Order::RefuseLimits]),
            // The charge may have been made; if so, its slot runs out.
            (State::Admitting, Event::NoAnswer) => over(&[Order::Refund, Order::RefuseCapacity]),
            (State::Admitting, Event::Left) => (State::LeftAdmitting, vec![]),

            (State::Picking { attempt, .. }, Event::Picked(picked)) => (
                State::Preparing { attempt, picked },
                vec![Order::Prepare(picked)],
            ),
            (State::Picking { attempt, .. }, Event::NoneReady) => {
                (State::Waiting { attempt }, vec![Order::Wait])
            }
            (
                State::Picking {
                    attempt,
                    unanswered,
                },
                Event::NoAnswer,
            ) => {
                if unanswered + 1 < STORE_TRIES_MAX {
                    (pick(attempt, unanswered + 1), vec![Order::Pick { attempt }])
                } else {
                    over(&[Order::Refund, Order::RefuseCapacity])
                }
            }
            (State::Picking { .. }, Event::Left) => (State::LeftPicking, vec![]),

            (State::Waiting { attempt }, Event::Called) => {
                (pick(attempt, 0), vec![Order::Pick { attempt }])
            }
            (State::Waiting { .. }, Event::NotCalled) => {
                over(&[Order::Refund, Order::RefuseCapacity])
            }
            (State::Waiting { .. }, Event::Left) => over(&[Order::LeaveLine, Order::Refund]),

            (State::Preparing { attempt, picked }, Event::Prepared) => {
                let marking = State::Marking {
                    attempt,
                    picked,
                    unanswered: 0,
                };
                (marking, vec![Order::Mark(picked)])
            }
            (State::Preparing { attempt, picked }, Event::NotPrepared)
            | (
                State::Marking {
                    attempt, picked, ..
                },
                Event::NotMarked,
            ) => another(attempt, picked),
            (State::Marking { picked, .. }, Event::Marked) => {
                (State::Answering { picked }, vec![Order::Answer(picked)])
            }
            (
                State::Marking {
                    attempt,
                    picked,
                    unanswered,
                },
                Event::NoAnswer,
            ) => {
                if unanswered + 1 < STORE_TRIES_MAX {
                    let marking = State::Marking {
                        attempt,
                        picked,
                        unanswered: unanswered + 1,
                    };
                    (marking, vec![Order::Mark(picked)])
                } else {
                    over(&[Order::Close(picked), Order::Refund, Order::RefuseCapacity])
                }
            }
            (State::Answering { .. }, Event::Written) => over(&[]),
            (
                State::Preparing { picked, .. }
                | State::Marking { picked, .. }
                | State::Answering { picked },
                Event::Left,
            ) => over(&[Order::Close(picked), Order::Release]),

            (State::LeftAdmitting, Event::Admitted | Event::NoAnswer) => over(&[Order::Refund]),
            (State::LeftAdmitting, Event::NotAdmitted) => over(&[]),
            (State::LeftPicking, Event::Picked(picked)) => {
                over(&[Order::Close(picked), Order::Release])
            }
            (State::LeftPicking, Event::NoneReady | Event::NoAnswer) => over(&[Order::Refund]),

            _ => (self, vec![]),
        }
    }
}

/// This browser came to nothing: the next, if there may be one.
fn another(attempt: u8, picked: Picked) -> (State, Vec<Order>) {
    let next = attempt + 1;
    if next < ATTEMPTS_MAX {
        let picking = State::Picking {
            attempt: next,
            unanswered: 0,
        };
        let orders = vec![
            Order::Close(picked),
            Order::HandOn(picked),
            Order::Pick { attempt: next },
        ];
        (picking, orders)
    } else {
        let orders = vec![Order::Close(picked), Order::Refund, Order::RefuseCapacity];
        (State::Over, orders)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BrowserId, Epoch, NodeId, SessionId};
    use super::*;
    use proptest::prelude::*;

    fn picked(number: u128) -> Picked {
        Picked {
            browser: BrowserId(number),
            node: NodeId(1),
            epoch: Epoch(1),
            session: SessionId(number),
        }
    }

    fn run(events: &[Event]) -> (State, Vec<Order>) {
        let mut state = State::Admitting;
        let mut all = Vec::new();
        for &event in events {
            let (next, orders) = state.next(event);
            state = next;
            all.extend(orders);
        }
        (state, all)
    }

    #[test]
    fn the_straight_way() {
        let one = picked(1);
        let (state, orders) = run(&[
            Event::Admitted,
            Event::Picked(one),
            Event::Prepared,
            Event::Marked,
            Event::Written,
        ]);
        assert_eq!(state, State::Over);
        let expected = [
            Order::Pick { attempt: 0 },
            Order::Prepare(one),
            Order::Mark(one),
            Order::Answer(one),
        ];
        assert_eq!(orders, expected);
    }

    #[test]
    fn three_browsers_are_tried() {
        let mut events = vec![Event::Admitted];
        for number in 1..=3 {
            events.extend([Event::Picked(picked(number)), Event::NotPrepared]);
        }
        let (state, orders) = run(&events);
        assert_eq!(state, State::Over);
        let picks = orders
            .iter()
            .filter(|order| matches!(order, Order::Pick { .. }));
        assert_eq!(picks.count(), 3);
        let end = [
            Order::Close(picked(3)),
            Order::Refund,
            Order::RefuseCapacity,
        ];
        assert!(orders.ends_with(&end), "{orders:?}");
    }

    #[test]
    fn a_browser_that_comes_after_the_client_left_is_ended() {
        let (state, orders) = run(&[Event::Admitted, Event::Left, Event::Picked(picked(1))]);
        assert_eq!(state, State::Over);
        let expected = [
            Order::Pick { attempt: 0 },
            Order::Close(picked(1)),
            Order::Release,
        ];
        assert_eq!(orders, expected);
        let (_, orders) = run(&[Event::Left, Event::Admitted]);
        assert_eq!(orders, [Order::Refund]);
        let waiting = [Event::Admitted, Event::NoneReady, Event::Left];
        assert!(
            run(&waiting)
                .1
                .ends_with(&[Order::LeaveLine, Order::Refund])
        );
    }

    proptest! {
        /// Whatever happens, and however it is repeated: what was taken is handed over or given
        /// back, once.
        #[test]
        fn nothing_is_kept(steps in proptest::collection::vec(0_u8..13, 0..60)) {
            let mut state = State::Admitting;
            let mut browsers = 0;
            let (mut held, mut charged, mut in_line, mut answers) = (None, false, false, 0);
            let finish = [0, 2, 6, 8, 11];
            for step in steps.into_iter().chain(finish.repeat(4)) {
                let event = match step {
                    0 => Event::Admitted,
                    1 => Event::NotAdmitted,
                    2 => {
                        browsers += 1;
                        Event::Picked(picked(browsers))
                    }
                    3 => Event::NoneReady,
                    4 => Event::Called,
                    5 => Event::NotCalled,
                    6 => Event::Prepared,
                    7 => Event::NotPrepared,
                    8 => Event::Marked,
                    9 => Event::NotMarked,
                    10 => Event::NoAnswer,
                    11 => Event::Written,
                    _ => Event::Left,
                };
                let before = state;
                let (next, orders) = state.next(event);
                if matches!((before, event), (State::Admitting | State::LeftAdmitting, Event::Admitted)) {
                    charged = true;
                }
                if let (State::Picking { .. } | State::LeftPicking, Event::Picked(picked)) = (before, event) {
                    held = Some(picked);
                }
                for order in orders {
                    match order {
                        Order::Close(closed) => prop_assert_eq!(held.take(), Some(closed)),
                        Order::Refund | Order::Release => charged = false,
                        Order::HandOn(_) => prop_assert!(charged),
                        Order::Wait => in_line = true,
                        Order::LeaveLine => in_line = false,
                        Order::Answer(given) => prop_assert_eq!(held, Some(given)),
                        Order::RefuseLimits | Order::RefuseCapacity => answers += 1,
                        Order::Pick { .. } => {
                            in_line = false;
                            prop_assert!(held.is_none() && charged);
                        }
                        Order::Prepare(_) | Order::Mark(_) => {}
                    }
                }
                if let (State::Answering { .. }, Event::Written) = (before, event) {
                    answers += 1;
                    (held, charged) = (None, false);
                }
                state = next;
                if state == State::Over {
                    prop_assert!(held.is_none() && !charged, "{:?} then {:?}", before, event);
                    prop_assert!(answers <= 1);
                }
                if let State::Waiting { .. } = state {
                    prop_assert!(in_line);
                }
            }
        }
    }
}
