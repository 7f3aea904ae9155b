//! The life of a node: start, ready, serve, apply, and stop or leave.
//!
//! A changed configuration is applied in two halves. The first does everything that can fail (read
//! certificates, open listeners and the log) and changes nothing; the second cannot fail. So a
//! configuration is in force as a whole or not at all.
//!
//! A node that follows another one starts with its estate and accepts nothing until it serves; one
//! that is followed keeps what it has begun, and leaves the sockets to the other.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use usher_api::access::Access;
use usher_api::server::{Control as _, SignIns};
use usher_api::{Declared, server};
use usher_core::catalog::Catalog;
use usher_core::engine::{Engine, Input, Known, Output};
use usher_core::id::Id;
use usher_core::snapshot::Snapshot;
use usher_core::time::{Mono, Wall};
use usher_edge::geo::Places;
use usher_edge::http::{self, AccessLog, Front, ListenError, LogTarget, Parts, Plane};
use usher_edge::probe::{self, Prober};
use usher_edge::resolve::{self, Addresses, Lookup};
use usher_edge::seal::Keys;
use usher_edge::tls::{Certificates, ClientConfigs, FileFault, KeyPair, TrustProfile};
use usher_pool::PoolError;
use usher_rooms::journal::JournalFault;
use usher_store::{Revision, StoreError};

use crate::browsers;
use crate::control::{Services, Shared};
use crate::drive::{Drive, INPUTS_MAX, NewCatalog};
use crate::handover::{Bequest, Estate, HandoverError, Heir, Predecessor, Program, Successor};
use crate::listeners::{Listeners, Prepared};
pub use crate::listeners::{Listening, Part};
use crate::pid_file::PidFile;
use crate::probes::Probes;
use crate::rooms::{self, Journals, Keeper, Seals};
use crate::settings::{self, Process};
use crate::wanted::{Changed, Changes, Wanted};
use crate::webhooks::{HAPPENED_MAX, Webhooks};
use crate::{pins, trust};

