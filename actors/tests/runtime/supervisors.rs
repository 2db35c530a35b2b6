//! Supervisors: fresh values, strategies, intensity, order of start and stop, dynamic children.

use std::time::Duration;

use settee_actors::runtime::{
    ChildSpec, Ctx, Next, Placement, Process, Reason, Ref, Restart, Shutdown, SpawnOptions, Strategy,
    Supervisor, SupervisorError, SupervisorMsg, SupervisorSpec, System, SystemOptions,
};

use crate::common::{Log, Order, SOON, Setup, Worker, pass, settle, short, with_system};

fn child(id: &'static str, log: &Log) -> ChildSpec {
    let setup = Setup {
        id,
        log: log.clone(),
        trap: false,
    };
    ChildSpec::worker::<Worker>(id, setup, SpawnOptions::default().named(id))
}

fn start(system: &System, spec: SupervisorSpec) -> Ref<SupervisorMsg> {
    system.spawn::<Supervisor>(spec, SpawnOptions::default()).unwrap()
}

fn named(system: &System, id: &str) -> Ref<Order> {
    system
        .find(id)
        .unwrap_or_else(|| panic!("no process is called {id}"))
}

fn three(strategy: Strategy, log: &Log) -> SupervisorSpec {
    ["a", "b", "c"]
        .iter()
        .fold(SupervisorSpec::new(strategy), |spec, id| {
            spec.child(child(id, log))
        })
}

/// Waits until `id` is a later incarnation than `old`.
async fn reborn(system: &System, id: &str, old: &Ref<Order>) -> Ref<Order> {
    for _ in 0..1000 {
        match system.find::<Order>(id) {
            Some(new) if new != *old => return new,
            _ => tokio::task::yield_now().await,
        }
    }
    panic!("{id} did not come back");
}

