use proptest::{prelude::*, sample::select};

use super::*;

const LAG: Duration = Duration::from_secs(120);
const METADATA: [Metadata; 5] =
    [Metadata::Confirms(None), Metadata::Contradicts, Metadata::Unlisted, Metadata::Silent, Metadata::Unused];
const CONTENTS: [Content; 11] = [
    Content::Blank,
    Content::OwnFormat,
    Content::Unknown,
    Content::Last,
    Content::LastAndCopied,
    Content::LastOfSeveral,
    Content::OfAnother,
    Content::CopyOfAnother,
    Content::Raw,
    Content::RawOfAnother,
    Content::Unusable,
];
const TIMES: [Duration; 4] = [Duration::ZERO, Duration::from_secs(60), LAG, Duration::from_secs(1_000_000)];

fn seven() -> Lun {
    Lun::try_from(7).unwrap()
}

fn evidence(metadata: Metadata, content: Content) -> Evidence {
    Evidence {
        metadata,
        contradicted: metadata == Metadata::Contradicts,
        content,
        was_here: false,
        seen_for: Duration::ZERO,
        confirmed_for: Duration::ZERO,
        lag: LAG,
        accepted: false,
        on_silence: OnSilence::Refuse,
        is_lun_given: false,
        is_other_size: false,
    }
}

