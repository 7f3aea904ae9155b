//! How the node begins browsers, changes them and ends them.
//!
//! A change comes in two halves, as all changes of the configuration do: [`Keeper::prepare`] opens
//! what may fail to, [`Keeper::commit`] puts it in force.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use usher_api::wire::reader::declared;
use usher_broker::wire::Account;
use usher_core::id::Kind;
use usher_core::region::Region;

use super::served::{self, Pools, Served};
use super::{ARRIVAL_MAX, Browsers, Stage, figures, settle};
use crate::StartError;
use crate::handover::Bequest;
use crate::listeners::{Listening, Part};
use crate::settings::{self, Process};

/// How long a pool is waited for that a process has which just ended.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// How long it is waited for at one time that a process has which is to let go of it.
const FOLLOW_MAX: Duration = Duration::from_secs(10);

/// How long to wait before pools that cannot be opened are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long requests may take to end when another process is to have the pools.
const LET_GO_MAX: Duration = Duration::from_secs(1);

/// Threads of the browsers, at most.
const THREADS_MAX: usize = 4;

/// The node's hand on its browsers.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Browsers>,
    program: PathBuf,
    own: watch::Sender<Vec<SocketAddr>>,
    service: Option<Service>,
    /// Browsers that are no longer configured, and still have clients.
    ending: Option<Ending>,
}

/// A service on its way out.
#[derive(Debug)]
struct Ending {
    /// Dropped when there is no time left.
    patience: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Ending {
    async fn now(self) {
        drop(self.patience);
        // One that panicked has ended, too.
        let _ = self.task.await;
    }
}

/// Browsers that are configured.
#[derive(Debug)]
struct Service {
    background: Background,
    settings: settings::Browsers,
    door: Option<Door>,
    /// The wait for pools that another process has.
    coming: Option<JoinHandle<()>>,
}

/// Threads that end by themselves when nobody wants them any more.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Background {
    fn start() -> io::Result<Background> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(cores.min(THREADS_MAX))
            .thread_name("browsers")
            .enable_all()
            .build()?;
        Ok(Background(Some(runtime)))
    }

    fn runtime(&self) -> &Runtime {
        let Some(runtime) = &self.0 else {
            unreachable!("it is taken when this is dropped");
        };
        runtime
    }

    /// Runs `work` there.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.runtime().spawn(work).await.ok()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The binding's listener and the task that answers there.
#[derive(Debug)]
struct Door {
    wanted: SocketAddr,
    address: SocketAddr,
    /// A duplicate, to be given to another process.
    socket: std::net::TcpListener,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What a configuration changes of browsers, opened and not yet in force.
pub(crate) struct Prepared {
    /// `None`: as before.
    listener: Option<Opened>,
    /// For browsers where there were none.
    background: Option<Background>,
    /// Of regions that are new.
    pools: Pools,
}

/// A listener that nobody serves yet.
#[derive(Debug)]
struct Opened {
    wanted: SocketAddr,
    socket: std::net::TcpListener,
}

impl Opened {
    fn bind(wanted: SocketAddr) -> Result<Opened, StartError> {
        let failed = |source| StartError::Binding {
            address: wanted,
            source,
        };
        let socket = std::net::TcpListener::bind(wanted).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Opened { wanted, socket })
    }
}

impl Keeper {
    /// No browsers yet. `program` is the binary that is started as their host.
    pub(crate) fn new(program: &Path) -> Keeper {
        Keeper {
            shared: Arc::default(),
            program: program.to_owned(),
            own: watch::Sender::default(),
            service: None,
            ending: None,
        }
    }

    /// What others may ask.
    pub(crate) fn shared(&self) -> Arc<Browsers> {
        Arc::clone(&self.shared)
    }

