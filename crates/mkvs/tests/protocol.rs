//! The protocol of a group.
mod protocol {
    pub mod catchup;
    pub mod device;
    pub mod group;
    pub mod history;
    pub mod model;
    pub mod rules;
}

use protocol::model::Matrix;
use protocol::rules::{Acks, Bounds, Rules};
use stateright::{Checker, HasDiscoveries, Model};

fn env(name: &str, default: u8) -> u8 {
    std::env::var(name).ok().map_or(default, |v| v.parse().unwrap())
}

#[test]
#[ignore]
fn explore() {
    let acks = [Acks::One, Acks::Majority, Acks::All][env("ACKS", 1) as usize];
    let mut rules = Rules::new(acks);
    rules.slots = env("SLOTS", 16) as usize;
    rules.slow_takes = env("SLOW", 0) != 0;
    let off = std::env::var("OFF").unwrap_or_default();
    for o in off.split(',') {
        match o {
            "whole" => rules.whole_before_out = false,
            "live" => rules.live_votes = false,
            "processor" => rules.processor_ends = false,
            "settled" => rules.settled_first = false,
            "keeper" => rules.keeper_needed = false,
            "behind" => rules.refused_are_behind = false,
            "able" => rules.able_reads = false,
            "newest" => rules.newest_leads = false,
            "forks" => rules.forks_forgotten = false,
            "epoch" => rules.epoch_at_open = false,
            "held" => rules.held_join = false,
            "last" => rules.forks_by_last = false,
            "level" => rules.levelled_open = false,
            "holes" => rules.holes_decide = false,
            "always" => rules.restores_always = false,
            "looks" => rules.looks_again = false,
            "" => {}
            o => panic!("{o}"),
        }
    }
    let bounds = Bounds {
        writes: env("W", 2),
        deletes: env("DEL", 0),
        reads: env("R", 1),
        crashes: env("C", 1),
        failures: env("F", 0),
        demotions: env("DEM", 0),
        fills: env("FILL", 0),
        empties: env("EMPTY", 0),
        losses: env("L", 0),
        hedges: env("H", 0),
    };
    let model = Matrix::new(env("D", 3) as usize, env("K", 2) as usize, rules, bounds);
    let t = std::time::Instant::now();
    let checker = model
        .clone()
        .checker()
        .threads(env("T", 1) as usize)
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(std::time::Duration::from_secs(env("SECS", 100).into()))
        .spawn_bfs()
        .join();
    println!(
        "states {} unique {} depth {} in {:?} done {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        t.elapsed(),
        checker.is_done()
    );
    for name in protocol::model::SEEN {
        print!("{name} {}; ", model.count(name));
    }
    println!();
    for (name, path) in checker.discoveries() {
        println!("VIOLATED {name}");
        for a in path.clone().into_actions() {
            println!("  {a:?}");
        }
        println!("{:?}", path.last_state());
    }
}
