//! One connection, as far as the agent can tell: what comes through it, how late, and how it ends.

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use nodegate_kube_sim::ResponseBody;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tower::BoxError;

/// How a connection ends, as the kernel or HTTP says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("connection reset by peer")]
    Reset,
    #[error("connection timed out")]
    TimedOut,
}

/// What is the matter with a connection.
#[allow(clippy::struct_excessive_bools, reason = "each may be the matter, whatever the others are")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// The server's process is stopped: the kernel acknowledges, nobody answers.
    pub(crate) frozen: bool,
    /// Packets vanish; the kernel gives the connection up some seconds later.
    pub(crate) dropped: bool,
    /// As [`Link::dropped`], for good.
    pub(crate) doomed: bool,
    /// Every event comes so much later.
    pub(crate) late: Duration,
    /// The server has said GOAWAY: open streams go on, new requests take another connection.
    pub(crate) leaving: bool,
    /// It is over.
    pub(crate) broken: Option<Broken>,
}

impl Link {
    pub(crate) fn is_silent(&self) -> bool {
        self.dropped || self.doomed
    }

    fn passes(&self) -> bool {
        !self.frozen && !self.is_silent()
    }
}

/// A connection to one API server.
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) server: usize,
    pub(crate) link: watch::Sender<Link>,
}

impl Connection {
    /// Whether new requests may go over it.
    pub(crate) fn is_usable(&self) -> bool {
        let link = self.link.borrow();
        link.broken.is_none() && !link.leaving
    }

    pub(crate) fn is_open(&self) -> bool {
        self.link.borrow().broken.is_none()
    }

    /// Waits until packets pass.
    pub(crate) async fn passable(&self) -> Result<(), Broken> {
        let mut link = self.link.subscribe();
        match link.wait_for(|link| link.broken.is_some() || link.passes()).await {
            Ok(link) => link.broken.map_or(Ok(()), Err),
            Err(_) => Err(Broken::Reset),
        }
    }

    /// Runs what the server does while its process runs and the connection lives.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, Broken> {
        let mut link = self.link.subscribe();
        let mut work = std::pin::pin!(work);
        loop {
            self.passable().await?;
            link.mark_unchanged();
            tokio::select! {
                biased;
                _ = link.changed() => {}
                done = &mut work => return Ok(done),
            }
        }
    }
}

/// A body that comes over a connection; its `events` may be late.
pub(crate) fn over(
    connection: Arc<Connection>,
    events: bool,
    body: ResponseBody,
) -> UnsyncBoxBody<Bytes, BoxError> {
    let coming = Coming { connection, events, body };
    let frames = stream::unfold(Some(coming), async |coming| {
        let mut coming = coming?;
        match coming.next().await {
            Ok(Some(frame)) => Some((Ok(frame), Some(coming))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

struct Coming {
    connection: Arc<Connection>,
    events: bool,
    body: ResponseBody,
}

impl Coming {
    async fn next(&mut self) -> Result<Option<Frame<Bytes>>, BoxError> {
        let frame = self.connection.during(self.body.frame()).await?;
        let late = self.connection.link.borrow().late;
        if self.events && !late.is_zero() {
            // What is on its way is lost with the connection.
            self.connection.during(sleep(late)).await?;
        }
        frame.transpose().map_err(Into::into)
    }
}