    /// Begins what `process` says. `bequest` is the binding's listener of the process that this one
    /// follows, which has the pools until [`Keeper::take_over`]; the number of one that is used is
    /// given back.
    pub(crate) async fn start(
        &mut self,
        process: &Process,
        follows: bool,
        bequest: Option<Bequest>,
    ) -> Result<Option<usize>, StartError> {
        self.shared.settle(process);
        let Some(browsers) = &process.browsers else {
            return Ok(None);
        };
        make_folder(&browsers.folder)?;
        let inherited = bequest.filter(|old| Some(old.wanted) == browsers.listen);
        let number = inherited.as_ref().map(|old| old.number);
        let inherited = inherited.and_then(|old| {
            let socket = old.sockets.into_iter().next()?;
            Some(Opened {
                wanted: old.wanted,
                socket,
            })
        });
        let number = number.filter(|_| inherited.is_some());
        let opened = match (inherited, browsers.listen) {
            (None, Some(wanted)) => Some(Opened::bind(wanted)?),
            (inherited, _) => inherited,
        };
        let background = Background::start().map_err(StartError::Browsers)?;
        let pools = match follows {
            true => None,
            false => Some(open(&background, browsers, None).await?),
        };
        let mut service = Service {
            background,
            settings: browsers.clone(),
            door: None,
            coming: None,
        };
        if let Some(pools) = pools {
            self.serve(&service, pools).await;
        } else {
            self.shared.served.send_replace(Stage::Comes);
        }
        service.open_door(&self.shared, opened)?;
        self.service = Some(service);
        Ok(number)
    }

    async fn serve(&self, service: &Service, pools: Pools) {
        let begin = self.beginning(&service.settings);
        let served = service.background.run(async move { begin(pools) }).await;
        self.shared.arrive(served.flatten());
    }

