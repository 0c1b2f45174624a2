"""How a fleet shares out its users."""

from croupier.deploy.local.users import fleet_parts


def test_parts_hold_everyone_once_and_get_smaller_at_the_end() -> None:
    users = {f"user {number}": number for number in range(3210)}
    parts = list(fleet_parts(users, processes=2, most=500))
    sizes = [len(part) for part in parts]
    assert [item for part in parts for item in part.items()] == list(users.items())
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-2]) == (401, 100)
    assert sizes[-1] <= 100


def test_a_part_fits_into_a_call() -> None:
    users = dict.fromkeys("abcdefg", 0)
    assert [len(part) for part in fleet_parts(users, processes=2, most=3)] == [3, 3, 1]
    assert list(fleet_parts({}, processes=2, most=3)) == []