#[tokio::test(start_paused = true)]
async fn a_panicked_child_restarts_from_a_fresh_value_under_its_name() {
    with_system(async |system| {
        let log = Log::default();
        start(
            system,
            SupervisorSpec::new(Strategy::OneForOne).child(child("a", &log)),
        );
        let first = named(system, "a");
        first.cast(Order::Add).unwrap();
        assert_eq!(settle(&first).await, 1);
        first.cast(Order::Panic).unwrap();
        let second = reborn(system, "a", &first).await;
        assert_eq!(settle(&second).await, 0, "the value is fresh");
        assert_ne!(first.pid(), second.pid());
        assert!(
            !first.is_alive(),
            "an old reference does not reach the new incarnation"
        );
        assert_eq!(system.process_info(second.pid()).unwrap().restarts, 1);
        assert_eq!(log.lines(), ["start a", "end a panic", "start a"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_for_one_restarts_only_the_dead() {
    with_system(async |system| {
        let log = Log::default();
        start(system, three(Strategy::OneForOne, &log));
        assert_eq!(log.lines(), ["start a", "start b", "start c"]);
        let (a, b) = (named(system, "a"), named(system, "b"));
        log.clear();
        b.cast(Order::Panic).unwrap();
        reborn(system, "b", &b).await;
        assert_eq!(log.lines(), ["end b panic", "start b"]);
        assert!(a.is_alive());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_for_all_stops_in_reverse_and_starts_in_order() {
    with_system(async |system| {
        let log = Log::default();
        start(system, three(Strategy::OneForAll, &log));
        let c = named(system, "c");
        let b = named(system, "b");
        log.clear();
        b.cast(Order::Panic).unwrap();
        reborn(system, "c", &c).await;
        let expected = [
            "end b panic",
            "end c shutdown",
            "end a shutdown",
            "start a",
            "start b",
            "start c",
        ];
        assert_eq!(log.lines(), expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn rest_for_one_restarts_those_started_after() {
    with_system(async |system| {
        let log = Log::default();
        start(system, three(Strategy::RestForOne, &log));
        let (a, b, c) = (named(system, "a"), named(system, "b"), named(system, "c"));
        log.clear();
        b.cast(Order::Panic).unwrap();
        reborn(system, "c", &c).await;
        assert_eq!(
            log.lines(),
            ["end b panic", "end c shutdown", "start b", "start c"]
        );
        assert!(a.is_alive());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn children_stop_in_reverse_order() {
    with_system(async |system| {
        let log = Log::default();
        let inner = three(Strategy::OneForOne, &log);
        let outer = SupervisorSpec::new(Strategy::OneForOne)
            .child(child("first", &log))
            .child(ChildSpec::supervisor("inner", inner, SpawnOptions::default()))
            .child(child("last", &log));
        let outer = start(system, outer);
        log.clear();
        system.exit(outer.pid(), Reason::Shutdown);
        assert_eq!(system.wait_exit(outer.pid()).await, Reason::Shutdown);
        let ended = ["last", "c", "b", "a", "first"].map(|id| format!("end {id} shutdown"));
        assert_eq!(log.lines(), ended);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn too_many_restarts_escalate() {
    with_system(async |system| {
        let log = Log::default();
        let inner = SupervisorSpec::new(Strategy::OneForOne).intensity(2, Duration::from_secs(5));
        let inner = inner.child(child("a", &log)).child(child("b", &log));
        let outer = SupervisorSpec::new(Strategy::OneForOne).child(ChildSpec::supervisor(
            "inner",
            inner,
            SpawnOptions::default().named("inner"),
        ));
        start(system, outer);
        let first = system.whereis("inner").unwrap();
        // Two within the period are borne; a third after it as well.
        for _ in 0..2 {
            let a = named(system, "a");
            a.cast(Order::Panic).unwrap();
            reborn(system, "a", &a).await;
        }
        pass(Duration::from_secs(6)).await;
        for _ in 0..2 {
            let a = named(system, "a");
            a.cast(Order::Panic).unwrap();
            reborn(system, "a", &a).await;
        }
        assert_eq!(system.whereis("inner"), Some(first));
        let (a, b) = (named(system, "a"), named(system, "b"));
        log.clear();
        a.cast(Order::Panic).unwrap();
        let reason = system.wait_exit(first).await;
        assert!(
            reason.to_string().contains("restart intensity exceeded"),
            "{reason}"
        );
        reborn(system, "b", &b).await;
        assert_eq!(
            log.lines(),
            ["end a panic", "end b shutdown", "start a", "start b"]
        );
        assert_ne!(
            system.whereis("inner"),
            Some(first),
            "the outer supervisor built it anew"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restart_rules_look_at_the_reason() {
    with_system(async |system| {
        let log = Log::default();
        let spec = SupervisorSpec::new(Strategy::OneForOne)
            .intensity(10, Duration::from_secs(5))
            .child(child("permanent", &log))
            .child(child("transient", &log).restart(Restart::Transient))
            .child(child("temporary", &log).restart(Restart::Temporary));
        let supervisor = start(system, spec);
        for id in ["permanent", "transient", "temporary"] {
            named(system, id).cast(Order::Stop(Reason::Normal)).unwrap();
        }
        let transient = named(system, "transient").pid();
        system.wait_exit(transient).await;
        let children = supervisor.call(SOON, SupervisorMsg::WhichChildren).await.unwrap();
        let shown: Vec<_> = children
            .iter()
            .map(|child| (&*child.id, child.pid.is_some()))
            .collect();
        assert_eq!(shown, [("permanent", true), ("transient", false)]);
        let pid = supervisor
            .call(SOON, |reply_to| {
                SupervisorMsg::RestartChild("transient".into(), reply_to)
            })
            .await
            .unwrap();
        assert!(pid.is_ok());
        let transient = named(system, "transient");
        transient.cast(Order::Panic).unwrap();
        reborn(system, "transient", &transient).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_running_supervisor_takes_orders() {
    with_system(async |system| {
        let log = Log::default();
        let supervisor = start(system, three(Strategy::OneForOne, &log));
        let add = |id| {
            let spec = child(id, &log);
            supervisor.call(SOON, |reply_to| SupervisorMsg::StartChild(spec, reply_to))
        };
        assert_eq!(add("a").await.unwrap(), Err(SupervisorError::Exists));
        let d = add("d").await.unwrap().unwrap();
        assert_eq!(system.whereis("d"), Some(d));
        let stop = |id: &'static str| {
            supervisor.call(SOON, move |reply_to| {
                SupervisorMsg::TerminateChild(id.into(), reply_to)
            })
        };
        assert_eq!(stop("d").await.unwrap(), Ok(()));
        assert!(!system.is_alive(d));
        assert_eq!(stop("nobody").await.unwrap(), Err(SupervisorError::NotFound));
        let forget = |id: &'static str| {
            supervisor.call(SOON, move |reply_to| {
                SupervisorMsg::DeleteChild(id.into(), reply_to)
            })
        };
        assert_eq!(forget("a").await.unwrap(), Err(SupervisorError::Running));
        assert_eq!(forget("d").await.unwrap(), Ok(()));
        let children = supervisor.call(SOON, SupervisorMsg::WhichChildren).await.unwrap();
        let ids: Vec<_> = children.iter().map(|child| &*child.id).collect();
        assert_eq!(ids, ["a", "b", "c"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dynamic_children_come_and_go() {
    with_system(async |system| {
        let log = Log::default();
        let spec = SupervisorSpec::new(Strategy::Dynamic).intensity(10, Duration::from_secs(5));
        let supervisor = start(system, spec);
        let mut pids = Vec::new();
        for _ in 0..100 {
            let setup = Setup {
                id: "d",
                log: log.clone(),
                trap: false,
            };
            let spec =
                ChildSpec::worker::<Worker>("d", setup, SpawnOptions::default()).restart(Restart::Transient);
            let started = supervisor
                .call(SOON, |reply_to| SupervisorMsg::StartChild(spec, reply_to))
                .await;
            pids.push(started.unwrap().unwrap());
        }
        let gone = pids[7];
        let stopped = supervisor
            .call(SOON, |reply_to| SupervisorMsg::TerminatePid(gone, reply_to))
            .await;
        assert_eq!(stopped.unwrap(), Ok(()));
        assert!(!system.is_alive(gone));
        let done = system.resolve::<Order>(pids[8]).unwrap();
        done.cast(Order::Stop(Reason::Normal)).unwrap();
        let broken = system.resolve::<Order>(pids[9]).unwrap();
        broken.cast(Order::Panic).unwrap();
        system.wait_exit(pids[8]).await;
        system.wait_exit(pids[9]).await;
        let children = supervisor.call(SOON, SupervisorMsg::WhichChildren).await.unwrap();
        assert_eq!(children.len(), 98);
        assert_eq!(children.iter().filter(|child| child.restarts == 1).count(), 1);
        system.exit(supervisor.pid(), Reason::Shutdown);
        system.wait_exit(supervisor.pid()).await;
        assert_eq!(system.process_count(), 0);
    })
    .await;
}

/// A process that does not stop when told.
struct Stubborn;

impl Process for Stubborn {
    type Args = ();
    type Msg = ();
    const NAME: &'static str = "stubborn";

    fn init((): (), ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        ctx.trap_exit(true);
        Ok(Stubborn)
    }

    fn handle(&mut self, (): (), _: &mut Ctx<Self>) -> Next {
        Next::Continue
    }

    fn parent_exit(&mut self, _: Reason, _: &mut Ctx<Self>) -> Next {
        Next::Continue
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_does_not_stop_is_killed_at_its_limit() {
    with_system(async |system| {
        let log = Log::default();
        let limit = Duration::from_millis(700);
        let stubborn = ChildSpec::worker::<Stubborn>("s", (), SpawnOptions::default().named("s"));
        let spec = SupervisorSpec::new(Strategy::OneForOne)
            .child(child("a", &log))
            .child(stubborn.shutdown(Shutdown::After(limit)));
        let supervisor = start(system, spec);
        let s = system.whereis("s").unwrap();
        let began = tokio::time::Instant::now();
        system.exit(supervisor.pid(), Reason::Shutdown);
        let (reason, _) = tokio::join!(system.wait_exit(s), system.wait_exit(supervisor.pid()));
        assert_eq!(reason, Reason::Killed);
        assert!(began.elapsed() >= limit && began.elapsed() < limit * 2);
        assert_eq!(log.lines(), ["start a", "end a shutdown"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_stops_those_before_and_the_supervisor() {
    with_system(async |system| {
        let log = Log::default();
        let broken = ChildSpec::new("broken", |_| panic!("no disk"));
        let spec = SupervisorSpec::new(Strategy::OneForOne)
            .child(child("a", &log))
            .child(broken);
        let supervisor = start(system, spec.child(child("never", &log)));
        let failed = system.wait_started(supervisor.pid()).await.unwrap_err();
        assert!(failed.to_string().contains("no disk"), "{failed}");
        assert_eq!(log.lines(), ["start a", "end a shutdown"]);
    })
    .await;
}

#[test]
fn start_order_holds_across_threads() {
    let system = System::threaded(2, SystemOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let log = Log::default();
    let ids = ["a", "b", "c", "d", "e", "f"];
    let on = |index: usize, id: &'static str| {
        let setup = Setup {
            id,
            log: log.clone(),
            trap: false,
        };
        let options = SpawnOptions::default()
            .on(Placement::Arbiter(index % 2))
            .named(id);
        ChildSpec::worker::<Worker>(id, setup, options)
    };
    let spec = SupervisorSpec::new(Strategy::OneForAll).intensity(1000, Duration::from_secs(5));
    let spec = ids
        .iter()
        .enumerate()
        .fold(spec, |spec, (index, id)| spec.child(on(index, id)));
    let supervisor = system.spawn::<Supervisor>(spec, SpawnOptions::default()).unwrap();
    runtime.block_on(async {
        system.wait_started(supervisor.pid()).await.unwrap();
        assert_eq!(log.lines(), ids.map(|id| format!("start {id}")));
        for round in 1..=20_u32 {
            log.clear();
            let last = named(&system, "f");
            named(&system, "c").cast(Order::Panic).unwrap();
            system.wait_exit(last.pid()).await;
            // The list is answered when the plan is done with, or shows where it stands.
            let all_back = async {
                loop {
                    let children = supervisor.call(SOON, SupervisorMsg::WhichChildren).await.unwrap();
                    if children.iter().all(|child| child.pid.is_some()) {
                        let last = children[5].pid.unwrap();
                        system.wait_started(last).await.unwrap();
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(SOON, all_back).await.unwrap();
            let mut expected = vec!["end c panic".to_owned()];
            expected.extend(["f", "e", "d", "b", "a"].map(|id| format!("end {id} shutdown")));
            expected.extend(ids.map(|id| format!("start {id}")));
            assert_eq!(log.lines(), expected, "round {round}");
        }
        log.clear();
        assert_eq!(system.stop(SOON).await, 0);
        assert_eq!(
            log.lines(),
            ["f", "e", "d", "c", "b", "a"].map(|id| format!("end {id} shutdown"))
        );
    });
}

#[tokio::test(start_paused = true)]
async fn a_killed_supervisor_takes_its_children_along() {
    with_system(async |system| {
        let log = Log::default();
        let supervisor = start(system, three(Strategy::OneForOne, &log));
        let a = named(system, "a");
        system.exit(supervisor.pid(), Reason::Killed);
        let reason = system.wait_exit(a.pid()).await;
        assert!(
            matches!(short(&reason).as_str(), "linked killed" | "noproc"),
            "{reason}"
        );
    })
    .await;
}