/// Why a configuration cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Certificates, authorities or keys that cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Files(Vec<FileFault>),
    /// The key of sessions cannot be made or used.
    #[error("state_folder: {0}")]
    Key(FileFault),
    /// A listener of the front cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The listener of the API cannot be opened.
    #[error("api.listen {address} cannot be opened; choose a free address, or port 0")]
    Api {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The access log cannot be opened.
    #[error("access_log.path {path} cannot be opened for appending")]
    AccessLog {
        /// The path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The pid file cannot be written.
    #[error("pid_file {} cannot be written", .path.display())]
    PidFile {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file names another store than the one that is open.
    #[error("store.url changed: restart to use another store")]
    StoreMoved,
    /// The file says otherwise whether waiting rooms are kept.
    #[error("live_state.journal changed: restart to keep waiting rooms otherwise")]
    JournalMoved,
    /// The journals of waiting rooms are another process's, or cannot be.
    #[error(transparent)]
    Journal(#[from] JournalFault),
    /// Waiting rooms have no thread to run on.
    #[error("start the thread of the waiting rooms")]
    Rooms(#[source] io::Error),
    /// What the file declares contradicts what the store keeps.
    #[error("the file and the store contradict each other: {}", .0.join("; "))]
    Contradiction(Vec<String>),
    /// The listener of the binding cannot be opened.
    #[error("browsers.listen {address} cannot be opened; choose a free address, or port 0")]
    Binding {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder of browsers cannot be made.
    #[error("browsers: folder {} cannot be made", .path.display())]
    BrowsersFolder {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A pool of browsers cannot be opened.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Browsers have no threads to be served on.
    #[error("start the threads of the browsers")]
    Browsers(#[source] io::Error),
    /// The file says otherwise where browsers are kept.
    #[error("the folder of browsers changed: restart to keep them elsewhere")]
    BrowsersMoved,
    /// The workers cannot be started.
    #[error(transparent)]
    Workers(#[from] http::StartError),
}

impl StartError {
    /// Whether the operator has to change the configuration, rather than the environment.
    #[must_use]
    pub const fn is_fault_of_configuration(&self) -> bool {
        matches!(
            self,
            StartError::Files(_)
                | StartError::StoreMoved
                | StartError::JournalMoved
                | StartError::BrowsersMoved
                | StartError::Contradiction(_)
        )
    }
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    plane: Arc<Plane>,
    front: Arc<Front>,
    process: Process,
    wanted: Wanted,
    rooms: Keeper,
    browsers: browsers::Keeper,
    seals: Seals,
    /// What of the store traffic is decided by.
    in_force: watch::Sender<Revision>,
    /// The profiles whose files have been read.
    trusted: BTreeSet<TrustProfile>,
    listeners: Listeners,
    listening: Vec<Listening>,
    catalogs: mpsc::Sender<NewCatalog>,
    ready: watch::Receiver<bool>,
    shared: Arc<Shared>,
    api: Option<ApiServer>,
    /// Whether the API accepts connections.
    api_open: watch::Sender<bool>,
    questions: mpsc::Sender<oneshot::Sender<Vec<Known>>>,
    pid_file: Option<PidFile>,
    serving: bool,
    /// Numbers of the inherited listeners that are in use.
    taken: Vec<usize>,
}

impl Node {
    /// Starts the front, the engine, the probes and the API. `places` tell the country of visitors;
    /// without, the node's own counts. `version` is shown to those who ask.
    /// With the estate of another process, nothing is accepted until [`Node::take_over`]. `program` is
    /// what hosts of browsers are started with.
    ///
    /// Needs a tokio runtime; workers run on threads of their own.
    ///
    /// # Errors
    /// What cannot be opened or read. Nothing stays open then.
    pub async fn start(
        process: Process,
        declared: Arc<Declared>,
        places: Option<Arc<Places>>,
        version: &'static str,
        program: &Program,
        estate: Option<Estate>,
    ) -> Result<Node, StartError> {
        let journals = (process.journals()).map_or(Journals::Off, Journals::Folder);
        let clock = estate.as_ref().map_or(0, |estate| estate.rooms_clock);
        let rooms = Keeper::start(journals, estate.is_some(), clock);
        let rooms = rooms.map_err(StartError::Rooms)?;
        let browsers = browsers::Keeper::new(program.path());
        let node = Node::open(
            process,
            declared,
            places,
            version,
            estate,
            (rooms.clone(), browsers),
        );
        let node = node.await;
        if node.is_err() {
            // Nobody came in: their journals say so.
            rooms.close().await;
        }
        node
    }

    async fn open(
        process: Process,
        declared: Arc<Declared>,
        places: Option<Arc<Places>>,
        version: &'static str,
        estate: Option<Estate>,
        (rooms, mut browsers): (Keeper, browsers::Keeper),
    ) -> Result<Node, StartError> {
        let began = crate::wall();
        let pid_file = pid_file(process.pid_file.as_deref())?;
        let mut wanted = Wanted::open(Arc::clone(&declared), process.store.clone()).await?;
        let (in_force, reached) = watch::channel(wanted.kept());
        let catalog = wanted.with(&declared).map_err(StartError::Contradiction)?;
        let trusted = trust::profiles(&catalog);
        let desired = Arc::new(ArcSwap::from_pointee(wanted.desired()));
        let files = Files::load(&process, &catalog, rooms.keeps())?;
        let access_log = open_log(&process)?;
        let seals = Seals::new().with(files.keys.clone().filter(|_| rooms.keeps()));
        let workers = thread::available_parallelism().map_or(1, usize::from);

        let follows = estate.is_some();
        let Estate {
            listeners,
            known,
            drains,
            addresses,
            rooms_clock: _,
            sign_ins,
        } = estate.unwrap_or_default();
        let (of_api, others): (Vec<_>, Vec<_>) = listeners
            .into_iter()
            .partition(|bequest| bequest.part == Part::Api);
        let (of_binding, of_front): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|bequest| bequest.part == Part::Binding);

        let mut engine = Engine::new(crate::draw())
            .with_ready_timeout(process.ready_timeout)
            .with_known(known)
            .with_drains(drains);
        engine.handle(Input::Clock(crate::wall()), Mono::ZERO);
        engine.handle(Input::Catalog(Arc::clone(&catalog)), Mono::ZERO);
        let mut outputs: Vec<Output> = std::iter::from_fn(|| engine.poll_output()).collect();
        let published = outputs
            .iter()
            .position(|output| matches!(output, Output::Publish(_)));
        let Some(Output::Publish(snapshot)) = published.map(|at| outputs.remove(at)) else {
            unreachable!("the first catalog is published at once");
        };

        tell(places.as_deref());
        let addresses = Arc::new(Addresses::known(addresses));
        let plane = Plane::new(Parts {
            snapshot,
            settings: front_settings(&process),
            certificates: files.certificates,
            clients: files.clients,
            access_log,
            places,
            keys: files.keys,
            addresses: Arc::clone(&addresses),
            workers,
        });
        open_rooms(&plane, &rooms, &seals, &catalog).await?;
        let front = Arc::new(Front::start(&plane)?);
        if follows {
            front.hold();
        }
        let mut listeners = Listeners::default();
        let numbers = listeners.inherit(&front, of_front)?;
        let prepared = listeners.prepare(&front, &process.listen)?;
        listeners.commit(&front, prepared, Duration::ZERO);
        let in_use = numbers.into_iter().filter(|&(id, _)| listeners.has(id));
        let mut taken: Vec<usize> = in_use.map(|(_, number)| number).collect();

        let (orders, ordered) = mpsc::channel(probe::PROBES_MAX);
        let (tell_result, results) = mpsc::channel(probe::PROBES_MAX);
        let (hosts, wanted_hosts) = watch::channel(BTreeSet::new());
        let (tell_resolution, resolutions) = mpsc::channel(INPUTS_MAX);
        let (catalogs, new_catalogs) = mpsc::channel(1);
        let (questions, questioned) = mpsc::channel(1);
        let (tell_ready, ready) = watch::channel(false);
        let clients = Arc::clone(&plane);
        let prober = Prober::new(Lookup::system(), Arc::clone(&addresses), move || {
            clients.clients()
        });
        tokio::spawn(probe::run(Arc::new(prober), ordered, tell_result));
        tokio::spawn(resolve::run(
            Lookup::system(),
            wanted_hosts,
            addresses,
            tell_resolution,
        ));
        let probes = Arc::new(Probes::default());
        let webhooks = Arc::new(Webhooks::new(process.post_privately));
        let (happened, to_tell) = mpsc::channel(HAPPENED_MAX);
        tokio::spawn(Arc::clone(&webhooks).run(Arc::clone(&desired), to_tell));
        let drive = Drive {
            happened,
            engine,
            probes: Arc::clone(&probes),
            plane: Arc::clone(&plane),
            catalogs: new_catalogs,
            questions: questioned,
            unpublished: None,
            orders,
            results,
            hosts,
            resolutions,
            ready: tell_ready,
            desired: Arc::clone(&desired),
            drains: false,
            began,
            deserted: BTreeSet::new(),
            counting: None,
        };
        tokio::spawn(drive.run(outputs));

        let shared = Shared::new(
            Arc::clone(&plane),
            version,
            access(&process),
            desired,
            Services {
                probes,
                webhooks,
                sign_ins: SignIns::inherited(sign_ins.iter().map(String::as_str), plane.now()),
                rooms: rooms.watch(),
                browsers: browsers.shared(),
            },
            ready.clone(),
            reached,
        );
        let api_open = watch::Sender::new(!follows);
        let api = match &process.api {
            Some(api) => {
                let mut inherited = of_api.into_iter().filter(|old| old.wanted == api.listen);
                let inherited = inherited.next();
                taken.extend(inherited.iter().map(|bequest| bequest.number));
                let socket = inherited.and_then(|bequest| bequest.sockets.into_iter().next());
                let open = api_open.subscribe();
                Some(ApiServer::start(api, socket, &shared, &plane, open).await?)
            }
            None => None,
        };
        shared.appear_as(origin(&process, api.as_ref()));
        // Last: what it starts goes on by itself.
        let of_binding = of_binding.into_iter().next();
        taken.extend(browsers.start(&process, follows, of_binding).await?);
        let mut node = Node {
            plane,
            front,
            process,
            wanted,
            rooms,
            browsers,
            seals,
            in_force,
            trusted,
            listeners,
            listening: Vec::new(),
            catalogs,
            ready,
            shared,
            api,
            api_open,
            questions,
            pid_file,
            serving: false,
            taken,
        };
        node.listening = node.open_listeners();
        node.browsers.own(&node.listening);
        Ok(node)
    }

    /// Every listener, with its real address.
    #[must_use]
    pub fn listening(&self) -> &[Listening] {
        &self.listening
    }

    /// Waits until every monitored endpoint has its first verdict, or has been waited for long
    /// enough.
    pub async fn ready(&mut self) {
        // The sender lives as long as the engine, which lives as long as this node.
        let _ended = self.ready.wait_for(|ready| *ready).await;
    }

    /// Takes the place of the process that left its estate: accepts connections from now on.
    ///
    /// # Errors
    /// That process does not wait any more. Nothing has been accepted.
    pub fn take_over(&mut self, predecessor: &Predecessor) -> Result<(), HandoverError> {
        predecessor.ready(&self.taken)?;
        self.rooms.take_over();
        self.browsers.take_over();
        self.front.open();
        self.api_open.send_replace(true);
        Ok(())
    }

    /// This process is the one that serves: says so in the pid file.
    pub fn serve(&mut self) {
        self.serving = true;
        self.pid_file.iter_mut().for_each(PidFile::show);
    }

    /// Starts another process to take this one's place. This one goes on until [`Node::leave`], and
    /// its configuration must stay as it is until then.
    ///
    /// # Errors
    /// The other process cannot be started.
    pub async fn hand_over(&self, program: &Program) -> Result<Successor, HandoverError> {
        let bequests = self.listeners.bequeath(&self.front);
        let mut listeners = bequests.map_err(HandoverError::Sockets)?;
        if let (Some(server), Some(api)) = (&self.api, &self.process.api) {
            let socket = server.socket.try_clone().map_err(HandoverError::Sockets)?;
            listeners.push(Bequest {
                number: listeners.len(),
                part: Part::Api,
                wanted: api.listen,
                sockets: vec![socket],
            });
        }
        let bequest = self.browsers.bequeath(listeners.len());
        listeners.extend(bequest.map_err(HandoverError::Sockets)?);
        let (tell, known) = oneshot::channel();
        // The engine ends only with this node.
        let _ended = self.questions.send(tell).await;
        let known = known.await.unwrap_or_default();
        let addresses = self.plane.addresses().all();
        let estate = Estate {
            listeners,
            known,
            drains: drains(&self.plane.snapshot()),
            addresses,
            rooms_clock: self.rooms.clock(),
            sign_ins: self.shared.sign_ins().bequest(self.plane.now()),
        };
        // Its place is one process's at a time; the other one waits for it.
        self.wanted.release().await;
        Successor::start(program, estate)
    }

    /// Leaves new connections to `heir`, lets requests and sockets finish up to
    /// `shutdown.handover_grace`, and ends. When `hurry` is done once they have `shutdown.grace`,
    /// when it is done again they have no time at all.
    pub async fn leave(mut self, heir: &Heir, mut hurry: impl AsyncFnMut()) {
        self.pid_file.iter_mut().for_each(PidFile::leave);
        self.shared.begin_stop();
        // First: the other process has accepted visitors who wait for their rooms to be its own.
        self.rooms.close().await;
        let settings::Shutdown {
            grace,
            handover_grace,
        } = self.process.shutdown;
        let taken = self.listeners.numbered(|number| heir.listens(number));
        let quiet = self.browsers.quiet();
        let drained = self.front.drain_beside(&taken, handover_grace).await;
        if let Some(api) = self.api.take() {
            api.close().await;
        }
        // The other process waits for the pools.
        self.browsers.let_go().await;
        // From here on every new connection is the other's.
        heir.release();
        let open = || connections(self.plane.ledger().connections());
        tracing::info!(
            "process {} serves from now on; {} open here, up to {handover_grace:?}",
            heir.pid(),
            open()
        );
        let hurried = async {
            hurry().await;
            tracing::info!("stopping: {} open, up to {grace:?}", open());
            // Either way there is no time left after this.
            let _again = timeout(grace, hurry()).await;
        };
        let drained = async {
            let (cut, _over) = tokio::join!(drained, timeout(handover_grace, quiet));
            cut
        };
        let cut = tokio::select! {
            cut = drained => cut,
            () = hurried => self.plane.ledger().connections(),
        };
        match cut {
            0 => tracing::info!("stopped: all connections ended"),
            cut => tracing::warn!("time is over: {} cut", connections(cut)),
        }
        self.end();
    }

    /// Puts another configuration in force, object by object; no connection of an untouched load
    /// balancer is cut.
    ///
    /// # Errors
    /// What cannot be opened or read. The configuration before stays in force then.
    pub async fn apply(
        &mut self,
        process: Process,
        declared: Arc<Declared>,
        places: Option<Arc<Places>>,
    ) -> Result<(), StartError> {
        let prepared = self.prepare(&process, &declared).await;
        let prepared = prepared.inspect_err(|_| self.reload_rejected())?;
        let catalog = prepared.catalog;

        self.plane.configure(front_settings(&process));
        self.plane.certify(prepared.files.certificates);
        self.plane.trust(prepared.files.clients);
        let edition = |places: &Arc<Places>| places.edition().to_string();
        if places.as_ref().map(edition) != self.plane.places().as_ref().map(edition) {
            tell(places.as_deref());
        }
        self.plane.locate_with(places);
        let keys = prepared.files.keys;
        self.seals = self.seals.with(keys.clone().filter(|_| self.rooms.keeps()));
        self.plane.seal_with(keys);
        if let Some(access_log) = prepared.access_log {
            self.plane.log_to(access_log);
        }
        self.shared.admit(access(&process));
        self.shared.post_privately(process.post_privately);
        self.listeners
            .commit(&self.front, prepared.listeners, process.shutdown.grace);
        if let Some(api) = prepared.api {
            self.api = api;
        }
        self.shared.appear_as(origin(&process, self.api.as_ref()));
        if let Some(pid_file) = prepared.pid_file {
            self.pid_file = pid_file;
            if self.serving {
                self.serve();
            }
        }
        let grace = process.shutdown.grace;
        self.browsers
            .commit(prepared.browsers, &process, grace)
            .await;
        self.wanted.declare(declared);
        self.shared.want(self.wanted.desired());
        self.trusted = trust::profiles(&catalog);
        self.enforce(catalog).await?;
        self.process = process;
        self.listening = self.open_listeners();
        self.browsers.own(&self.listening);
        self.shared
            .reloads()
            .applied
            .fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Puts a catalog in force: rooms before traffic, and rooms that are no more after it.
    async fn enforce(&self, catalog: Arc<Catalog>) -> Result<(), StartError> {
        open_rooms(&self.plane, &self.rooms, &self.seals, &catalog).await?;
        let rooms = catalog.draft().rooms.iter().map(|room| room.id).collect();
        self.publish(catalog).await;
        self.rooms.keep_only(rooms).await;
        Ok(())
    }

    /// Hands a catalog to the engine, and waits until traffic is decided by it. The engine bounds how
    /// often that happens.
    async fn publish(&self, catalog: Arc<Catalog>) {
        let (in_force, published) = oneshot::channel();
        // The engine ends only with this node. Whoever hears that a configuration was applied may
        // rely on it for the next request.
        let _ended = self.catalogs.send(NewCatalog { catalog, in_force }).await;
        let _ended = published.await;
    }

    /// Tells when what the store keeps has changed: [`Node::refresh`] then.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.wanted.changes()
    }

    /// Puts in force what the store keeps now. Changes that come faster than the engine publishes
    /// are put in force together.
    ///
    /// # Errors
    /// What cannot be read, or contradicts the file. What was in force stays.
    pub async fn refresh(&mut self) -> Result<(), StartError> {
        self.follow().await?;
        // Whoever changed it is told now.
        self.in_force.send_replace(self.wanted.seen());
        Ok(())
    }

    async fn follow(&mut self) -> Result<(), StartError> {
        let changed = self.wanted.changed().await;
        let changed = changed.map_err(StartError::Contradiction)?;
        let Some(Changed { catalog, profiles }) = changed else {
            return Ok(());
        };
        if !profiles.is_subset(&self.trusted) {
            let clients = ClientConfigs::load(profiles.clone()).map_err(StartError::Files)?;
            self.plane.trust(clients);
            self.trusted = profiles;
        }
        if self.plane.keys().is_none() {
            let keys = pins::keys(&self.process.seal, &catalog, self.rooms.keeps());
            let keys = keys.map_err(|fault| StartError::Files(vec![fault]))?;
            self.seals = self.seals.with(keys.clone().filter(|_| self.rooms.keeps()));
            self.plane.seal_with(keys);
        }
        self.enforce(catalog).await
    }

    /// Takes the store back, after a process that was to take this one's place did not.
    ///
    /// # Errors
    /// It cannot be opened; what it kept goes on to be served.
    pub async fn reclaim_store(&mut self) -> Result<(), StartError> {
        self.wanted.reclaim().await?;
        self.shared.want(self.wanted.desired());
        Ok(())
    }

    /// Opens the access log anew if its file was moved away, as log rotation does.
    pub fn reopen_log(&self) {
        self.plane.access_log().reopen();
    }

    /// [`Node::reopen_log`] for when the node is on its way out.
    pub fn log_reopener(&self) -> impl Fn() + use<> {
        let plane = Arc::clone(&self.plane);
        move || plane.access_log().reopen()
    }

    /// Counts a configuration that did not even get here.
    pub fn reload_rejected(&self) {
        self.shared
            .reloads()
            .rejected
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Everything that may fail.
    async fn prepare(
        &mut self,
        process: &Process,
        declared: &Declared,
    ) -> Result<Prospect, StartError> {
        if process.store.as_ref() != self.wanted.place() {
            return Err(StartError::StoreMoved);
        }
        if process.journal != self.process.journal {
            return Err(StartError::JournalMoved);
        }
        let catalog = self.wanted.with(declared);
        let catalog = catalog.map_err(StartError::Contradiction)?;
        if !catalog.draft().rooms.is_empty() {
            self.rooms.claim().await?;
        }
        let files = Files::load(process, &catalog, self.rooms.keeps())?;
        let access_log = if process.access_log == self.process.access_log {
            None
        } else {
            Some(open_log(process)?)
        };
        let door = |api: &settings::Api| (api.listen, api.tls);
        let old = self.process.api.as_ref().map(door);
        let api = match &process.api {
            Some(api) if old == Some(door(api)) => None,
            Some(api) => {
                let open = self.api_open.subscribe();
                Some(Some(
                    ApiServer::start(api, None, &self.shared, &self.plane, open).await?,
                ))
            }
            None => Some(None),
        };
        let old = self.pid_file.as_ref().map(PidFile::path);
        let pid_file = if process.pid_file.as_deref() == old {
            None
        } else {
            Some(pid_file(process.pid_file.as_deref())?)
        };
        let browsers = self.browsers.prepare(process).await?;
        let listeners = self.listeners.prepare(&self.front, &process.listen)?;
        Ok(Prospect {
            catalog,
            files,
            access_log,
            listeners,
            api,
            pid_file,
            browsers,
        })
    }

    /// Stops accepting, lets requests and sockets finish up to `shutdown.grace` or until `now` is
    /// done, and ends.
    pub async fn stop(mut self, now: impl Future<Output = ()>) {
        self.shared.begin_stop();
        let grace = self.process.shutdown.grace;
        let open = || connections(self.plane.ledger().connections());
        tracing::info!("stopping: {} open, up to {grace:?}", open());
        let drained = async {
            let (cut, ()) = tokio::join!(self.front.drain(grace), self.browsers.drain(grace));
            cut
        };
        tokio::select! {
            cut = drained => match cut {
                0 => tracing::info!("stopped: all connections ended"),
                cut => tracing::warn!("grace over: {} cut", connections(cut)),
            },
            () = now => tracing::warn!("second signal: {} cut", open()),
        }
        self.browsers.close().await;
        self.rooms.close().await;
        self.wanted.release().await;
        self.end();
    }

    fn end(self) {
        self.front.stop();
    }

    fn open_listeners(&self) -> Vec<Listening> {
        let api = self.api.iter().map(|api| Listening {
            part: Part::Api,
            address: api.address,
        });
        let binding = self.browsers.listening();
        self.listeners
            .listening()
            .chain(api)
            .chain(binding)
            .collect()
    }
}

/// Has the rooms of `catalog` in their places, and the front ask them.
async fn open_rooms(
    plane: &Plane,
    keeper: &Keeper,
    seals: &Seals,
    catalog: &Catalog,
) -> Result<(), StartError> {
    if !catalog.draft().rooms.is_empty() {
        keeper.claim().await?;
    }
    let standing = keeper.place(rooms::wanted(catalog)).await;
    plane.open_rooms(rooms::of_front(catalog, &standing, seals));
    Ok(())
}

/// Every endpoint that was seen being turned off, and when.
fn drains(snapshot: &Snapshot) -> Vec<(Id, Wall)> {
    let endpoints = snapshot.pools().flat_map(|pool| pool.endpoints());
    let drains = endpoints.filter_map(|(_, view, health)| Some((view.id, health.drain?.began)));
    drains.collect()
}

/// A number of connections, in words.
fn connections(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} connection{plural}")
}

/// Says which database of places is looked into.
fn tell(places: Option<&Places>) {
    if let Some(places) = places {
        tracing::info!("geo database {}", places.edition());
    }
}

/// What a configuration changes, opened and not yet in force.
struct Prospect {
    catalog: Arc<Catalog>,
    files: Files,
    /// `None`: as before.
    access_log: Option<AccessLog>,
    listeners: Prepared,
    /// `None`: as before.
    api: Option<Option<ApiServer>>,
    /// `None`: as before.
    pid_file: Option<Option<PidFile>>,
    browsers: browsers::Prepared,
}

/// The files that a configuration names, read.
struct Files {
    certificates: Certificates,
    clients: ClientConfigs,
    keys: Option<Arc<Keys>>,
}

impl Files {
    fn load(
        process: &Process,
        catalog: &Arc<Catalog>,
        keeps_rooms: bool,
    ) -> Result<Files, StartError> {
        let pairs = process.certificates.iter();
        let pairs: Vec<KeyPair> = pairs
            .map(|files| KeyPair {
                cert: files.cert.clone(),
                key: files.key.clone(),
            })
            .collect();
        let certificates = Certificates::load(&pairs);
        let clients = ClientConfigs::load(trust::profiles(catalog));
        match (certificates, clients) {
            (Ok(certificates), Ok(clients)) => Ok(Files {
                certificates,
                clients,
                // Last: it may make a file, which only a node that serves is in need of.
                keys: pins::keys(&process.seal, catalog, keeps_rooms).map_err(StartError::Key)?,
            }),
            (certificates, clients) => {
                let faults = [certificates.err(), clients.err()];
                Err(StartError::Files(
                    faults.into_iter().flatten().flatten().collect(),
                ))
            }
        }
    }
}

/// What of the configuration the front reads for each request.
fn front_settings(process: &Process) -> http::Settings {
    let log = process.access_log.as_ref();
    http::Settings {
        query_strings: log.is_some_and(|log| log.query_strings),
        ..process.front.clone()
    }
}

fn open_log(process: &Process) -> Result<AccessLog, StartError> {
    let target = match process.access_log.as_ref().map(|log| &log.target) {
        None => LogTarget::Off,
        Some(settings::LogTarget::Stdout) => LogTarget::Stdout,
        Some(settings::LogTarget::File(path)) => LogTarget::File(path.clone()),
    };
    let path = match &target {
        LogTarget::File(path) => path.display().to_string(),
        LogTarget::Off | LogTarget::Stdout => "-".to_owned(),
    };
    AccessLog::open(target).map_err(|source| StartError::AccessLog { path, source })
}

fn pid_file(path: Option<&Path>) -> Result<Option<PidFile>, StartError> {
    let prepared = path.map(|path| {
        PidFile::prepare(path).map_err(|source| StartError::PidFile {
            path: path.to_owned(),
            source,
        })
    });
    prepared.transpose()
}

fn access(process: &Process) -> Access {
    Access::new(process.api.as_ref().map_or(&[], |api| &api.tokens))
}

/// Where the API is reached, as far as this process can know.
fn origin(process: &Process, server: Option<&ApiServer>) -> String {
    let Some((api, server)) = process.api.as_ref().zip(server) else {
        return String::new();
    };
    api.public_origin.clone().unwrap_or_else(|| {
        let mut address = server.address;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::from(Ipv4Addr::LOCALHOST));
        }
        let scheme = if api.tls { "https" } else { "http" };
        format!("{scheme}://{address}")
    })
}

/// The API's listener and the task that answers there. Dropping it closes the listener.
#[derive(Debug)]
struct ApiServer {
    address: SocketAddr,
    /// A duplicate, to be given to another process.
    socket: std::net::TcpListener,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ApiServer {
    /// Closes the listener. Connections go on.
    async fn close(self) {
        drop(self.stop);
        // One that panicked has closed it, too.
        let _ = self.task.await;
    }

    /// Listens with `inherited`, or with a new socket; accepts once `open` says so.
    async fn start(
        api: &settings::Api,
        inherited: Option<std::net::TcpListener>,
        shared: &Arc<Shared>,
        plane: &Plane,
        mut open: watch::Receiver<bool>,
    ) -> Result<ApiServer, StartError> {
        let failed = |source| StartError::Api {
            address: api.listen,
            source,
        };
        let listener = match inherited {
            Some(socket) => TcpListener::from_std(socket),
            None => TcpListener::bind(api.listen).await,
        };
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let socket = listener.as_fd().try_clone_to_owned().map_err(failed)?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let tls = api.tls.then(|| plane.api_configs()).transpose();
        let tls = tls.map_err(|error| failed(io::Error::other(error)))?;
        let tls = tls.map(|configs| configs.acceptor());
        let shared: Arc<Shared> = Arc::clone(shared);
        let task = tokio::spawn(async move {
            let opened = tokio::select! {
                _dropped = &mut stopped => return,
                opened = open.wait_for(|open| *open) => opened.is_ok(),
            };
            if opened {
                let stop = async move {
                    // Ends when the sender is dropped.
                    let _dropped = stopped.await;
                };
                server::serve(listener, tls, shared, stop).await;
            }
        });
        Ok(ApiServer {
            address,
            socket: socket.into(),
            stop,
            task,
        })
    }
}
