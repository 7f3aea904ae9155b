//! One browser that runs: launched, seen to draw, and ended so that nothing is left.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use usher_core::lease::BrowserId;

use crate::backend::{self, Backend, Site, filter};
use crate::canary::{self, CanaryFault};
use crate::client::{Client, within};
use crate::exit::{Exit, PROXY_PORT, Way};
use crate::folder::{self, Folder, FolderFault};
use crate::group::Groups;
use crate::lacks::{self, Found, Lacks};
use crate::launch::{Launch, Launched, Log};
use crate::orphans;
use crate::settings::{Kind, Settings};
use crate::tree::Tree;

/// How long a browser has to answer for the first time.
const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long it may take to close by itself.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// How long a bare one has after it was asked as a process.
const ASKED_MAX: Duration = Duration::from_secs(2);
/// How long one that does not work may take to say why.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);

/// What starts browsers.
pub struct Launcher {
    settings: Settings,
    found: Found,
    folder: Folder,
    groups: Groups,
    backend: Box<dyn Backend>,
    user: Option<(u32, u32)>,
    exit: Box<dyn Exit>,
    leaked: usize,
}

impl std::fmt::Debug for Launcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launcher")
            .field("folder", &self.folder)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

/// Why no browsers can be started.
#[derive(Debug, thiserror::Error)]
pub enum LauncherFault {
    /// The machine lacks something.
    #[error(transparent)]
    Lacks(#[from] Lacks),
    /// The host's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderFault),
    /// The filter of system calls cannot be made.
    #[error(transparent)]
    Filter(#[from] filter::FilterFault),
    /// Something of an earlier host cannot be ended.
    #[error("{processes} processes of an earlier browser host do not end")]
    Orphans {
        /// How many there were.
        processes: usize,
    },
    /// The machine refuses.
    #[error("browser host")]
    Io(#[from] io::Error),
}

/// Why a browser did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    /// The machine refuses.
    #[error("start a browser: {said}")]
    Io {
        /// What the browser said, if it got that far.
        said: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It does not answer, or does not draw.
    #[error("a browser started but does not work: {said}")]
    Canary {
        /// What the browser said.
        said: String,
        /// Why.
        #[source]
        source: CanaryFault,
    },
    /// Its own sandbox for pages is off.
    #[error("a browser started without its own sandbox: {0}")]
    Unsafe(&'static str),
}

impl Launcher {
    /// Prepares the machine: takes the folder, ends what an earlier host left behind, and finds out
    /// what can be limited. The calling thread is what browsers depend on from here on.
    ///
    /// # Errors
    /// See [`LauncherFault`].
    pub async fn prepare(
        settings: Settings,
        exit: Box<dyn Exit>,
    ) -> Result<Launcher, LauncherFault> {
        let found = lacks::check(&settings).await?;
        // What loses its parent comes to us, so that it can be asked how it ended.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(io::Error::from)?;
        let folder = Folder::take(&settings.folder)?;
        let (processes, gone) = orphans::sweep(folder.path()).await;
        if !gone {
            return Err(LauncherFault::Orphans { processes });
        }
        let groups = Groups::make(folder.path());
        let in_groups = groups.sweep().await?;
        folder.sweep().await?;
        if processes > 0 || in_groups > 0 {
            tracing::warn!(
                processes,
                in_groups,
                "ended what an earlier browser host left behind"
            );
        }
        let filter_path = folder.file("filter");
        if settings.kind == Kind::Sandbox {
            std::fs::write(&filter_path, filter::program()?)?;
        }
        let root = rustix::process::geteuid().is_root();
        let user = root.then_some(settings.user);
        let backend = backend::of(settings.kind, &found, user, filter_path);
        let launcher = Launcher {
            settings,
            found,
            folder,
            groups,
            backend,
            user,
            exit,
            leaked: processes.max(usize::try_from(in_groups).unwrap_or(usize::MAX)),
        };
        for warning in launcher.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(launcher)
    }

    /// What an operator should know of how browsers run here.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.settings.kind == Kind::Process {
            warnings.push("browsers run without a sandbox (insecure_single_tenant)".to_owned());
        }
        let missing = self.groups.missing();
        if !missing.is_empty() {
            warnings.push(format!(
                "no control group limits {} of a browser: delegate cgroup v2 to this service",
                missing.join(", ")
            ));
        }
        warnings
    }

    /// The way out of its browsers' networks.
    #[must_use]
    pub fn exit(&self) -> &dyn Exit {
        self.exit.as_ref()
    }

    /// Processes that an earlier host had left, which were ended.
    #[must_use]
    pub fn leaked(&self) -> usize {
        self.leaked
    }

    /// Everything that was said of the machine.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What was found on it.
    #[must_use]
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The host's folder.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// How many browsers have a control group now.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.count()
    }

    /// Starts a browser and has it draw.
    ///
    /// # Errors
    /// See [`StartFault`]. Nothing is left of it then.
    pub async fn start(&self, id: BrowserId) -> Result<Browser, StartFault> {
        let folder = self.folder.of(id);
        let mut browser = match self.launch(id, &folder).await {
            Ok(browser) => browser,
            Err(source) => {
                let _ = folder::remove(&folder).await;
                return Err(StartFault::Io {
                    said: String::new(),
                    source,
                });
            }
        };
        match self.try_out(&mut browser).await {
            Ok(()) => Ok(browser),
            Err(fault) => {
                if let Err(error) = browser.body.end().await {
                    tracing::error!(browser = ?id, %error, "a browser that did not start is not gone");
                }
                Err(fault)
            }
        }
    }

    async fn launch(&self, id: BrowserId, folder: &Path) -> io::Result<Browser> {
        if self.backend.needs_folder() {
            self.make_folder(folder)?;
        }
        let outside = if self.backend.has_own_network() {
            None
        } else {
            Some(TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?)
        };
        let proxy_port = match &outside {
            Some(listener) => listener.local_addr()?.port(),
            None => PROXY_PORT,
        };
        let group = self.groups.open(id, &self.settings.caps)?;
        let launch = Launch {
            command: self.backend.command(&Site {
                folder,
                proxy_port,
                caps: &self.settings.caps,
                tasks_limited: self.groups.limit_tasks(),
            }),
            folder: self.folder.path(),
            filter: self.backend.filter(),
            files: self.settings.caps.files,
        };
        let Launched { tree, socket, log } = launch.start(group)?;
        let body = Body {
            id,
            tree,
            log,
            way: outside.map(|listener| self.exit.open(id, listener)),
            folder: self.backend.needs_folder().then(|| folder.to_owned()),
            memory_max: self.settings.caps.memory_bytes,
        };
        Ok(Browser {
            body,
            client: Client::new(socket),
        })
    }

    /// Only the browser itself may look into its folder.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let root = rustix::process::geteuid().is_root();
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(if root { 0o711 } else { 0o700 });
        if let Some(parent) = folder.parent() {
            builder.recursive(true).create(parent)?;
        }
        builder.recursive(false).mode(0o700).create(folder)?;
        if let Some((user, group)) = self.user {
            std::os::unix::fs::chown(folder, Some(user), Some(group))?;
        }
        Ok(())
    }

