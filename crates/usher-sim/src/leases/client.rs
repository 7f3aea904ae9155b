//! Clients: they ask, use, close properly or just go.

use usher_core::lease::region::Picked;

use super::node::ToNode;
use super::{Event, Lending};

#[derive(Debug)]
pub(super) struct Client {
    broker: usize,
    life: u64,
    request: u128,
    has: Option<Picked>,
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Does {
    GotIt(Picked),
    Command,
    Close,
    Vanish,
}

impl Lending {
    pub(super) fn arrive(&mut self) {
        let broker = self.rng.below(self.brokers.len());
        let names = &self.store.names;
        let account = names[self.rng.below(names.len())];
        let name = self.draw() as u64;
        let request = self.request(broker, name, account);
        let client = Client {
            broker,
            life: self.life(broker),
            request,
            has: None,
        };
        self.clients.insert(name, client);
        // Some do not wait for the answer.
        if self.rng.percent(15) {
            let does = Does::Vanish;
            self.later(3_000, Event::Client { client: name, does });
        }
    }

    pub(super) fn client(&mut self, name: u64, does: Does) {
        let Some(client) = self.clients.get(&name) else {
            return;
        };
        let (broker, life, request) = (client.broker, client.life, client.request);
        let has = client.has;
        let alive = self.brokers.len() > broker && self.life(broker) == life;
        match does {
            Does::GotIt(picked) => {
                if let Some(client) = self.clients.get_mut(&name) {
                    client.has = Some(picked);
                }
                self.use_it(picked, ToNode::Connect);
                let longest = if self.rng.percent(15) {
                    240_000
                } else {
                    60_000
                };
                let stays = self.rng.within(1, longest);
                let does = if self.rng.percent(60) {
                    Does::Close
                } else {
                    Does::Vanish
                };
                self.later(stays, Event::Client { client: name, does });
                self.later(
                    2_000,
                    Event::Client {
                        client: name,
                        does: Does::Command,
                    },
                );
            }
            Does::Command => {
                let Some(picked) = has.filter(|_| alive) else {
                    return;
                };
                let answered = self.rng.percent(90);
                self.use_it(picked, |of| ToNode::Command(of, answered));
                self.later(
                    10_000,
                    Event::Client {
                        client: name,
                        does: Does::Command,
                    },
                );
            }
            Does::Close => {
                self.clients.remove(&name);
                if let Some(picked) = has {
                    if alive {
                        self.close(picked);
                    }
                    // Whatever becomes of the word, its connection ends with it.
                    self.use_it(picked, ToNode::Disconnect);
                }
            }
            Does::Vanish => {
                self.clients.remove(&name);
                match has {
                    None => self.client_left(broker, life, request),
                    Some(picked) => self.use_it(picked, ToNode::Disconnect),
                }
            }
        }
    }

    fn use_it(&mut self, picked: Picked, what: impl Fn(Picked) -> ToNode) {
        let node = picked.node.0 as usize;
        let what = what(picked);
        self.later(40, Event::ToNode { node, what });
    }

    /// The connections of a broker break; its clients are gone.
    pub(super) fn connections_break(&mut self, broker: usize) {
        let of_broker = |client: &Client| client.broker == broker;
        let gone: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| of_broker(client))
            .map(|(&name, _)| name)
            .collect();
        for name in gone {
            let has = self.clients.remove(&name).and_then(|client| client.has);
            if let Some(picked) = has {
                self.use_it(picked, ToNode::Disconnect);
            }
        }
    }
}
