//! Blocking pools: results, panics, lanes, bounds.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use settee_actors::runtime::{
    BlockingPool, CallError, PoolError, PoolOptions, Reason, ReplyTo, System, SystemOptions,
};
use tokio::task::LocalSet;

use crate::common::SOON;

#[tokio::test]
async fn a_pool_survives_a_panicking_job() {
    let pool = BlockingPool::new("test", PoolOptions::threads(1));
    for round in 0..3 {
        let failed = pool.run(|| -> u32 { panic!("bad block") }).await;
        let Err(PoolError::Panicked(Reason::Panic { message, location })) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(&*message, "bad block");
        assert!(location.contains("pools.rs"), "{location}");
        assert_eq!(
            pool.run(move || round + 1).await,
            Ok(round + 1),
            "the only thread is still there"
        );
    }
    // A token inside the job fails its caller with the panic.
    let (reply_to, answer) = ReplyTo::<u32>::pair();
    pool.submit(move || {
        let _held = reply_to;
        panic!("while holding a token");
    })
    .unwrap();
    let failed = answer.within(SOON).await;
    assert!(
        matches!(failed, Err(CallError::Died(Reason::Panic { .. }))),
        "{failed:?}"
    );
    assert_eq!(pool.stats().panicked, 4);
    pool.stop();
}

#[tokio::test]
async fn jobs_of_a_lane_run_in_order_one_at_a_time() {
    let pool = BlockingPool::new("test", PoolOptions::threads(4));
    let seen = Arc::new(Mutex::new(vec![Vec::new(); 3]));
    let lanes: Vec<_> = (0..3).map(|key| pool.lane(key)).collect();
    for number in 0..200 {
        for (key, lane) in lanes.iter().enumerate() {
            let seen = Arc::clone(&seen);
            lane.submit(move || {
                // Only one job of a lane may be between these two locks.
                let before = seen.lock().unwrap()[key].len();
                std::thread::yield_now();
                let mut seen = seen.lock().unwrap();
                assert_eq!(seen[key].len(), before);
                seen[key].push(number);
            })
            .unwrap();
        }
    }
    for key in 0..3 {
        pool.lane(key).run(|| ()).await.unwrap();
    }
    let expected: Vec<i32> = (0..200).collect();
    for numbers in seen.lock().unwrap().iter() {
        assert_eq!(*numbers, expected);
    }
    assert_eq!(pool.stats().panicked, 0);
    pool.stop();
}

#[tokio::test]
async fn a_lane_survives_a_panicking_job() {
    let pool = BlockingPool::new("test", PoolOptions::threads(2));
    let lane = pool.lane("file");
    let failed = lane.run(|| panic!("bad write")).await;
    assert!(matches!(failed, Err(PoolError::Panicked(_))), "{failed:?}");
    assert_eq!(lane.run(|| 7).await, Ok(7));
    pool.stop();
}

#[test]
fn a_full_pool_refuses_and_shows_its_depth() {
    let pool = BlockingPool::new("test", PoolOptions { threads: 1, queue: 2 });
    let gate = Arc::new(Barrier::new(2));
    let running = Arc::new(Barrier::new(2));
    let (opened, runs) = (Arc::clone(&gate), Arc::clone(&running));
    pool.submit(move || {
        runs.wait();
        opened.wait();
    })
    .unwrap();
    running.wait();
    pool.submit(|| ()).unwrap();
    pool.submit(|| ()).unwrap();
    assert_eq!(pool.submit(|| ()), Err(PoolError::Full));
    let lane = pool.lane(1);
    assert_eq!(lane.submit(|| ()), Err(PoolError::Full));
    let stats = pool.stats();
    assert_eq!((stats.busy, stats.queued, stats.refused), (1, 2, 2));
    gate.wait();
    pool.stop();
    assert_eq!(pool.submit(|| ()), Err(PoolError::Stopped));
}

#[tokio::test(start_paused = true)]
async fn an_inline_pool_runs_jobs_at_once_on_the_same_thread() {
    LocalSet::new()
        .run_until(async {
            let system = System::local(SystemOptions::default().pool("read", PoolOptions::inline()));
            let pool = system.pool("read").unwrap();
            let here = std::thread::current().id();
            let started = tokio::time::Instant::now();
            assert_eq!(
                pool.run(move || std::thread::current().id() == here).await,
                Ok(true)
            );
            assert_eq!(pool.lane(1).run(|| 3).await, Ok(3));
            let failed = pool.run(|| panic!("inline")).await;
            assert!(matches!(failed, Err(PoolError::Panicked(_))), "{failed:?}");
            assert_eq!(started.elapsed(), Duration::ZERO);
            assert!(system.pool("other").is_none());
        })
        .await;
}