    async fn try_out(&self, browser: &mut Browser) -> Result<(), StartFault> {
        let deadline = within(ANSWER_MAX);
        let first = browser
            .client
            .ask("", "Browser.getVersion", json!({}), deadline)
            .await;
        if let Err(fault) = first {
            return Err(browser.does_not_work(fault.into()).await);
        }
        if self.backend.has_own_network() {
            let body = &mut browser.body;
            let listener = match body.tree.find_init() {
                Ok(init) => crate::namespace::listener_of(init, &self.settings.listen).await,
                Err(error) => Err(error),
            };
            match listener {
                Ok(listener) => body.way = Some(self.exit.open(body.id, listener)),
                Err(source) => {
                    let said = format!("no listener in its network: {}", body.log.tail());
                    return Err(StartFault::Io { said, source });
                }
            }
        }
        let mut colour = [0; 3];
        // The fixed colour is as good a test, but for a picture that was kept from before.
        let _ = getrandom::fill(&mut colour);
        if let Err(fault) = canary::sing(&mut browser.client, colour).await {
            return Err(browser.does_not_work(fault).await);
        }
        if self.backend.kind() == Kind::Sandbox {
            own_sandbox(browser.body.root()).map_err(StartFault::Unsafe)?;
        }
        Ok(())
    }
}

