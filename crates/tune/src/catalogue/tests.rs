//! What is known of the steps holds together.

use super::*;

#[test]
fn every_step_has_its_facts_once_and_in_order() {
    let names: Vec<&str> = texts::STEPS.iter().map(|step| step.name).collect();
    let ids: Vec<&str> = Id::ALL.iter().map(|id| id.name()).collect();
    assert_eq!(names, ids);
    for id in Id::ALL {
        assert_eq!(id.step().id, *id);
        assert_eq!(id.name().parse(), Ok(*id));
    }
}

#[test]
fn what_weakens_the_host_or_drops_packets_has_a_name_to_accept() {
    for step in texts::STEPS {
        let guarded = step.risk < Risk::Critical || step.accept.is_some();
        assert!(guarded, "{} is critical: it needs a flag of its own", step.name);
        if step
            .accept
            .is_some_and(|accept| accept != Accept::LinkReset && accept != Accept::Noqueue)
        {
            assert!(
                step.gentler.is_some(),
                "{}: what is gentler comes first",
                step.name
            );
        }
    }
    for accept in Accept::ALL {
        assert_eq!(accept.name().parse(), Ok(accept));
    }
}

#[test]
fn every_gain_names_its_source() {
    for step in texts::STEPS {
        assert!(
            !step.source.is_empty() && step.gain.chars().count() <= 22,
            "{}",
            step.name
        );
        for text in [step.what, step.detect, step.apply, step.not_when] {
            assert!(text.ends_with('.'), "{}: {text}", step.name);
        }
    }
}

#[test]
fn unknown_names_say_which_there_are() {
    let error = "turbo".parse::<Id>().unwrap_err();
    assert!(
        error.contains("irq-affinity") && error.contains("`turbo`"),
        "{error}"
    );
    assert!("all".parse::<Accept>().unwrap_err().contains("mitigations-off"));
}

#[test]
fn the_reference_page_has_every_step() {
    let page = include_str!("../../../../docs/reference/tune-steps.md");
    for step in texts::STEPS {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", step.name)));
        let row =
            row.unwrap_or_else(|| panic!("docs/reference/tune-steps.md: expected a row of {}", step.name));
        assert!(row.contains(&format!("| {} |", step.risk)), "{row}");
        assert_eq!(row.contains("`--step`"), step.optional, "{row}");
        match step.accept {
            Some(accept) => assert!(row.contains(&format!("`--accept {accept}`")), "{row}"),
            None => assert!(!row.contains("--accept"), "{row}"),
        }
    }
}
