//! A listener inside a browser's network.
//!
//! Only a process that is in a network can make a socket of it, and a process with threads cannot
//! step into a user namespace. So a small command of ours is run in there by `nsenter`: it makes the
//! listener, sends it out over the socket that it has for an input, and ends.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::Interest;
use tokio::process::Command;

use crate::exit::PROXY_PORT;

/// How long the command may take.
const LISTEN_MAX: Duration = Duration::from_secs(5);

/// Makes the listener in the network that this process is in and sends it to whoever is at the other
/// end of standard input. What the `listen` command of [`crate::settings::Settings`] calls.
///
/// # Errors
/// The port is taken, or standard input is no socket.
pub fn listen() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let to = io::stdin();
    rustix::net::sendmsg(
        &to,
        &[IoSlice::new(b"l")],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// A listener in the network of the process `pid`, made by `command`.
pub(crate) async fn listener_of(
    pid: i32,
    command: &[OsString],
) -> io::Result<tokio::net::TcpListener> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut entering = Command::new("nsenter");
    entering.arg(format!("--target={pid}")).arg("--net");
    if !rustix::process::geteuid().is_root() {
        // The network belongs to the sandbox's user namespace, and that to us.
        entering.args(["--user", "--preserve-credentials"]);
    }
    let mut child = entering
        .arg("--")
        .args(command)
        .env_clear()
        .env("PATH", crate::launch::PATH)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    drop(entering);
    ours.set_nonblocking(true)?;
    let ours = tokio::net::UnixStream::from_std(ours)?;
    let received = tokio::time::timeout(LISTEN_MAX, received(&ours)).await;
    let listener = match received {
        Ok(Ok(listener)) => listener,
        Ok(Err(error)) => {
            let mut told = String::new();
            if let Some(stderr) = child.stderr.take() {
                use tokio::io::AsyncReadExt;
                let _ =
                    tokio::time::timeout(LISTEN_MAX, stderr.take(1024).read_to_string(&mut told))
                        .await;
            }
            return Err(io::Error::other(format!("{error}: {}", told.trim())));
        }
        Err(_) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
    };
    child.wait().await?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

async fn received(from: &tokio::net::UnixStream) -> io::Result<TcpListener> {
    from.async_io(Interest::READABLE, || {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(
            from,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            flags,
        )?;
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.flatten().next();
        fd.map(TcpListener::from)
            .ok_or_else(|| io::Error::other("the listen command sent no listener"))
    })
    .await
}
