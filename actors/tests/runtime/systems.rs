//! Systems: values, their end, groups, and looking at processes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use settee_actors::runtime::{
    OnDrop, Pid, Placement, Reason, Ref, ReplyTo, SpawnError, SpawnOptions, Strategy, Supervisor,
    SupervisorSpec, System, SystemOptions,
};
use tokio::task::LocalSet;

use crate::common::{Log, Order, SOON, Setup, Worker, inside, settle, with_system, worker};

#[tokio::test(start_paused = true)]
async fn two_systems_live_in_one_program() {
    LocalSet::new()
        .run_until(async {
            let (one, two) = (
                System::local(SystemOptions::default()),
                System::local(SystemOptions::default()),
            );
            let log = Log::default();
            let (a, b) = (worker(&one, "a", &log), worker(&two, "b", &log));
            one.register("clerk", a.pid()).unwrap();
            two.register("clerk", b.pid()).unwrap();
            a.cast(Order::Add).unwrap();
            assert_eq!(settle(&one.find("clerk").unwrap()).await, 1);
            assert_eq!(settle(&two.find("clerk").unwrap()).await, 0);
            assert!(
                two.resolve::<Order>(a.pid()).is_none(),
                "a pid means nothing to another system"
            );
            one.stop(SOON).await;
            assert_eq!(settle(&b).await, 0);
            two.stop(SOON).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_plain_local_set_hosts_a_system() {
    LocalSet::new()
        .run_until(async {
            let system = System::local(SystemOptions::default());
            let process = worker(&system, "a", &Log::default());
            assert_eq!(settle(&process).await, 0);
            // Also spawned from another thread, which has no event loop at all.
            let handle = system.clone();
            let thread = std::thread::spawn(move || {
                handle
                    .spawn::<Worker>(Setup::default(), SpawnOptions::default())
                    .unwrap()
            });
            let other: Ref<Order> = thread.join().unwrap();
            system.wait_started(other.pid()).await.unwrap();
            assert_eq!(settle(&other).await, 0);
            let (tx, rx) = tokio::sync::oneshot::channel();
            assert!(system.spawn_task(Placement::Here, async move { tx.send(5).unwrap() }));
            assert_eq!(rx.await, Ok(5));
            system.stop(SOON).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_system_with_survivors_is_an_error() {
    LocalSet::new()
        .run_until(async {
            let system = System::local(SystemOptions {
                on_drop: OnDrop::Panic,
                ..SystemOptions::default()
            });
            let process = worker(&system, "a", &Log::default());
            let clone = system.clone();
            drop(system);
            assert_eq!(settle(&process).await, 0, "a clone keeps it");
            let dropped = catch_unwind(AssertUnwindSafe(move || drop(clone))).unwrap_err();
            let text = dropped.downcast_ref::<String>().unwrap();
            assert!(
                text.contains("1 living processes") && text.contains("worker"),
                "{text}"
            );
            tokio::task::yield_now().await;
            assert_eq!(process.exit_reason(), Some(Reason::Killed));
            let quiet = System::local(SystemOptions {
                on_drop: OnDrop::Log,
                ..SystemOptions::default()
            });
            worker(&quiet, "b", &Log::default());
            drop(quiet);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_handle_inside_a_process_does_not_keep_the_system() {
    LocalSet::new()
        .run_until(async {
            let system = System::local(SystemOptions {
                on_drop: OnDrop::Log,
                ..SystemOptions::default()
            });
            let process = worker(&system, "a", &Log::default());
            let inner = inside(&process, |_, ctx| ctx.system().clone()).await;
            assert!(!inner.is_owner());
            drop(system);
            assert_eq!(inner.wait_exit(process.pid()).await, Reason::Killed);
            let refused = inner.spawn::<Worker>(Setup::default(), SpawnOptions::default());
            assert_eq!(refused.err(), Some(SpawnError::Stopped));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn stop_goes_in_reverse_order_and_kills_at_the_deadline() {
    LocalSet::new()
        .run_until(async {
            let system = System::local(SystemOptions::default());
            let log = Log::default();
            for id in ["a", "b", "c"] {
                worker(&system, id, &log);
            }
            log.clear();
            assert_eq!(system.stop(SOON).await, 0);
            assert_eq!(
                log.lines(),
                ["end c shutdown", "end b shutdown", "end a shutdown"]
            );
            let refused = system.spawn::<Worker>(Setup::default(), SpawnOptions::default());
            assert_eq!(refused.err(), Some(SpawnError::Stopped));
        })
        .await;
}

#[test]
fn a_threaded_system_stops_its_threads() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let system = System::threaded(2, SystemOptions::default()).unwrap();
    let processes: Vec<_> = (0..10)
        .map(|_| {
            system
                .spawn::<Worker>(Setup::default(), SpawnOptions::default())
                .unwrap()
        })
        .collect();
    runtime.block_on(async {
        let mut threads = Vec::new();
        for process in &processes {
            threads.push(inside(process, |_, _| std::thread::current().id()).await);
        }
        threads.sort_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert_eq!(threads.len(), 2, "processes are spread over both threads");
        assert_eq!(system.stop(SOON).await, 0);
        assert!(
            !system.spawn_task(Placement::Here, async {}),
            "the threads have ended"
        );
    });
}

#[tokio::test(start_paused = true)]
async fn groups_forget_the_dead() {
    with_system(async |system| {
        let log = Log::default();
        let (a, b) = (worker(system, "a", &log), worker(system, "b", &log));
        for process in [&a, &b, &a] {
            assert!(system.join("readers", process.pid()));
        }
        assert_eq!(system.members("readers"), [a.pid(), b.pid()]);
        a.cast(Order::Panic).unwrap();
        system.wait_exit(a.pid()).await;
        assert_eq!(system.members("readers"), [b.pid()]);
        assert!(!system.join("readers", a.pid()));
        assert!(system.leave("readers", b.pid()));
        assert!(!system.leave("readers", b.pid()));
        assert!(system.groups().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_process_loses_its_name() {
    with_system(async |system| {
        let options = SpawnOptions::default().named("clerk");
        let first = system.spawn::<Worker>(Setup::default(), options.clone()).unwrap();
        let taken = system
            .spawn::<Worker>(Setup::default(), options.clone())
            .unwrap_err();
        assert_eq!(
            taken,
            SpawnError::NameTaken {
                name: "clerk".into(),
                pid: first.pid()
            }
        );
        assert_eq!(system.registered(), [("clerk".into(), first.pid())]);
        system.exit(first.pid(), Reason::Killed);
        system.wait_exit(first.pid()).await;
        assert_eq!(system.whereis("clerk"), None);
        let second = system.spawn::<Worker>(Setup::default(), options).unwrap();
        assert_eq!(system.whereis("clerk"), Some(second.pid()));
        assert!(system.unregister("clerk"));
        assert_eq!(system.whereis("clerk"), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn process_info_and_tree_show_what_goes_on() {
    with_system(async |system| {
        let spec = SupervisorSpec::new(Strategy::OneForOne).child(
            settee_actors::runtime::ChildSpec::worker::<Worker>(
                "w",
                Setup::default(),
                SpawnOptions::default().named("clerk").capacity(9),
            ),
        );
        let supervisor = system.spawn::<Supervisor>(spec, SpawnOptions::default()).unwrap();
        let process: Ref<Order> = system.find("clerk").unwrap();
        settle(&process).await;
        process.cast(Order::Add).unwrap();
        process.cast(Order::Add).unwrap();
        let info = system.process_info(process.pid()).unwrap();
        assert_eq!((info.queue_len, info.capacity, info.handled), (2, 9, 1));
        assert_eq!((info.behaviour, info.name.as_deref()), ("worker", Some("clerk")));
        assert_eq!(
            (info.parent, info.links),
            (supervisor.pid(), vec![supervisor.pid()])
        );
        assert_eq!((info.restarts, info.busy_for, info.started), (0, None, true));
        let snapshot = system.snapshot(process.pid(), SOON).await.unwrap();
        assert_eq!(
            snapshot.get("count"),
            Some("0"),
            "the question overtook both messages"
        );
        let snapshot = system.snapshot(supervisor.pid(), SOON).await.unwrap();
        assert_eq!(snapshot.get("running"), Some("1"));
        let handle = system.clone();
        let seen = process.call(SOON, |reply_to: ReplyTo<Option<Duration>>| {
            Order::Do(Box::new(move |_, ctx| {
                reply_to.reply(handle.process_info(ctx.pid()).unwrap().busy_for);
                settee_actors::runtime::Next::Continue
            }))
        });
        assert!(seen.await.unwrap().is_some(), "busy while it handles a message");
        let tree = system.tree();
        assert_eq!(tree.roots.len(), 1);
        assert_eq!(tree.roots[0].children[0].info.pid, process.pid());
        let text = tree.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].contains("supervisor") && lines[1].starts_with("  <"),
            "{text}"
        );
        assert!(lines[1].contains("worker \"clerk\" queue 0/9 handled"), "{text}");
        assert_eq!(system.process_info(Pid::ROOT), None);
    })
    .await;
}
