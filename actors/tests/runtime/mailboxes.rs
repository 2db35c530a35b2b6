//! Mailboxes: order, bounds, policies, the control lane and fairness.

use std::time::Duration;

use settee_actors::runtime::{CallError, Policy, Reason, Ref, SendError, SpawnOptions, System, Undelivered};

use crate::common::{Log, Order, SOON, Setup, Worker, inside, settle, short, trapper, with_system, worker};

fn small(system: &System, capacity: usize, policy: Policy) -> Ref<Order> {
    let options = SpawnOptions::default().capacity(capacity).policy(policy);
    system.spawn::<Worker>(Setup::default(), options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn messages_of_one_sender_arrive_in_order() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        log.clear();
        for number in 0..500 {
            process.cast(Order::Note(number.to_string())).unwrap();
        }
        settle(&process).await;
        let expected: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        assert_eq!(log.lines(), expected);
        // Also those to oneself.
        log.clear();
        inside(&process, |_, ctx| {
            for number in 0..3 {
                ctx.me().cast(Order::Note(number.to_string())).unwrap();
            }
        })
        .await;
        settle(&process).await;
        assert_eq!(log.lines(), ["0", "1", "2"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_accepted_message_is_handled_unless_the_process_dies() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        process.cast(Order::Note("before".into())).unwrap();
        process.cast(Order::Stop(Reason::Normal)).unwrap();
        process.cast(Order::Note("after".into())).unwrap();
        assert_eq!(system.wait_exit(process.pid()).await, Reason::Normal);
        assert_eq!(log.lines(), ["start a", "before", "end a normal"]);
        let refused = process.cast(Order::Note("late".into()));
        assert!(matches!(refused, Err(SendError::NoProc(Order::Note(text))) if text == "late"));
        assert_eq!(process.exit_reason(), Some(Reason::Normal));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_returns_the_message() {
    with_system(async |system| {
        let process = small(system, 3, Policy::Reject);
        let clones: Vec<_> = (0..10).map(|_| process.clone()).collect();
        let taken = clones
            .iter()
            .filter(|clone| clone.cast(Order::Add).is_ok())
            .count();
        assert_eq!(taken, 3, "the bound holds for any number of senders");
        let refused = process.cast(Order::Note("back".into()));
        assert!(matches!(refused, Err(SendError::Full(Order::Note(text))) if text == "back"));
        let call = process.call(SOON, Order::Count).await;
        assert_eq!(call, Err(CallError::Undelivered(Undelivered::Full)));
        tokio::task::yield_now().await;
        assert_eq!(process.call(SOON, Order::Count).await, Ok(3));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn policy_wait_waits_for_room_within_the_deadline() {
    with_system(async |system| {
        let process = small(system, 2, Policy::Wait);
        let senders: Vec<_> = (0..20)
            .map(|_| {
                let process = process.clone();
                tokio::task::spawn_local(async move { process.send(SOON, Order::Add).await })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap().unwrap();
        }
        assert_eq!(process.call(SOON, Order::Count).await, Ok(20));
        // A process that never takes its messages: the wait ends at the deadline, at its death at once.
        let stuck = small(system, 1, Policy::Wait);
        let pid = stuck.pid();
        stuck.cast(Order::Add).unwrap();
        let wait = stuck.call(SOON, Order::Count);
        system.exit(pid, Reason::Killed);
        let started = tokio::time::Instant::now();
        let answer = wait.await;
        assert!(
            matches!(
                answer,
                Err(CallError::Died(Reason::Killed) | CallError::Undelivered(Undelivered::NoProc))
            ),
            "{answer:?}"
        );
        assert_eq!(started.elapsed(), Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn policy_drop_oldest_makes_room() {
    with_system(async |system| {
        let log = Log::default();
        let options = SpawnOptions::default().capacity(2).policy(Policy::DropOldest);
        let setup = Setup {
            id: "a",
            log: log.clone(),
            trap: false,
        };
        let process = system.spawn::<Worker>(setup, options).unwrap();
        log.clear();
        let dropped = process.call(SOON, Order::Count);
        let flood = async {
            for number in 0..4 {
                process.cast(Order::Note(number.to_string())).unwrap();
            }
        };
        let (dropped, ()) = tokio::join!(dropped, flood);
        assert!(matches!(dropped, Err(CallError::Died(_))), "{dropped:?}");
        settle(&process).await;
        assert_eq!(log.lines(), ["2", "3"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_control_lane_overtakes_the_user_lane() {
    with_system(async |system| {
        let log = Log::default();
        let process = trapper(system, "a", &log);
        log.clear();
        process.cast(Order::Note("first".into())).unwrap();
        process.cast(Order::Note("second".into())).unwrap();
        system.exit(process.pid(), Reason::ShutdownWith("hello".into()));
        settle(&process).await;
        assert_eq!(log.lines(), ["exit shutdown: hello", "first", "second"]);
        // It also gets through where the user lane is full, and a kill is not held up by a thousand messages.
        let full = small(system, 1, Policy::Reject);
        full.cast(Order::Panic).unwrap();
        system.exit(full.pid(), Reason::Killed);
        assert_eq!(system.wait_exit(full.pid()).await, Reason::Killed);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_process_leaves_room_for_its_neighbours() {
    with_system(async |system| {
        let log = Log::default();
        let busy = worker(system, "busy", &log);
        let neighbour = worker(system, "neighbour", &log);
        // It feeds itself without end: only the quantum lets anyone else run.
        fn again(
            worker: &mut Worker,
            ctx: &mut settee_actors::runtime::Ctx<Worker>,
        ) -> settee_actors::runtime::Next {
            worker.count += 1;
            let stop = worker.count > 100_000;
            if stop {
                return settee_actors::runtime::Next::Stop(Reason::error("the neighbour never came"));
            }
            ctx.me().cast(Order::Do(Box::new(again))).unwrap();
            settee_actors::runtime::Next::Continue
        }
        busy.cast(Order::Do(Box::new(again))).unwrap();
        // A task like any other, because the body of a `LocalSet` is polled only once in 61 tasks.
        let calls = tokio::task::spawn_local(async move {
            for _ in 0..10 {
                assert_eq!(neighbour.call(SOON, Order::Count).await, Ok(0));
            }
            inside(&busy, |worker, ctx| (worker.count, ctx.pid())).await
        });
        let (turns, busy) = calls.await.unwrap();
        assert!(
            turns <= 64 * 30,
            "ten calls took {turns} messages of the busy process"
        );
        system.exit(busy, Reason::Killed);
        assert_eq!(short(&system.wait_exit(busy).await), "killed");
    })
    .await;
}
