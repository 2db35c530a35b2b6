//! Exit signals: links, monitors, trapping, reasons and panics.

use std::time::Duration;

use settee_actors::runtime::probe::Probe;
use settee_actors::runtime::{Info, Pid, Reason, SpawnError, SpawnOptions, System, SystemOptions};

use crate::common::{
    Log, Order, SOON, Setup, Worker, inside, pass, settle, short, trapper, with_system, worker,
};

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_process_and_tells_where() {
    with_system(async |system| {
        let log = Log::default();
        let (a, b) = (worker(system, "a", &log), worker(system, "b", &log));
        a.cast(Order::Panic).unwrap();
        let Reason::Panic { message, location } = system.wait_exit(a.pid()).await else {
            panic!("wrong reason")
        };
        assert_eq!(&*message, "ordered panic");
        assert!(location.contains("common.rs"), "{location}");
        assert_eq!(settle(&b).await, 0, "the neighbour lives");
        assert_eq!(log.lines(), ["start a", "start b", "end a panic"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_link_takes_the_peer_along_and_keeps_the_first_cause() {
    with_system(async |system| {
        let log = Log::default();
        let chain: Vec<_> = ["a", "b", "c"].map(|id| worker(system, id, &log)).into();
        system.link(chain[0].pid(), chain[1].pid());
        system.link(chain[1].pid(), chain[2].pid());
        chain[0].cast(Order::Stop(Reason::error("broken"))).unwrap();
        let expected = Reason::Linked {
            from: chain[0].pid(),
            reason: std::sync::Arc::new(Reason::error("broken")),
        };
        assert_eq!(system.wait_exit(chain[2].pid()).await, expected);
        assert_eq!(
            log.lines()[3..],
            [
                "end a error: broken",
                "end b linked error: broken",
                "end c linked error: broken"
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_normal_end_leaves_linked_peers_alone() {
    with_system(async |system| {
        let log = Log::default();
        let (a, b) = (worker(system, "a", &log), worker(system, "b", &log));
        system.link(a.pid(), b.pid());
        a.cast(Order::Stop(Reason::Normal)).unwrap();
        system.wait_exit(a.pid()).await;
        assert_eq!(settle(&b).await, 0);
        assert!(system.process_info(b.pid()).unwrap().links.is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unlinked_peer_gets_no_signal_even_one_under_way() {
    with_system(async |system| {
        let log = Log::default();
        let (a, b) = (worker(system, "a", &log), worker(system, "b", &log));
        system.link(a.pid(), b.pid());
        let pid = a.pid();
        inside(&b, move |_, ctx| ctx.unlink(pid)).await;
        a.cast(Order::Panic).unwrap();
        system.wait_exit(pid).await;
        assert_eq!(settle(&b).await, 0);
        // The link to the dead puts a signal into the own lane at once; it waits there when the link goes.
        inside(&b, move |_, ctx| {
            ctx.link(pid);
            ctx.unlink(pid);
        })
        .await;
        assert_eq!(settle(&b).await, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn trap_exit_turns_signals_into_news() {
    with_system(async |system| {
        let log = Log::default();
        let peer = worker(system, "peer", &log);
        let (pid, peer_pid) = (peer.pid(), peer.pid());
        let mut probe = Probe::<()>::spawn(system, SpawnOptions::default(), move |ctx| {
            ctx.trap_exit(true);
            ctx.link(peer_pid);
        })
        .unwrap();
        peer.cast(Order::Stop(Reason::error("broken"))).unwrap();
        let info = probe.next_info(SOON).await.unwrap();
        assert_eq!(
            info,
            Info::Exit {
                from: pid,
                reason: Reason::error("broken")
            }
        );
        system.exit(probe.pid(), Reason::Shutdown);
        let info = probe.next_info(SOON).await.unwrap();
        assert_eq!(
            info,
            Info::Exit {
                from: Pid::OUTSIDE,
                reason: Reason::Shutdown
            }
        );
        system.exit(probe.pid(), Reason::Killed);
        assert_eq!(
            system.wait_exit(probe.pid()).await,
            Reason::Killed,
            "killing cannot be trapped"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_link_to_a_dead_process_is_an_exit_signal() {
    with_system(async |system| {
        let log = Log::default();
        let (dead, alive) = (worker(system, "dead", &log), trapper(system, "alive", &log));
        dead.cast(Order::Stop(Reason::Normal)).unwrap();
        system.wait_exit(dead.pid()).await;
        log.clear();
        let pid = dead.pid();
        inside(&alive, move |_, ctx| ctx.link(pid)).await;
        settle(&alive).await;
        assert_eq!(log.lines(), ["exit noproc"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_monitor_tells_the_reason_once() {
    with_system(async |system| {
        let log = Log::default();
        let (target, watcher) = (worker(system, "target", &log), worker(system, "watcher", &log));
        let pid = target.pid();
        inside(&watcher, move |_, ctx| (ctx.monitor(pid), ctx.monitor(pid))).await;
        log.clear();
        target
            .cast(Order::Stop(Reason::ShutdownWith("done".into())))
            .unwrap();
        system.wait_exit(pid).await;
        settle(&watcher).await;
        assert_eq!(
            log.lines(),
            [
                "end target shutdown: done",
                "down shutdown: done",
                "down shutdown: done"
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_monitor_of_a_dead_process_fires_at_once() {
    with_system(async |system| {
        let log = Log::default();
        let (target, watcher) = (worker(system, "target", &log), worker(system, "watcher", &log));
        target.cast(Order::Stop(Reason::Normal)).unwrap();
        system.wait_exit(target.pid()).await;
        log.clear();
        let pid = target.pid();
        inside(&watcher, move |_, ctx| ctx.monitor(pid)).await;
        settle(&watcher).await;
        assert_eq!(log.lines(), ["down noproc"]);
        assert_eq!(system.wait_exit(pid).await, Reason::NoProc);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_monitor_is_silent() {
    with_system(async |system| {
        let log = Log::default();
        let (target, watcher) = (worker(system, "target", &log), worker(system, "watcher", &log));
        let pid = target.pid();
        let gone = inside(&watcher, move |_, ctx| {
            let mref = ctx.monitor(pid);
            (ctx.demonitor(mref), ctx.demonitor(mref))
        });
        assert_eq!(gone.await, (true, false));
        target.cast(Order::Panic).unwrap();
        system.wait_exit(pid).await;
        // The monitor of the dead puts its news into the own lane at once; they wait there when the monitor goes.
        let gone = inside(&watcher, move |_, ctx| {
            let mref = ctx.monitor(pid);
            ctx.demonitor(mref)
        });
        assert!(gone.await);
        settle(&watcher).await;
        assert_eq!(log.lines(), ["start target", "start watcher", "end target panic"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_watcher_leaves_nothing_behind() {
    with_system(async |system| {
        let log = Log::default();
        let (target, watcher) = (worker(system, "target", &log), worker(system, "watcher", &log));
        let pid = target.pid();
        inside(&watcher, move |_, ctx| ctx.monitor(pid)).await;
        assert_eq!(system.process_info(pid).unwrap().monitors, 1);
        watcher.cast(Order::Panic).unwrap();
        system.wait_exit(watcher.pid()).await;
        assert_eq!(system.process_info(pid).unwrap().monitors, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn terminate_runs_for_every_reason_but_killed() {
    with_system(async |system| {
        let log = Log::default();
        let killed = worker(system, "killed", &log);
        let shut = worker(system, "shut", &log);
        log.clear();
        system.exit(killed.pid(), Reason::Killed);
        system.exit(shut.pid(), Reason::Shutdown);
        system.wait_exit(killed.pid()).await;
        system.wait_exit(shut.pid()).await;
        assert_eq!(log.lines(), ["end shut shutdown"]);
        let pid = worker(system, "a", &log).pid();
        system.exit(pid, Reason::Normal);
        pass(Duration::from_millis(1)).await;
        assert!(system.is_alive(pid), "a normal exit signal ends nobody");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_init_is_an_error_and_no_signal() {
    struct Broken;
    impl settee_actors::runtime::Process for Broken {
        type Args = bool;
        type Msg = ();
        const NAME: &'static str = "broken";
        fn init(panics: bool, _: &mut settee_actors::runtime::Ctx<Self>) -> Result<Self, Reason> {
            assert!(!panics, "init panics");
            Err(Reason::error("no disk"))
        }
        fn handle(
            &mut self,
            (): (),
            _: &mut settee_actors::runtime::Ctx<Self>,
        ) -> settee_actors::runtime::Next {
            settee_actors::runtime::Next::Continue
        }
    }
    with_system(async |system| {
        let log = Log::default();
        let starter = worker(system, "starter", &log);
        let results = inside(&starter, |_, ctx| {
            [false, true].map(|panics| {
                let options = SpawnOptions::default().named("broken");
                ctx.spawn_link::<Broken>(panics, options).err()
            })
        })
        .await;
        assert_eq!(results[0], Some(SpawnError::Init(Reason::error("no disk"))));
        assert!(matches!(
            &results[1],
            Some(SpawnError::Init(Reason::Panic { .. }))
        ));
        assert_eq!(settle(&starter).await, 0, "the starter lives");
        assert_eq!(system.whereis("broken"), None);
        assert_eq!(system.process_count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pid_never_reaches_a_later_process() {
    with_system(async |system| {
        let log = Log::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let process = worker(system, "a", &log);
            assert!(seen.insert(process.pid().generation()));
            process.cast(Order::Stop(Reason::Normal)).unwrap();
            system.wait_exit(process.pid()).await;
            assert!(system.resolve::<Order>(process.pid()).is_none());
        }
    })
    .await;
}

#[test]
fn links_and_monitors_cross_threads() {
    let system = System::threaded(2, SystemOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let spawn = |arbiter| {
        let options = SpawnOptions::default().on(settee_actors::runtime::Placement::Arbiter(arbiter));
        system.spawn::<Worker>(Setup::default(), options).unwrap()
    };
    runtime.block_on(async {
        for _ in 0..200 {
            let (a, b) = (spawn(0), spawn(1));
            system.link(a.pid(), b.pid());
            let ended = system.wait_exit(b.pid());
            a.cast(Order::Panic).unwrap();
            let reason = tokio::time::timeout(SOON, ended).await.unwrap();
            assert!(
                matches!(short(&reason).as_str(), "linked panic" | "noproc"),
                "{reason}"
            );
        }
        system.stop(SOON).await;
    });
}
