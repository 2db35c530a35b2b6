//! Timers and clocks.

use std::sync::Arc;
use std::time::Duration;

use settee_actors::runtime::{ManualClock, SimClock, System, SystemOptions};
use tokio::task::LocalSet;

use crate::common::{Log, Order, SOON, inside, pass, settle, with_system, worker};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test(start_paused = true)]
async fn timers_fire_in_order_of_their_deadlines() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        log.clear();
        inside(&process, |_, ctx| {
            ctx.send_after(MS(30), 3);
            ctx.send_after(MS(10), 1);
            ctx.send_after(MS(20), 2);
            ctx.send_after(MS(10), 11);
        })
        .await;
        pass(MS(9)).await;
        assert!(log.lines().is_empty());
        pass(MS(50)).await;
        assert_eq!(log.lines(), ["timer 1", "timer 11", "timer 2", "timer 3"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_timer_does_not_fire() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        log.clear();
        let timer = inside(&process, |_, ctx| ctx.send_after(MS(10), 1)).await;
        assert!(inside(&process, move |_, ctx| ctx.cancel(timer)).await);
        assert!(!inside(&process, move |_, ctx| ctx.cancel(timer)).await);
        pass(MS(50)).await;
        assert!(log.lines().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_interval_beats_until_cancelled() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        log.clear();
        let timer = inside(&process, |_, ctx| ctx.send_interval(MS(10), 5)).await;
        pass(MS(35)).await;
        assert_eq!(log.lines(), ["timer 5"; 3]);
        inside(&process, move |_, ctx| ctx.cancel(timer)).await;
        pass(MS(100)).await;
        assert_eq!(log.lines().len(), 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn timers_overtake_queued_messages() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        log.clear();
        inside(&process, |_, ctx| {
            ctx.send_after(Duration::ZERO, 1);
            for _ in 0..200 {
                ctx.me().cast(Order::Note("message".into())).unwrap();
            }
        })
        .await;
        settle(&process).await;
        let at = log.lines().iter().position(|line| line == "timer 1").unwrap();
        assert!(at <= 64, "at most the rest of a quantum goes first, not {at}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn asynchronous_work_comes_back_as_a_message() {
    with_system(async |system| {
        let log = Log::default();
        let process = worker(system, "a", &log);
        log.clear();
        inside(&process, |_, ctx| {
            ctx.spawn_future(pass(MS(10)), |()| Order::Note("work done".into()));
            ctx.spawn_future(async { 1 }, |one| Order::Note(format!("got {one}")));
        })
        .await;
        assert_eq!(settle(&process).await, 0, "messages are handled meanwhile");
        pass(MS(20)).await;
        assert_eq!(log.lines(), ["got 1", "work done"]);
        // A panic in the work is a panic of the process, and the work dies with it.
        let (tx, rx) = tokio::sync::oneshot::channel::<()>();
        inside(&process, |_, ctx| {
            ctx.spawn_future(
                async move {
                    pass(SOON).await;
                    drop(tx);
                },
                |()| Order::Add,
            );
            ctx.spawn_future(async { panic!("in the work") }, |()| Order::Add);
        })
        .await;
        let reason = system.wait_exit(process.pid()).await;
        assert!(
            matches!(reason.to_string().as_str(), r if r.contains("in the work") || r == "noproc"),
            "{reason}"
        );
        let started = tokio::time::Instant::now();
        assert!(rx.await.is_err());
        assert_eq!(started.elapsed(), Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_clock_is_injected() {
    LocalSet::new()
        .run_until(async {
            let manual = Arc::new(ManualClock::new(1_000));
            let system = System::local(SystemOptions::default().clock(manual.clone()));
            assert_eq!(system.clock().now_unix_micros(), 1_000);
            manual.advance(MS(1));
            assert_eq!(system.clock().now_unix_micros(), 2_000);
            assert_eq!(system.clock().now_monotonic(), MS(1));
            let simulated = Arc::new(SimClock::starting_at(5));
            let other = System::local(SystemOptions::default().clock(simulated));
            pass(MS(7)).await;
            assert_eq!(
                other.clock().now_unix_micros(),
                7_005,
                "simulated time follows tokio's"
            );
            assert_eq!(system.clock().now_monotonic(), MS(1));
        })
        .await;
}
