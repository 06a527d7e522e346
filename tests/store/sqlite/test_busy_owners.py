"""Which owners may have a commit of their own under load."""

from antiphon.store.sqlite.busy_owners import BusyOwners


def test_an_owner_that_is_alone_shares_its_commits() -> None:
    owners = BusyOwners()
    assert not any(owners.is_quiet("a", now / 1000) for now in range(100))


def test_an_owner_that_begins_less_than_others_gets_a_commit_at_once() -> None:
    owners = BusyOwners()
    for now in range(50):
        assert not owners.is_quiet("noisy", now / 1000)
    assert owners.is_quiet("quiet", 0.05)
    assert not owners.is_quiet("noisy", 0.06)


def test_many_quiet_owners_do_not_get_a_commit_each() -> None:
    owners = BusyOwners()
    for now in range(50):
        owners.is_quiet("noisy", now / 1000)
    early = sum(owners.is_quiet(f"owner {number}", 0.05 + number / 100_000) for number in range(20))
    assert early == 1


def test_a_quiet_owner_stays_quiet_when_it_is_the_first_in_a_window() -> None:
    owners = BusyOwners()
    for now in range(100):
        owners.is_quiet("noisy", now / 400)
        if now % 10 == 9:
            assert owners.is_quiet("quiet", now / 400)
    assert owners.is_quiet("quiet", 0.26)  # nobody else has begun anything since 0.25
    assert not owners.is_quiet("noisy", 0.27)


def test_what_was_long_ago_does_not_count() -> None:
    owners = BusyOwners()
    for _ in range(50):
        owners.is_quiet("a", 0.0)
    assert not owners.is_quiet("b", 1.0)