/// Every combination of what may be seen. That the metadata confirms the disk, or contradicts it, ends or begins a
/// contradiction.
fn all() -> Vec<Evidence> {
    let mut all = Vec::new();
    for metadata in METADATA {
        for contradicted in [false, true] {
            let is_possible = match metadata {
                Metadata::Confirms(_) => !contradicted,
                Metadata::Contradicts => contradicted,
                Metadata::Unlisted | Metadata::Silent | Metadata::Unused => true,
            };
            for content in CONTENTS.into_iter().filter(|_| is_possible) {
                for was_here in [false, true] {
                    for seen_for in TIMES {
                        for confirmed_for in TIMES.into_iter().filter(|confirmed| *confirmed <= seen_for) {
                            for accepted in [false, true] {
                                for on_silence in [OnSilence::Refuse, OnSilence::Tolerate] {
                                    all.push(Evidence {
                                        contradicted,
                                        was_here,
                                        seen_for,
                                        confirmed_for,
                                        accepted,
                                        on_silence,
                                        ..evidence(metadata, content)
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

fn is_used(evidence: &Evidence) -> bool {
    match decide(evidence) {
        Decision::Use | Decision::UseAsConfirmed | Decision::UseByLun | Decision::UseAsAccepted => true,
        Decision::WaitForLag(_)
        | Decision::WaitForOffset(_)
        | Decision::Mismatch
        | Decision::OtherSize
        | Decision::Contradicted
        | Decision::Unconfirmed
        | Decision::UnconfirmedForLong => false,
    }
}

/// What the metadata may have said, the last last.
fn heard(answers: &[Option<Answer>]) -> Heard {
    let mut heard = Heard::default();
    for answer in answers {
        match answer.clone() {
            Some(answer) => heard.answered(answer),
            None => heard.unanswered(),
        }
    }
    heard
}

/// Every row of the decision: what is on the device, whether the volume was here, and what follows from each thing that
/// the metadata may have said, before and after its lag.
#[test]
fn a_device_is_used_only_where_a_witness_says_that_it_is_the_volume_s_disk() {
    use Content::{
        Blank, CopyOfAnother, Last, LastAndCopied, LastOfSeveral, OfAnother, OwnFormat, Raw, RawOfAnother, Unknown,
        Unusable,
    };
    use Decision::{Contradicted, Mismatch, Unconfirmed, Use, UseAsConfirmed, UseByLun};
    let wait = Decision::WaitForLag(LAG);
    // (content, was here; confirmed, confirmed for longer than the lag, silent or unlisted, the same where the operator
    // lets the LUN decide, unlisted after another disk, no metadata used)
    let rows = [
        (Blank, false, Use, Use, Unconfirmed, UseByLun, Contradicted, Use),
        (Blank, true, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (Unknown, false, Use, Use, Unconfirmed, UseByLun, Contradicted, Use),
        (Unknown, true, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (Last, true, Use, Use, Use, Use, Contradicted, Use),
        (LastAndCopied, true, Use, Use, Mismatch, Mismatch, Contradicted, Mismatch),
        (LastOfSeveral, true, Use, Use, Unconfirmed, UseByLun, Contradicted, Use),
        (OfAnother, false, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (OfAnother, true, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (CopyOfAnother, false, Use, Use, Mismatch, Mismatch, Contradicted, Mismatch),
        (CopyOfAnother, true, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (OwnFormat, false, Use, Use, Use, Use, Use, Use),
        (OwnFormat, true, Use, Use, Use, Use, Use, Use),
        (Raw, false, Use, Use, Unconfirmed, UseByLun, Contradicted, Use),
        (RawOfAnother, false, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (RawOfAnother, true, wait, UseAsConfirmed, Mismatch, Mismatch, Contradicted, Mismatch),
        (Last, false, Use, Use, Use, Use, Contradicted, Use),
        (Unusable, false, Use, Use, Use, Use, Use, Use),
        (Unusable, true, Use, Use, Use, Use, Use, Use),
    ];
    let (other, elsewhere) = (Some(Answer::Other("b".into())), Some(Answer::Elsewhere(seven())));
    let (here, unlisted) = (Some(Answer::Here(None)), Some(Answer::Unlisted));
    for (content, was_here, confirmed, later, silent, tolerated, after_another, unused) in rows {
        let decided = |said: &[&Option<Answer>], confirmed_for: Duration, on_silence: OnSilence| {
            let heard = heard(&said.iter().map(|answer| (*answer).clone()).collect::<Vec<_>>());
            let contradicted = heard.contradiction().is_some();
            let evidence = evidence(heard.metadata(), content);
            decide(&Evidence { contradicted, was_here, confirmed_for, on_silence, ..evidence })
        };
        for on_silence in [OnSilence::Refuse, OnSilence::Tolerate] {
            let row = format!("{content:?}, here before {was_here}, {on_silence:?}");
            let at_silence = if on_silence == OnSilence::Tolerate { tolerated } else { silent };
            for (said, early, late) in [
                (vec![&here], confirmed, later),
                (vec![&other, &here], confirmed, later),
                (vec![&other, &None, &unlisted, &here], confirmed, later),
                (vec![&None], at_silence, at_silence),
                (vec![&unlisted], at_silence, at_silence),
                (vec![&here, &None], at_silence, at_silence),
                (vec![&unlisted, &None], at_silence, at_silence),
                (vec![&other, &unlisted], after_another, after_another),
                (vec![&elsewhere, &unlisted], after_another, after_another),
                (vec![&other, &None, &unlisted], after_another, after_another),
                (vec![&here, &other], Contradicted, Contradicted),
                (vec![&elsewhere], Contradicted, Contradicted),
                (vec![&other, &None], Contradicted, Contradicted),
                (vec![&elsewhere, &None, &None], Contradicted, Contradicted),
                (vec![&other, &unlisted, &None], Contradicted, Contradicted),
            ] {
                assert_eq!(decided(&said, Duration::ZERO, on_silence), early, "{said:?}, {row}");
                assert_eq!(decided(&said, LAG, on_silence), late, "{said:?}, {row}");
            }
            let off = Evidence { was_here, on_silence, ..evidence(Metadata::Unused, content) };
            assert_eq!(decide(&off), unused, "no metadata, {row}");
        }
    }
}

/// Whatever else is true, time alone lets no device be used while the metadata does not confirm it.
#[test]
fn time_alone_never_turns_a_mismatch_into_a_match() {
    for early in all() {
        for seen_for in TIMES {
            for confirmed_for in TIMES {
                let late = Evidence { seen_for, confirmed_for, ..early };
                if !matches!(early.metadata, Metadata::Confirms(_)) {
                    assert_eq!(is_used(&late), is_used(&early), "{early:?} {late:?}");
                }
            }
            // How long it has been seen does not count; how long the metadata has confirmed it does.
            assert_eq!(is_used(&Evidence { seen_for, ..early }), is_used(&early), "{early:?}");
        }
    }
}

/// A copy of the volume has its file system. So what was here before does not outweigh what the metadata has said.
#[test]
fn what_was_contradicted_is_used_only_by_a_confirmation_an_operator_or_what_names_the_volume_itself() {
    for one in all().into_iter().filter(|one| one.contradicted && one.metadata != Metadata::Unused) {
        let names_it =
            one.metadata == Metadata::Unlisted && matches!(one.content, Content::OwnFormat | Content::Unusable);
        let is_accepted = one.accepted && one.metadata != Metadata::Contradicts;
        assert_eq!(is_used(&one), names_it || is_accepted, "{one:?}");
        if one.content == Content::Last && !one.accepted {
            assert_eq!(decide(&one), Decision::Contradicted, "{one:?}");
        }
    }
}

#[test]
fn what_is_refused_while_the_metadata_answers_is_refused_when_it_falls_silent() {
    for answered in all().into_iter().filter(|one| one.metadata != Metadata::Unused) {
        let silent = Evidence { metadata: Metadata::Silent, ..answered };
        // The operator's word counts against what the metadata said, and not against what it says.
        if answered.metadata != Metadata::Contradicts || !answered.accepted {
            assert!(is_used(&answered) || !is_used(&silent), "{answered:?}");
        }
        // Nor is an answer without the LUN worth less than silence.
        let unlisted = Evidence { metadata: Metadata::Unlisted, ..answered };
        assert!(is_used(&unlisted) || !is_used(&silent), "{answered:?}");
    }
}

#[test]
fn metadata_that_confirms_the_disk_for_longer_than_it_lags_overrides_all_that_was_remembered() {
    for one in all() {
        let one = Evidence { metadata: Metadata::Confirms(None), contradicted: false, ..one };
        assert!(is_used(&Evidence { confirmed_for: LAG, ..one }), "{one:?}");
    }
}

#[test]
fn an_operator_s_word_is_for_what_speaks_against_the_disk_and_never_against_an_answer() {
    for one in all() {
        let without = decide(&Evidence { accepted: false, ..one });
        let with = decide(&Evidence { accepted: true, ..one });
        match without {
            Decision::Contradicted if one.metadata == Metadata::Contradicts => assert_eq!(with, without),
            Decision::Mismatch | Decision::Contradicted | Decision::WaitForLag(_) | Decision::UseAsConfirmed => {
                assert_eq!(with, Decision::UseAsAccepted, "{one:?}");
            }
            other => assert_eq!(with, other, "{one:?}"),
        }
    }
}

#[test]
fn what_the_operator_lets_the_lun_decide_is_never_what_something_speaks_against() {
    for one in all() {
        let refused = decide(&Evidence { on_silence: OnSilence::Refuse, ..one });
        let tolerated = decide(&Evidence { on_silence: OnSilence::Tolerate, ..one });
        match refused {
            Decision::Unconfirmed | Decision::UnconfirmedForLong => assert_eq!(tolerated, Decision::UseByLun),
            other => assert_eq!(tolerated, other, "{one:?}"),
        }
    }
}

#[test]
fn a_first_use_that_has_waited_for_a_minute_is_told_what_to_do() {
    for metadata in [Metadata::Silent, Metadata::Unlisted] {
        let at =
            |seconds: u64| Evidence { seen_for: Duration::from_secs(seconds), ..evidence(metadata, Content::Blank) };
        assert_eq!(decide(&at(59)), Decision::Unconfirmed);
        assert_eq!(decide(&at(60)), Decision::UnconfirmedForLong);
    }
}

fn answers() -> impl Strategy<Value = Option<Answer>> {
    select(vec![
        None,
        None,
        Some(Answer::Here(None)),
        Some(Answer::Other("b".into())),
        Some(Answer::Other("c".into())),
        Some(Answer::Elsewhere(seven())),
        Some(Answer::Unlisted),
    ])
}

proptest! {
    /// Over calls and restarts: what is kept between two calls is the contradiction alone.
    #[test]
    fn another_disk_at_the_lun_outlives_silence_absence_and_calls_until_the_volume_is_named_there(
        said in prop::collection::vec((answers(), any::<bool>()), 1..20)
    ) {
        let mut heard = Heard::default();
        let mut against = None;
        for (answer, call_ends) in said {
            if call_ends {
                heard = Heard::after(heard.contradiction().cloned());
            }
            match answer.clone() {
                Some(answer) => heard.answered(answer),
                None => heard.unanswered(),
            }
            match &answer {
                Some(Answer::Here(_)) => against = None,
                Some(Answer::Other(found)) => against = Some(Contradiction::OtherDisk(found.clone())),
                Some(Answer::Elsewhere(lun)) => against = Some(Contradiction::OtherLun(*lun)),
                Some(Answer::Unlisted) | None => {}
            }
            prop_assert_eq!(heard.contradiction(), against.as_ref());
            prop_assert_eq!(heard.metadata() == Metadata::Silent, answer.is_none());
            prop_assert_eq!(matches!(heard.metadata(), Metadata::Confirms(_)), matches!(answer, Some(Answer::Here(_))));
        }
    }
}

#[test]
fn a_file_system_is_told_by_its_uuid_in_any_letter_case() {
    let none = Others::default();
    let before = Others { before: true, ..none };
    let here = Others { here_on_this_device: true, ..none };
    let copied = Others { here_on_another: true, ..none };
    for (uuid, last, others, expected) in [
        (Some("AB-1"), Some("ab-1"), none, Content::Last),
        (Some("ab-1"), Some("ab-1"), before, Content::LastOfSeveral),
        (Some("ab-1"), Some("ab-1"), Others { related: true, ..before }, Content::LastOfSeveral),
        (Some("ab-1"), Some("ab-1"), here, Content::LastAndCopied),
        (Some("ab-1"), Some("ab-1"), copied, Content::LastAndCopied),
        (Some("cd-2"), Some("ab-1"), none, Content::Unknown),
        (Some("cd-2"), None, none, Content::Unknown),
        (Some("cd-2"), None, before, Content::OfAnother),
        (Some("cd-2"), None, here, Content::OfAnother),
        (Some("cd-2"), Some("ab-1"), copied, Content::CopyOfAnother),
        // A volume that is here on another device is not on this one, whatever was before.
        (Some("cd-2"), None, Others { before: true, ..copied }, Content::CopyOfAnother),
        // What was made from the same has the same file system, and is at once what the metadata says.
        (Some("cd-2"), None, Others { related: true, ..before }, Content::CopyOfAnother),
        (Some("cd-2"), Some("ab-1"), Others { related: true, ..before }, Content::CopyOfAnother),
        (Some("cd-2"), None, Others { related: true, ..copied }, Content::CopyOfAnother),
        (Some("cd-2"), None, Others { related: true, ..here }, Content::OfAnother),
        (Some("ab-1"), Some("ab-1"), Others { related: true, ..copied }, Content::LastAndCopied),
        (None, Some("ab-1"), none, Content::Unknown),
        (None, None, none, Content::Unknown),
    ] {
        assert_eq!(Content::of_filesystem(uuid, last, others), expected, "{uuid:?} {last:?} {others:?}");
    }
}

/// A LUN that rests on an operator's word, or a size that is not the metadata's, lets no disk be formatted, and none be used
/// that is not known by its content.
#[test]
fn an_offset_that_is_given_and_a_size_that_differs_take_away_and_give_nothing() {
    for one in all() {
        let confirms = matches!(one.metadata, Metadata::Confirms(_));
        let given = Evidence { is_lun_given: true, ..one };
        assert!(is_used(&one) || !is_used(&given), "{one:?}");
        if !confirms && matches!(one.content, Content::Blank | Content::Raw | Content::Unknown) {
            assert!(!is_used(&given), "{one:?}");
        }
        if confirms {
            let waits = !one.content.is_own() && one.confirmed_for < one.lag;
            let expected = if waits { Decision::WaitForOffset(one.lag - one.confirmed_for) } else { decide(&one) };
            assert_eq!(decide(&given), expected, "{one:?}");
        }
        let other = Evidence { is_other_size: true, ..one };
        assert!(is_used(&one) || !is_used(&other), "{one:?}");
        if confirms && !one.content.is_own() && !one.accepted {
            assert_eq!(decide(&other), Decision::OtherSize, "{one:?}");
        }
    }
}