    /// How browsers of `settings` are begun, once there are pools.
    fn beginning(
        &self,
        settings: &settings::Browsers,
    ) -> impl Fn(Pools) -> Option<Served> + Send + 'static {
        let (settings, shared) = (settings.clone(), Arc::clone(&self.shared));
        let (program, own) = (self.program.clone(), self.own.subscribe());
        move |pools| Served::begin(pools, &settings, shared.list(), &program, &own)
    }

    /// The process that had the pools is about to let go of them.
    pub(crate) fn take_over(&mut self) {
        let begin = self.service.as_ref().map(|it| self.beginning(&it.settings));
        let Some((service, begin)) = self.service.as_mut().zip(begin) else {
            return;
        };
        let (settings, shared) = (service.settings.clone(), Arc::clone(&self.shared));
        let coming = async move {
            let mut said = false;
            let pools = loop {
                let regions = settings.pools.keys().copied();
                match served::open(&settings.folder, regions, FOLLOW_MAX).await {
                    Ok(pools) => break pools,
                    Err(error) if !std::mem::replace(&mut said, true) => {
                        tracing::error!(%error, "no browsers are given away");
                    }
                    Err(_) => {}
                }
                sleep(AGAIN).await;
            };
            shared.arrive(begin(pools));
        };
        service.coming = Some(service.background.runtime().spawn(coming));
    }

    /// This installation listens there, and no page is to reach it.
    pub(crate) fn own(&self, listening: &[Listening]) {
        let addresses: Vec<SocketAddr> = listening.iter().map(|it| it.address).collect();
        settle(&self.own, addresses);
    }

    /// The binding's listener.
    pub(crate) fn listening(&self) -> Option<Listening> {
        let door = self.service.as_ref()?.door.as_ref()?;
        Some(Listening {
            part: Part::Binding,
            address: door.address,
        })
    }

    /// The binding's listener, for another process that calls it `number`.
    pub(crate) fn bequeath(&self, number: usize) -> io::Result<Option<Bequest>> {
        let door = self.service.as_ref().and_then(|it| it.door.as_ref());
        let bequest = door.map(|door| {
            Ok(Bequest {
                number,
                part: Part::Binding,
                wanted: door.wanted,
                sockets: vec![door.socket.try_clone()?],
            })
        });
        bequest.transpose()
    }

    /// Opens what `process` wants beyond what is there. On an error nothing has changed.
    pub(crate) async fn prepare(&mut self, process: &Process) -> Result<Prepared, StartError> {
        let mut prepared = Prepared {
            listener: None,
            background: None,
            pools: Vec::new(),
        };
        let Some(browsers) = &process.browsers else {
            return Ok(prepared);
        };
        let old = self.service.as_ref();
        if old.is_some_and(|old| old.settings.folder != browsers.folder) {
            return Err(StartError::BrowsersMoved);
        }
        let door = old.and_then(|old| old.door.as_ref());
        if let Some(wanted) = browsers.listen
            && door.is_none_or(|door| door.wanted != wanted)
        {
            prepared.listener = Some(Opened::bind(wanted)?);
        }
        match old {
            Some(old) => {
                // They may be about to be let go of by the process before.
                let _late = timeout(ARRIVAL_MAX, self.shared.arrived()).await;
                let served = self.shared.served();
                let lacks = served.map_or(Vec::new(), |served| served.lacks(browsers));
                prepared.pools = open(&old.background, browsers, Some(lacks)).await?;
            }
            None => {
                if let Some(ending) = self.ending.take() {
                    // It has the pools.
                    ending.now().await;
                }
                make_folder(&browsers.folder)?;
                let background = Background::start().map_err(StartError::Browsers)?;
                prepared.pools = open(&background, browsers, None).await?;
                prepared.background = Some(background);
            }
        }
        Ok(prepared)
    }

    /// Puts it in force. Whoever loses the listener or the browsers has `grace`.
    pub(crate) async fn commit(&mut self, prepared: Prepared, process: &Process, grace: Duration) {
        self.shared.settle(process);
        let Some(browsers) = &process.browsers else {
            if let Some(service) = self.service.take() {
                let served = self.shared.take();
                let (patience, hurried) = oneshot::channel();
                let task = tokio::spawn(service.end(served, grace, hurried));
                self.ending = Some(Ending { patience, task });
            }
            return;
        };
        let mut pools = prepared.pools;
        if let Some(background) = prepared.background {
            let service = Service {
                background,
                settings: browsers.clone(),
                door: None,
                coming: None,
            };
            self.serve(&service, std::mem::take(&mut pools)).await;
            self.service = Some(service);
        }
        let Some(service) = &mut self.service else {
            return;
        };
        service.settings = browsers.clone();
        match self.shared.served() {
            Some(served) => served.change(browsers, self.shared.list(), pools),
            None => served::close(pools).await,
        }
        let gone = |door: &Door| Some(door.wanted) != browsers.listen;
        if let Some(door) = service.door.take_if(|door| gone(door)) {
            service.background.runtime().spawn(door.close(grace));
        }
        if let Err(error) = service.open_door(&self.shared, prepared.listener) {
            tracing::error!("{error}");
        }
    }

    /// Accepts no request any more, and lets requests and clients finish up to `grace`.
    pub(crate) async fn drain(&mut self, grace: Duration) {
        let Some(service) = &mut self.service else {
            return;
        };
        let door = service.door.take();
        let quiet = self.quiet();
        let end = async {
            if let Some(door) = door {
                door.close(grace).await;
            }
            quiet.await;
        };
        // What is left is cut by whoever ends this.
        let _over = timeout(grace, end).await;
    }

    /// Waits until no client is connected to a browser through this process.
    pub(crate) fn quiet(&self) -> impl Future<Output = ()> + use<> {
        let served = self.shared.served();
        async move {
            if let Some(served) = served {
                served.front.carried().quiet().await;
            }
        }
    }

    /// Lets another process have the listener and the pools. Clients that are connected stay so.
    pub(crate) async fn let_go(&mut self) {
        let Some(service) = &mut self.service else {
            return;
        };
        if let Some(door) = service.door.take() {
            door.close(LET_GO_MAX).await;
        }
        if let Some(served) = self.shared.take() {
            service
                .background
                .run(async move { served.let_go().await })
                .await;
        }
    }

    /// Ends everything here. A host of ours ends if no session is on it, and else by itself when it
    /// has been alone for a while.
    pub(crate) async fn close(&mut self) {
        if let Some(ending) = self.ending.take() {
            ending.now().await;
        }
        if let Some(service) = self.service.take() {
            let served = self.shared.take();
            let (_patience, hurried) = oneshot::channel();
            service.end(served, Duration::ZERO, hurried).await;
        }
    }
}

impl Service {
    /// Accepts nothing any more, lets requests and clients finish up to `grace` or until it is
    /// `hurried`, and ends.
    async fn end(
        mut self,
        served: Option<Arc<Served>>,
        grace: Duration,
        hurried: oneshot::Receiver<()>,
    ) {
        if let Some(coming) = &self.coming {
            coming.abort();
        }
        let door = self.door.take();
        let finish = async {
            if let Some(door) = door {
                door.close(grace).await;
            }
            if let Some(served) = &served {
                served.front.carried().quiet().await;
            }
        };
        tokio::select! {
            _ = timeout(grace, finish) => {}
            _ = hurried => {}
        }
        if let Some(served) = served {
            let end = async move {
                served.let_go().await;
                served.retire().await;
            };
            self.background.run(end).await;
        }
    }

