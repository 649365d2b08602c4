//! Tests of the group commit with real threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use lodestore_index::group::{Broken, Group};

#[test]
fn waiting_writers_are_grouped_and_complete_in_order() {
    const THREADS: u64 = 8;
    let group = Arc::new(Group::<Vec<u64>>::new(0));
    let (order, numbers) = (Arc::new(std::sync::Mutex::new(Vec::new())), Arc::new(std::sync::Mutex::new(0u64)));
    let groups = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..50 {
                    let number = {
                        let mut last = numbers.lock().expect("whole");
                        *last += 1;
                        group.join(*last, |gathered| gathered.push(*last));
                        *last
                    };
                    let waited = group.wait(number, |gathered, _| {
                        groups.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(200));
                        order.lock().expect("whole").extend(gathered);
                        true
                    });
                    waited.expect("nothing fails");
                    assert!(order.lock().expect("whole").contains(&number), "done behind its work");
                }
            });
        }
    });
    let order = order.lock().expect("whole");
    assert!(order.iter().copied().eq(1..=THREADS * 50), "each once, in order");
    let groups = groups.load(Ordering::Relaxed) as u64;
    assert!(groups < THREADS * 50 / 2, "{groups} groups: writers are not gathered");
}

#[test]
fn a_leader_that_fails_or_panics_fails_all_waiting_threads() {
    for panics in [false, true] {
        let group = Arc::new(Group::<()>::new(7));
        let barrier = Arc::new(Barrier::new(4));
        (8..12).for_each(|number| group.join(number, |()| ()));
        let has_panicked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (8..12)
                .map(|number| {
                    let (group, barrier) = (Arc::clone(&group), Arc::clone(&barrier));
                    scope.spawn(move || {
                        barrier.wait();
                        group.wait(number, |(), _| if panics { panic!("planned") } else { false })
                    })
                })
                .collect();
            for waiter in waiters {
                match waiter.join() {
                    Ok(answer) => assert_eq!(answer, Err(Broken)),
                    Err(_) => assert!(panics && !has_panicked.swap(true, Ordering::Relaxed), "one leader panics"),
                }
            }
        });
        assert_eq!(group.done(), 7);
        assert_eq!(group.wait(7, |(), _| true), Ok(()), "what was done stays done");
        group.join(12, |()| ());
        assert_eq!(group.wait(12, |(), _| true), Err(Broken));
    }
}
