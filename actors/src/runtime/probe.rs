//! A test peer: a process that hands everything it receives to the test.

use std::time::Duration;

use tokio::sync::mpsc;

use super::exit::Reason;
use super::mailbox::Ref;
use super::options::{SpawnError, SpawnOptions};
use super::pid::Pid;
use super::process::{Ctx, Info, Next, Process};
use super::system::System;

/// Events a probe keeps for its test; more make it end with an error, so that a forgotten probe cannot eat memory.
const PROBE_QUEUE: usize = 65_536;

/// Something that reached a probe.
#[derive(Debug)]
pub enum ProbeEvent<M> {
    /// A message.
    Msg(M),
    /// News of the control lane.
    Info(Info),
    /// The probe's own end.
    Terminated(Reason),
}

type Setup<M> = Box<dyn FnOnce(&mut Ctx<ProbeProcess<M>>) + Send>;

/// The process behind a [`Probe`].
pub struct ProbeProcess<M: Send + 'static> {
    events: mpsc::Sender<ProbeEvent<M>>,
}

impl<M: Send + 'static> ProbeProcess<M> {
    fn hand_over(&self, event: ProbeEvent<M>) -> Next {
        match self.events.try_send(event) {
            Ok(()) => Next::Continue,
            Err(_) => Next::Stop(Reason::error("nobody reads the probe's events")),
        }
    }
}

impl<M: Send + 'static> Process for ProbeProcess<M> {
    type Args = (mpsc::Sender<ProbeEvent<M>>, Setup<M>);
    type Msg = M;
    const NAME: &'static str = "probe";

    fn init((events, setup): Self::Args, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        setup(ctx);
        Ok(ProbeProcess { events })
    }

    fn handle(&mut self, msg: M, _ctx: &mut Ctx<Self>) -> Next {
        self.hand_over(ProbeEvent::Msg(msg))
    }

    fn handle_info(&mut self, info: Info, _ctx: &mut Ctx<Self>) -> Next {
        self.hand_over(ProbeEvent::Info(info))
    }

    fn terminate(&mut self, reason: &Reason, _ctx: &mut Ctx<Self>) {
        // The test may have let go of the probe already.
        let _ = self.hand_over(ProbeEvent::Terminated(reason.clone()));
    }
}

/// The test's end of a probe.
pub struct Probe<M: Send + 'static> {
    me: Ref<M>,
    events: mpsc::Receiver<ProbeEvent<M>>,
}

impl<M: Send + 'static> Probe<M> {
    /// Starts a probe; `setup` runs inside it and can link, monitor, trap exits and start timers.
    ///
    /// # Errors
    /// As [`System::spawn`].
    pub fn spawn(
        system: &System,
        options: SpawnOptions,
        setup: impl FnOnce(&mut Ctx<ProbeProcess<M>>) + Send + 'static,
    ) -> Result<Probe<M>, SpawnError> {
        let (tx, events) = mpsc::channel(PROBE_QUEUE);
        let me = system.spawn::<ProbeProcess<M>>((tx, Box::new(setup)), options)?;
        Ok(Probe { me, events })
    }

    /// The probe as its peers see it.
    pub fn me(&self) -> Ref<M> {
        self.me.clone()
    }

    /// The probe's pid.
    pub fn pid(&self) -> Pid {
        self.me.pid()
    }

    /// The next event, or `None` if none comes within `deadline` (or the probe is gone and all was read).
    pub async fn next(&mut self, deadline: Duration) -> Option<ProbeEvent<M>> {
        tokio::time::timeout(deadline, self.events.recv())
            .await
            .ok()
            .flatten()
    }

    /// The next message; other events before it are skipped.
    pub async fn next_msg(&mut self, deadline: Duration) -> Option<M> {
        loop {
            match self.next(deadline).await? {
                ProbeEvent::Msg(msg) => return Some(msg),
                ProbeEvent::Info(_) | ProbeEvent::Terminated(_) => {}
            }
        }
    }

    /// The next news of the control lane; other events before it are skipped.
    pub async fn next_info(&mut self, deadline: Duration) -> Option<Info> {
        loop {
            match self.next(deadline).await? {
                ProbeEvent::Info(info) => return Some(info),
                ProbeEvent::Msg(_) | ProbeEvent::Terminated(_) => {}
            }
        }
    }
}
