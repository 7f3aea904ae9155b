//! Bytes both ways, unread, until both sides are done.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::cause::Cause;
use crate::client::Client;
use crate::dial::Upstream;
use crate::exit::Inner;
use crate::inbox::Inbox;
use crate::meter::{Pulse, Way};

/// Runs until both sides ended, one of them broke, or a limit cut it.
///
/// # Errors
/// The limit.
pub(crate) async fn run<R, W>(
    client: &mut Client<R, W>,
    mut upstream: Upstream,
    exit: &Inner,
) -> Result<(), Cause>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let pulse = Pulse::new();
    let out = copy(
        &mut client.inbox,
        &mut client.reader,
        &mut upstream.writer,
        Way::Out,
        exit,
        &pulse,
    );
    let back = copy(
        &mut upstream.inbox,
        &mut upstream.reader,
        &mut client.writer,
        Way::In,
        exit,
        &pulse,
    );
    let both = async { tokio::try_join!(out, back) };
    let deadlines = &exit.shared.deadlines;
    tokio::select! {
        ended = both => match ended {
            Ok(_) | Err(None) => Ok(()),
            Err(Some(cause)) => Err(cause),
        },
        () = pulse.stops(deadlines.idle, deadlines.lifetime) => Err(Cause::Silent),
    }
}

/// One direction. `Err(None)`: a side broke, which is how tunnels end as often as not.
async fn copy<R, W>(
    inbox: &mut Inbox,
    reader: &mut R,
    writer: &mut W,
    way: Way,
    exit: &Inner,
    pulse: &Pulse,
) -> Result<(), Option<Cause>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let bytes = inbox.filled();
        if !bytes.is_empty() {
            exit.take(way, bytes.len()).map_err(Some)?;
            writer.write_all(bytes).await.map_err(|_| None)?;
            let count = bytes.len();
            inbox.consume(count);
            pulse.beat();
        }
        if inbox.fill(reader).await.map_err(|_| None)? == 0 {
            // The other direction goes on: a half that is closed is an end of file and no more.
            return writer.shutdown().await.map_err(|_| None);
        }
    }
}
