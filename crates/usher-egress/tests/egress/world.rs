//! A proxy with its browser's socket, names that are what a test says, and servers on loopback.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use usher_egress::{Deadlines, Door, Egress, Exit, Policy};

/// Longer than anything takes, for whoever waits for what a fault keeps from coming.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A proxy, one way out of it, and the socket in front.
pub(crate) struct World {
    pub(crate) egress: Egress,
    pub(crate) exit: Exit,
    pub(crate) names: Names,
    pub(crate) serving: JoinHandle<io::Result<()>>,
    folder: tempfile::TempDir,
}

/// What names resolve to: each question takes the next answer, the last one again and again.
#[derive(Clone, Default)]
pub(crate) struct Names {
    answers: Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Names {
    pub(crate) fn set(&self, host: &str, answers: &[&[&str]]) {
        let ip = |text: &&str| text.parse().expect("an address");
        let answers = answers.iter().rev();
        let answers = answers.map(|answer| answer.iter().map(ip).collect());
        let mut all = self.answers.lock().expect("no panic");
        all.insert(host.to_owned(), answers.collect());
    }

    fn answer(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().expect("no panic").push(host.to_owned());
        let mut all = self.answers.lock().expect("no panic");
        let left = all.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
        Ok(match left.len() {
            1 => left[0].clone(),
            _ => left.pop().expect("an answer"),
        })
    }
}

impl World {
    /// With a policy that opens loopback.
    pub(crate) fn new() -> World {
        World::with(Deadlines::default(), Some(loopback()))
    }

    pub(crate) fn with(deadlines: Deadlines, policy: Option<Policy>) -> World {
        let names = Names::default();
        let known = names.clone();
        let egress = Egress::with(deadlines, move |host| {
            let (known, silent) = (known.clone(), host.starts_with("silent."));
            async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                known.answer(&host)
            }
        });
        World::of(egress, policy, names)
    }

    fn of(egress: Egress, policy: Option<Policy>, names: Names) -> World {
        let exit = egress.open();
        if let Some(policy) = policy {
            exit.admit(policy).expect("the first policy");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let served = exit.clone();
        let serving = tokio::spawn(async move { served.serve(Door::Socket(listener)).await });
        World {
            egress,
            exit,
            names,
            serving,
            folder,
        }
    }

    /// A connection of the browser.
    pub(crate) async fn browser(&self) -> UnixStream {
        let path = self.folder.path().join("s");
        UnixStream::connect(path).await.expect("the proxy")
    }

    /// Sends `request` on a connection of its own and reads until the proxy closes it.
    pub(crate) async fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.browser().await;
        // It may be refused and closed before all of it is sent.
        let _ = stream.write_all(request.as_ref()).await;
        rest(&mut stream).await
    }

    /// The words of all causes so far, oldest first.
    pub(crate) fn causes(&self) -> Vec<&'static str> {
        let refusals = self.exit.refusals(0).into_iter();
        refusals.map(|refusal| refusal.cause.as_str()).collect()
    }
}

pub(crate) fn loopback() -> Policy {
    Policy {
        allow_private: vec!["127.0.0.0/8".parse().expect("a network")],
        ..Policy::default()
    }
}

/// Everything until the other side closes.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut all = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut all)).await;
    // A reset behind the last byte is an end, too.
    let _ = read.expect("the other side closes");
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads until what came ends in `end`.
pub(crate) async fn until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut all = Vec::new();
    let read = async {
        while !all.ends_with(end.as_bytes()) {
            let byte = stream.read_u8().await;
            all.push(byte.unwrap_or_else(|error| {
                panic!("{error} after {:?}", String::from_utf8_lossy(&all))
            }));
        }
    };
    timeout(LONG, read).await.expect("it comes");
    String::from_utf8_lossy(&all).into_owned()
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A server on loopback that does `work` with each connection.
pub(crate) async fn server<F>(work: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let work: Work = Box::pin(work(stream));
            tokio::spawn(work);
        }
    });
    address
}

/// A server that answers each connection's first request with `answer` and closes.
pub(crate) async fn answers(answer: &'static str) -> SocketAddr {
    server(move |mut stream| async move {
        until(&mut stream, "\r\n\r\n").await;
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await
}

/// Listens and takes nothing: what connects waits, and can be seen.
pub(crate) fn trap(address: &str) -> io::Result<(std::net::TcpListener, u16)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Nobody connected. On one machine a connection is there when `connect` returns, so whoever has
/// an answer of the proxy knows that it will not come later.
pub(crate) fn untouched(trap: &std::net::TcpListener) {
    match trap.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        came => panic!("somebody came: {came:?}"),
    }
}