/// Looks whether the browser below `root` keeps its pages in namespaces and behind a filter of its
/// own, besides what is around the browser.
fn own_sandbox(root: i32) -> Result<(), &'static str> {
    let members = orphans::tree(root);
    let depth_and_filters = |pid: i32| {
        let told = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = |name: &str| {
            let mut lines = told.lines().filter_map(|line| line.strip_prefix(name));
            lines.next().map(str::trim).unwrap_or_default().to_owned()
        };
        let depth = line("NSpid:").split_whitespace().count();
        (depth, line("Seccomp_filters:").parse::<u32>().unwrap_or(0))
    };
    let seen: Vec<(usize, u32)> = members
        .iter()
        .map(|one| depth_and_filters(one.pid))
        .collect();
    let outside = seen.first().map_or(1, |first| first.0);
    // Outside is one level, the browser one below it, a page one further down.
    let pages = seen.iter().filter(|(depth, _)| *depth >= outside + 2);
    let browsers = seen.iter().filter(|(depth, _)| *depth == outside + 1);
    let around = browsers.map(|(_, filters)| *filters).min().unwrap_or(0);
    let mut pages = pages.peekable();
    if pages.peek().is_none() {
        return Err("no process of it is in namespaces of its own");
    }
    if pages.all(|(_, filters)| *filters <= around) {
        return Err("no process of it has a filter of its own");
    }
    Ok(())
}

/// A browser that draws, and that is ours to talk to.
#[derive(Debug)]
pub struct Browser {
    /// All of it but the talk.
    pub body: Body,
    /// The talk.
    pub client: Client,
}

/// All of a browser but the pipe to it.
pub struct Body {
    id: BrowserId,
    tree: Tree,
    log: Log,
    way: Option<Box<dyn Way>>,
    folder: Option<PathBuf>,
    memory_max: u64,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body")
            .field("id", &self.id)
            .field("tree", &self.tree)
            .finish_non_exhaustive()
    }
}

impl Browser {
    /// Has it close, and sees to it that nothing is left: no process, no group, no file.
    ///
    /// # Errors
    /// What does not go away.
    pub async fn close(self) -> io::Result<()> {
        let Browser { mut body, client } = self;
        drop(client);
        body.close().await
    }

    async fn does_not_work(&mut self, source: CanaryFault) -> StartFault {
        // It may be about to say why.
        let _ = tokio::time::timeout(LAST_WORDS_MAX, self.body.ended()).await;
        StartFault::Canary {
            said: self.body.said(),
            source,
        }
    }
}

impl Body {
    /// Which one it is.
    #[must_use]
    pub const fn id(&self) -> BrowserId {
        self.id
    }

    /// Its way out.
    pub fn way(&mut self) -> Option<&mut (dyn Way + 'static)> {
        self.way.as_deref_mut()
    }

    /// The process that started it; all of its own are below.
    #[must_use]
    pub fn root(&self) -> i32 {
        self.tree.root()
    }

    /// Memory that it uses, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.tree.memory()
    }

    /// Processor time that it has used.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.tree.cpu()
    }

    /// Whether it has run out of the memory that it may use, by this measure of it.
    #[must_use]
    pub fn is_out_of_memory(&self, memory: u64) -> bool {
        self.tree.oom_kills() > 0 || memory > self.memory_max
    }

    /// What it last said of itself.
    #[must_use]
    pub fn said(&self) -> String {
        self.log.tail()
    }

    /// Waits until its process has ended by itself, or somebody killed it; whether it ended cleanly,
    /// as one does that was told to close. May be dropped and called again.
    pub async fn ended(&mut self) -> bool {
        self.tree.ended().await
    }

    /// Sees to it that nothing is left, once the pipe was dropped: a browser whose pipe is closed
    /// closes by itself, and is killed if it takes its time. May be called again after a failure.
    ///
    /// # Errors
    /// What does not go away.
    pub async fn close(&mut self) -> io::Result<()> {
        let by_itself = tokio::time::timeout(CLOSE_MAX, self.tree.ended()).await;
        if by_itself.is_err() && self.folder.is_some() {
            self.tree.ask();
            let _ = tokio::time::timeout(ASKED_MAX, self.tree.ended()).await;
        }
        self.end().await
    }

    /// Kills it, and sees to it that nothing is left. May be called again after a failure.
    ///
    /// # Errors
    /// What does not go away.
    pub async fn end(&mut self) -> io::Result<()> {
        drop(self.way.take());
        self.tree.gone().await?;
        match &self.folder {
            Some(folder) => folder::remove(folder).await,
            None => Ok(()),
        }
    }
}
