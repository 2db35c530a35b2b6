//! Calls: answers, deadlines, and the ways to fail.

use std::time::Duration;

use settee_actors::runtime::{
    CallError, Name, Placement, Reason, ReplyTo, SpawnOptions, System, SystemOptions, Undelivered,
};

use crate::common::{Log, Order, SOON, Setup, Worker, inside, settle, short, with_system, worker};

#[tokio::test(start_paused = true)]
async fn a_call_returns_the_typed_answer() {
    with_system(async |system| {
        let process = worker(system, "a", &Log::default());
        process.cast(Order::Add).unwrap();
        process.cast(Order::Add).unwrap();
        assert_eq!(process.call(SOON, Order::Count).await, Ok(2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline() {
    with_system(async |system| {
        let process = worker(system, "a", &Log::default());
        let started = tokio::time::Instant::now();
        let answer = process.call(Duration::from_millis(250), Order::Keep).await;
        assert_eq!(answer, Err(CallError::Timeout));
        let took = started.elapsed();
        assert!(
            took >= Duration::from_millis(250) && took < Duration::from_millis(300),
            "{took:?}"
        );
        let wanted = inside(&process, |worker, _| worker.kept[0].is_wanted()).await;
        assert!(!wanted, "the process can see that its caller has gone");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reply_token_fails_the_caller_at_once() {
    with_system(async |system| {
        let process = worker(system, "a", &Log::default());
        let started = tokio::time::Instant::now();
        let answer = process.call(SOON, Order::Ignore).await;
        assert!(
            matches!(answer, Err(CallError::Died(Reason::Error(_)))),
            "{answer:?}"
        );
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert!(process.is_alive());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_process_that_dies_fails_with_its_reason() {
    with_system(async |system| {
        let process = worker(system, "a", &Log::default());
        let started = tokio::time::Instant::now();
        // One waits in the state, one is being handled, one is queued behind it.
        let kept = process.call(SOON, Order::Keep);
        let held = process.call(SOON, Order::PanicHolding);
        let queued = process.call(SOON, Order::Count);
        let (kept, held, queued) = tokio::join!(kept, held, queued);
        for answer in [kept, held, queued] {
            let Err(CallError::Died(reason)) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(short(&reason), "panic");
        }
        assert_eq!(started.elapsed(), Duration::ZERO);
        let late = process.call(SOON, Order::Count).await;
        assert_eq!(late, Err(CallError::Undelivered(Undelivered::NoProc)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_token_answers_later_and_from_elsewhere() {
    with_system(async |system| {
        let process = worker(system, "a", &Log::default());
        let answer = process.call(SOON, |reply_to: ReplyTo<&'static str>| {
            Order::Do(Box::new(move |_, _| {
                std::thread::spawn(move || reply_to.reply("from a thread"))
                    .join()
                    .unwrap();
                settee_actors::runtime::Next::Continue
            }))
        });
        assert_eq!(answer.await, Ok("from a thread"));
        // A token that was handed on outlives the process that was asked.
        let (tx, rx) = tokio::sync::oneshot::channel();
        let answer = process.call(SOON, |reply_to: ReplyTo<u8>| {
            Order::Do(Box::new(move |_, _| {
                assert!(tx.send(reply_to).is_ok());
                settee_actors::runtime::Next::Stop(Reason::Normal)
            }))
        });
        let (answer, ()) = tokio::join!(answer, async { rx.await.unwrap().reply(7) });
        assert_eq!(answer, Ok(7));
    })
    .await;
}

/// Calls that are made until something must have happened.
const ROUND_TRIPS_MAX: usize = 10_000;

#[test]
fn a_plain_thread_calls_with_a_deadline() {
    let system = System::threaded(1, SystemOptions::default()).unwrap();
    let process = system
        .spawn::<Worker>(Setup::default(), SpawnOptions::default())
        .unwrap();
    process.cast(Order::Add).unwrap();
    assert_eq!(process.call_blocking(SOON, Order::Count), Ok(1));
    let short = Duration::from_millis(20);
    assert_eq!(process.call_blocking(short, Order::Keep), Err(CallError::Timeout));
    let died = process.call_blocking(SOON, Order::PanicHolding);
    assert!(
        matches!(died, Err(CallError::Died(Reason::Panic { .. }))),
        "{died:?}"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(system.stop(SOON));
}

#[tokio::test(start_paused = true)]
async fn a_name_reaches_whoever_has_it_now() {
    with_system(async |system| {
        let log = Log::default();
        let first = worker(system, "a", &log);
        system.register("clerk", first.pid()).unwrap();
        let name: Name<Order> = Name::new(system, "clerk");
        name.cast(Order::Add).unwrap();
        assert_eq!(name.call(SOON, Order::Count).await, Ok(1));
        first.cast(Order::Stop(Reason::Normal)).unwrap();
        system.wait_exit(first.pid()).await;
        assert_eq!(
            name.call(SOON, Order::Count).await,
            Err(CallError::Undelivered(Undelivered::NoProc))
        );
        let second = worker(system, "b", &log);
        system.register("clerk", second.pid()).unwrap();
        assert_eq!(name.call(SOON, Order::Count).await, Ok(0));
        assert!(system.register("clerk", second.pid()).is_ok());
        let third = worker(system, "c", &log);
        assert!(system.register("clerk", third.pid()).is_err(), "names are unique");
        assert!(
            system.find::<u32>("clerk").is_none(),
            "found only by its own message type"
        );
    })
    .await;
}

#[test]
fn calls_cross_threads() {
    let system = System::threaded(2, SystemOptions::default()).unwrap();
    let spawn = |arbiter| {
        let options = SpawnOptions::default().on(Placement::Arbiter(arbiter));
        system.spawn::<Worker>(Setup::default(), options).unwrap()
    };
    let (a, b) = (spawn(0), spawn(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answer = runtime.block_on(async {
        let peer = b.clone();
        // The work runs inside `a`, and calls `b` on the other thread.
        a.call(SOON, move |reply_to: ReplyTo<u64>| {
            Order::Do(Box::new(move |_, ctx| {
                let work = async move { peer.call(SOON, Order::Count).await.unwrap() };
                ctx.spawn_future(work, move |count| {
                    reply_to.reply(count + 40);
                    Order::Add
                });
                settee_actors::runtime::Next::Continue
            }))
        })
        .await
    });
    assert_eq!(answer, Ok(40));
    // The answer leaves before the message does, so the first look may come too early.
    let came_back = (0..ROUND_TRIPS_MAX).any(|_| runtime.block_on(settle(&a)) == 1);
    assert!(came_back, "the result came back as a message");
    runtime.block_on(system.stop(SOON));
}
