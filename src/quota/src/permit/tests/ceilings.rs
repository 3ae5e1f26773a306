//! The ceilings of the operator.

use super::*;

const LOAD_BALANCER: &str = "Microsoft.Network/loadBalancers";
const SUBNET: &str = "Microsoft.Network/virtualNetworks/subnets";

fn path(resource_type: &str, child: &str) -> String {
    format!("/subscriptions/s/resourceGroups/g/providers/{resource_type}/one{child}")
}

fn ceilings(reads: Rate, writes: Rate) -> Ceilings {
    let mut ceilings = Ceilings::default();
    ceilings.limit("loadBalancerRateLimit", &[LOAD_BALANCER], Ceiling { reads, writes });
    ceilings
}

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate { per_second, burst }
}

/// A queue of an Azure that reports no limits, so that the ceilings alone hold back.
fn without_limits(ceilings: Ceilings) -> Permits {
    let mut permits = Permits::default();
    for direction in Direction::ALL {
        let ticket = permits.request(scope(direction, DISK), Priority::Read, Duration::ZERO);
        assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
        permits.answered(ticket, &Remaining { succeeded: true, ..Remaining::default() }, Duration::ZERO);
    }
    permits.set_ceilings(ceilings);
    permits
}

#[test]
fn a_client_waits_for_its_ceiling_and_the_others_pass() {
    let mut permits = without_limits(ceilings(rate(10.0, 1), rate(0.5, 2)));
    let ask = |permits: &mut Permits, direction, path: &str| {
        permits.request(scope(direction, path), Priority::Create, Duration::ZERO)
    };
    let (whole, pool) = (path(LOAD_BALANCER, ""), path(LOAD_BALANCER, "/backendAddressPools/p"));
    let first = ask(&mut permits, Direction::Writes, &whole);
    let second = ask(&mut permits, Direction::Writes, &pool);
    let third = ask(&mut permits, Direction::Writes, &whole);
    let deletion = ask(&mut permits, Direction::Deletes, &whole);
    let read = ask(&mut permits, Direction::Reads, &whole);
    let other = ask(&mut permits, Direction::Writes, &path(SUBNET, ""));
    let mut step = permits.step(Duration::ZERO);
    step.granted.sort_unstable();
    assert_eq!(step.granted, [first, second, read, other], "parts count as the whole, reads and other types apart");
    assert_eq!(step.wake_at, Some(ms(2_000)));
    // Which of both comes first is the order of the buckets of the front door.
    let next = permits.step(ms(2_000));
    assert_eq!((next.granted.len(), next.wake_at), (1, Some(ms(4_000))));
    let last = permits.step(ms(4_000));
    let mut both = [next.granted, last.granted].concat();
    both.sort_unstable();
    assert_eq!((both, last.wake_at), (vec![third, deletion], None));
}

#[test]
fn a_type_that_is_left_out_does_not_count_against_that_of_its_parent() {
    let mut all = ceilings(rate(1.0, 1), rate(1.0, 1));
    all.leave("poolRateLimit", &["Microsoft.Network/loadBalancers/backendAddressPools"]);
    let mut permits = without_limits(all);
    for _ in 0..5 {
        let pool = scope(Direction::Writes, &path(LOAD_BALANCER, "/backendAddressPools/p"));
        let ticket = permits.request(pool, Priority::Create, Duration::ZERO);
        assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
    }
}

#[test]
fn a_permit_under_which_nothing_was_sent_is_free() {
    let mut permits = without_limits(ceilings(rate(1.0, 1), rate(1.0, 1)));
    for _ in 0..5 {
        let ticket =
            permits.request(scope(Direction::Writes, &path(LOAD_BALANCER, "")), Priority::Create, Duration::ZERO);
        assert_eq!(permits.step(Duration::ZERO).granted, [ticket]);
        permits.refund(ticket, Duration::ZERO);
    }
}

proptest! {
    #[test]
    fn no_more_is_sent_in_any_time_than_the_bucket_and_what_it_gains(
        per_second in 0.05_f64..50.0,
        burst in 1_u32..20,
        requests in proptest::collection::vec((0_u64..3_000, any::<bool>()), 1..80),
    ) {
        let mut permits = without_limits(ceilings(rate(1_000.0, 1_000), rate(per_second, burst)));
        let (mut now, mut sent, mut wake_at) = (Duration::ZERO, Vec::<Duration>::new(), None);
        let mut run = |permits: &mut Permits, until: Duration, now: &mut Duration, wake_at: &mut Option<Duration>| {
            // Requests are granted when they are due, and answered at once.
            while let Some(at) = wake_at.filter(|at| *at <= until) {
                *now = at;
                let step = permits.step(at);
                assert!(step.wake_at != Some(at) || !step.granted.is_empty(), "time must go on");
                for ticket in step.granted {
                    sent.push(at);
                    permits.answered(ticket, &Remaining::default(), at);
                }
                *wake_at = step.wake_at;
            }
            *now = until;
        };
        for (pause, is_unused) in &requests {
            let at = now + ms(*pause);
            run(&mut permits, at, &mut now, &mut wake_at);
            let write = scope(Direction::Writes, &path(LOAD_BALANCER, ""));
            let ticket = permits.request(write, Priority::Create, now);
            if *is_unused {
                // It leaves the queue again.
                permits.leave(ticket);
            }
            wake_at = Some(now);
        }
        run(&mut permits, Duration::from_secs(1_000_000), &mut now, &mut wake_at);
        let asked = requests.iter().filter(|(_, is_unused)| !is_unused).count();
        prop_assert_eq!(sent.len(), asked, "each is sent in the end");
        for (first, from) in sent.iter().enumerate() {
            for (last, to) in sent.iter().enumerate().skip(first) {
                let most = f64::from(burst) + (*to - *from).as_secs_f64() * per_second;
                prop_assert!((last - first + 1) as f64 <= most + 1e-3, "{first}..={last} of {sent:?}");
            }
        }
    }
}
