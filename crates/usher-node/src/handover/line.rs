//! The socket pair between two processes: packets of text, some with descriptors.
//!
//! It blocks, with a bound on every wait; who must not block gives it a thread.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    recvmsg, sendmsg, shutdown, socketpair,
};

/// Text of one packet, in bytes. The kernel's own bound is that of the send buffer, some 200 KiB.
pub(super) const PACKET_MAX: usize = 32 * 1024;

/// Descriptors of one packet; the kernel takes 253.
pub(super) const DESCRIPTORS_MAX: usize = 250;

/// One end of the pair.
#[derive(Debug)]
pub(super) struct Line(OwnedFd);

/// What came.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) text: String,
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Line {
    /// Both ends; the second is for another process.
    pub(super) fn pair() -> io::Result<(Line, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Line(ours), theirs))
    }

    /// An end that came from another process.
    pub(super) fn of(descriptor: OwnedFd) -> Line {
        Line(descriptor)
    }

    /// Bounds every wait from now on.
    pub(super) fn bound(&self, wait: Duration) -> io::Result<()> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(wait))?;
        set_socket_timeout(&self.0, Timeout::Send, Some(wait))?;
        Ok(())
    }

    /// Sends a packet; at most [`PACKET_MAX`] bytes and [`DESCRIPTORS_MAX`] descriptors.
    pub(super) fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "the sender keeps to the bound");
        }
        let text = [IoSlice::new(text.as_bytes())];
        retry_on_intr(|| sendmsg(&self.0, &text, &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// The next packet. `None`: the other end is closed, and nothing that it sent is left.
    pub(super) fn receive(&self) -> io::Result<Option<Packet>> {
        let mut bytes = vec![0; PACKET_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.0, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        if received.flags.intersects(cut) {
            return Err(io::Error::other("a packet is cut: too few descriptors?"));
        }
        bytes.truncate(received.bytes);
        let text = String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a packet is not text"))?;
        Ok(Some(Packet { text, descriptors }))
    }

    /// Ends the conversation for both sides. What the other side has sent can still be received;
    /// what it has not sent, it cannot send any more.
    pub(super) fn hang_up(&self) {
        // Fails only when the other side has done the same.
        let _ = shutdown(self.0.as_fd(), Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn descriptors_travel_and_are_the_same_sockets() {
        let (ours, theirs) = Line::pair().expect("a pair");
        let theirs = Line::of(theirs);
        let sockets: Vec<TcpListener> = (0..DESCRIPTORS_MAX)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
            .collect();
        let borrowed: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        ours.send("sockets", &borrowed).expect("sent");
        let packet = theirs.receive().expect("received").expect("a packet");
        assert_eq!(packet.text, "sockets");
        let address = |socket: &TcpListener| socket.local_addr().expect("bound");
        let arrived: Vec<_> = packet
            .descriptors
            .into_iter()
            .map(|descriptor| address(&TcpListener::from(descriptor)))
            .collect();
        assert_eq!(arrived, sockets.iter().map(address).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_sent_before_the_end_arrives_and_nothing_after_it() {
        let (ours, theirs) = Line::pair().expect("a pair");
        let theirs = Line::of(theirs);
        theirs.send("ready", &[]).expect("sent");
        ours.hang_up();
        assert!(theirs.send("too late", &[]).is_err());
        let packet = ours.receive().expect("received").expect("a packet");
        assert_eq!(packet.text, "ready");
        assert!(ours.receive().expect("the end").is_none());
    }

    #[test]
    fn a_wait_has_a_bound() {
        let (ours, _theirs) = Line::pair().expect("a pair");
        ours.bound(Duration::from_millis(10)).expect("bounded");
        let error = ours.receive().expect_err("nothing comes");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