    fn open_door(
        &mut self,
        shared: &Arc<Browsers>,
        opened: Option<Opened>,
    ) -> Result<(), StartError> {
        let Some(Opened { wanted, socket }) = opened else {
            return Ok(());
        };
        let failed = |source| StartError::Binding {
            address: wanted,
            source,
        };
        let address = socket.local_addr().map_err(failed)?;
        let accepting = socket.try_clone().map_err(failed)?;
        let runtime = self.background.runtime();
        let listener = {
            let _there = runtime.enter();
            TcpListener::from_std(accepting).map_err(failed)?
        };
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::clone(shared);
        let task = runtime.spawn(async move {
            let stop = |mut stopped: watch::Receiver<bool>| async move {
                // The end of the sender is the same.
                let _dropped = stopped.wait_for(|stop| *stop).await;
            };
            let served = tokio::select! {
                () = stop(stopped.clone()) => return,
                served = shared.arrived() => served,
            };
            let binding = Arc::clone(&served.binding);
            drop(served);
            binding.serve(listener, stop(stopped)).await;
        });
        self.door = Some(Door {
            wanted,
            address,
            socket,
            stop,
            task,
        });
        Ok(())
    }
}

impl Door {
    /// Accepts nothing any more; what is under way has `grace`.
    async fn close(self, grace: Duration) {
        let Door {
            socket,
            stop,
            mut task,
            ..
        } = self;
        drop(socket);
        stop.send_replace(true);
        if timeout(grace, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Browsers {
    /// Takes in who may have browsers.
    fn settle(&self, process: &Process) {
        let accounts = process.accounts.iter().map(account).map(Arc::new);
        self.accounts.store(Arc::new(accounts.collect()));
    }

    /// There are none from now on.
    fn take(&self) -> Option<Arc<Served>> {
        match self.served.send_replace(Stage::Off) {
            Stage::Here(served) => Some(served),
            Stage::Off | Stage::Comes => None,
        }
    }

    fn list(&self) -> Vec<Account> {
        let accounts = self.accounts.load();
        accounts.iter().map(|it| Account::clone(it)).collect()
    }

    fn arrive(self: &Arc<Self>, served: Option<Served>) {
        if let Some(served) = &served {
            let ended = served.front.carried().farewells();
            let telling = figures::tell(Arc::clone(self), ended);
            served.runtime.spawn(telling);
        }
        let stage = served.map_or(Stage::Off, |served| Stage::Here(Arc::new(served)));
        self.served.send_replace(stage);
    }

    /// Waits until the pools are here.
    async fn arrived(&self) -> Arc<Served> {
        let mut served = self.served.subscribe();
        loop {
            if let Stage::Here(served) = &*served.borrow_and_update() {
                return Arc::clone(served);
            }
            if served.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn account(account: &settings::Account) -> Account {
    let networks = account.allow_private.iter().map(ToString::to_string);
    Account {
        id: declared(Kind::Account, &account.name),
        name: account.name.clone(),
        limits: account.limits,
        weight: account.weight,
        secret: account.secret.as_ref().map(|it| it.expose().to_owned()),
        allow_private: networks.collect(),
    }
}

/// Opens the pools of `regions`, or of all that `browsers` names.
async fn open(
    background: &Background,
    browsers: &settings::Browsers,
    regions: Option<Vec<Region>>,
) -> Result<Pools, StartError> {
    let regions = regions.unwrap_or_else(|| browsers.pools.keys().copied().collect());
    let folder = browsers.folder.clone();
    let opened = background.run(async move { served::open(&folder, regions, OPEN_MAX).await });
    let Some(opened) = opened.await else {
        let error = io::Error::other("opening the pools panicked");
        return Err(StartError::Browsers(error));
    };
    Ok(opened?)
}

/// Others may pass through it where hosts run browsers as somebody else, and not look into it.
fn make_folder(folder: &Path) -> Result<(), StartError> {
    let root = rustix::process::geteuid().is_root();
    let made = DirBuilder::new()
        .recursive(true)
        .mode(if root { 0o711 } else { 0o700 })
        .create(folder);
    made.map_err(|source| StartError::BrowsersFolder {
        path: folder.to_owned(),
        source,
    })
}
